# SPDX-License-Identifier: Apache-2.0
"""The way to a server: a step that hangs ends at its deadline, says what hangs, and nothing behind it is asked."""

import asyncio
import socket
import threading

from handfast.client import connection, way
from handfast.rules import check
from handfast.rules.diagnoses import facts
from handfast.runtime import clock, resolver


def walked(server: str) -> facts.Reach:
    used = connection.Connection(server=server)
    # Whoever does not get as far as the API needs no client.
    return asyncio.run(way.Way(None, used, "k", clock.SystemClock()).walk())  # type: ignore[arg-type]


def test_a_resolver_that_hangs_is_named_and_nobody_waits_for_it(monkeypatch):
    goes_on = threading.Event()

    def hang(*_args: object, **_more: object) -> list[object]:
        goes_on.wait(60)
        return []

    monkeypatch.setattr(way, "SECONDS", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    reach = walked("https://slow.example:6443")
    goes_on.set()
    assert isinstance(reach.addresses, check.Unread)
    assert (reach.addresses.reason, reach.connected) == (check.TIMEOUT, facts.NOT_ASKED)
    assert "resolver" in reach.addresses.hint


def test_a_server_that_takes_connections_and_says_nothing_is_silent_and_its_clock_is_not_asked(monkeypatch):
    monkeypatch.setattr(way, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reach = walked(f"https://127.0.0.1:{silent.getsockname()[1]}")
    assert isinstance(reach.connected, str)
    assert isinstance(reach.certificate, check.Unread)
    assert (reach.certificate.reason, reach.ahead, reach.version) == (check.TIMEOUT, facts.NOT_ASKED, facts.NOT_ASKED)
    assert "--timeout" not in reach.certificate.hint


async def test_the_first_address_that_takes_a_connection_counts(monkeypatch):
    async def two(_host: str, _port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    monkeypatch.setattr(resolver, "addresses", two)
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
        assert await way.Door(f"https://two.example:{port}", None).connect() == f"127.0.0.1:{port}"
