# SPDX-License-Identifier: Apache-2.0
"""What is behind a destination, by a destination service that says what the test wants."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from handfast.proxy import destinations as following
from handfast.rules.envoy import destinations as forms
from handfast.rules.envoy import outbound
from handfast.rules.mesh import destinations
from handfast.wire import discovering
from tests.unit.wire import destination_service as services
from tests.unit.wire import greeting

WEB = destinations.read("web.shop.svc.cluster.local:80")
POD = destinations.read("10.0.0.1:80")
SERVICE = destinations.read("10.96.0.1:80")
ID = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
OWN = destinations.Own(hosts=frozenset({"10.0.0.9"}), ports=frozenset({4140, 4191}))
MESHED = outbound.Endpoint("10.0.0.1", 80, ID)


@contextlib.asynccontextmanager
async def followed(service, target):
    async with service.on() as address:
        discovery = discovering.Discovery(
            discovering.Service(str(address), None), anchors=lambda: None, pair=lambda: None, clock=greeting.CLOCK
        )
        standings = following.Following(discovery, OWN, greeting.CLOCK).follow(target)
        async with contextlib.aclosing(standings):
            yield standings


async def following_until(standings, expected):
    async with asyncio.timeout(20):
        async for standing in standings:
            if standing == expected:
                return
    raise AssertionError(expected)


async def first(standings):
    async with asyncio.timeout(20):
        return await anext(standings)


async def test_a_name_is_the_services():
    service = services.DestinationService()
    service.tell(
        str(WEB),
        services.add(services.endpoint("10.0.0.1", 80, ID), services.endpoint("10.0.0.2", 80, ID, opaque=True)),
    )
    async with followed(service, WEB) as standings:
        # What speaks no HTTP has no TLS of the mesh's.
        assert await first(standings) == forms.Standing((MESHED, outbound.Endpoint("10.0.0.2", 80)))
        service.tell(str(WEB), services.none(exists=False))
        assert await first(standings) == forms.Standing(why=forms.UNKNOWN)


async def test_what_is_none_of_the_services_is_looked_up():
    service = services.DestinationService()
    service.says = {str(WEB): ["INVALID_ARGUMENT"], str(POD): ["INVALID_ARGUMENT"]}
    async with followed(service, WEB) as standings:
        assert await first(standings) == forms.Standing(by_dns=("web.shop.svc.cluster.local", 80))
    async with followed(service, POD) as standings:
        assert await first(standings) == forms.Standing((outbound.Endpoint("10.0.0.1", 80),))


@pytest.mark.parametrize("target", [WEB, POD])
async def test_while_the_service_is_away_nobody_else_is_asked(target):
    service = services.DestinationService()
    service.says = {str(target): ["UNAVAILABLE"]}
    async with followed(service, target) as standings:
        for _ in range(3):
            assert await first(standings) is None


async def test_an_address_is_a_pods_or_somebodys():
    service = services.DestinationService()
    service.says = {str(POD): [services.profile(endpoint=services.endpoint("10.0.0.1", 80, ID))]}
    async with followed(service, POD) as standings:
        assert await first(standings) == forms.Standing((MESHED,))
        service.tell(str(POD), services.profile(endpoint=services.endpoint("10.0.0.1", 80)))
        assert await first(standings) == forms.Standing((outbound.Endpoint("10.0.0.1", 80),))
        service.tell(str(POD), services.profile())
        assert await first(standings) == forms.Standing()


async def test_the_address_of_a_service_is_its_name_until_it_is_no_more():
    service = services.DestinationService()
    service.says = {
        str(SERVICE): [services.profile(fully_qualified_name="web.shop.svc.cluster.local")],
        str(WEB): [services.add(services.endpoint("10.0.0.1", 80, ID))],
    }
    async with followed(service, SERVICE) as standings:
        assert await first(standings) == forms.Standing((MESHED,))
        service.says[str(SERVICE)] = [services.profile(fully_qualified_name="not a name")]
        service.tell(str(WEB), services.none(exists=False))
        assert await first(standings) == forms.Standing(why=forms.UNKNOWN)
        # Whose it is, is asked for again.
        await following_until(standings, forms.Standing(why=forms.BAD))
        service.says[str(SERVICE)] = [services.profile(endpoint=services.endpoint("10.96.0.1", 80))]
        await following_until(standings, forms.Standing((outbound.Endpoint("10.96.0.1", 80),)))


async def test_the_ports_of_the_proxy_are_no_endpoints():
    service = services.DestinationService()
    rows = [("127.0.0.1", 4191, ""), ("10.0.0.9", 4140, ""), ("10.0.0.9", 8080, ""), ("127.0.0.1", 4191, ID)]
    for host, port, identity in rows:
        service.tell(str(WEB), services.none(exists=True), services.add(services.endpoint(host, port, identity)))
    async with followed(service, WEB) as standings:
        seen = [await first(standings) for _ in range(8)][1::2]
    # With an identity it is TLS, which is not what answers there.
    assert [len(each.endpoints) for each in seen] == [0, 0, 1, 1]


async def test_what_leads_home_is_known_as_such():
    home = destinations.read("127.0.0.1:8080")
    service = services.DestinationService()
    service.says = {str(home): [services.profile(endpoint=services.endpoint("127.0.0.1", 8080, ID))]}
    async with followed(service, home) as standings:
        assert await first(standings) == forms.Standing((outbound.Endpoint("127.0.0.1", 8080, ID),), is_home=True)
        service.says = {}
        service.end()
        await following_until(standings, forms.Standing(why=forms.UNKNOWN, is_home=True))


async def test_without_a_service_names_are_looked_up_and_addresses_called_as_they_are():
    alone = following.Following(None, OWN, greeting.CLOCK)
    assert [each async for each in alone.follow(WEB)] == [forms.Standing(by_dns=("web.shop.svc.cluster.local", 80))]
    assert [each async for each in alone.follow(POD)] == [forms.Standing((outbound.Endpoint("10.0.0.1", 80),))]
    admin = destinations.read("127.0.0.1:4191")
    assert [each async for each in alone.follow(admin)] == [forms.Standing((), is_home=True)]
