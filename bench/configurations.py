# SPDX-License-Identifier: Apache-2.0
"""Machine configurations: what one costs that is served beside a GET of as many bytes, and what rendering costs beside reading.

A configuration is fetched as a node fetches it, with the node's certificate, from the machine-config server of `up --machines`. The
object beside it is a ConfigMap that is as long as the configuration. The same nodes GET it from the API server, on the same kind of
connection, each from an address of its own. CPU is that of all processes of the control plane on both sides. Limits of the servers
are on. Rendering is measured within this process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bench import identities, joins, load, measure, preload, servers, settings
from handfast.api import machine_config_kinds, resources
from handfast.client import api, machine_configs
from handfast.rules import user_names
from handfast.rules.machine_config import credential, data_urls, merging, names, rendering

SERVED_LIMIT_RATIO = 2.0
RENDER_LIMIT_RATIO = 1.2
ROLE = "node-role.kubernetes.io"
SMALL = machine_config_kinds.WORKER
_LARGE = "large"
# Text as configuration files have it: some of it is written as %XX in a data URL.
_TEXT = "# what the kubelet of this machine reads\nsetting: a-value-of-some-length\n"
_BINDINGS = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{preload.NAMESPACE}/rolebindings"
_NODES = 16
_RENDERED = 200
_LONGEST_SECONDS = 60.0


def file(path: str, size: int) -> dict[str, Any]:
    """A file of Ignition with so many bytes of text."""
    text = (_TEXT * (size // len(_TEXT) + 1))[:size]
    return {"path": path, "mode": 0o644, "contents": {"source": data_urls.encode(text.encode())}}


def machine_config(name: str, role: str, files: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    config = {"ignition": {"version": "3.4.0"}, "storage": {"files": list(files)}, **more}
    return {
        "apiVersion": machine_config_kinds.MACHINE_CONFIG.api_version,
        "kind": machine_config_kinds.MACHINE_CONFIG.kind,
        "metadata": {"name": name, "labels": {names.ROLE_LABEL: role}},
        "spec": {"config": config},
    }


def of_workers() -> list[dict[str, Any]]:
    """Twenty files of 1 kB, in four MachineConfigs."""
    return [
        machine_config(f"{one:02d}-{SMALL}", SMALL, [file(f"/etc/bench/{one}-{two}.conf", 1000) for two in range(5)])
        for one in range(4)
    ]


async def configurations(run: settings.Run) -> list[measure.Figure]:
    return [*_rendering(run.sizes), *await _serving(run)]


# Rendering, within this process.


def _many() -> list[bytes]:
    """MachineConfigs as the API server sends them, each with a file, a unit and a drop-in."""

    def one(number: int) -> dict[str, Any]:
        dropin = {"name": f"{number}.conf", "contents": "[Service]\nEnvironment=A=1\n"}
        units = [
            {"name": f"bench-{number}.service", "enabled": True, "contents": "[Service]\nExecStart=/bin/true\n"},
            {"name": "kubelet.service", "dropins": [dropin]},
        ]
        document = machine_config(
            f"{number:03d}-bench", SMALL, [file(f"/etc/bench/{number}.conf", 1000)], systemd={"units": units}
        )
        document["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": f"{number}"}
        return document

    return [msgspec.json.encode(one(number)) for number in range(_RENDERED)]


def _timed(step: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.thread_time()
    result = step()
    return time.thread_time() - begun, result


def _rendering(sizes: settings.Sizes) -> list[measure.Figure]:
    texts = _many()
    held = credential.Credential(names.SERVICE_ACCOUNT, b"")
    used: dict[str, list[float]] = {"decode": [], "parse": [], "render": []}
    gc.collect()
    gc.freeze()
    for number in range(sizes.short_rounds + 1):
        decoded, documents = _timed(lambda: [msgspec.json.decode(text) for text in texts])
        judged, pieces = _timed(functools.partial(merging.read_all, documents))
        rendered, document = _timed(functools.partial(rendering.of_pieces, SMALL, pieces, held, "bench"))
        if len(document["spec"]["config"]["storage"]["files"]) != _RENDERED:
            raise load.UnexpectedAnswer("a rendering has not all files")
        # The first round warms up.
        if number:
            for row, seconds in zip(used.values(), (decoded, decoded + judged, rendered), strict=True):
                row.append(seconds)
    gc.unfreeze()
    parse = used["parse"]
    whole = [read + rendered for read, rendered in zip(parse, used["render"], strict=True)]
    title = f"{_RENDERED} MachineConfigs rendered: CPU ÷ that of reading and judging them"
    return [
        measure.Figure("configurations.render", title, "×", measure.ratios(used["render"], parse), RENDER_LIMIT_RATIO),
        measure.Figure("configurations.render.whole", "  both together ÷ it", "×", measure.ratios(whole, parse)),
        measure.Figure(
            "configurations.render.decode",
            "  both together ÷ msgspec's decode alone",
            "×",
            measure.ratios(whole, used["decode"]),
        ),
        *(
            measure.Figure(
                f"configurations.render.{name}_cpu", f"  {text}", "ms", [value * 1e3 for value in used[name]]
            )
            for name, text in (
                ("decode", "decoding"),
                ("parse", "decoding and judging"),
                ("render", "merging and naming"),
            )
        ),
    ]


# Serving, on real processes.


@dataclass(frozen=True, slots=True)
class _Visitor:
    """Who asks: a node's certificate, from an address of its own."""

    context: ssl.SSLContext
    source: str


