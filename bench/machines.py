# SPDX-License-Identifier: Apache-2.0
"""Machines that are admitted by inventory: what the decision costs, a join, and a join beside requests that are parked.

The decision is the machine-approver's own judge, measured within this process beside the parse of the same requests. Joins
are those of `joins`. Who joins by inventory has a kubeconfig with the CA and does not ask for cluster-info, so they are set beside
joins with a bootstrap token that leave it out, too, and beside whole ones. Machines are declared by `handfast machine import` before
each round, and that is not measured.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import msgspec

from bench import joins, load, measure, servers, settings
from handfast.api import objects, resources, signing_requests
from handfast.client import api, cache, machine_inventory
from handfast.controllers import node_leases
from handfast.controllers.certificates import living_nodes
from handfast.controllers.certificates import requests as certificate_requests
from handfast.controllers.machines import client_requests
from handfast.controllers.machines import rivals as followed_rivals
from handfast.controllers.machines import standing as followed_standing
from handfast.datadir import machine_credentials
from handfast.rules import user_names
from handfast.rules.certificates import kubelet
from handfast.rules.machines import bootstrapper, inventory, standing
from handfast.rules.machines import settings as machine_settings
from handfast.runtime import clock

GROWTH_LIMIT_RATIO = 1.3
PARSE_LIMIT_RATIO = 1.0
JOIN_LIMIT_RATIO = 1.2
PARKED_LIMIT_RATIO = 1.3
FLAGS = ("--machines", "--unsafe-lift-limits")

_QUESTIONS = 1500
_FEW = 10
_REQUESTS = api.path(resources.SIGNING_REQUESTS)
_SECRET = f"/api/v1/namespaces/{bootstrapper.NAMESPACE}/secrets/{bootstrapper.TOKEN_SECRET}"
_PARKED = b"handfast_machine_approver_parked "
# All but those that were judged before there were too many: the limit, and some that are judged at the same time.
_NOT_PARKED = 200


async def machines(run: settings.Run) -> list[measure.Figure]:
    return [*_decisions(run.sizes), *await _joins(run)]


# The decision, within this process.


class _Fleet:
    """So many Machines, the judge that knows them, and requests of machines: three in four have a Machine."""

    def __init__(self, count: int) -> None:
        now = clock.SystemClock()
        created = objects.timestamp(now.now())
        # Nothing is asked of a server before a request is confirmed.
        client = cast("api.Client", None)
        known = machine_inventory.Inventory(client)
        for number in range(count):
            known.index.put(_machine(number, now.now()))
        leases = node_leases.NodeLeases(cache.Informer(node_leases.SOURCE), now)
        nodes = cache.Informer(client_requests.NODES)
        living = living_nodes.LivingNodes(client, now, leases)
        read = certificate_requests.Requests()
        others = followed_rivals.Rivals(read, now)
        self._judge = client_requests.ClientRequests(client, known, nodes, living, others, _credentials(created))
        whose = (number * 7919 % count if number % 4 else count + number for number in range(_QUESTIONS))
        self.items = [_request(number, _name(machine), created) for number, machine in enumerate(whose)]
        self._facts = [read.facts(item) for item in self.items]

    def decide(self) -> int:
        """Judge them all; how many are to be approved."""
        return sum(
            _now(self._judge.judge(item, facts, machine_settings.DEFAULT)).failed is None
            for item, facts in zip(self.items, self._facts, strict=True)
        )

    def parse(self) -> int:
        """Read them all, as the controllers do it once for each."""
        read = certificate_requests.Requests()
        return sum(isinstance(read.facts(item), kubelet.Facts) for item in self.items)


def _credentials(created: str) -> followed_standing.Standing:
    """Both bootstrap credentials count."""
    informers = {place: cache.Informer(followed_standing.source(place)) for place in standing.PLACES}
    for (_, namespace, name), informer in informers.items():
        meta = {"name": name, "namespace": namespace, "resourceVersion": "1", "creationTimestamp": created}
        informer.put(msgspec.convert({"metadata": meta}, followed_standing.View))
    return followed_standing.Standing(informers)


def _now(coroutine: Any) -> Any:
    """What a coroutine gives that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    raise load.UnexpectedAnswer("the judge waits for something")


def _name(number: int) -> str:
    return f"worker-{number:05d}.fleet.example"


