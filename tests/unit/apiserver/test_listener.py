# SPDX-License-Identifier: Apache-2.0
"""The door on a real socket: TLS as it is offered, gates, and the deadline of a handshake."""

from __future__ import annotations

import asyncio
import ipaddress
import pathlib
import socket
import ssl
from typing import Any

import pytest
from cryptography import x509

from handfast.apiserver import limits
from tests.scenarios import wire
from tests.unit.apiserver.doors import (
    FOREIGN,
    LIFTED,
    MIDDLE,
    NOW_VALID,
    PAST,
    ROOT,
    Held,
    Opener,
    client,
    key_pem,
    seen_by,
)
from tests.unit.pki.making import CLIENT, SERVER, leaf


class TestTls:
    async def test_who_is_at_the_other_end(self, door: Opener) -> None:
        jane = leaf(ROOT, CLIENT, **NOW_VALID)
        async with door() as opened:
            assert await seen_by(opened, client()) == {"chain": [], "address": "127.0.0.1", "via": "tls"}
            assert (await seen_by(opened, client(jane)))["chain"][0] == jane.der.hex()

    async def test_intermediates_come_along(self, door: Opener) -> None:
        jane = leaf(MIDDLE, CLIENT, **NOW_VALID)
        async with door() as opened:
            assert (await seen_by(opened, client(jane, MIDDLE)))["chain"][:2] == [jane.der.hex(), MIDDLE.der.hex()]

    async def test_an_expired_certificate_passes_the_handshake(self, door: Opener) -> None:
        late = leaf(ROOT, CLIENT, **PAST)
        async with door() as opened:
            assert (await seen_by(opened, client(late)))["chain"][0] == late.der.hex()

    async def test_a_foreign_certificate_does_not(self, door: Opener) -> None:
        stranger = leaf(FOREIGN, CLIENT, **NOW_VALID)
        async with door() as opened:
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await seen_by(opened, client(stranger))
            # From now on it does, on new connections.
            opened.listener.trust(FOREIGN.pem.decode())
            assert (await seen_by(opened, client(stranger)))["chain"][0] == stranger.der.hex()

    async def test_a_serving_certificate_does_not(self, door: Opener) -> None:
        async with door() as opened:
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await seen_by(opened, client(leaf(ROOT, SERVER, **NOW_VALID)))

    async def test_another_pair_for_new_connections(self, door: Opener, tmp_path: pathlib.Path) -> None:
        sans = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        renewed = leaf(ROOT, SERVER, subject="renewed", sans=sans, **NOW_VALID)
        (tmp_path / "new.crt").write_bytes(renewed.pem)
        (tmp_path / "new.key").write_bytes(key_pem(renewed))
        async with door() as opened, opened.line(client()) as old:
            opened.listener.renew(str(tmp_path / "new.crt"), str(tmp_path / "new.key"))
            async with opened.line(client()) as new:
                assert new.writer.get_extra_info("ssl_object").getpeercert(binary_form=True) == renewed.der
            assert (await old.ask("GET", "/")).status == 200

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    async def test_tls_1_1_is_refused(self, door: Opener) -> None:
        old = client()
        old.set_ciphers("DEFAULT@SECLEVEL=0")
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        hello = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            old.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1").do_handshake()
        async with door() as opened, opened.line(None) as line:
            await line.send(hello.read())
            answer = await line.rest()
        # An alert, or nothing; never the handshake record of a server that would go on.
        assert not answer.startswith(b"\x16")

    async def test_http_1_1_is_agreed_on(self, door: Opener) -> None:
        modern = client()
        modern.set_alpn_protocols(["h2", "http/1.1"])
        async with door() as opened, opened.line(modern) as line:
            assert line.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


