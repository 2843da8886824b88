# SPDX-License-Identifier: Apache-2.0
"""Machines that join: discovery, a request for a certificate, its approval and signing, and one request with it.

A join is three TLS connections: cluster-info as a stranger; the request and a watch of it with a bootstrap token; a
question with the new certificate. Keys and requests are made beforehand, so that the clients take as little of the
machine as they can. The limits of the server are lifted, by the flag that says so: hundreds of machines behind one
address are not what they are for. The storm leaves them on.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import secrets
import ssl
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bench import aims, discovery, identities, load, measure, preload, servers, settings
from handfast.api import resources, signer_names, signing_requests
from handfast.bootstrap import tokens
from handfast.client import api
from handfast.pki import authority, keys, names, profiles, requests
from handfast.runtime import tls

CONCURRENCY = 32
# Microseconds of CPU per join on a quiet machine: all of them, and those beyond the three handshakes.
JOIN_AIM = 6000.0
BEYOND_AIM = 2500.0
# … and of the signer alone: from a request to its certificate.
SIGNING_AIM = 300.0
MEMORY_LIMIT_MIB = 300.0
GROWTH_LIMIT_RATIO = 1.3
RENEWAL_LIMIT_MILLISECONDS = 50.0

_STORM = 256
_RENEWING = 20
_REQUESTS = api.path(resources.SIGNING_REQUESTS)
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_REVIEW = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
TOKEN = tokens.Token("joins1", "0123456789abcdef")
GROUP = "system:bootstrappers:kubeadm:default-node-token"


class _Event(msgspec.Struct):
    type: str
    object: signing_requests.Request


class _Code(msgspec.Struct, frozen=True):
    code: int = 0


class _Who(msgspec.Struct):
    username: str = ""


class _Audited(msgspec.Struct, rename="camel"):
    verb: str
    user: _Who
    annotations: dict[str, str] = {}
    response_status: _Code = _Code()


_audited = msgspec.json.Decoder(_Audited)
_event = msgspec.json.Decoder(_Event)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a machine has before it has a certificate of its own: a token, or a certificate in a context.

    One that comes with the CA has no use for cluster-info.
    """

    token: str = ""
    context: ssl.SSLContext | None = None
    discovers: bool = False


BOOTSTRAP_TOKEN = Credential(TOKEN.text, discovers=True)


@dataclass(frozen=True, slots=True)
class Machine:
    """One that is about to join: its name, its key and its request."""

    node: str
    key_pem: bytes
    body: bytes

    @classmethod
    def named(cls, node: str) -> Machine:
        key = keys.generate()
        subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
        request = requests.build(subject, names.Sans(), key)
        spec = signing_requests.Spec(
            request=base64.b64encode(request).decode(),
            signer_name=signer_names.KUBELET_CLIENT,
            usages=["digital signature", "client auth"],
        )
        document = signing_requests.new(f"node-csr-{secrets.token_hex(16)}", spec)
        return cls(node, key.to_pem(), msgspec.json.encode(document))


