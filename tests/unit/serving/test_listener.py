# SPDX-License-Identifier: Apache-2.0
"""The door on a real socket: TLS as it is offered, gates, and the deadline of a handshake."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import pathlib
import socket
import ssl
import struct
from typing import Any

import pytest
from cryptography import x509

from handfast.runtime import tls
from handfast.serving import limits
from tests.scenarios import wire
from tests.unit.pki.making import CLIENT, SERVER, leaf
from tests.unit.serving.doors import (
    FOREIGN,
    LIFTED,
    MIDDLE,
    NOW_VALID,
    PAST,
    ROOT,
    Door,
    Held,
    Opener,
    client,
    seen_by,
    tell,
)


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
        (tmp_path / "new.key").write_bytes(renewed.key_pem)
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

    async def test_over_the_total_the_oldest_stranger_makes_room(self, door: Opener) -> None:
        async with (
            door(limits.Limits(connections=2)) as opened,
            opened.line(client()) as one,
            opened.line(client()) as other,
        ):
            # A client of TLS 1.3 is done before the server is: an answer tells that both are.
            assert [(await line.ask("GET", "/")).status for line in (one, other)] == [200, 200]
            assert opened.listener.connections == 2
            # Nobody has shown a credential: the oldest makes room.
            assert (await seen_by(opened, client()))["chain"] == []
            assert await one.rest() == b""
            assert (await other.ask("GET", "/")).status == 200

    @pytest.mark.slow
    @pytest.mark.parametrize("start", [b"", b"\x16\x03\x01\x02\x00\x01\x00"])
    async def test_whoever_is_in_its_handshake_makes_room_too(self, door: Opener, start: bytes) -> None:
        bounds = limits.Limits(connections=1, handshake_seconds=60.0, silence_seconds=60.0)
        async with door(bounds) as opened:
            async with opened.line(None) as silent:
                await silent.send(start)
                async with asyncio.timeout(10):
                    while not opened.listener._gate.counts[0]:
                        await asyncio.sleep(0.01)
                assert (await seen_by(opened, client()))["chain"] == []
                assert await silent.rest() == b""
            await nobody_is_counted(opened)

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


# Nobody waits for long, or for the rate; and for the endings that are no deadline's, nobody is hurried on a busy machine.
SHORT = limits.Limits(
    handshake_seconds=0.2, silence_seconds=0.1, head_seconds=0.2, anonymous_idle_seconds=0.1, connections_burst=100_000,
)  # fmt: skip
PATIENT = limits.Limits(connections_burst=100_000, handshake_seconds=60.0)
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00"


class Ending:
    """Ends of a connection, each seen from the client."""

    async def refused(self, opened: Door) -> None:
        with contextlib.suppress(OSError):
            await self._say(opened, b"")

    async def reset_before_the_handshake(self, opened: Door) -> None:
        await self._say(opened, b"", reset=True)

    async def reset_in_the_handshake(self, opened: Door) -> None:
        await self._say(opened, HALF_A_HELLO, reset=True)

    async def a_failed_handshake(self, opened: Door) -> None:
        await self._say(opened, b"GET / HTTP/1.1\r\n\r\n", wait=True)

    async def silent_and_given_up(self, opened: Door) -> None:
        await self._say(opened, b"", wait=True)

    async def a_handshake_that_takes_too_long(self, opened: Door) -> None:
        await self._say(opened, HALF_A_HELLO, wait=True)

    async def ended_by_the_client(self, opened: Door) -> None:
        async with opened.line(CLIENT_TLS) as line:
            assert (await line.ask("GET", "/")).status == 200

    async def ended_by_the_server(self, opened: Door) -> None:
        async with opened.line(CLIENT_TLS) as line:
            await line.send(wire.request("GET", "/", Connection="close"))
            assert b" 200 " in await line.rest()

    async def idle(self, opened: Door) -> None:
        await self._until_it_ends(opened, wire.request("GET", "/"))

    async def slow_to_send_its_head(self, opened: Door) -> None:
        await self._until_it_ends(opened, b"GET / HT")

    async def aborted_in_a_request(self, opened: Door) -> None:
        async with opened.line(CLIENT_TLS) as line:
            await line.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
            line.writer.transport.abort()

    async def aborted_in_an_answer(self, opened: Door) -> None:
        async with opened.line(CLIENT_TLS) as line:
            await line.send(wire.request("GET", "/") * 50)
            await line.reader.readexactly(20)
            line.writer.transport.abort()

    async def _until_it_ends(self, opened: Door, words: bytes) -> None:
        # On a busy machine even the handshake may take too long; that is an ending, too.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with opened.line(CLIENT_TLS) as line:
                await line.send(words)
                await line.rest()

    async def _say(self, opened: Door, words: bytes, *, reset: bool = False, wait: bool = False) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.port)
        sock = writer.get_extra_info("socket")
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if words:
            writer.write(words)
        with contextlib.suppress(ConnectionError):
            if wait:
                await reader.read()
            writer.close()
            await writer.wait_closed()


CLIENT_TLS = client()
# What needs no TLS costs little.
ENDINGS = {
    **dict.fromkeys(("reset_before_the_handshake", "reset_in_the_handshake", "a_failed_handshake"), 600),
    **dict.fromkeys(("ended_by_the_client", "ended_by_the_server"), 30),
    **dict.fromkeys(("aborted_in_a_request", "aborted_in_an_answer"), 30),
}
DEADLINES = {
    **dict.fromkeys(("silent_and_given_up", "a_handshake_that_takes_too_long"), 100),
    **dict.fromkeys(("idle", "slow_to_send_its_head"), 30),
}


class TestCounts:
    """Whatever its end, a connection is counted down once. `test_gate` has ten thousand that need no network."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("bounds", "endings"), [(PATIENT, ENDINGS), (SHORT, DEADLINES)])
    async def test_counts_return_to_zero_after_every_ending(
        self, door: Opener, bounds: limits.Limits, endings: dict[str, int]
    ) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
        ending = Ending()
        async with door(bounds) as opened:
            due = iter([name for name, count in endings.items() for _ in range(count)])

            async def work() -> None:
                for name in due:
                    await getattr(ending, name)(opened)

            await asyncio.gather(*(work() for _ in range(32)))
            await nobody_is_counted(opened)
            assert opened.listener.refused == 0
        assert not [context for context in told if isinstance(context.get("exception"), KeyError)]

    async def test_whoever_is_refused_is_not_counted(self, door: Opener) -> None:
        async with door(limits.Limits(connections=0)) as opened:
            for _ in range(200):
                await Ending().refused(opened)
            async with asyncio.timeout(20):
                while opened.listener.refused < 200:
                    await asyncio.sleep(0.01)
            await nobody_is_counted(opened)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "stage", ["before TLS", "silent", "in the queue", "handshake", "idle", "request", "answer"]
    )
    async def test_counts_return_to_zero_when_the_server_stops(self, door: Opener, stage: str) -> None:
        held = Held()
        bounds = limits.Limits(handshakes_in_flight=2 if stage == "in the queue" else 64)
        async with door(bounds, held if stage == "answer" else tell) as opened, contextlib.AsyncExitStack() as stack:
            for _ in range(8):
                plain = stage in {"before TLS", "silent", "in the queue", "handshake"}
                line = await stack.enter_async_context(opened.line(None if plain else CLIENT_TLS))
                if stage in {"in the queue", "handshake"}:
                    await line.send(HALF_A_HELLO)
                elif stage == "request":
                    await line.send(b"POST / HTTP/1.1\r\n")
                elif stage == "answer":
                    await line.send(wire.request("GET", "/"))
                elif stage == "idle":
                    assert (await line.ask("GET", "/")).status == 200
            if stage == "silent":
                # The kernel keeps them for a second.
                async with asyncio.timeout(10):
                    while opened.listener._gate.counts[0] < 8:
                        await asyncio.sleep(0.01)
            elif stage == "answer":
                await held.started.wait()
            await opened.listener.stop(0.05)
            await stack.aclose()
            await nobody_is_counted(opened)

    async def test_a_connection_that_cannot_begin_holds_nothing(
        self, door: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(_transport: object) -> tuple[bytes, ...]:
            raise MemoryError

        async with door() as opened:
            with monkeypatch.context() as patch:
                patch.setattr(tls, "presented_chain", broken)
                with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
                    await seen_by(opened, client())
            await nobody_is_counted(opened)
            assert (await seen_by(opened, client()))["chain"] == []


async def nobody_is_counted(opened: Door) -> None:
    async with asyncio.timeout(20):
        while opened.listener._gate.counts != (0, 0, 0):
            await asyncio.sleep(0.01)


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