@dataclass(slots=True)
class _Side:
    """One of the two servers: where, what is asked of it, and the CPU seconds of each request by kind of connection."""

    server: servers.Server
    ask: bytes
    used: dict[str, list[float]] = field(default_factory=dict)


async def _serving(run: settings.Run) -> list[measure.Figure]:
    directory = run.directory / "configurations"
    pools = {SMALL: "20 files of 1 kB", _LARGE: "one file of 100 kB"}
    preload.write(directory, [stored for pool in pools for stored in _nodes(pool)])
    figures: list[measure.Figure] = []
    async with servers.plane(directory, "--machines") as plane:
        issuer = identities.Issuer(plane)
        await _make(plane)
        # A pool is rendered anew for each MachineConfig.
        await plane.settle()
        for number, (pool, title) in enumerate(pools.items()):
            visitors = [
                _Visitor(issuer.context(user_names.node_user(name), user_names.NODES), f"127.8.{number}.{index + 1}")
                for index, name in enumerate(_names(pool))
            ]
            figures += await _served(plane, pool, title, visitors, run.sizes)
    return figures


def _names(pool: str) -> list[str]:
    return [f"{pool}-{number:02d}.bench.example" for number in range(_NODES)]


def _nodes(pool: str) -> list[preload.Stored]:
    return [stored for name in _names(pool) for stored in preload.node(name, {f"{ROLE}/{pool}": ""})]


async def _make(plane: servers.Server) -> None:
    """The MachineConfigs, a pool of its own for the large one, and what lets nodes read the ConfigMaps."""
    selector = {"matchLabels": {names.ROLE_LABEL: _LARGE}}
    pool = {
        "apiVersion": machine_config_kinds.MACHINE_CONFIG_POOL.api_version,
        "kind": machine_config_kinds.MACHINE_CONFIG_POOL.kind,
        "metadata": {"name": _LARGE},
        "spec": {"machineConfigSelector": selector, "nodeSelector": {"matchLabels": {f"{ROLE}/{_LARGE}": ""}}},
    }
    large = machine_config(f"00-{_LARGE}", _LARGE, [file("/etc/bench/large.conf", 100_000)])
    for document in (*of_workers(), large):
        await create(plane, api.path(machine_config_kinds.MACHINE_CONFIG), document)
    await create(plane, api.path(machine_config_kinds.MACHINE_CONFIG_POOL), pool)
    nodes = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": user_names.NODES}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "nodes-read"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [nodes],
    }
    await create(plane, _BINDINGS, binding)


async def create(plane: servers.Server, path: str, document: Mapping[str, Any]) -> None:
    ask = load.send("POST", path, msgspec.json.encode(document))
    joins.require(await load.exchange(plane.port, plane.context, ask), 201)


def machine_config_server(plane: servers.Server) -> servers.Server:
    """The same control plane, asked for configurations."""
    url = json.loads((plane.place.root / "endpoints.json").read_text())["machineConfig"]
    return dataclasses.replace(plane, port=int(url.rpartition(":")[2]))