class Conversation:
    """One connection that reads whole answers, and events of a watch."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str = "") -> None:
        self._reader = reader
        self._writer = writer
        self._more = f"Authorization: Bearer {token}\r\n" if token else ""

    @classmethod
    async def open(cls, port: int, context: ssl.SSLContext, token: str = "", source: str = "") -> Conversation:
        local = (source, 0) if source else None
        streams = await asyncio.open_connection(
            load.HOST, port, ssl=context, server_hostname=load.HOST, local_addr=local, limit=1 << 20
        )
        return cls(*streams, token)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        self._send(method, path, body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n", 1)[0])
        return int(head[9:12]), await self._reader.readexactly(length)

    async def certificate(self, name: str, version: str) -> bytes:
        """Watch one request until it has its certificate."""
        self._send("GET", f"{_REQUESTS}?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}")
        head = await self._reader.readuntil(b"\r\n\r\n")
        if head[9:12] != b"200":
            raise load.UnexpectedAnswer(f"a watch was answered with {head[:60]!r}")
        while True:
            size = int(await self._reader.readline(), 16)
            if not size:
                raise load.UnexpectedAnswer("a watch ended before there was a certificate")
            event = _event.decode((await self._reader.readexactly(size + 2))[:-2])
            if event.object.status.certificate:
                return base64.b64decode(event.object.status.certificate)
            if not event.object.is_open:
                raise load.UnexpectedAnswer(f"the request {name} was refused")

    def close(self) -> None:
        self._writer.close()

    def _send(self, method: str, path: str, body: bytes = b"") -> None:
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n{self._more}{kind}\r\n"
        self._writer.write(head.encode() + body)


def require(answer: tuple[int, bytes], status: int) -> bytes:
    """The body of an answer that has this status."""
    if answer[0] != status:
        raise load.UnexpectedAnswer(f"the answer was {answer[0]} {answer[1][:300]!r}")
    return answer[1]


async def join(port: int, ca: bytes, machine: Machine, credential: Credential = BOOTSTRAP_TOKEN) -> float:
    """One machine joins; how many seconds that took."""
    begun = time.perf_counter()
    nobody = tls.client_context(ca)
    if credential.discovers:
        stranger = await Conversation.open(port, nobody)
        require(await stranger.ask("GET", discovery.PATH), 200)
        stranger.close()
    newcomer = await Conversation.open(port, credential.context or nobody, credential.token)
    request = signing_requests.DECODER.decode(require(await newcomer.ask("POST", _REQUESTS, machine.body), 201))
    name = msgspec.json.decode(machine.body)["metadata"]["name"]
    certificate = await newcomer.certificate(name, request.metadata.resource_version)
    newcomer.close()
    node = await Conversation.open(port, tls.client_context(ca, certificate, machine.key_pem))
    who = require(await node.ask("POST", _REVIEWS, _REVIEW), 201)
    if f'"system:node:{machine.node}"'.encode() not in who:
        raise load.UnexpectedAnswer(f"{machine.node} is known as {who[:200]!r}")
    node.close()
    return time.perf_counter() - begun


def trusting(plane: servers.Server) -> ssl.SSLContext:
    """TLS of somebody without a certificate."""
    return tls.client_context(plane.place.ca_certificate.read_bytes())


async def join_all(
    plane: servers.Server, machines: Sequence[Machine], concurrency: int, credential: Credential = BOOTSTRAP_TOKEN
) -> list[float]:
    """Have them join, so many at a time; the seconds that each took."""
    ca = plane.place.ca_certificate.read_bytes()
    waiting = iter(machines)
    seconds: list[float] = []

    async def work() -> None:
        for machine in waiting:
            taken = await join(plane.port, ca, machine, credential)
            seconds.append(taken)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())
    return seconds


def machines_named(prefix: str, count: int) -> list[Machine]:
    """So many that are about to join."""
    return [Machine.named(f"{prefix}-{number}") for number in range(count)]


async def allow(plane: servers.Server) -> None:
    """A token to join with."""
    body = msgspec.json.encode(tokens.secret_document(TOKEN, usages=tokens.USAGES, groups=(GROUP,)))
    require(await load.exchange(plane.port, plane.context, load.send("POST", discovery.SECRETS, body)), 201)


async def _connections(floor: servers.Server, context: ssl.SSLContext, total: int) -> float:
    """CPU seconds of the floor per new connection with a GET."""
    numbers = iter(range(total))

    async def work() -> None:
        for _ in numbers:
            asking = await Conversation.open(floor.port, context)
            require(await asking.ask("GET", "/object"), 200)
            asking.close()

    async with floor.meter() as meter:
        await asyncio.gather(*(work() for _ in range(8)))
    return meter.total / total


def _signing(total: int) -> float:
    """CPU seconds of this process from a request to its certificate, as the signer makes it."""
    now = datetime.datetime.now(datetime.UTC)
    ca = authority.self_signed_ca(names.Subject(common_name="bench"), keys.generate(), now)
    subject = names.Subject(common_name="system:node:bench", organizations=("system:nodes",))
    bodies = [requests.build(subject, names.Sans(), keys.generate()) for _ in range(total)]
    begun = time.thread_time()
    for body in bodies:
        parsed = requests.parse(body)
        ca.issue(parsed.public_key, parsed.subject, parsed.sans, profiles.KUBELET_CLIENT, now)
    return (time.thread_time() - begun) / total


async def joins(run: settings.Run) -> list[measure.Figure]:
    """Full joins beside the floor's connections, alone, and what many of them leave behind."""
    sizes = run.sizes
    used: list[float] = []
    floors: list[float] = []
    handshakes: list[float] = []
    signing: list[float] = []
    rates: list[float] = []
    shares: dict[str, list[float]] = {}
    async with servers.plane(run.directory / "joins", "--unsafe-lift-limits") as plane:
        await allow(plane)
        ca = plane.place.ca_certificate.read_bytes()
        body = await load.fetch(plane.port, plane.context, discovery.PATH)
        async with servers.floor(plane, body) as floor:
            # The first round warms up.
            for number in range(sizes.rounds + 1):
                connection = await _connections(floor, tls.client_context(ca), sizes.connections)
                mutual = await _connections(floor, floor.context, sizes.connections)
                machines = machines_named(f"round-{number}", sizes.joins)
                async with plane.meter() as meter:
                    begun = time.perf_counter()
                    await join_all(plane, machines, CONCURRENCY)
                    taken = time.perf_counter() - begun
                if number:
                    floors.append(connection)
                    handshakes.append(2 * connection + mutual)
                    signing.append(_signing(sizes.connections))
                    used.append(meter.total / sizes.joins)
                    rates.append(sizes.joins / taken)
                    for role, seconds in meter.used.items():
                        shares.setdefault(role, []).append(seconds / sizes.joins)
            alone = await join_all(plane, machines_named("alone", sizes.joins_alone), 1)
        left = max(0, sizes.joins_in_all - sizes.joins * (sizes.rounds + 1) - sizes.joins_alone)
        await join_all(plane, machines_named("more", left), CONCURRENCY)
        await plane.settle()
        memory = sum(measure.pss(pid) for pid in plane.pids.values()) / measure.MIB
    ratios = [ours / least for ours, least in zip(used, floors, strict=True)]
    beyond = [(ours - tls_part) / least for ours, tls_part, least in zip(used, handshakes, floors, strict=True)]
    return [
        measure.Figure(
            "joins.ratio",
            "join, 32 at a time: CPU ÷ a connection's on the floor",
            "×",
            ratios,
            aims.connections(JOIN_AIM),
        ),
        measure.Figure(
            "joins.beyond",
            "  beyond the three handshakes",
            "×",
            beyond,
            aims.connections(BEYOND_AIM),
        ),
        measure.Figure("joins.cpu", "  CPU per join, all processes", "ms", _milliseconds(used)),
        *(
            measure.Figure(f"joins.cpu.{role}", f"  of it: {role}", "ms", _milliseconds(each))
            for role, each in shares.items()
        ),
        measure.Figure("joins.floor", "  a connection's on the floor", "ms", _milliseconds(floors)),
        measure.Figure(
            "joins.handshakes", "  three of them, one with a client certificate", "ms", _milliseconds(handshakes)
        ),
        measure.Figure("joins.rate", "  joins per second", "/s", rates),
        measure.Figure(
            "joins.signing",
            "request to certificate in the signer: CPU ÷ a connection's",
            "×",
            [ours / least for ours, least in zip(signing, floors, strict=True)],
            aims.connections(SIGNING_AIM),
        ),
        measure.Figure("joins.signing_cpu", "  CPU", "µs", measure.microseconds(signing, 1)),
        measure.Figure("joins.alone", "join, one at a time, p50 (aim: 25)", "ms", [statistics.median(alone) * 1e3]),
        measure.Figure(
            "joins.memory", f"PSS of all processes after {sizes.joins_in_all} joins", "MiB", [memory], MEMORY_LIMIT_MIB
        ),
    ]


