# SPDX-License-Identifier: Apache-2.0
"""What the destination service says is followed over every interruption, and nonsense in it is left out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from handfast.pki import pairs
from handfast.runtime import addresses
from handfast.wire import discovered, discovering, mesh_messages
from tests.unit.wire import destination_service as services
from tests.unit.wire import greeting

WEB = "web.shop.svc.cluster.local:80"
ID = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
SECONDS = 20.0


def client(
    address: addresses.Address,
    anchor: greeting.Anchor | None = None,
    pair: pairs.Pair | None = None,
    name: str = services.NAME,
    context: str = "",
) -> discovering.Discovery:
    return discovering.Discovery(
        discovering.Service(str(address), None if anchor is None else name),
        anchors=lambda: None if anchor is None else anchor.bundle,
        pair=lambda: pair,
        clock=greeting.CLOCK,
        context=context,
    )


class Reader:
    """The answers of one path, one by one."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers

    async def next(self) -> Any:
        async with asyncio.timeout(SECONDS):
            return await anext(self._answers)

    async def until(self, kind: type) -> Any:
        """The next answer of that kind."""
        while not isinstance(answer := await self.next(), kind):
            pass
        return answer


@contextlib.asynccontextmanager
async def reading(answers: Any) -> Any:
    async with contextlib.aclosing(answers):
        yield Reader(answers)


def row(host: str, identity: str = "", *, opaque: bool = False) -> discovered.Endpoint:
    return discovered.Endpoint(host, 80, identity, opaque)


async def test_endpoints_come_change_and_go():
    service = services.DestinationService()
    service.tell(WEB, services.add(services.endpoint("10.0.0.1", 80, ID.upper()), services.endpoint("2001:db8::1", 80)))
    async with service.on() as address, reading(client(address, context="ns:shop").endpoints(WEB)) as answers:
        assert (await answers.next()).endpoints == (row("10.0.0.1", ID), row("2001:db8::1"))
        service.tell(WEB, services.add(services.endpoint("10.0.0.1", 80, opaque=True)))
        assert set((await answers.next()).endpoints) == {row("2001:db8::1"), row("10.0.0.1", opaque=True)}
        service.tell(WEB, services.remove(services.address("2001:db8::1", 80), services.address("10.9.9.9", 80)))
        assert (await answers.next()).endpoints == (row("10.0.0.1", opaque=True),)
        service.tell(WEB, services.none(exists=True))
        assert (await answers.next()).endpoints == ()
        service.tell(WEB, services.none(exists=False))
        assert isinstance(await answers.next(), discovered.Missing)
        assert (service.paths, service.contexts) == ([WEB], ["ns:shop"])


async def test_what_is_missing_and_what_is_foreign_is_said_and_asked_for_again():
    service = services.DestinationService()
    service.says = {"other.svc.cluster.local": ["INVALID_ARGUMENT"]}
    async with service.on() as address:
        discovery = client(address)
        async with reading(discovery.endpoints(WEB)) as answers:
            assert isinstance(await answers.next(), discovered.Missing)
            service.says[WEB] = [services.none(exists=True)]
            assert await answers.until(discovered.Known) == discovered.Known(())
        async with reading(discovery.endpoints("other.svc.cluster.local")) as answers:
            assert isinstance(await answers.next(), discovered.Foreign)


async def test_an_address_is_a_service_or_an_endpoint():
    service = services.DestinationService()
    pod = services.endpoint("10.0.0.1", 80, ID)
    service.says = {
        "10.1.0.1:80": [services.profile(fully_qualified_name="web.shop.svc.cluster.local")],
        "10.0.0.1:80": [services.profile(endpoint=pod), services.profile(endpoint=pod, opaque_protocol=True)],
        "10.0.0.2:80": [services.profile(endpoint=services.endpoint("10.0.0.2", 80, "not a name"))],
    }
    async with service.on() as address:
        discovery = client(address)
        async with reading(discovery.profile("10.1.0.1:80")) as answers:
            assert await answers.next() == discovered.Profile("web.shop.svc.cluster.local")
        async with reading(discovery.profile("10.0.0.1:80")) as answers:
            assert await answers.next() == discovered.Profile("", row("10.0.0.1", ID))
            assert await answers.next() == discovered.Profile("", row("10.0.0.1", ID, opaque=True))
        async with reading(discovery.profile("10.0.0.2:80")) as answers:
            # Nobody, rather than somebody in plaintext.
            assert await answers.next() == discovered.Known(())


