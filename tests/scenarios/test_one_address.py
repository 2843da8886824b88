# SPDX-License-Identifier: Apache-2.0
"""Many machines behind one address, as behind NAT or a balancer: all of them join, and strangers there keep nobody out.

The machines use what `handfast join` uses, each with a search, a login and a certificate of its own, a hundred at once.
With the limits of a real server a thousand need minutes, so that fewer come here, to bursts that are smaller in the same
measure: nearly all of what they ask is over its rate. HANDFAST_MACHINES=1000 has that many come to the real limits.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import os
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast import errors
from handfast.api import resources
from handfast.apiserver import limits
from handfast.assembly import node as nodes
from handfast.bootstrap import cluster_info, discovery, endpoints, tokens
from handfast.cli import join_cluster
from handfast.client import discovery as searching
from handfast.node import identity
from handfast.pki import pem, pins
from handfast.runtime import clock as clocks
from tests.scenarios import callers, granting, wire
from tests.world import certifying, tls_cluster
from tests.world import world as worlds

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.slow]

MACHINES = int(os.environ.get("HANDFAST_MACHINES", "60"))
REAL = "HANDFAST_MACHINES" in os.environ
# A burst of each is what 1,000 machines find, in proportion; what comes back in a second is not as little.
SCALED = limits.Limits(
    connections_per_second=40.0, connections_burst=24,
    proven_per_second=80.0, proven_burst=72,
    anonymous_per_second=40.0, anonymous_burst=12,
    join_per_second=40.0, join_burst=12,
)  # fmt: skip
TOKEN = tokens.parse(certifying.TOKEN)
PUBLIC = f"{granting.RBAC}/namespaces/kube-public"


class Machine:
    """One that joins, with a directory of its own."""

    def __init__(self, world: worlds.World, directory: pathlib.Path, number: int) -> None:
        self.world = world
        self.name = f"n{number}"
        self.directory = directory / self.name
        self.clock = clocks.SystemClock()

    async def join(self) -> None:
        """As `handfast join`."""
        ca = pem.certificates_from_pem(self.world.place.ca_certificate.read_bytes())[0]
        method = discovery.ByToken(TOKEN, (pins.of_certificate(ca),))
        search = searching.Discovery(self.clock, timeout=300.0)
        found = await search.by_token([endpoints.parse(self.world.base.removeprefix("https://"))], method)
        assert await search.login(found, TOKEN, signs=True)
        self.directory.mkdir()
        where = identity.Places(
            node=self.name,
            kubeconfig=self.directory / "kubelet.conf",
            bootstrap_kubeconfig=self.directory / "bootstrap.conf",
            directory=self.directory / "pki",
        )
        (self.directory / "bootstrap.conf").write_text(join_cluster.bootstrap_kubeconfig(found, TOKEN))
        await nodes.obtain(where, 300.0, clock=self.clock)


async def issue(certifier: certifying.Certifier, document: dict[str, Any]) -> None:
    """As often as it takes: the server is busy, and this signer shares a processor with all the machines."""
    for _ in range(20):
        with contextlib.suppress(errors.Refused, errors.Unavailable):
            current = await certifier.client.get(resources.SIGNING_REQUESTS, document["metadata"]["name"])
            await certifying.issue(certifier, current)
            return
        await asyncio.sleep(1)


@contextlib.asynccontextmanager
async def joinable(directory: pathlib.Path, bounds: limits.Limits) -> AsyncIterator[worlds.World]:
    """A world that publishes itself, signed with the token, and signs every request."""
    async with (
        worlds.world(directory / "world", clock=clocks.SystemClock(), limits=bounds) as world,
        certifying.certified(world) as certifier,
        asyncio.TaskGroup() as group,
    ):

        async def answer(certifier: certifying.Certifier, document: dict[str, Any]) -> None:
            # The watch is read on meanwhile.
            group.create_task(issue(certifier, document))

        certifier.answer = answer
        info = cluster_info.ClusterInfo((world.base,), world.place.ca_certificate.read_bytes(), "uid-1")
        role = {"metadata": {"name": "reader"}, "rules": [granting.rule("get", "configmaps", "cluster-info")]}
        binding = granting.binding("reader", "Role", "reader", granting.user("system:anonymous"))
        for path, document in (
            ("/api/v1/namespaces/kube-public/configmaps", tls_cluster.signed(cluster_info.build(info), TOKEN)),
            (f"{PUBLIC}/roles", role),
            (f"{PUBLIC}/rolebindings", binding),
        ):
            made = await world.request("POST", path, document)
            assert made.status == 201, made.body
        yield world


@pytest.mark.timeout(900)
async def test_all_of_many_machines_join(tmp_path: pathlib.Path) -> None:
    bounds = limits.Limits() if REAL else SCALED
    begun = datetime.datetime.now(datetime.UTC)
    async with joinable(tmp_path, bounds) as world:
        machines = [Machine(world, tmp_path, number) for number in range(MACHINES)]
        # They share one processor here, and a client gives a handshake ten seconds.
        at_once = asyncio.Semaphore(100)

        async def come(machine: Machine) -> None:
            async with at_once:
                await machine.join()

        came = await asyncio.gather(*map(come, machines), return_exceptions=True)
        taken = datetime.datetime.now(datetime.UTC) - begun
        failed = collections.Counter(repr(error) for error in came if error is not None)
        late = await callers.refusals(world, "TooManyRequests", "ratelimit")
        reset = world.server.listener.refused
        print(f"{MACHINES} joins in {taken.total_seconds():.1f} s, {late:g} answers of 429, {reset} resets")
        assert not failed
        # They did meet the limits: this is not a test of a server with room for all.
        assert late > 0 or REAL


async def test_strangers_behind_the_same_address(tmp_path: pathlib.Path) -> None:
    """A node connects anew again and again, at once each time, while strangers there are far over the rate."""
    bounds = dataclasses.replace(
        SCALED, connections_per_second=10.0, connections_burst=10, proven_per_second=400.0, waiting_seconds=1.0
    )
    async with worlds.world(tmp_path / "world", clock=clocks.SystemClock(), limits=bounds) as world:
        port = world.server.address[1]
        context = world.context_for("system:node:n1", "system:nodes")
        stop = asyncio.Event()
        tried = 0

        async def stranger() -> None:
            nonlocal tried
            while not stop.is_set():
                tried += 1
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(b"GET / HTTP/1.1\r\n\r\n")
                    writer.close()
                    await writer.wait_closed()
                await asyncio.sleep(0.02)

        async def ask() -> Any:
            async with wire.line(port, context) as line:
                return (await line.ask("GET", "/api/v1/nodes/n1")).status

        assert await ask() == 404
        strangers = [asyncio.create_task(stranger()) for _ in range(3)]
        # Until they have used up all that a source of strangers has.
        async with asyncio.timeout(30):
            while tried < 40:
                await asyncio.sleep(0.01)
        assert [await ask() for _ in range(40)] == [404] * 40
        stop.set()
        await asyncio.gather(*strangers)
        assert tried > 40