def _machine(number: int, now: datetime.datetime) -> inventory.Machine:
    addresses = (
        inventory.Address(inventory.INTERNAL_DNS, _name(number)),
        inventory.Address(inventory.HOSTNAME, _name(number)),
        inventory.Address(inventory.INTERNAL_IP, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"),
    )
    return inventory.Machine(
        group=inventory.OPENSHIFT,
        namespace="openshift-machine-api",
        name=f"worker-{number:05d}",
        version=str(number),
        created=now,
        addresses=addresses,
        provider_id=f"bench:///{number}",
        phase="Provisioned",
    )


def _request(number: int, node: str, created: str) -> signing_requests.Request:
    sent = signing_requests.DECODER.decode(joins.Machine.named(node).body)
    groups = [*bootstrapper.GROUPS, user_names.AUTHENTICATED]
    return msgspec.structs.replace(
        sent,
        metadata=msgspec.structs.replace(sent.metadata, name=f"csr-{number}", creation_timestamp=created),
        spec=msgspec.structs.replace(sent.spec, username=bootstrapper.USER, groups=groups),
    )


def _timed(step: Callable[[], int], expected: int) -> float:
    begun = time.thread_time()
    count = step()
    used = time.thread_time() - begun
    if count != expected:
        raise load.UnexpectedAnswer(f"it was {count} requests, not {expected}")
    return used


def _decisions(sizes: settings.Sizes) -> list[measure.Figure]:
    few, many = _Fleet(_FEW), _Fleet(sizes.machines)
    known = _QUESTIONS - len(range(0, _QUESTIONS, 4))
    used: dict[str, list[float]] = {"few": [], "many": [], "parse": []}
    # As the controllers do after their start.
    gc.collect()
    gc.freeze()
    for number in range(sizes.short_rounds + 1):
        taken = (_timed(few.decide, known), _timed(many.decide, known), _timed(many.parse, _QUESTIONS))
        # The first round warms up.
        if number:
            for row, seconds in zip(used.values(), taken, strict=True):
                row.append(seconds)
    gc.unfreeze()
    growth, parses = measure.ratios(used["many"], used["few"]), measure.ratios(used["many"], used["parse"])
    title = f"machine-approver's decision, {sizes.machines:,} Machines"
    return [
        measure.Figure("machines.decision.growth", f"{title} ÷ {_FEW}", "×", growth, GROWTH_LIMIT_RATIO),
        measure.Figure("machines.decision.parse", "  ÷ the parse of its request", "×", parses, PARSE_LIMIT_RATIO),
        *(
            measure.Figure(f"machines.decision.{name}", f"  {text}", "µs", measure.microseconds(used[name], _QUESTIONS))
            for name, text in (("few", f"with {_FEW}"), ("many", f"with {sizes.machines:,}"), ("parse", "the parse"))
        ),
    ]


# Joins, on real processes.


class _Joining:
    """One way to join: where, with what, and the CPU seconds of its rounds."""

    def __init__(self, name: str, plane: servers.Server, credential: joins.Credential, *, known: bool = True) -> None:
        self._name = name
        self._plane = plane
        self._credential = credential
        self._known = known
        self.used: list[float] = []

    @property
    def milliseconds(self) -> list[float]:
        return [seconds * 1e3 for seconds in self.used]

    async def round(self, number: int, count: int) -> None:
        machines = joins.machines_named(f"{self._name}-{number}", count)
        if self._known:
            await declare(self._plane, [machine.node for machine in machines])
        async with self._plane.meter() as meter:
            await joins.join_all(self._plane, machines, joins.CONCURRENCY, self._credential)
        # The first round warms up.
        if number:
            self.used.append(meter.total / count)


async def _joins(run: settings.Run) -> list[measure.Figure]:
    """By a bootstrap token, by both of a fleet's credentials, and beside parked requests, in turns."""
    sizes = run.sizes
    async with _planes(run) as (quiet, flooded):
        worker, crowd = [joins.Credential(await worker_token(plane)) for plane in (quiet, flooded)]
        await _flood(flooded, crowd, sizes.parked)
        token = dataclasses.replace(joins.BOOTSTRAP_TOKEN, discovers=False)
        whole = _Joining("whole", quiet, joins.BOOTSTRAP_TOKEN, known=False)
        by_token = _Joining("token", quiet, token, known=False)
        by_worker = _Joining("worker", quiet, worker)
        by_master = _Joining("master", quiet, joins.Credential(context=_master(quiet)))
        beside = _Joining("crowd", flooded, crowd)
        for number in range(sizes.rounds + 1):
            for each in (whole, by_token, by_worker, beside, by_master):
                await each.round(number, sizes.joins // 2)
        parked = await _parked(flooded)
    if parked < sizes.parked - _NOT_PARKED:
        raise load.UnexpectedAnswer(f"{parked} requests are parked, not {sizes.parked}")
    return [
        *_figures("worker", "join by inventory, workers' token", by_worker, by_token, whole),
        *_figures("master", "join by inventory, masters' certificate", by_master, by_token, whole),
        measure.Figure("machines.join.token.cpu", "join with a bootstrap token: CPU", "ms", by_token.milliseconds),
        measure.Figure("machines.join.whole.cpu", "  and with cluster-info", "ms", whole.milliseconds),
        measure.Figure(
            "machines.parked",
            f"join by inventory beside {sizes.parked} parked requests: CPU ÷ without",
            "×",
            measure.ratios(beside.used, by_worker.used),
            PARKED_LIMIT_RATIO,
        ),
        measure.Figure("machines.parked.cpu", "  CPU per join", "ms", beside.milliseconds),
    ]


def _figures(name: str, title: str, ours: _Joining, token: _Joining, whole: _Joining) -> list[measure.Figure]:
    """Beside the same connections with a bootstrap token, and beside all that such a join is."""
    # A handshake with a client certificate costs the floor twice as much as one without: that part is TLS's, and shown.
    strict = JOIN_LIMIT_RATIO if name == "worker" else None
    same = measure.ratios(ours.used, token.used)
    return [
        measure.Figure(f"machines.join.{name}", f"{title}: CPU ÷ with a bootstrap token", "×", same, strict),
        measure.Figure(
            f"machines.join.{name}.whole",
            "  ÷ the whole join with one, cluster-info included",
            "×",
            measure.ratios(ours.used, whole.used),
            JOIN_LIMIT_RATIO,
        ),
        measure.Figure(f"machines.join.{name}.cpu", "  CPU per join", "ms", ours.milliseconds),
    ]


@contextlib.asynccontextmanager
async def _planes(run: settings.Run) -> AsyncIterator[tuple[servers.Server, servers.Server]]:
    """Two control planes that admit machines; the first has a bootstrap token, too."""
    async with (
        servers.plane(run.directory / "machines", *FLAGS) as quiet,
        servers.plane(run.directory / "flooded", *FLAGS) as flooded,
    ):
        await joins.allow(quiet)
        yield quiet, flooded


async def worker_token(plane: servers.Server) -> str:
    """The workers' credential, once its controller has made it."""
    async with asyncio.timeout(30):
        while True:
            status, body = await load.exchange(plane.port, plane.context, load.get(_SECRET))
            data = msgspec.json.decode(body).get("data", {}) if status == 200 else {}
            if data.get("token"):
                return base64.b64decode(data["token"]).decode()
            await asyncio.sleep(0.1)


def _master(plane: servers.Server) -> Any:
    return servers.client_context(plane.place.machines / machine_credentials.KUBECONFIG_FILE)


async def declare(plane: servers.Server, nodes: Sequence[str]) -> None:
    """`handfast machine import`, of machines with these names."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handfast", "machine", "import", "-", "--set", nodes[0]),
        *("--dir", str(plane.place.root), "-o", "json"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    table = "".join(f"{node},{node}\n" for node in nodes)
    await process.communicate(f"name,dns\n{table}".encode())
    if process.returncode:
        raise load.UnexpectedAnswer(f"`handfast machine import` ended with {process.returncode}")


async def _flood(plane: servers.Server, credential: joins.Credential, count: int) -> None:
    """Requests of machines that nobody knows."""
    waiting = iter(range(count))
    trusting = joins.trusting(plane)

    async def work() -> None:
        intruder = await joins.Conversation.open(plane.port, trusting, credential.token)
        for number in waiting:
            joins.require(await intruder.ask("POST", _REQUESTS, joins.Machine.named(f"nobody-{number}").body), 201)
        intruder.close()

    await asyncio.gather(*(work() for _ in range(8)))
    await plane.settle()


async def _parked(plane: servers.Server) -> float:
    """How many requests are parked, as the controllers say."""
    endpoint = json.loads((plane.place.root / "endpoints.json").read_text())["controllersAdmin"]
    reader, writer = await asyncio.open_connection(*endpoint.removeprefix("http://").rsplit(":", 1))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
    text = await reader.read()
    writer.close()
    return float(text.partition(b"\n" + _PARKED)[2].split(b"\n", 1)[0])
