# SPDX-License-Identifier: Apache-2.0
"""Who attacks a workload behind `mesh proxy run`, with what, and what stops them: each is refused with its reason, counted by it, and the application sees nothing.

On the real agent, its Envoy and the real services. The issuer of the mesh is the test's own, so that it can sign what no identity service would. Revoked names, keys and
serial numbers are in test_proxy_policy.py, false servers in test_envoy_outbound.py, tokens that the identity service refuses in test_mesh_identity.py.
"""

from __future__ import annotations

import asyncio
import collections
import datetime
import pathlib
import ssl
from collections.abc import Iterator

import pytest

from handfast.pki import pairs
from handfast.rules.envoy import judging
from handfast.runtime import clock as clocks
from tests.scenarios import envoy_world, mesh_issuers, mesh_world, policy_world, proxy_world
from tests.scenarios.test_mesh_credentials import AgentsClock
from tests.unit.wire import greeting, identity_service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FRIEND = mesh_world.identity_of("shop", "friend")
OTHER = mesh_world.identity_of("shop", "other")
WILDCARD = f"*.shop.{mesh_world.SUFFIX}"
CERTIFICATE = "client-certificate"
FOREIGN = "tls-without-identity"
REFUSED = "handfast_proxy_refused_total"
thread = asyncio.to_thread


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> mesh_issuers.Issuer:
    return mesh_issuers.Root(tmp_path_factory.mktemp("root")).issuer("own")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, issuer: mesh_issuers.Issuer) -> Iterator[policy_world.World]:
    with policy_world.world(tmp_path_factory.mktemp("attackers"), *issuer.words) as world:
        world.plane.account(policy_world.NAMESPACE, "friend")
        world.write(clients=[{"serviceAccount": {"name": "friend"}}])
        yield world


@pytest.fixture(scope="module")
def proxy(world: policy_world.World) -> Iterator[policy_world.Proxy]:
    """One that works by the policy: only `friend` may call."""
    with policy_world.Proxy(world, "db-1") as proxy:
        yield proxy.ready()


# How often the proxy has refused since it began, by reason, as its clients have seen it.
_seen: collections.Counter[str] = collections.Counter()


class Watch:
    """Over a block: everything that was refused for a reason is counted by it, and the application sees nothing. `unseen` refusals are told no reason."""

    def __init__(self, world: policy_world.World, proxy: policy_world.Proxy, reason: str, unseen: int = 0) -> None:
        self._application, self._proxy, self._reason, self._unseen = world.application, proxy, reason, unseen

    def _count(self) -> float:
        return self._proxy.figure(REFUSED, f'reason="{self._reason}"')

    async def __aenter__(self) -> None:
        self._octets = len(self._application.octets)

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            _seen[self._reason] += self._unseen
            # What /metrics says may be a second old.
            await proxy_world.until(lambda: self._count() >= _seen[self._reason] > 0, lambda: (self._count(), _seen))
            assert len(self._application.octets) == self._octets


def shows(world: policy_world.World, pair: pairs.Pair) -> ssl.SSLContext:
    return world.context(pair)


async def why_not(proxy: policy_world.Proxy, context: ssl.SSLContext | None, **headers: str) -> tuple[int, str]:
    """Status and reason of a request on a new connection."""
    async with envoy_world.http1(proxy.web, context, policy_world.NAME) as connection:
        status, answer, _ = await connection.get(**headers)
        return status, _noted(answer)


def _noted(answer: dict[str, str]) -> str:
    """Why a request was refused; empty: it was not."""
    reason = answer.get("l5d-proxy-error", "")
    _seen.update([reason] if reason else [])
    return reason


async def lets_in(world: policy_world.World, proxy: policy_world.Proxy, issuer: mesh_issuers.Issuer) -> bool:
    return await why_not(proxy, shows(world, issuer.pair(FRIEND))) == (200, "")


@pytest.fixture
async def guarded(
    world: policy_world.World, proxy: policy_world.Proxy, issuer: mesh_issuers.Issuer
) -> policy_world.Proxy:
    """The proxy, which lets in whom it should: what it refuses, it does not refuse for another reason."""
    await proxy_world.until_async(lambda: lets_in(world, proxy, issuer))
    await proxy_world.until_async(lambda: _is_refused(proxy))
    return proxy


async def _is_refused(proxy: policy_world.Proxy) -> bool:
    return await why_not(proxy, None) == (403, judging.NOT_ALLOWED)


@pytest.mark.parametrize("whose", ["of another authority", "of the mesh, and over"])
async def test_a_client_certificate_that_is_not_good_makes_no_connection(world, guarded, issuer, whose):
    over = datetime.timedelta(minutes=-5)
    pair = issuer.pair(FRIEND, left=over) if whose.endswith("over") else greeting.Anchor().pair(FRIEND)
    async with Watch(world, guarded, CERTIFICATE, unseen=1):
        assert not await envoy_world.is_served(guarded.web, shows(world, pair), policy_world.NAME)


