# SPDX-License-Identifier: Apache-2.0
"""Certificates of workloads: what one costs, with the review of its token and its entry in the ledger, beside a bare grpcio handler.

A real `handfast up`, `mesh install`, and two identity services as their own account: one in plaintext on loopback, one behind TLS. The CPU of
all of these processes counts, and that of the caller does not. Tokens are bound to a Pod, no two alike; so are keys and requests.

The first certificates of many come on as many TLS connections, all of which stay open: a cluster that starts.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pathlib
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from bench import identities, load, measure, servers, settings
from handfast.pki import keys, names, pem, requests
from handfast.rules.mesh import control_plane
from handfast.rules.mesh import names as mesh_names
from handfast.runtime import descriptors, tls
from handfast.wire import mesh_messages

_AT_ONCE = 32
_METHOD = f"/{mesh_messages.IDENTITY_SERVICE}/Certify"
_ACCOUNT = mesh_names.Account(namespace="shop", name="web")
_MESH = mesh_names.Mesh("cluster.local")
_NAME = _MESH.name(_ACCOUNT)
_SERVER = _MESH.name(mesh_names.Account(namespace=control_plane.NAMESPACE, name=control_plane.IDENTITY))
# Of the connections that begin at the same time.
_OPENING = 128


@dataclass(frozen=True, slots=True)
class Service:
    """An identity service, or the floor: where it listens, and its process."""

    port: int
    pid: int


async def certify(run: settings.Run) -> list[measure.Figure]:
    """The figures of Certify."""
    sizes = run.sizes
    async with (
        servers.plane(run.directory / "certify") as plane,
        identity_service(plane, "plain", "127.0.0.1:0") as plain,
        identity_service(plane, "tls", "0.0.0.0:0") as behind,
    ):
        tokens = await make_tokens(plane, 1 + 2 * sizes.certificates * (sizes.rounds + 1) + sizes.first_certificates)
        messages = messages_of(tokens)
        anchors = await trust_anchors(plane)
        async with _plain(plain.port) as one:
            answer = await one(next(messages))
        file = plane.place.root.with_suffix(".answer")
        file.write_bytes(answer)
        async with _floor(file) as floor:
            figures = await _rounds(plane, (floor, plain, behind), messages, anchors, sizes)
        return [*figures, *await _first(plane, behind, messages, anchors, sizes.first_certificates)]


async def _rounds(
    plane: servers.Server,
    services: tuple[Service, Service, Service],
    messages: Any,
    anchors: bytes,
    sizes: settings.Sizes,
) -> list[measure.Figure]:
    floor, plain, behind = services
    bare: list[float] = []
    ours: list[float] = []
    through: list[float] = []
    identity: list[float] = []
    count = sizes.certificates
    for number in range(-1, sizes.rounds):
        batch = [next(messages) for _ in range(count)]
        used = await measured({"floor": floor.pid}, callers_of(floor.port), batch)
        pids = {**plane.pids, "identity": plain.pid}
        cost = await measured(pids, callers_of(plain.port), batch)
        pids = {**plane.pids, "identity": behind.pid}
        secured = await measured(pids, callers_of(behind.port, anchors), [next(messages) for _ in range(count)])
        if number < 0:
            # The first round warms everybody up.
            continue
        bare.append(sum(used.values()))
        ours.append(sum(cost.values()))
        identity.append(cost["identity"])
        through.append(sum(secured.values()))
    title = "Certify, 32 at a time"
    return [
        measure.Figure("certify.floor", "bare grpcio handler of Certify", "µs", measure.microseconds(bare, count)),
        measure.Figure("certify.cpu", title, "µs", measure.microseconds(ours, count)),
        measure.Figure(
            "certify.identity", f"{title}, identity service alone", "µs", measure.microseconds(identity, count)
        ),
        measure.Figure("certify.ratio", f"{title}, of the bare handler", "×", measure.ratios(ours, bare), 6.0),
        measure.Figure("certify.tls.cpu", f"{title}, through TLS", "µs", measure.microseconds(through, count)),
        measure.Figure("certify.tls.ratio", f"{title}, through TLS", "×", measure.ratios(through, bare), 7.0),
    ]


async def measured(pids: dict[str, int], callers: Any, batch: Sequence[bytes]) -> dict[str, float]:
    async with callers as calls:
        meter = measure.Meter(pids)
        left = iter(batch)
        async with meter:
            await asyncio.gather(*(_work(call, left) for call in calls))
    return meter.used


async def _work(call: Any, left: Any) -> None:
    for message in left:
        await call(message, timeout=60)


@contextlib.asynccontextmanager
async def callers_of(port: int, anchors: bytes | None = None) -> AsyncIterator[list[Any]]:
    """Callers on a connection each."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_plain(port, anchors)) for _ in range(_AT_ONCE)]