def _resumed(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[Any, bool, bytes]:
    with (
        socket.create_connection(("127.0.0.1", port)) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1", session=session) as line,
    ):
        line.sendall(wire.request("GET", "/", Connection="close"))
        answer = b""
        while part := line.recv(1 << 16):
            answer += part
        return line.session, bool(line.session_reused), answer.partition(b"\r\n\r\n")[2]


class TestResumption:
    """A resumed session must never hide whose connection it is."""

    async def test_tls_1_3_sessions_are_not_resumed(self, door: Opener) -> None:
        context = client(leaf(ROOT, CLIENT, **NOW_VALID))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        async with door() as opened:
            session, _, first = await asyncio.to_thread(_resumed, opened.port, context, None)
            assert not session.has_ticket
            _, reused, second = await asyncio.to_thread(_resumed, opened.port, context, session)
        assert not reused
        assert first == second

    async def test_a_tls_1_2_session_keeps_the_whole_chain(self, door: Opener) -> None:
        context = client(leaf(MIDDLE, CLIENT, **NOW_VALID), MIDDLE)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with door() as opened:
            session, _, first = await asyncio.to_thread(_resumed, opened.port, context, None)
            # There are no tickets; by its number OpenSSL finds a session again, and the chain with it.
            assert not session.has_ticket
            _, _, second = await asyncio.to_thread(_resumed, opened.port, context, session)
        assert first == second


class TestGates:
    async def test_a_source_over_its_rate_is_closed_before_tls(self, door: Opener) -> None:
        async with door(limits.Limits(connections_per_second=0.001, connections_burst=2)) as opened:
            for _ in range(2):
                assert (await seen_by(opened, client()))["chain"] == []
            for _ in range(3):
                with pytest.raises((ConnectionError, ssl.SSLError)):
                    await seen_by(opened, client())
            assert opened.listener.refused == 3

    async def test_connections_over_the_total_are_closed(self, door: Opener) -> None:
        async with (
            door(limits.Limits(connections=2)) as opened,
            opened.line(client()) as one,
            opened.line(client()) as other,
        ):
            # A client of TLS 1.3 is done before the server is: an answer tells that both are.
            assert [(await line.ask("GET", "/")).status for line in (one, other)] == [200, 200]
            assert opened.listener.connections == 2
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await seen_by(opened, client())

    async def test_whoever_says_nothing_stays_in_the_kernel(self, door: Opener) -> None:
        # For a second only, so that a test of what it does would depend on how fast the machine is.
        async with door() as opened:
            listening = opened.listener._socket
            assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) > 0

    @pytest.mark.slow
    async def test_more_handshakes_than_allowed_wait_their_turn(self, door: Opener) -> None:
        bounds = limits.Limits(handshakes_in_flight=1, handshake_seconds=0.2, silence_seconds=0.2)
        # The one that stops in the middle keeps the only place until its deadline; the others come after.
        async with door(bounds) as opened, opened.line(None) as silent:
            await silent.send(b"\x16\x03\x01")
            found = await asyncio.gather(*(seen_by(opened, client()) for _ in range(5)))
            assert len(found) == 5
            assert await silent.rest() == b""

    @pytest.mark.slow
    @pytest.mark.parametrize("start", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
    async def test_a_handshake_that_does_not_go_on_ends(self, door: Opener, start: bytes) -> None:
        bounds = limits.Limits(handshake_seconds=0.1, silence_seconds=0.1)
        async with door(bounds) as opened, opened.line(None) as silent:
            await silent.send(start)
            assert await silent.rest() == b""


class TestStop:
    async def test_requests_in_flight_end_and_nobody_new_comes(self, door: Opener) -> None:
        held = Held()
        async with door(LIFTED, held) as opened, opened.line(client()) as line:
            await line.send(wire.request("GET", "/"))
            await held.started.wait()
            stopping = asyncio.ensure_future(opened.listener.stop(5.0))
            await asyncio.sleep(0)
            with pytest.raises(OSError):
                await seen_by(opened, client())
            held.go.set()
            assert (await line.reply()).status == 200
            await stopping

    async def test_a_handshake_in_progress_ends_with_the_listener(self, door: Opener) -> None:
        async with door() as opened, opened.line(None) as line:
            # The beginning of a record, and no more.
            await line.send(b"\x16\x03\x01")
            async with asyncio.timeout(5):
                while not opened.listener._begun:
                    await asyncio.sleep(0.01)
                await opened.listener.stop(0.1)
                assert await line.rest() == b""
            assert not opened.listener._begun