async def test_a_stream_that_ends_is_opened_again_and_the_service_may_be_away():
    service, port = services.DestinationService(), 0
    service.tell(WEB, services.add(services.endpoint("10.0.0.1", 80, ID)))
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(service.on())
        port = first.port
        async with reading(client(first).endpoints(WEB)) as answers:
            assert await answers.next() == discovered.Known((row("10.0.0.1", ID),))
            service.end()
            assert isinstance(await answers.next(), discovered.Away)
            assert isinstance(await answers.until(discovered.Known), discovered.Known)
            await stack.aclose()
            assert isinstance(await answers.next(), discovered.Away)
            async with service.on(port=port):
                assert await answers.until(discovered.Known) == discovered.Known((row("10.0.0.1", ID),))


async def test_streams_share_a_connection_which_ends_with_the_last():
    service = services.DestinationService()
    service.says = {WEB: [services.none(exists=True)], "b.shop.svc.cluster.local:80": [services.none(exists=True)]}
    async with service.on() as address:
        discovery = client(address)
        async with reading(discovery.endpoints(WEB)) as one:
            await one.next()
            first = discovery._line
            async with reading(discovery.endpoints("b.shop.svc.cluster.local:80")) as two:
                await two.next()
                assert discovery._line is first
                assert first is not None
                assert first.users == 2
        assert discovery._line is None


async def test_the_own_certificate_is_shown_and_the_next_with_the_next_connection():
    anchor, service = greeting.Anchor(), services.DestinationService()
    service.says = {path: [services.none(exists=True)] for path in ("a:1", "b:1", "c:1")}
    shown: list[pairs.Pair | None] = [anchor.pair("one.example"), anchor.pair("two.example"), None]
    async with service.on(anchor) as address, contextlib.AsyncExitStack() as stack:
        discovery = discovering.Discovery(
            discovering.Service(str(address), services.NAME),
            anchors=lambda: anchor.bundle,
            pair=lambda: shown[0],
            clock=greeting.CLOCK,
        )
        for path in ("a:1", "b:1", "c:1"):
            answers = await stack.enter_async_context(reading(discovery.endpoints(path)))
            assert await answers.next() == discovered.Known(())
            shown = shown[1:] or shown
    assert service.peers == ["one.example", "two.example", ""]


async def test_a_false_service_is_asked_nothing():
    anchor, other, service = greeting.Anchor(), greeting.Anchor(), services.DestinationService()
    wrong = (
        other.pair(services.NAME),
        anchor.pair(ID),
        anchor.pair("*.linkerd.sa.linkerd-identity.linkerd.cluster.local"),
    )
    for pair in wrong:
        async with service.on(anchor, pair) as address, reading(client(address, anchor).endpoints(WEB)) as answers:
            assert isinstance(await answers.next(), discovered.Away)
    # In plaintext, where it has to prove a name.
    async with service.on() as address, reading(client(address, anchor).endpoints(WEB)) as answers:
        assert isinstance(await answers.next(), discovered.Away)
    assert service.paths == []


async def test_elsewhere_it_is_not_asked_without_a_name():
    somewhere = addresses.Address("192.0.2.1", 8086)
    async with reading(client(somewhere).endpoints(WEB)) as answers:
        assert "loopback" in (await answers.next()).why


