# SPDX-License-Identifier: Apache-2.0
"""What a kubelet presents, over real TLS: a handshake and nothing else, bounded in time and number."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest

from handfast.controllers.machines import kubelet_dial
from handfast.pki import authority, bundles, keys, names, profiles
from handfast.rules import user_names
from handfast.rules.machines import serving
from handfast.runtime import tls
from tests.world.clock import START, MovableClock

HERE = names.ip_address("127.0.0.1")
CA = authority.self_signed_ca(names.Subject(common_name="kubelets"), keys.generate(), START)
ROOTS = bundles.TrustBundle.of([CA.certificate.der])


class Listener:
    """Somebody at an address, who remembers what arrived after the handshake."""

    def __init__(self) -> None:
        self.connections = 0
        self.heard: list[bytes] = []
        self.certificates: list[object] = []
        self.released = asyncio.Event()
        self.place = serving.Place(HERE, 0)

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        secured = writer.get_extra_info("ssl_object")
        if secured is None:
            await self.released.wait()
        else:
            self.certificates.append(secured.getpeercert(binary_form=True))
            self.heard.append(await reader.read())
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def kubelet_context(node: str = "w1", *sans_texts: str) -> ssl.SSLContext:
    key = keys.generate()
    sans = names.Sans.parse(sans_texts or (f"IP:{HERE}",))
    issued = CA.issue(key.public, user_names.node_subject(node), sans, profiles.KUBELET_SERVING, START)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Whoever asks may show a certificate; nobody here does.
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=CA.pem.decode())
    tls.load_pair(context, issued.pem, key.to_pem())
    return context


@contextlib.asynccontextmanager
async def listening(context: ssl.SSLContext | None) -> AsyncIterator[Listener]:
    there = Listener()
    server = await asyncio.start_server(there.meet, str(HERE), 0, ssl=context)
    there.place = serving.Place(HERE, server.sockets[0].getsockname()[1])
    try:
        yield there
    finally:
        there.released.set()
        server.close()
        await server.wait_closed()


async def test_a_kubelet_presents_its_certificate():
    async with listening(kubelet_context()) as there:
        chain = await kubelet_dial.KubeletDial(MovableClock()).chain(there.place)
    presented = serving.verified(there.place, chain, ROOTS, START)
    assert isinstance(presented, serving.Served)
    assert presented.subject == user_names.node_subject("w1")


async def test_nothing_is_sent_but_a_handshake():
    async with listening(kubelet_context()) as there:
        await kubelet_dial.KubeletDial(MovableClock()).chain(there.place)
        while not there.heard:
            await asyncio.sleep(0)
    assert (there.heard, there.certificates) == ([b""], [None])


async def test_a_place_where_nobody_listens_is_told():
    async with listening(None) as there:
        pass
    with pytest.raises(kubelet_dial.KubeletUnreachable, match=r"127\.0\.0\.1:\d+ cannot be reached"):
        await kubelet_dial.KubeletDial(MovableClock()).chain(there.place)


async def test_a_place_that_speaks_something_else_is_told():
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, str(HERE), 0)
    place = serving.Place(HERE, server.sockets[0].getsockname()[1])
    with pytest.raises(kubelet_dial.KubeletUnreachable, match="does not speak TLS"):
        await kubelet_dial.KubeletDial(MovableClock()).chain(place)
    server.close()
    await server.wait_closed()


async def test_a_place_that_says_nothing_is_given_up():
    clock = MovableClock()
    async with listening(None) as there:
        asking = asyncio.ensure_future(kubelet_dial.KubeletDial(clock).chain(there.place))
        while not there.connections:
            await asyncio.sleep(0)
        await clock.advance(kubelet_dial.SECONDS)
        with pytest.raises(kubelet_dial.KubeletUnreachable, match="did not answer within 30 seconds"):
            await asking


async def test_only_a_few_are_dialled_at_once():
    clock = MovableClock()
    dial = kubelet_dial.KubeletDial(clock)
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(listening(None)) for _ in range(kubelet_dial.AT_ONCE + 2)]
        asking = [asyncio.ensure_future(dial.chain(there.place)) for there in places]
        while sum(there.connections for there in places) < kubelet_dial.AT_ONCE:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert sum(there.connections for there in places) == kubelet_dial.AT_ONCE
        for there in places:
            there.released.set()
        answers = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(answer, kubelet_dial.KubeletUnreachable) for answer in answers)


async def test_requests_for_one_place_share_a_handshake():
    dial = kubelet_dial.KubeletDial(MovableClock())
    async with listening(kubelet_context()) as there:
        chains = await asyncio.gather(*(dial.chain(there.place) for _ in range(5)))
    assert len(set(chains)) <= 2
    assert there.connections <= 2
