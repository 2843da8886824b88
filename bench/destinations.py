# SPDX-License-Identifier: Apache-2.0
"""A thousand streams of discovery, each with one update a second, beside bare grpcio writes of the same octets to as many.

Ten Services change once a second each, by one endpoint of the mesh that comes or goes; a tenth of the streams is about each. What counts is the CPU of
every process of `up --mesh`: the API server that takes the writes, the controllers that see them, the destination service, and those that idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import msgspec

from bench import load, measure, servers, settings
from handfast.rules.mesh import injection, sidecar, workloads
from handfast.rules.mesh import settings as mesh_settings
from handfast.wire import mesh_messages

LIMIT_RATIO = 3.0
SERVICES = 10
ENDPOINTS = 10
_CHANNELS = 20
_SHOP = "/api/v1/namespaces/default"
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


@dataclass(slots=True)
class Side:
    """One of the two: where its streams are, which processes count, and how every stream gets its next message."""

    target: str
    method: str
    meter: Callable[[], measure.Meter]
    request: Callable[[int], bytes]
    change: Callable[[], Awaitable[None]]
    used: list[float] = field(default_factory=list)
    by_process: dict[str, float] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)


class Streams:
    """Open streams, and how many messages came on all of them."""

    def __init__(self) -> None:
        self.messages = 0
        self.last = b""
        self._channels: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, side: Side, count: int) -> None:
        options = (("grpc.use_local_subchannel_pool", 1),)
        self._channels = [grpc.aio.insecure_channel(side.target, options=options) for _ in range(_CHANNELS)]
        for number in range(count):
            call = self._channels[number % _CHANNELS].unary_stream(side.method)(side.request(number))
            self._tasks.append(asyncio.create_task(self._read(call)))
        await self.until(count)

    async def _read(self, call: Any) -> None:
        async for octets in call:
            self.messages += 1
            self.last = octets

    async def until(self, messages: int) -> None:
        deadline = time.monotonic() + 60
        while self.messages < messages:
            for task in self._tasks:
                if task.done():
                    task.result()
            if time.monotonic() > deadline:
                raise load.UnexpectedAnswer(f"{self.messages} messages came, not {messages}")
            await asyncio.sleep(0.002)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels:
            await channel.close()


async def destination(run: settings.Run) -> list[measure.Figure]:
    sizes = run.sizes
    async with servers.plane(run.directory / "destination", "--mesh", *servers.MESH_PORTS) as plane, _floor() as port:
        ours, floor = await _plane(plane), _bare(*port)
        for _ in range(sizes.rounds):
            message = await _round(ours, sizes)
            floor.change = _saying(floor.target, message)
            await _round(floor, sizes)
    messages = sizes.streams * sizes.stream_updates
    shares = [
        measure.Figure(f"destination.{name}", f"  of it: {name}", "µs", [used / sizes.rounds / messages * 1e6])
        for name, used in ours.by_process.items()
    ]
    title = f"discovery, {sizes.streams} streams × 1/s: CPU ÷ bare stream writes"
    return [
        measure.Figure("destination.ratio", title, "×", measure.ratios(ours.used, floor.used), LIMIT_RATIO),
        measure.Figure("destination.cpu", "  CPU per update", "µs", measure.microseconds(ours.used, messages)),
        measure.Figure("destination.floor", "  the floor's", "µs", measure.microseconds(floor.used, messages)),
        *shares,
        measure.Figure("destination.time", "  until all have an update", "ms", [value * 1e3 for value in ours.times]),
        measure.Figure("destination.floor_time", "  the floor's", "ms", [value * 1e3 for value in floor.times]),
    ]


async def _round(side: Side, sizes: settings.Sizes) -> bytes:
    """Updates at one a second; the octets of the last one."""
    streams = Streams()
    await streams.open(side, sizes.streams)
    meter = side.meter()
    times = []
    async with meter:
        begun = time.perf_counter()
        for number in range(1, sizes.stream_updates + 1):
            sent = time.perf_counter()
            await side.change()
            await streams.until(sizes.streams * (number + 1))
            times.append(time.perf_counter() - sent)
            await asyncio.sleep(max(0.0, begun + number - time.perf_counter()))
    if streams.messages != sizes.streams * (sizes.stream_updates + 1):
        raise load.UnexpectedAnswer(f"{streams.messages} messages came on {sizes.streams} streams")
    await streams.close()
    side.used.append(meter.total)
    side.times.append(measure.percentile(times, 0.5))
    for name, used in meter.used.items():
        side.by_process[name] = side.by_process.get(name, 0.0) + used
    return streams.last


@contextlib.asynccontextmanager
async def _floor() -> AsyncIterator[tuple[int, int]]:
    """Port and process of the floor."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.grpc_floor"), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        if process.stdout is None:
            raise load.UnexpectedAnswer("the floor has no output")
        yield int(await process.stdout.readline()), process.pid
    finally:
        # At once: of an orderly end the library would tell a line for each connection.
        process.kill()
        await process.wait()