NONSENSE = [
    mesh_messages.WeightedAddr(addr={"port": 80}),
    mesh_messages.WeightedAddr(),
    services.endpoint("10.0.0.2", 0),
    services.endpoint("10.0.0.2", 65_536, ID),
    services.endpoint("10.0.0.2", 80, "not a name"),
    services.endpoint("10.0.0.2", 80, "*.shop.sa.linkerd-identity.linkerd.cluster.local"),
    services.endpoint("10.0.0.2", 80, "a" * 300),
    services.endpoint("10.0.0.2", 80, "10.0.0.2"),
    services.endpoint("10.0.0.2", 80, ID, server_name="other.example"),
    services.endpoint("10.0.0.2", 80, server_name=ID),
    services.endpoint("10.0.0.2", 80, uri="spiffe://cluster.local/ns/shop/sa/web"),
]


@pytest.mark.parametrize("number", range(len(NONSENSE)))
def test_nonsense_is_left_out_and_the_rest_is_known(number):
    sieve = discovered.Sieve(WEB)
    known = discovered.Endpoints(sieve)
    good = services.endpoint("10.0.0.1", 80, ID, server_name=ID)
    # It was somebody before: it is nobody now.
    known.take(services.add(services.endpoint("10.0.0.2", 80, ID)))
    answer = known.take(services.add(NONSENSE[number], good))
    assert isinstance(answer, discovered.Known)
    assert row("10.0.0.1", ID) in answer.endpoints
    assert sieve.left_out == 1
    if NONSENSE[number].addr.port == 80 and NONSENSE[number].addr.HasField("ip"):
        assert answer.endpoints == (row("10.0.0.1", ID),)
    known.take(mesh_messages.Update(remove={"addrs": [{"port": 80}, {"port": 99_999}]}))
    assert known.take(services.none(exists=True)) == discovered.Known(())
    assert known.take(mesh_messages.Update()) == discovered.Missing()


def test_endpoints_without_end_are_bounded(monkeypatch):
    monkeypatch.setattr(discovered, "MOST_ENDPOINTS", 5)
    monkeypatch.setattr(discovered, "MOST_NAMES", 2)
    sieve = discovered.Sieve(WEB)
    known = discovered.Endpoints(sieve)
    answer = known.take(services.add(*(services.endpoint(f"10.0.0.{n}", 80, f"n{n}.example") for n in range(1, 10))))
    assert answer == discovered.Known((row("10.0.0.1", "n1.example"), row("10.0.0.2", "n2.example")))
    answer = known.take(services.add(*(services.endpoint(f"10.0.1.{n}", 80, "n1.example") for n in range(1, 10))))
    assert isinstance(answer, discovered.Known)
    assert len(answer.endpoints) == 5
    assert sieve.left_out == 13
    # A name that is gone makes room for another.
    known.take(services.remove(services.address("10.0.0.2", 80)))
    answer = known.take(services.add(services.endpoint("10.0.0.3", 80, "n3.example")))
    assert isinstance(answer, discovered.Known)
    assert row("10.0.0.3", "n3.example") in answer.endpoints


async def test_updates_without_end_are_read_slowly(monkeypatch):
    monkeypatch.setattr(discovering, "_BURST", 3)
    pauses: list[float] = []

    class Clock:
        """Time that stands still."""

        def monotonic(self) -> float:
            return 0.0

        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    pace = discovering._Pace(Clock())  # type: ignore[arg-type]
    for _ in range(5):
        await pace.wait()
    assert pauses == [pytest.approx(1 / 20), pytest.approx(2 / 20)]


async def test_a_stream_that_makes_no_sense_is_opened_again():
    service = services.DestinationService()
    service.says = {WEB: [b"\xff\xff\xff not a message"]}
    async with service.on() as address, reading(client(address).endpoints(WEB)) as answers:
        assert isinstance(await answers.next(), discovered.Away)
        service.says = {WEB: [services.none(exists=True)]}
        assert await answers.until(discovered.Known) == discovered.Known(())
