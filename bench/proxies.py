# SPDX-License-Identifier: Apache-2.0
"""A request of HTTP/1.1 through two proxies of the mesh: the CPU of both Envoys, beside two nginx that do mutual TLS, in turns.

Real Envoys, with the listeners, routes and clusters that an agent sends: identity headers, a policy that lets the client in by its name, a thousand denied names, and
the access log of edges. Each proxy has one worker. `wrk` asks, and an nginx answers 13 octets; neither is counted, nor is whoever sends Envoy its configuration: an agent has nothing to do
with a request. Each process has a session of its own: with sched_autogroup, those of one session are preferred to one another.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench import load, measure, nginx, servers, settings
from handfast.pki import authority, keys, names, pairs, profiles
from handfast.proxy import edges, envoy
from handfast.rules.envoy import application as application_clusters
from handfast.rules.envoy import dns, inbound, inbound_routes, judging, outbound, outbound_routes, ports, resources, tls
from handfast.runtime import clock as clocks
from handfast.wire import ads

# At 32 connections, and at one.
RATIOS: Final = {32: 2.8, 1: 3.5}
DENIED: Final = 1000
_SUFFIX: Final = "sa.linkerd-identity.linkerd.cluster.local"
_WEB: Final = f"web.shop.{_SUFFIX}"
_VOTE: Final = f"vote.shop.{_SUFFIX}"
_HOST: Final = "web.shop.svc.cluster.local"
_DOMAIN: Final = "svc.cluster.local"
_HOME: Final = "127.0.0.1"
_LONGEST: Final = 8640
_DEADLINE: Final = 30.0
_CLOCK: Final = clocks.SystemClock()
_KIND: Final = resources.Kind
_BOTH: Final = profiles.Profile(
    name="both", usages=profiles.CLIENT.usages | profiles.KUBELET_SERVING.usages, lifetime=profiles.YEAR
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two proxies: where the first is asked, and whose CPU counts."""

    port: int
    pids: tuple[int, ...]


async def proxies(run: settings.Run) -> list[measure.Figure]:
    """The figures of requests."""
    if not shutil.which("nginx") or not shutil.which("wrk"):
        raise load.UnexpectedAnswer("this case needs nginx and wrk: apt-get install nginx wrk")
    with tempfile.TemporaryDirectory(prefix="hf-") as name:
        home = pathlib.Path(name)
        async with _pairs(home) as (ours, theirs):
            for pair in (ours, theirs):
                await _asked(pair, 1, 1)
            return [figure for many in RATIOS for figure in await _rounds(run.sizes, ours, theirs, many)]


async def _rounds(sizes: settings.Sizes, ours: Pair, theirs: Pair, many: int) -> list[measure.Figure]:
    rows: dict[Pair, list[float]] = {ours: [], theirs: []}
    for number in range(-1, sizes.short_rounds):
        for pair, costs in rows.items():
            cost = await _asked(pair, many, sizes.proxy_seconds)
            if number >= 0:
                costs.append(cost)
    title = f"a request through two proxies, {many} connection{'s' if many > 1 else ''}"
    ratios = measure.ratios(rows[ours], rows[theirs])
    return [
        measure.Figure(f"proxies.{many}.nginx", f"{title}, nginx", "µs", rows[theirs]),
        measure.Figure(f"proxies.{many}.cpu", f"{title}, Envoy", "µs", rows[ours]),
        measure.Figure(f"proxies.{many}.ratio", f"{title}, of nginx", "×", ratios, RATIOS[many]),
    ]


async def _asked(pair: Pair, connections: int, seconds: int) -> float:
    """Microseconds of CPU for one request."""
    words = ("wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-H", f"Host: {_HOST}", f"http://{_HOME}:{pair.port}/")
    meter = measure.Meter({str(pid): pid for pid in pair.pids})
    async with meter:
        # By vfork, in a thread: gRPC acts upon every fork of a loop's.
        done = await asyncio.to_thread(
            subprocess.run,
            words,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
    text = done.stdout + done.stderr
    match = re.search(r"(\d+) requests in", text)
    if match is None or "Non-2xx" in text or "Socket errors" in text or not int(match[1]):
        raise load.UnexpectedAnswer(text)
    return meter.total / int(match[1]) * 1e6


@contextlib.asynccontextmanager
async def _pairs(home: pathlib.Path) -> AsyncIterator[tuple[Pair, Pair]]:
    """Two Envoys and two nginx, in front of one application."""
    root = authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), _CLOCK.now())
    place = [f"{_HOME}:{await servers.free_port()}" for _ in range(3)]
    application, far, near = place
    pki = _written(home / "pki", root)
    async with (
        _nginx(home / "backend", nginx.backend(application)),
        _nginx(home / "server", nginx.server(far, application, pki)) as server,
        _nginx(home / "client", nginx.client(near, far, pki)) as client,
        _envoys(home, root, _port(application)) as ours,
    ):
        yield ours, Pair(_port(near), (server, client))


def _port(place: str) -> int:
    return int(place.rpartition(":")[2])