@contextlib.asynccontextmanager
async def _plain(port: int, anchors: bytes | None = None) -> AsyncIterator[Any]:
    options: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1)]
    if anchors is None:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
    else:
        options.append(("grpc.ssl_target_name_override", _SERVER))
        credentials = grpc.ssl_channel_credentials(anchors)
        channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)
    async with channel:
        yield channel.unary_unary(_METHOD, request_serializer=bytes, response_deserializer=bytes)


async def _first(
    plane: servers.Server, behind: Service, messages: Any, anchors: bytes, count: int
) -> list[measure.Figure]:
    """Certificates on a connection each, which stays open."""
    descriptors.allow_many()
    context = tls.client_context(anchors)
    batch = [next(messages) for _ in range(count)]
    open_connections: list[Caller] = []
    left = iter(batch)

    async def work() -> None:
        for message in left:
            caller = await load.connect(behind.port, context, Caller, name=_SERVER)
            open_connections.append(caller)
            await caller.certify(message)

    meter = measure.Meter({**plane.pids, "identity": behind.pid})
    async with meter:
        begun = time.monotonic()
        await asyncio.gather(*(work() for _ in range(_OPENING)))
        seconds = time.monotonic() - begun
    served = sum(caller.served for caller in open_connections)
    if served != count:
        raise load.UnexpectedAnswer(f"{served} of {count} got a certificate")
    for caller in open_connections:
        caller.close()
    title = f"{count:,} first certificates, a TLS connection each"
    return [
        measure.Figure("certify.first.seconds", title, "s", [seconds]),
        measure.Figure("certify.first.cpu", title, "µs", measure.microseconds([meter.total], count)),
    ]


class Caller(asyncio.Protocol):
    """One call of Certify on a connection of its own, in as much of HTTP/2 as that takes."""

    def __init__(self) -> None:
        self.served = False
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        if not self._waiting.done():
            self._waiting.set_exception(load.UnexpectedAnswer(f"the service closed the connection: {error}"))

    def certify(self, message: bytes) -> asyncio.Future[None]:
        if self._transport is None:
            raise load.UnexpectedAnswer("there is no connection")
        headers = b"".join(_literal(name, value) for name, value in _HEADERS)
        body = b"\x00" + len(message).to_bytes(4) + message
        self._transport.write(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(4, 0, 0, b"")
            + _frame(1, 4, 1, headers)
            + _frame(0, 1, 1, body)
        )
        return self._waiting

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 9 and len(self._data) >= (end := 9 + int.from_bytes(self._data[:3])):
            kind, flags, payload = self._data[3], self._data[4], self._data[9:end]
            self._data = self._data[end:]
            self._heard(kind, flags, payload)

    def _heard(self, kind: int, flags: int, payload: bytes) -> None:
        # DATA with a message, then trailers that end the stream.
        if kind == 0 and len(payload) > 5:
            self.served = True
        if kind in {0, 1} and flags & 1 and not self._waiting.done():
            self._waiting.set_result(None)
        # SETTINGS and PING are acknowledged.
        if kind in {4, 6} and not flags & 1 and self._transport is not None:
            self._transport.write(_frame(kind, 1, 0, payload if kind == 6 else b""))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


_HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", _METHOD.encode()),
    (b":authority", _SERVER.encode()),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def messages_of(tokens: Sequence[str], name: str = _NAME) -> Any:
    """Requests for this name, with a key of its own for each token."""
    sans = names.make_sans(dns=[name])
    for token in tokens:
        request = pem.one(requests.build(names.Subject(), sans, keys.generate()), pem.CERTIFICATE_REQUEST)
        message = mesh_messages.CertifyRequest(identity=name, token=token.encode(), certificate_signing_request=request)
        yield message.SerializeToString()


async def make_tokens(plane: servers.Server, count: int) -> Sequence[str]:
    await post(plane, "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    account = await post(plane, "/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "web"}})
    spec = {"serviceAccountName": "web", "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    pod = await post(plane, "/api/v1/namespaces/shop/pods", {"metadata": {"name": "web-1"}, "spec": spec})
    issuer = identities.Issuer(plane)
    uid = account["metadata"]["uid"]
    return issuer.tokens(
        "shop", "web", uid, count, audience=control_plane.AUDIENCE, pod=("web-1", pod["metadata"]["uid"])
    )


async def trust_anchors(plane: servers.Server) -> bytes:
    path = f"/api/v1/namespaces/{control_plane.NAMESPACE}/configmaps/{control_plane.TRUST_ANCHOR}"
    document = json.loads(await load.fetch(plane.port, plane.context, path))
    return str(document["data"][control_plane.ANCHORS_KEY]).encode()


async def post(plane: servers.Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    code, answer = await load.exchange(plane.port, plane.context, load.send("POST", path, json.dumps(body).encode()))
    if code not in {200, 201}:
        raise load.UnexpectedAnswer(f"{path}: {code} {answer[:200]!r}")
    document: dict[str, Any] = json.loads(answer)
    return document


@contextlib.asynccontextmanager
async def _floor(answer: pathlib.Path) -> AsyncIterator[Service]:
    words = (sys.executable, "-m", "bench.certify_floor", str(answer))
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        if process.stdout is None:
            raise load.UnexpectedAnswer("the floor has no output")
        yield Service(int(await process.stdout.readline()), process.pid)
    finally:
        await servers.stop(process)


@contextlib.asynccontextmanager
async def identity_service(plane: servers.Server, name: str, listen: str) -> AsyncIterator[Service]:
    """`handfast serve identity` as its own account, ready."""
    directory = plane.place.root.parent
    await _handfast("mesh", "install", "--dir", str(plane.place.root))
    config = directory / f"{name}.conf"
    config.write_text(json.dumps(await kubeconfig_of(plane)))
    config.chmod(0o600)
    log = directory / f"{name}.log"
    words = ["serve", "identity", "--kubeconfig", str(config), "--identity-listen", listen]
    words += ["--identity-admin-listen", "127.0.0.1:0", "--dir", str(directory / name)]
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "handfast", *words, stdout=file, stderr=file
        )
    try:
        wanted = "the service has a certificate of its own" if listen.startswith("0") else "certificates are signed"
        while wanted not in log.read_text():
            await asyncio.sleep(0.1)
            if process.returncode is not None:
                raise load.UnexpectedAnswer(log.read_text()[-2000:])
        lines = [json.loads(line) for line in log.read_text().splitlines() if "identity service listens" in line]
        yield Service(int(str(lines[-1]["address"]).rpartition(":")[2]), process.pid)
    finally:
        await servers.stop(process)


async def _handfast(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "handfast", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        raise load.UnexpectedAnswer(f"`handfast {' '.join(words)}` failed")


async def kubeconfig_of(plane: servers.Server) -> dict[str, Any]:
    path = f"/api/v1/namespaces/{control_plane.NAMESPACE}/serviceaccounts/{control_plane.IDENTITY}/token"
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await post(plane, path, kind))["status"]["token"]
    ca = base64.b64encode(plane.place.ca_certificate.read_bytes()).decode()
    cluster = {"server": f"https://127.0.0.1:{plane.port}", "certificate-authority-data": ca}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
