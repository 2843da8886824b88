# SPDX-License-Identifier: Apache-2.0
"""Workloads that call one another through their proxies: the real identity and destination services, real Envoys, and an agent for each.

Addresses of Pods are of loopback, one for each Pod: nothing is mocked, and no privilege is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import pathlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

from handfast.pki import keys, pairs
from handfast.rules.envoy import ports
from handfast.rules.mesh import proxy_policy
from tests.scenarios import agents_world, destination_world, envoy_world, mesh_world, outbound_client, proxy_world
from tests.scenarios.test_mesh_credentials import AgentsClock

WEB = mesh_world.identity_of("shop", "web")
VOTE = mesh_world.identity_of("shop", "vote")
P = proxy_world.P
_ADDRESSES = (f"127.0.{third}.{last}" for third, last in itertools.product(range(1, 250), range(1, 250)))


def address() -> str:
    """An address that no other Pod has."""
    return next(_ADDRESSES)


class World:
    """The control plane, with workloads in the namespace `shop`."""

    def __init__(self, world: agents_world.World) -> None:
        self.plane, self.identity, self.destination = world.plane, world.identity, world.destination
        self.shop = destination_world.Shop(world.plane)
        for account in ("web", "vote", "other"):
            world.plane.account("shop", account)

    @property
    def targets(self) -> dict[str, str]:
        """Where the destination service and the channel to agents are."""
        line = self.destination.lines("the destination service listens")[-1]
        return {"destination": str(line["destination"]), "agents": str(line["agents"])}

    def service(self, name: str, port: int, **spec: Any) -> None:
        """A Service of port 80, which is this one of its Pods."""
        self.shop.service(name, **{"ports": [{"name": "http", "port": 80, "targetPort": port}], **spec})

    def certified(self, account: str) -> pairs.Pair:
        """A certificate that the identity service has given to a Pod of an account."""
        name, key = mesh_world.identity_of("shop", account), keys.generate()
        token = self.plane.workload("shop", account, f"{account}-{envoy_world.free_port()}")
        answer = self.identity.certify(name, token, mesh_world.csr(name, key))
        return pairs.Pair((answer.leaf, *answer.intermediates), key)

    def policy(self, **spec: Any) -> None:
        path = "/apis/handfast.dev/v1alpha1/namespaces/shop/meshpolicies"
        body = {"apiVersion": "handfast.dev/v1alpha1", "kind": "MeshPolicy", "metadata": {"name": "p"}, "spec": spec}
        self.plane.call("DELETE", f"{path}/p")
        if spec:
            self.plane.post(path, body, wanted=(201,))


@contextlib.contextmanager
def world(directory: pathlib.Path, *words: object) -> Iterator[World]:
    """All of it; `words` are for `mesh install`."""
    with agents_world.world(directory, *words) as made:
        yield World(made)


class Caller(outbound_client.Client):
    """A workload that calls others through its proxy."""

    def __init__(self, port: int, doors: proxy_world.Doors, clock: AgentsClock) -> None:
        super().__init__(port)
        self.doors, self.clock = doors, clock

    async def until(self, host: str, *expected: Any) -> None:
        """Until an answer is this: the status, and the reason or the identity of who answers."""
        last: list[Any] = []

        async def reached() -> bool:
            status, headers, _ = await self.get(host)
            last[:] = [status, headers.get("l5d-server-id") or headers.get("l5d-proxy-error", "")]
            return last == list(expected)

        try:
            await proxy_world.until_async(reached)
        except TimeoutError:
            raise AssertionError(f"{last}, not {expected}") from None


def _directory() -> pathlib.Path:
    return pathlib.Path(tempfile.mkdtemp(prefix="hf-"))


def _variables(
    world: World, pod: str, identity: str, destination: str = "", *, watching: bool = False
) -> dict[str, str]:
    account = pod.partition("-")[0]
    variables = proxy_world.variables_of(world.plane, _directory(), identity, ("shop", account), pod)
    variables |= {f"{P}DESTINATION_ADDR": destination} if destination else {}
    if watching:
        variables |= {f"{P}AGENTS_ADDR": world.targets["agents"], f"{P}AGENTS_IDENTITY": agents_world.CONTROLLER}
    return proxy_world.prepared(variables)


@contextlib.asynccontextmanager
async def caller(
    world: World,
    *,
    identity: str = "",
    destination: str | None = None,
    watching: bool = False,
    ready: bool = True,
) -> AsyncIterator[Caller]:
    """A workload of the account `vote`; `watching` the channel to agents; without an address of the destination service where that is empty."""
    doors, clock = proxy_world.Doors(), AgentsClock()
    where = world.targets["destination"] if destination is None else destination
    pod = f"vote-{envoy_world.free_port()}"
    variables = await asyncio.to_thread(
        _variables, world, pod, identity or world.identity.target, where, watching=watching
    )
    options = proxy_world.identified(
        doors,
        {},
        variables,
        identity_headers=True,
        policy=proxy_policy.ProxyPolicy(pod=("shop", pod)),
    )
    async with proxy_world.running(options, clock):
        port = options.outbound.port
        await proxy_world.until(lambda: proxy_world.listens(port), lambda: doors.get("/ready"))
        if ready:
            await doors.until("/ready", 200)
        yield Caller(port, doors, clock)


@dataclasses.dataclass
class Served:
    """A workload behind its proxy: its address, its port and others, and what it has seen."""

    ip: str
    port: int
    application: envoy_world.Application
    doors: proxy_world.Doors
    clock: AgentsClock
    others: tuple[int, ...] = ()


@contextlib.asynccontextmanager
async def served(
    world: World, application_port: int = 0, *others: int, watching: bool = False
) -> AsyncIterator[Served]:
    """A workload of the account `web`, which is certified; with more ports, which lead to `others`."""
    doors, ip, clock = proxy_world.Doors(), address(), AgentsClock()
    async with envoy_world.application() as application:
        pod = f"web-{envoy_world.free_port()}"
        variables = await asyncio.to_thread(_variables, world, pod, world.identity.target, watching=watching)
        targets = (application_port or application.port, *others)
        leads = tuple(ports.Port(number=envoy_world.free_port(), application=target) for target in targets)
        policy = proxy_policy.ProxyPolicy(pod=("shop", pod))
        options = proxy_world.identified(doors, {}, variables, identity_headers=True, ports=leads, policy=policy)
        async with proxy_world.running(dataclasses.replace(options, pod_ip=ip), clock):
            await doors.until("/ready", 200)
            first, *rest = (port.number for port in leads)
            yield Served(ip, first, application, doors, clock, tuple(rest))


@contextlib.asynccontextmanager
async def application(
    ip: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[envoy_world.Application]:
    """A workload without a proxy, which remembers all that reaches it."""
    made = envoy_world.Application()
    server = await asyncio.start_server(made.answer, ip, port, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