def _bare(port: int, pid: int) -> Side:
    async def nothing() -> None: ...

    return Side(
        f"127.0.0.1:{port}", "/floor.Streams/Get", lambda: measure.Meter({"floor": pid}), lambda _: b"", nothing
    )


def _saying(target: str, message: bytes) -> Callable[[], Awaitable[None]]:
    async def say() -> None:
        async with grpc.aio.insecure_channel(target) as channel:
            await channel.unary_unary("/floor.Streams/Say")(message)

    return say


async def _plane(plane: servers.Server) -> Side:
    """Services with endpoints of the mesh in a real control plane."""

    async def post(path: str, document: dict[str, Any]) -> None:
        status, body = await load.exchange(plane.port, plane.context, load.send("POST", path, _encoded(document)))
        if status not in {201, 409}:
            raise load.UnexpectedAnswer(f"{path} was answered with {status} {body[:200]!r}")

    for number in range(ENDPOINTS + 1):
        await post(f"{_SHOP}/pods", _pod(number))
        await _report(plane, number)
    for service in range(SERVICES):
        await post(f"{_SHOP}/services", _service(service))
        await post(_SLICES, _slice(service, ENDPOINTS))
    endpoints = json.loads((plane.place.root / "endpoints.json").read_text())
    counts = itertools.cycle((ENDPOINTS + 1, ENDPOINTS))
    connections = [await load.connect(plane.port, plane.context) for _ in range(SERVICES)]

    async def change() -> None:
        count = next(counts)
        await asyncio.gather(
            *(
                connection.request(load.send("PUT", f"{_SLICES}/s{number}", _encoded(_slice(number, count))))
                for number, connection in enumerate(connections)
            )
        )

    return Side(
        _address(endpoints),
        f"/{mesh_messages.DESTINATION_SERVICE}/Get",
        plane.meter,
        lambda number: bytes(
            mesh_messages.GetDestination(path=f"s{number % SERVICES}.default.svc.cluster.local:80").SerializeToString()
        ),
        change,
    )


def _address(endpoints: dict[str, Any]) -> str:
    address = endpoints.get("destination") or endpoints["mesh"]["destination"]
    return str(address)


async def _report(plane: servers.Server, number: int) -> None:
    """The Pod's address, as a kubelet reports it."""
    ip = _ip(number)
    body = _encoded({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}})
    request = load.send("PATCH", f"{_SHOP}/pods/p{number}/status", body).replace(
        b"Content-Type: application/json", b"Content-Type: application/merge-patch+json"
    )
    status, answer = await load.exchange(plane.port, plane.context, request)
    if status != 200:
        raise load.UnexpectedAnswer(f"a status was answered with {status} {answer[:200]!r}")


def _pod(number: int) -> dict[str, Any]:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{number}", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]},
    }
    workload = workloads.find(document)
    if workload is None:
        raise LookupError("a Pod is no workload")
    plan = sidecar.Plan(settings=mesh_settings.Settings(), anchors="PEM", created_by="bench")
    return injection.inject(plan, sidecar.Target(workload=workload, namespace="default", identity=True))


def _service(number: int) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{number}"}, "spec": {"ports": ports}}


def _slice(service: int, endpoints: int) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"s{service}", "labels": {"kubernetes.io/service-name": f"s{service}"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [
            {"addresses": [_ip(number)], "targetRef": {"kind": "Pod", "namespace": "default", "name": f"p{number}"}}
            for number in range(endpoints)
        ],
    }


def _ip(number: int) -> str:
    return f"10.9.0.{number + 1}"


def _encoded(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(document)