def ask_for(pool: str) -> bytes:
    """As an agent asks."""
    return f"GET /config/{pool} HTTP/1.1\r\nHost: bench\r\nAccept: {machine_configs.ACCEPT}\r\n\r\n".encode()


async def configuration(server: servers.Server, context: ssl.SSLContext, pool: str) -> bytes:
    """The configuration of a pool, once it is rendered."""
    async with asyncio.timeout(_LONGEST_SECONDS):
        while True:
            status, body = await load.exchange(server.port, context, ask_for(pool))
            if status == 200:
                return body
            await asyncio.sleep(0.2)


async def _served(
    plane: servers.Server, pool: str, title: str, visitors: Sequence[_Visitor], sizes: settings.Sizes
) -> list[measure.Figure]:
    fleet = machine_config_server(plane)
    size = len(await configuration(fleet, visitors[0].context, pool))
    path = await _as_long(plane, pool, size)
    sides = (_Side(plane, load.get(path)), _Side(fleet, ask_for(pool)))
    kinds: Mapping[str, Callable[[_Side, Sequence[_Visitor], settings.Sizes], Awaitable[int]]] = {
        "kept": _on_kept,
        "new": _on_new,
    }
    for number in range(sizes.rounds + 1):
        for kind, ask in kinds.items():
            for side in sides:
                async with side.server.meter() as meter:
                    count = await ask(side, visitors, sizes)
                # The first round warms up.
                if number:
                    side.used.setdefault(kind, []).append(meter.total / count)
    return [figure for kind in kinds for figure in _figures(pool, f"{title}, {size / 1000:.0f} kB", kind, *sides)]


async def _as_long(plane: servers.Server, name: str, size: int) -> str:
    """The path of a ConfigMap that is as long as a configuration, as the API server sends it."""
    at = api.path(resources.CONFIG_MAPS, namespace=preload.NAMESPACE, name=name)

    def document(length: int) -> dict[str, Any]:
        text = data_urls.encode(_TEXT.encode()) * (length // len(_TEXT) + 1)
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"config": text[:length]}}

    await create(plane, api.path(resources.CONFIG_MAPS, namespace=preload.NAMESPACE), document(size))
    more = len(await load.fetch(plane.port, plane.context, at)) - size
    ask = load.send("PUT", at, msgspec.json.encode(document(size - more)))
    joins.require(await load.exchange(plane.port, plane.context, ask), 200)
    return at


async def _on_kept(side: _Side, visitors: Sequence[_Visitor], sizes: settings.Sizes) -> int:
    total = sizes.gets // 4
    clients = load.Clients([await _connect(side, each) for each in visitors])
    await clients.run(lambda _: side.ask, total)
    clients.close()
    return total


async def _on_new(side: _Side, visitors: Sequence[_Visitor], sizes: settings.Sizes) -> int:
    each = max(1, sizes.connections // len(visitors))

    async def in_turn(visitor: _Visitor) -> None:
        for _ in range(each):
            clients = load.Clients([await _connect(side, visitor)])
            await clients.run(lambda _: side.ask, 1)
            clients.close()

    await asyncio.gather(*(in_turn(visitor) for visitor in visitors))
    return each * len(visitors)


async def _connect(side: _Side, visitor: _Visitor) -> load.Connection:
    connection: load.Connection = await load.connect(side.server.port, visitor.context, source=visitor.source)
    return connection


def _figures(pool: str, title: str, kind: str, objects: _Side, ours: _Side) -> list[measure.Figure]:
    words = {"kept": "kept connections", "new": "new connections"}[kind]
    gets, used = objects.used[kind], ours.used[kind]
    name = f"configurations.{pool}.{kind}"
    return [
        measure.Figure(
            name,
            f"configuration ({title}), {words}: CPU ÷ a GET's of that size",
            "×",
            measure.ratios(used, gets),
            SERVED_LIMIT_RATIO,
        ),
        measure.Figure(f"{name}.cpu", "  CPU per configuration", "µs", measure.microseconds(used, 1)),
        measure.Figure(f"{name}.get", "  CPU per GET", "µs", measure.microseconds(gets, 1)),
    ]
