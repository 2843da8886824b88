# SPDX-License-Identifier: Apache-2.0
"""Looking up a name: its addresses, its trouble, and a resolver that hangs holds nobody."""

import asyncio
import socket
import threading

import pytest

from handfast.runtime import resolver


async def test_an_address_is_its_own_and_each_is_told_once():
    assert await resolver.addresses("127.0.0.1", 443) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("name", "error"), [("no-such-host.invalid", socket.gaierror), ("a" * 64 + ".b", UnicodeError)]
)
async def test_a_name_that_has_none_is_an_error(name, error):
    with pytest.raises(error):
        await resolver.addresses(name, 443)


def test_a_resolver_that_hangs_does_not_hold_the_end_of_the_loop(monkeypatch):
    goes_on, done = threading.Event(), threading.Event()

    def hang(*_args: object, **_more: object) -> list[object]:
        goes_on.wait(60)
        done.set()
        return []

    async def ask() -> None:
        async with asyncio.timeout(0.05):
            await resolver.addresses("slow.example", 443)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with pytest.raises(TimeoutError):
        asyncio.run(ask())
    # The loop has ended, and nobody has answered yet.
    assert not done.is_set()
    goes_on.set()
    assert done.wait(60)
