# SPDX-License-Identifier: Apache-2.0
"""A cluster that publishes cluster-info, and servers on real TLS sockets, honest or not, that remember all they read."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import email.utils
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pytest

from handfast import errors
from handfast.bootstrap import cluster_info, jws, tokens
from handfast.pki import authority, keys, names, pins, profiles
from handfast.runtime import tls
from tests.world.clock import MovableClock

T = TypeVar("T")

TOKEN = tokens.Token("abcdef", "0123456789abcdef")
OTHER = tokens.Token("fedcba", "fedcba9876543210")
NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)


class Authority:
    """A CA, and server certificates of it."""

    def __init__(self, name: str = "kubernetes", now: datetime.datetime = NOW) -> None:
        key = keys.generate()
        self._now = now
        self._ca = authority.self_signed_ca(names.Subject(common_name=name), key, now)
        self.pem = self._ca.pem
        self.pin = pins.of_certificate(self._ca.certificate.der)

    def context(
        self,
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        *,
        now: datetime.datetime | None = None,
        ttl: datetime.timedelta | None = None,
    ) -> ssl.SSLContext:
        """TLS of a server under this CA."""
        key = keys.generate()
        sans = names.Sans(
            dns=tuple(host for host in hosts if not host[0].isdigit()),
            ip=tuple(ipaddress.ip_address(host) for host in hosts if host[0].isdigit()),
        )
        subject = names.Subject(common_name="kube-apiserver")
        issued = self._ca.issue(key.public, subject, sans, profiles.APISERVER_SERVING, now or self._now, ttl)
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_pair(made, issued.pem, key.to_pem())
        return made


@dataclass(frozen=True)
class Request:
    target: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    code: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def octets(self) -> bytes:
        date = {"Date": email.utils.format_datetime(datetime.datetime.now(datetime.UTC), usegmt=True)}
        fields = {"Content-Length": str(len(self.body)), **date, **self.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {self.code} Any\r\n{lines}\r\n".encode() + self.body


def json_reply(document: Any, code: int = 200, **headers: str) -> Reply:
    return Reply(code, msgspec.json.encode(document), headers)


def status(code: int, reason: str, *causes: str) -> Reply:
    details = {"causes": [{"reason": cause} for cause in causes]} if causes else {}
    return json_reply({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "details": details}, code)


def config_map(kubeconfig: str | None, **signatures: str) -> dict[str, Any]:
    """cluster-info with signatures by id."""
    data = {} if kubeconfig is None else {"kubeconfig": kubeconfig}
    data |= {f"jws-kubeconfig-{token_id}": text for token_id, text in signatures.items()}
    metadata = {"name": "cluster-info", "namespace": "kube-public"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def signed(kubeconfig: str, *by: tokens.Token) -> dict[str, Any]:
    """cluster-info, signed by these tokens."""
    return config_map(
        kubeconfig, **{token.id: jws.sign(kubeconfig.encode(), token.id, token.secret) for token in by or (TOKEN,)}
    )


Respond = Callable[[Request], Reply]


def serve(document: Any) -> Respond:
    """Answers everybody with the same document; with a credential, as an API server does to a bootstrap token."""
    return lambda request: status(403, "Forbidden") if "authorization" in request.headers else json_reply(document)


class Server:
    """A listener. `accept(n)` says how the n-th connection, from 0, is met: a TLS context, a port to relay it to,
    bytes to answer in the clear, or None for a hang-up."""

    def __init__(self, accept: Callable[[int], ssl.SSLContext | int | bytes | None], respond: Respond) -> None:
        self.accept = accept
        self.respond = respond
        self.requests: list[Request] = []
        # Everything that could be read here.
        self.read = b""
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def knows_nothing(self) -> bool:
        """Did no credential come by?"""
        heard = self.read.lower()
        return b"authorization" not in heard and not any(
            secret.encode() in heard for token in (TOKEN, OTHER) for secret in (token.secret, token.text)
        )

    async def meet(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        met = self.accept(self.connections)
        self.connections += 1
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, OSError):
            context = met if isinstance(met, ssl.SSLContext) else None
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=context)
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            try:
                if isinstance(met, int):
                    await _relay(reader, writer, met)
                elif isinstance(met, bytes):
                    writer.write(met)
                    await writer.drain()
                elif met is not None:
                    await self._answer(reader, writer)
            finally:
                transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.read += head
        first, *rest = head.decode().strip().split("\r\n")
        request = Request(first.split(" ")[1], {line.split(": ")[0].lower(): line.split(": ")[1] for line in rest})
        self.requests.append(request)
        writer.write(octets := self.respond(request).octets())
        await writer.drain()
        if octets.startswith(b"HTTP/"):
            # The client hangs up first.
            await reader.read()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", port)

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()

    await asyncio.gather(pump(reader, back), pump(there, writer))


@contextlib.asynccontextmanager
async def listening(
    accept: Callable[[int], ssl.SSLContext | int | bytes | None] | ssl.SSLContext,
    respond: Respond,
    port: int = 0,
    address: str = "127.0.0.1",
) -> AsyncIterator[Server]:
    """A server for the length of the block."""
    server = Server((lambda _: accept) if isinstance(accept, ssl.SSLContext) else accept, respond)
    loop = asyncio.get_running_loop()
    listener = socket.create_server((address, port))
    listener.setblocking(False)
    server.port = listener.getsockname()[1]
    running: set[asyncio.Task[None]] = set()

    async def accept_all() -> None:
        while True:
            accepted, _ = await loop.sock_accept(listener)
            running.add(asyncio.create_task(server.meet(accepted)))

    accepting = asyncio.create_task(accept_all())
    try:
        yield server
    finally:
        for task in (accepting, *running):
            task.cancel()
        await asyncio.gather(accepting, *running, return_exceptions=True)
        listener.close()


@dataclass
class Cluster:
    """A CA and an honest server under it."""

    ca: Authority
    server: Server
    info: cluster_info.ClusterInfo

    @property
    def kubeconfig(self) -> str:
        return cluster_info.build(self.info)


@contextlib.asynccontextmanager
async def cluster(ca: Authority | None = None, *by: tokens.Token) -> AsyncIterator[Cluster]:
    """A cluster that publishes itself, signed by TOKEN or by others."""
    ca = ca or Authority()
    async with listening(ca.context(), lambda _: Reply(500)) as server:
        made = Cluster(ca, server, cluster_info.ClusterInfo((server.url,), ca.pem, "uid-1"))
        server.respond = serve(signed(made.kubeconfig, *by))
        yield made


async def refusal(work: Awaitable[object]) -> errors.HandfastError:
    """The error that this ends with."""
    with pytest.raises(errors.HandfastError) as caught:
        await work
    return caught.value


async def while_time_passes(clock: MovableClock, work: Awaitable[T], step: float = 2.0) -> T:
    """The result of `work`, with the clock running much faster than the network."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait([task], timeout=0.02)
        await clock.advance(step)
    return task.result()
