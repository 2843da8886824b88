# SPDX-License-Identifier: Apache-2.0
"""What Envoy is told of destinations, by a destination service that says what the test wants; Envoy is not there."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from handfast import errors
from handfast.proxy import clusters, outbound
from handfast.rules.envoy import destinations as forms
from handfast.rules.envoy import outbound as documents
from handfast.rules.envoy import outbound_routes, resources, transparent
from handfast.rules.mesh import destinations
from handfast.wire import discovering
from tests.unit.wire import destination_service as services
from tests.unit.wire import greeting

KIND = resources.Kind
ID = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
OWN = destinations.Own(ports=frozenset({4140}))
FACTS = documents.Facts(host="127.0.0.1", port=4140, identity_headers=True)


class Sent:
    """What Envoy would have been sent, and how often."""

    def __init__(self) -> None:
        self.now: dict[tuple[KIND, str], Any] = {}
        self.puts: list[tuple[KIND, str]] = []
        self.gone: list[str] = []

    def put(self, kind: KIND, name: str, document: Any) -> None:
        self.now[kind, name] = document
        self.puts.append((kind, name))

    def forget(self, kind: KIND, name: str) -> None:
        self.now.pop((kind, name), None)

    def absent(self, kind: KIND, name: str) -> None:
        self.now.pop((kind, name), None)
        self.gone.append(name)

    def why(self, name: str) -> str:
        document = self.now.get((KIND.CLUSTER, name))
        return "" if document is None else document["metadata"]["filter_metadata"]["handfast"]["why"]

    def hosts(self, name: str) -> list[str]:
        document = self.now.get((KIND.ENDPOINTS, name), {"endpoints": [{"lb_endpoints": []}]})
        rows = document["endpoints"][0]["lb_endpoints"]
        return [row["endpoint"]["address"]["socket_address"]["address"] for row in rows]


class Envoy:
    """The figures of an Envoy, as its admin port has them."""

    def __init__(self) -> None:
        self.figures: dict[str, int] = {}
        self.is_down = False

    def called(self, name: str, figure: str = "upstream_rq_total") -> None:
        key = f"cluster.{name.replace(':', '_').replace('.', '_')}.{figure}"
        self.figures[key] = self.figures.get(key, 0) + 1

    async def ask(self, _path: str) -> tuple[int, bytes]:
        if self.is_down:
            raise errors.Unavailable("Envoy does not answer", reason="EnvoyNotAnswering")
        rows = [{"name": name, "value": value} for name, value in self.figures.items()]
        return 200, json.dumps({"stats": rows}).encode()


class Running:
    """The part, with what it asks and what it says."""

    def __init__(self, part: outbound.Outbound, sent: Sent, envoy: Envoy, service: services.DestinationService) -> None:
        self.part, self.sent, self.envoy, self.service = part, sent, envoy, service

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not reached():
                await asyncio.sleep(0.01)

    async def demand(self, name: str, why: str = documents.NO_ENDPOINT) -> str:
        self.part.demand(name)
        await self.until(lambda: self.sent.why(name) == why)
        return name


@contextlib.asynccontextmanager
async def running(**more: Any) -> AsyncIterator[Running]:
    service, sent, envoy = services.DestinationService(), Sent(), Envoy()
    async with service.on() as address:
        discovery = discovering.Discovery(
            discovering.Service(str(address), None), anchors=lambda: None, pair=lambda: None, clock=greeting.CLOCK
        )
        part = outbound.Outbound(
            sent,  # type: ignore[arg-type]
            discovery,
            greeting.CLOCK,
            FACTS,
            **{"own": OWN, "ask": envoy.ask, **more},
        )
        part.begin()
        task = asyncio.create_task(part.run())
        try:
            yield Running(part, sent, envoy, service)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def path(name: str) -> str:
    return f"{name}.shop.svc.cluster.local:80"


async def test_all_spellings_are_followed_once_and_only_what_changes_is_put():
    async with running() as world:
        assert set(world.part.keys()) <= set(world.sent.now)
        world.service.tell(path("web"), services.add(services.endpoint("10.0.0.1", 80, ID)))
        spellings = ("http/web.shop.svc.cluster.local", "http/WEB.shop.svc", "tcp/web.shop.svc.cluster.local:80")
        for name in spellings:
            world.part.demand(name)
            world.part.demand(name)
        await world.until(lambda: all(world.sent.hosts(name) == ["10.0.0.1"] for name in spellings))
        assert world.service.paths == [path("web")]
        # Another endpoint of the same name is a change of endpoints alone.
        before = world.sent.puts.count((KIND.CLUSTER, spellings[0]))
        world.service.tell(path("web"), services.add(services.endpoint("10.0.0.2", 80, ID)))
        await world.until(lambda: world.sent.hosts(spellings[0]) == ["10.0.0.1", "10.0.0.2"])
        assert world.sent.puts.count((KIND.CLUSTER, spellings[0])) == before
        # The own certificate changes clusters; the same again changes nothing.
        world.part.show(certified=True, longest=60)
        assert world.sent.puts.count((KIND.CLUSTER, spellings[0])) == before + 1
        count = len(world.sent.puts)
        world.part.show(certified=True, longest=60)
        world.part.require_identity(False)
        assert len(world.sent.puts) == count


async def test_what_is_known_stays_and_what_is_not_fails_at_once():
    async with running() as world:
        world.service.says = {path("away"): ["UNAVAILABLE"]}
        world.service.tell(path("web"), services.add(services.endpoint("10.0.0.1", 80, ID)))
        name = await world.demand(f"http/{path('away')}", forms.NOT_ASKED)
        assert await world.demand(f"http/{path('web')}")
        world.service.end()
        await asyncio.sleep(0.1)
        assert world.sent.hosts(f"http/{path('web')}") == ["10.0.0.1"]
        world.service.says[path("away")] = [services.add(services.endpoint("10.0.0.3", 80))]
        await world.until(lambda: world.sent.hosts(name) == ["10.0.0.3"])


async def test_a_required_identity_changes_everything_at_once():
    async with running() as world:
        world.service.says = {path("ext"): ["INVALID_ARGUMENT"]}
        world.service.tell(
            path("web"), services.add(services.endpoint("10.0.0.1", 80, ID), services.endpoint("10.0.0.2", 80))
        )
        web = await world.demand(f"http/{path('web')}")
        ext = await world.demand(f"http/{path('ext')}", documents.NOT_RESOLVED)
        world.part.require_identity(True)
        assert (world.sent.hosts(web), world.sent.why(web)) == (["10.0.0.1"], outbound_routes.IDENTITY_REQUIRED)
        assert (world.sent.hosts(ext), world.sent.why(ext)) == ([], outbound_routes.IDENTITY_REQUIRED)
        routes = json.dumps(world.sent.now[KIND.ROUTES, outbound_routes.OUTBOUND])
        assert outbound_routes.IDENTITY_REQUIRED in routes
        world.part.require_identity(False)
        assert world.sent.hosts(web) == ["10.0.0.1", "10.0.0.2"]
        assert (KIND.ENDPOINTS, ext) not in world.sent.now


async def test_those_that_were_not_called_for_longest_go_to_sleep_and_wake_when_they_are_called(monkeypatch):
    monkeypatch.setattr(outbound, "MOST", 3)
    monkeypatch.setattr(clusters, "MOST_PARKED", 2)
    monkeypatch.setattr(outbound, "_LOOK_SECONDS", 0.02)
    async with running() as world:
        names = [f"http/{path(each)}" for each in "abcdefg"]
        for name in names:
            world.service.says[name.removeprefix("http/")] = [services.none(exists=True)]
        for name in names[:3]:
            await world.demand(name)
        # One is called, and one has a request that goes on.
        world.envoy.called(names[0])
        world.envoy.called(names[1], "upstream_rq_active")
        await world.demand(names[3])
        assert [world.sent.why(name) for name in names[:3]] == [documents.NO_ENDPOINT] * 2 + [forms.ASLEEP]
        await world.until(lambda: world.service.open_streams() == 3)
        # Called while it sleeps.
        world.envoy.called(names[2], "upstream_cx_none_healthy")
        await world.until(lambda: world.sent.why(names[2]) == documents.NO_ENDPOINT)
        for name in names[4:]:
            await world.demand(name)
        # Of those that sleep, the oldest is taken away.
        assert len(world.sent.gone) == 2
        assert len([key for key in world.sent.now if key[0] is KIND.CLUSTER]) == 3 + 2 + 1


async def test_where_envoy_does_not_say_who_is_called_nobody_more_is_followed(monkeypatch):
    monkeypatch.setattr(outbound, "MOST", 1)
    async with running() as world:
        world.service.says = {path(each): [services.none(exists=True)] for each in "ab"}
        await world.demand(f"http/{path('a')}")
        world.envoy.is_down = True
        await world.demand(f"http/{path('b')}", outbound.CROWDED)
        assert world.service.paths == [path("a")]


async def test_a_name_that_is_none_says_so_and_others_are_not_answered(monkeypatch):
    monkeypatch.setattr(clusters, "MOST_PARKED", 1)
    async with running() as world:
        await world.demand("http/127.1", forms.BAD)
        await world.demand("tcp/a b", forms.BAD)
        assert world.sent.gone == ["http/127.1"]
        world.part.demand(f"http/{'a' * 60_000}")
        await world.until(lambda: len(world.sent.gone) == 2)
        world.part.demand("agent")
        await asyncio.sleep(0.05)
        assert (KIND.CLUSTER, "agent") not in world.sent.now
        assert world.service.paths == []


@pytest.mark.parametrize("required", [True, False])
async def test_in_transparent_mode_the_listener_is_the_redirected_one(required):
    place = transparent.Place(host="127.0.0.1", port=4140)
    async with running(place=place) as world:
        world.part.require_identity(required)
        listener = world.sent.now[KIND.LISTENER, documents.NAME]
        assert any("original_dst" in each["name"] for each in listener["listener_filters"])
        assert transparent.DESTINATION in json.dumps(listener)
        assert (KIND.CLUSTER, transparent.ORIGINAL) in world.sent.now