def _signed(root: authority.Authority, name: str) -> pairs.Pair:
    key = keys.generate()
    issued = root.issue(key.public, names.Subject(), names.Sans(dns=(name,)), _BOTH, _CLOCK.now())
    return pairs.Pair((issued.der,), key)


def _written(directory: pathlib.Path, root: authority.Authority) -> pathlib.Path:
    """What nginx reads: the certificates are of the same kind as those of the mesh."""
    directory.mkdir()
    leaf = _signed(root, nginx.NAME)
    (directory / "ca.crt").write_bytes(root.pem)
    (directory / "leaf.crt").write_bytes(leaf.certificate_pem)
    (directory / "leaf.key").write_bytes(leaf.key_pem)
    return directory


@contextlib.asynccontextmanager
async def _nginx(home: pathlib.Path, body: str) -> AsyncIterator[int]:
    """The process of its worker."""
    process = await asyncio.create_subprocess_exec(*nginx.command(home, body), start_new_session=True)
    try:
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        async with asyncio.timeout(_DEADLINE):
            while not (workers := children.read_text().split()):
                await asyncio.sleep(0.05)
        yield int(workers[0])
    finally:
        await servers.stop(process)


@contextlib.asynccontextmanager
async def _envoys(home: pathlib.Path, root: authority.Authority, application: int) -> AsyncIterator[Pair]:
    """As the agents of a client and of a server would have them."""
    port = ports.Port(number=await servers.free_port(), application=application)
    listen = await servers.free_port()
    async with (
        _envoy(home / "far", root, _WEB) as (server, far),
        _envoy(home / "near", root, _VOTE) as (client, near),
    ):
        await _inbound(server, port)
        await _outbound(client, listen, outbound.Endpoint(_HOME, port.number, _WEB))
        yield Pair(listen, (far, near))


@contextlib.asynccontextmanager
async def _envoy(home: pathlib.Path, root: authority.Authority, name: str) -> AsyncIterator[tuple[ads.Ads, int]]:
    home.mkdir()
    options = envoy.Options(node=name, directory=home)
    seen, own = edges.Edges(_CLOCK), _signed(root, name)
    listening = ads.Ads(_CLOCK).on(options.agent_socket, seen.services)
    async with listening as sent, envoy.running(options, _CLOCK) as child:
        sent.put(_KIND.SECRET, tls.ANCHORS, tls.anchors(root.pem))
        sent.put(_KIND.SECRET, tls.IDENTITY, tls.identity(own.certificate_pem, own.key_pem))
        async with asyncio.timeout(_DEADLINE):
            while child.pid is None:
                await asyncio.sleep(0.05)
        yield sent, child.pid


async def _inbound(sent: ads.Ads, port: ports.Port) -> None:
    permits = judging.Permits(names=frozenset({_VOTE}))
    deny = judging.Deny(names=frozenset(f"n{number}.gone.{_SUFFIX}" for number in range(DENIED)))
    judged = [judging.PortJudgement(permits=permits)]
    for cluster in application_clusters.clusters(port):
        sent.put(_KIND.CLUSTER, cluster["name"], cluster)
    for routes in inbound_routes.documents(port, judged, deny, identity_headers=True):
        sent.put(_KIND.ROUTES, routes["name"], routes)
    facts = inbound.Facts(host=_HOME, port=port, identity=_WEB, longest=_LONGEST, tcp=False)
    sent.put(_KIND.LISTENER, port.listener, inbound.listener(facts, inbound.State.TLS))
    await _acknowledged(sent, [(_KIND.LISTENER, port.listener), (_KIND.ROUTES, port.routes)])


async def _outbound(sent: ads.Ads, listen: int, endpoint: outbound.Endpoint) -> None:
    name = f"{outbound.HTTP}{_HOST}"
    destination = outbound.Destination(
        name=name,
        identities=(endpoint.identity,),
        meshed=True,
        certified=True,
        longest=_LONGEST,
        identity_headers=True,
    )
    routing = outbound_routes.Routing(domains=(_DOMAIN,), own_ports=(listen,), identity_headers=True)
    facts = outbound.Facts(host=_HOME, port=listen, identity_headers=True)
    sent.put(_KIND.CLUSTER, dns.CLUSTER, dns.cluster(_LONGEST))
    sent.put(_KIND.CLUSTER, name, outbound.cluster(destination))
    sent.put(_KIND.ENDPOINTS, name, outbound.endpoints(name, [endpoint]))
    sent.put(_KIND.ROUTES, outbound_routes.OUTBOUND, outbound_routes.document(routing))
    sent.put(_KIND.LISTENER, outbound.NAME, outbound.listener(facts))
    await _acknowledged(sent, [(_KIND.LISTENER, outbound.NAME), (_KIND.ROUTES, outbound_routes.OUTBOUND)])


async def _acknowledged(sent: ads.Ads, known: Sequence[ads.Key]) -> None:
    async with asyncio.timeout(_DEADLINE):
        await sent.acknowledged(known)
