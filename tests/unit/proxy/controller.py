# SPDX-License-Identifier: Apache-2.0
"""A service of `linkerd-controller` on real sockets, behind TLS, and what follows it until the test ends. What it says, the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from handfast.pki import bundles
from handfast.proxy import trust
from handfast.rules.mesh import proxy_clients
from handfast.runtime import tasks
from handfast.wire import server, server_tls
from tests.unit.wire import greeting

SERVER = "linkerd-controller.linkerd.sa.linkerd-identity.linkerd.cluster.local"


class Follower(Protocol):
    """What runs until it is cancelled."""

    def run(self) -> Coroutine[Any, Any, None]: ...


F = TypeVar("F", bound=Follower)


@contextlib.asynccontextmanager
async def serving(service: str, method: Any, anchor: greeting.Anchor, name: str = SERVER) -> AsyncIterator[str]:
    """One method of a service; its address."""
    pair = anchor.pair(name)
    front = server_tls.ServerTLS(lambda: pair, lambda: anchor.bundle)
    async with server.Server({service: [method]}, clock=greeting.CLOCK, tls=front).on(greeting.LOOPBACK) as address:
        yield str(address)


def client(address: str) -> proxy_clients.Client:
    return proxy_clients.Client(address, SERVER)


def believing(anchor: greeting.Anchor) -> trust.Trust:
    return trust.Trust(bundles.TrustBundle.from_pem(anchor.ca.pem), None)


@contextlib.asynccontextmanager
async def running(follower: F) -> AsyncIterator[F]:
    async with tasks.Group("test") as group:
        group.start(follower.run(), name="run")
        yield follower


async def until(reached: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not reached():
            await asyncio.sleep(0.01)