@pytest.mark.parametrize("name", [OTHER, WILDCARD, f"friend.{mesh_world.SUFFIX}", f"x.{FRIEND}"])
async def test_a_good_certificate_of_another_name_is_not_the_name(world, guarded, issuer, name):
    """A wildcard that would cover the name is another name, too."""
    async with Watch(world, guarded, judging.NOT_ALLOWED):
        assert await why_not(guarded, shows(world, issuer.pair(name))) == (403, judging.NOT_ALLOWED)


async def test_a_client_that_says_who_it_is_in_headers_is_who_its_certificate_says(world, guarded, issuer):
    spoofed = {"l5d_client_id": FRIEND, "L5D_CLIENT_ID": FRIEND, "l5d_verdict": "good", "l5d_orig_proto": "HTTP/1.1"}
    for context in (shows(world, issuer.pair(OTHER)), world.context(), None):
        async with Watch(world, guarded, judging.NOT_ALLOWED):
            assert await why_not(guarded, context, **spoofed) == (403, judging.NOT_ALLOWED)
    # Nor does the application hear it from who may call.
    async with envoy_world.http1(guarded.web, shows(world, issuer.pair(FRIEND)), policy_world.NAME) as connection:
        status, _, seen = await connection.get(**{**spoofed, "l5d_client_id": OTHER, "L5D_CLIENT_ID": OTHER})
        assert (status, [name for name in seen["headers"] if name.startswith("l5d-")]) == (200, [])


async def test_a_connection_for_another_name_reaches_nobody(world, guarded, issuer):
    """Its certificate would be good; the name that it asks for is not this workload's."""
    for name in (OTHER, FRIEND, f"x.{policy_world.NAME}"):
        async with Watch(world, guarded, FOREIGN, unseen=1):
            connections = world.application.connections
            context = shows(world, issuer.pair(FRIEND))
            assert not await _is_answered(guarded.web, context, name)
            assert world.application.connections == connections


async def _is_answered(port: int, context: ssl.SSLContext, name: str) -> bool:
    try:
        return await envoy_world.is_served(port, context, name)
    except OSError:
        return False


async def test_a_certificate_that_ends_is_refused_on_the_connection_that_it_made(world, guarded, issuer):
    pair = issuer.pair(FRIEND, left=datetime.timedelta(seconds=8))
    async with envoy_world.http1(guarded.web, shows(world, pair), policy_world.NAME) as connection:
        assert (await connection.get())[0] == 200

        async def is_refused() -> bool:
            status, headers, _ = await connection.get()
            return (status, _noted(headers)) == (403, judging.EXPIRED)

        await proxy_world.until_async(is_refused)
        assert clocks.SystemClock().now() >= pair.leaf.not_after
        async with Watch(world, guarded, judging.EXPIRED):
            assert await is_refused()


async def test_a_replayed_token_gets_no_certificate_and_the_right_one_does(world, tmp_path):
    """That of a Pod that is gone, and one for somebody else, as a thief would have them."""
    plane, clock = world.plane, AgentsClock()
    variables = await thread(proxy_world.variables_of, plane, tmp_path, world.identity.address)
    pods = "/api/v1/namespaces/ns1/pods"
    pod = f"web-{world.identity.port}"
    code, _ = await thread(plane.call, "DELETE", f"{pods}/{pod}?gracePeriodSeconds=0")
    assert code == 200
    variables = await thread(proxy_world.prepared, variables)
    async with proxy_world.proxied(variables, clock) as (beside, doors):
        await _fails_again(doors, clock)
        (tmp_path / "token").write_bytes(await thread(plane.token, "ns1", "web", audiences=["vault"]))
        await _fails_again(doors, clock)
        await beside.refuses_its_own_name()
        (tmp_path / "token").write_bytes(await thread(plane.workload, "ns1", "web", "web-right"))
        await proxy_world.recovers(doors, clock)


async def _fails_again(doors: proxy_world.Doors, clock: AgentsClock) -> None:
    """Another attempt is refused: counted, and told."""
    before = await thread(_errors, doors)

    async def is_counted() -> bool:
        clock.passed += 5
        return await thread(_errors, doors) > before

    await proxy_world.until_async(is_counted)
    document = await doors.identity()
    assert (document["state"], document["serial"]) == ("NotCertified", None)
    assert document["lastError"] is not None
    assert (await thread(doors.get, "/ready"))[0] == 503


def _errors(doors: proxy_world.Doors) -> float:
    row = 'control_identity_cert_refreshes_total{result="error"} '
    figures = doors.get("/metrics")[1].splitlines()
    return sum(float(line.removeprefix(row)) for line in figures if line.startswith(row))


async def test_what_a_false_identity_service_signs_is_never_shown(world, tmp_path: pathlib.Path):
    """On loopback it is believed to be where it should be; its answers are not believed by that."""
    false = identity_service.IdentityService()
    false.clock = clocks.SystemClock()  # type: ignore[assignment] # as late as the agent
    clock = AgentsClock()
    async with false.serving() as address:
        variables = await thread(proxy_world.variables_of, world.plane, tmp_path, str(address))
        variables = await thread(proxy_world.prepared, variables)
        async with proxy_world.proxied(variables, clock) as (beside, doors):
            await _fails_again(doors, clock)
            assert false.tokens
            assert (await doors.identity())["lastError"]["reason"] == "UnknownAuthority"
            await beside.refuses_its_own_name()