def _milliseconds(values: Sequence[float]) -> list[float]:
    return [value * 1e3 for value in values]


async def crowded(run: settings.Run) -> list[measure.Figure]:
    """A join beside few nodes and beside many, in turns."""
    sizes = run.sizes
    few, many = run.directory / "few-nodes", run.directory / "many-nodes"
    preload.fill_nodes(few, sizes.few_nodes)
    preload.fill_nodes(many, sizes.many_nodes)
    rounds: tuple[list[float], list[float]] = ([], [])
    async with (
        servers.plane(few, "--unsafe-lift-limits") as beside_few,
        servers.plane(many, "--unsafe-lift-limits") as beside_many,
    ):
        for plane in (beside_few, beside_many):
            await allow(plane)
        for number in range(sizes.rounds + 1):
            for plane, kept in zip((beside_few, beside_many), rounds, strict=True):
                machines = machines_named(f"crowd-{number}", sizes.joins // 2)
                async with plane.meter() as meter:
                    await join_all(plane, machines, CONCURRENCY)
                if number:
                    kept.append(meter.total / len(machines))
    ratios = [much / little for little, much in zip(*rounds, strict=True)]
    return [
        measure.Figure(
            "crowded.ratio",
            f"join beside {sizes.many_nodes} nodes: CPU ÷ that beside {sizes.few_nodes}",
            "×",
            ratios,
            GROWTH_LIMIT_RATIO,
        ),
        measure.Figure("crowded.cpu", "  CPU per join", "ms", _milliseconds(rounds[1])),
    ]


class _Counts:
    """What came of the joins of a storm."""

    def __init__(self) -> None:
        self.joined = 0
        self.shed = 0


async def storm(run: settings.Run) -> list[measure.Figure]:
    """Far more joins than there is room for, all from one address, while nodes renew their certificates from theirs."""
    sizes = run.sizes
    counts = _Counts()
    # Connections that are reset in the middle of a handshake are what this is about; the loop would tell of each.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    async with servers.plane(run.directory / "storm") as plane:
        await allow(plane)
        issuer = identities.Issuer(plane)
        nodes = [f"storm-node-{number:02d}" for number in range(_RENEWING)]
        contexts = [issuer.context(f"system:node:{node}", "system:nodes") for node in nodes]
        renewals = [_requests_of(node, int(sizes.storm_seconds)) for node in nodes]
        machines = machines_named("storm", 64)
        async with asyncio.TaskGroup() as group:
            until = time.monotonic() + sizes.storm_seconds
            newcomers = [group.create_task(_rush(plane, machines, until, counts)) for _ in range(_STORM)]
            for number, (context, due) in enumerate(zip(contexts, renewals, strict=True)):
                group.create_task(_renew(plane, context, f"127.9.0.{number + 1}", due))
            await asyncio.wait(newcomers)
        await plane.settle()
        server = _served(plane, frozenset(f"system:node:{node}" for node in nodes))
        alive = set(servers.described(plane.place.root).pids.values()) == set(plane.pids.values())
    if not alive:
        raise load.UnexpectedAnswer("a process of the control plane was restarted in the storm")
    count = sum(map(len, renewals))
    return [
        measure.Figure(
            "storm.renewal_p99",
            f"storm of {_STORM} joins at a time: renewals in the server, p99",
            "ms",
            [measure.percentile(server, 0.99) / 1e3],
            RENEWAL_LIMIT_MILLISECONDS,
        ),
        measure.Figure("storm.renewals_failed", "  renewals that failed", "", [count - len(server)], 0.0),
        measure.Figure("storm.renewals", "  renewals", "", [count]),
        measure.Figure("storm.joins", "  joins that came through", "/s", [counts.joined / sizes.storm_seconds]),
        measure.Figure("storm.shed", "  connections turned away before TLS", "/s", [counts.shed / sizes.storm_seconds]),
    ]


def _requests_of(node: str, count: int) -> list[Machine]:
    return [Machine.named(node) for _ in range(count)]


async def _rush(plane: servers.Server, machines: Sequence[Machine], until: float, counts: _Counts) -> None:
    ca = plane.place.ca_certificate.read_bytes()
    while time.monotonic() < until:
        machine = secrets.choice(machines)
        try:
            async with asyncio.timeout(max(0.1, until - time.monotonic())):
                await join(plane.port, ca, machine)
            counts.joined += 1
        except (OSError, asyncio.IncompleteReadError):
            counts.shed += 1
            # As a machine that is turned away would, only much more impatient.
            await asyncio.sleep(0.05)
        except (TimeoutError, load.UnexpectedAnswer):
            # The server asked it to come later, or its name has joined already. It was let in, and cost a handshake.
            await asyncio.sleep(0.05)


async def _renew(plane: servers.Server, context: ssl.SSLContext, source: str, due: Sequence[Machine]) -> None:
    """One node renews its certificate about once a second, each time over a new connection."""
    for machine in due:
        await asyncio.sleep(0.5 + secrets.randbelow(1000) / 1000)
        node = await Conversation.open(plane.port, context, source=source)
        request = signing_requests.DECODER.decode(require(await node.ask("POST", _REQUESTS, machine.body), 201))
        name = msgspec.json.decode(machine.body)["metadata"]["name"]
        await node.certificate(name, request.metadata.resource_version)
        node.close()


def _served(plane: servers.Server, users: frozenset[str]) -> list[float]:
    """Microseconds that the server took for each request for a certificate of these users, by its own audit log."""
    latencies = []
    for path in plane.place.audit.glob("*.log"):
        for line in path.read_bytes().splitlines():
            event = _audited.decode(line)
            if event.user.username in users and event.verb == "create" and event.response_status.code == 201:
                latencies.append(float(event.annotations["handfast.dev/latency-us"]))
    return latencies
