# SPDX-License-Identifier: Apache-2.0
"""A world with controllers in it: the real server, real watches, one or more copies of each controller, no lock."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import os
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from handfast.api import status
from handfast.assembly import controllers
from handfast.client import api, cache, connection, transport
from handfast.controllers import loop, role
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from tests.world import world as worlds
from tests.world.clock import MovableClock

NAMESPACES = api.Resource("", "v1", "namespaces", False)
CONFIG_MAPS = api.Resource("", "v1", "configmaps", True)
SECRETS = api.Resource("", "v1", "secrets", True)
SERVICE_ACCOUNTS = api.Resource("", "v1", "serviceaccounts", True)
EVENTS = api.Resource("", "v1", "events", True)
NODES = api.Resource("", "v1", "nodes", False)
PODS = api.Resource("", "v1", "pods", True)
SERVICES = api.Resource("", "v1", "services", True)
SLICES = api.Resource("discovery.k8s.io", "v1", "endpointslices", True)
CA_PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

# These suites have two copies of their controllers, and no lock: what holds with two holds with one. All others have one, which costs half as
# much; `HANDFAST_COPIES` says how many everybody has.
TWICE = (
    "test_controllers_",
    "test_bootstrap_cas",
    "test_machine_approver",
    "test_credential_rollout_steps",
    "test_issuance_ledger",
)


def copies_here() -> int:
    """How many copies the story that runs now has."""
    said = os.environ.get("HANDFAST_COPIES")
    if said is not None:
        return int(said)
    return 2 if any(f"/{name}" in os.environ.get("PYTEST_CURRENT_TEST", "") for name in TWICE) else 1


class Story:
    """The administrator's client, and time."""

    def __init__(self, client: api.Client, clock: MovableClock) -> None:
        self.client = client
        self.clock = clock

    async def eventually(self, condition: Callable[[], Awaitable[Any]], what: str = "") -> Any:
        """Until the condition holds; time passes a little on the movable clock, so that retries come."""
        for _ in range(1500):
            found = await condition()
            if found:
                return found
            await asyncio.sleep(0.003)
            await self.clock.advance(0.05)
        raise AssertionError(f"never: {what or condition}")

    async def quiet(self) -> None:
        """Long enough for controllers to have done what they would wrongly do."""
        for _ in range(25):
            await asyncio.sleep(0.004)
            await self.clock.advance(0.1)

    async def find(self, resource: api.Addressable, name: str, namespace: str = "default") -> Any:
        """The object or None."""
        try:
            return await self.client.get(resource, name, namespace=namespace)
        except status.StatusError as error:
            if error.reason != "NotFound":
                raise
            return None

    async def gone(self, resource: api.Addressable, *names: str, namespace: str = "default") -> None:
        async def absent() -> bool:
            found = [await self.find(resource, name, namespace) for name in names]
            return all(item is None for item in found)

        await self.eventually(absent, f"{names} gone")

    async def config_map(self, name: str, *owners: Any, namespace: str = "default", **more: Any) -> Any:
        document = {"metadata": {"name": name, "ownerReferences": list(owners), **more}}
        return await self.client.create(CONFIG_MAPS, document, namespace=namespace)


class WorldStory(Story):
    """The same, with the served world at hand."""

    def __init__(self, world: worlds.World, client: api.Client, clock: MovableClock) -> None:
        super().__init__(client, clock)
        self.world = world


_S = TypeVar("_S", bound=WorldStory)


@contextlib.asynccontextmanager
async def story_of(kind: type[_S], directory: pathlib.Path, **options: Any) -> AsyncIterator[_S]:
    """A story in a served world with these options, in which no controller is at work yet."""
    clock = MovableClock(datetime.datetime.now(datetime.UTC).replace(microsecond=0))
    async with worlds.world(directory / "world", clock=clock, **options) as world, connected(world) as client:
        yield kind(world, client, clock)


def owner(document: Any, kind: str = "ConfigMap", api_version: str = "v1", *, block: bool = False) -> dict[str, Any]:
    """A reference to an owner."""
    meta = document["metadata"]
    reference = {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {**reference, **({"blockOwnerDeletion": True} if block else {})}


@contextlib.asynccontextmanager
async def connected(world: worlds.World, kubeconfig: pathlib.Path | None = None) -> AsyncIterator[api.Client]:
    """A client with the administrator's credentials, or those of another kubeconfig."""
    found = connection.load(str(kubeconfig or world.place.admin_kubeconfig))
    place = dataclasses.replace(found, server=world.base)
    link = transport.Transport(place, clock=world.clock)
    try:
        yield api.Client(link)
    finally:
        await link.close()


def as_controllers(world: worlds.World) -> contextlib.AbstractAsyncContextManager[api.Client]:
    """A client with what `controllers.conf` holds, so that the default policy has to allow what is done."""
    return connected(world, world.place.controllers_kubeconfig)


def started(
    group: tasks.Group, client: api.Client, clock: clocks.Clock, *builds: role.Build
) -> list[loop.Controller[Any]]:
    """One process of these controllers, at work in the group."""
    informers = cache.Informers(client, clock)
    context = loop.Context(client=client, informers=informers, clock=clock)
    made = [build(context) for build in builds]
    informers.start(group)
    for controller in made:
        group.start(controller.run(), name=controller.name)
    return made


@contextlib.asynccontextmanager
async def copied(
    clock: clocks.Clock,
    client_of: Callable[[], contextlib.AbstractAsyncContextManager[api.Client]],
    builds_of: Callable[[], Iterable[role.Build]],
    copies: int | None = None,
) -> AsyncIterator[list[loop.Controller[Any]]]:
    """So many processes of these controllers, each with a connection and builds of its own."""
    async with contextlib.AsyncExitStack() as stack:
        running: list[loop.Controller[Any]] = []
        for copy in range(copies_here() if copies is None else copies):
            client = await stack.enter_async_context(client_of())
            group = await stack.enter_async_context(tasks.Group(f"copy-{copy}"))
            running += started(group, client, clock, *builds_of())
        yield running


@contextlib.asynccontextmanager
async def controlled(directory: pathlib.Path, *names: str, copies: int | None = None) -> AsyncIterator[Story]:
    """A served world in which so many copies of the named controllers are at work."""
    # Real TLS compares certificates with the real time, so the movable clock starts there.
    clock = MovableClock(datetime.datetime.now(datetime.UTC))
    builds = controllers.known(CA_PEM)
    async with contextlib.AsyncExitStack() as stack:
        world = await stack.enter_async_context(worlds.world(directory / "world", clock=clock))
        client = await stack.enter_async_context(connected(world))
        running = await stack.enter_async_context(
            copied(clock, lambda: connected(world), lambda: (builds[name] for name in names), copies)
        )
        story = Story(client, clock)

        async def ready() -> bool:
            return all(controller.ready for controller in running)

        await story.eventually(ready, "controllers ready")
        yield story
