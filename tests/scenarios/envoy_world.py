# SPDX-License-Identifier: Apache-2.0
"""A real Envoy between clients and an application that remembers all that reaches it; an agent's hands, without an agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import shutil
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from handfast.pki import pairs
from handfast.proxy import edges, envoy
from handfast.rules.envoy import application as application_clusters
from handfast.rules.envoy import inbound, inbound_routes, judging, ports, refusals, resources, tls
from handfast.wire import ads
from tests.unit.wire import greeting

IDENTITY = "web.ns1.sa.linkerd-identity.linkerd.cluster.local"
CLIENT = "vote.ns1.sa.linkerd-identity.linkerd.cluster.local"
KIND = resources.Kind
SECONDS = 20.0
# A listener of the tests' own.
_WORKER = "worker"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def until(question: Callable[[], Any], what: str = "it") -> None:
    """Until an async question is answered with yes."""
    async with asyncio.timeout(SECONDS):
        while not await question():
            await asyncio.sleep(0.02)
    assert what


@dataclass
class Application:
    """HTTP/1.1 is answered with what was asked, as JSON; anything else is sent back."""

    port: int = 0
    connections: int = 0
    octets: bytearray = field(default_factory=bytearray)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while data := await reader.read(65536):
                self.octets += data
                writer.write(_http(data) if b" HTTP/1." in data.partition(b"\r\n")[0] else data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


def _http(data: bytes) -> bytes:
    line, *rows = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}
    if headers.get("upgrade"):
        return b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n"
    body = json.dumps({"line": line, "headers": headers}).encode()
    return b"HTTP/1.1 200 OK\r\nl5d-server-id: liar\r\nL5D-Other: liar\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


@contextlib.asynccontextmanager
async def application() -> AsyncIterator[Application]:
    made = Application()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


@dataclass
class Proxy:
    """An Envoy with its inbound listener; the state of its certificate is what the test says."""

    ads: ads.Ads
    envoy: envoy.Envoy
    facts: inbound.Facts
    ends: list[int]
    demands: list[str]
    edges: edges.Edges
    # Where its worker answers by itself.
    worker: int
    certified: bool = False
    # Called with the name of a cluster that Envoy asks for.
    provide: Callable[[str], None] = lambda _: None

    def demanded(self, name: str) -> None:
        self.demands.append(name)
        self.provide(name)

    @property
    def port(self) -> int:
        return self.facts.port.number

    @property
    def listener(self) -> tuple[resources.Kind, str]:
        return KIND.LISTENER, self.facts.port.listener

    def state(self, state: inbound.State) -> None:
        self.ads.put(*self.listener, inbound.listener(self.facts, state))

    async def certify(self, pair: pairs.Pair) -> None:
        """The first certificate, or one after an expiry: the secret, then the listener."""
        self.ads.put(KIND.SECRET, tls.IDENTITY, tls.identity(pair.certificate_pem, pair.key_pem))
        self.state(inbound.State.TLS)
        self.certified = True
        await self.works_by([self.listener, (KIND.SECRET, tls.IDENTITY)])

    async def rotate(self, pair: pairs.Pair) -> None:
        self.ads.put(KIND.SECRET, tls.IDENTITY, tls.identity(pair.certificate_pem, pair.key_pem))
        await self.works_by([(KIND.SECRET, tls.IDENTITY)])

    async def expire(self) -> None:
        self.state(inbound.State.REFUSE)
        await self.works_by([self.listener])

    async def judge(self, *rows: judging.PortJudgement, deny: judging.Deny = judging.NOBODY_DENIED) -> None:
        row = rows or [judging.PortJudgement()]
        documents = inbound_routes.documents(self.facts.port, row, deny, identity_headers=True)
        for document in documents:
            self.ads.put(KIND.ROUTES, document["name"], document)
        known = [(KIND.ROUTES, document["name"]) for document in documents]
        # Who has no certificate has not asked for the routes of TLS.
        await self.works_by([key for key in known if self.certified or key[1] == self.facts.port.plaintext_routes])

    async def works_by(self, keys: Sequence[tuple[resources.Kind, str]]) -> None:
        """Envoy has taken them, and its worker has, too: the main thread acknowledges what it has only passed on.

        What was passed on is done before the next turn of the worker's loop, and this takes one.
        """
        await self.ads.acknowledged(keys)
        await until(self._worker_answers, "the worker")

    async def _worker_answers(self) -> bool:
        try:
            return await exchange(self.worker, b"?") != b""
        except ConnectionError:
            # It does not listen in its first moment.
            return False

    async def refused(self) -> dict[str, int]:
        """Refusals by reason, those that there were."""
        _, figures = await self.envoy.ask("/stats/prometheus")
        return {reason: count for reason, count in refusals.refused(figures.decode()).items() if count}

    async def stat(self, name: str) -> int:
        _, body = await self.envoy.ask(f"/stats?format=json&filter=^{name}$")
        rows = [row for row in json.loads(body)["stats"] if row.get("name") == name]
        return int(rows[0]["value"]) if rows else 0

    async def listens(self) -> bool:
        """Whether a connection is accepted."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionError:
            return False
        writer.close()
        return True


def _worker(port: int) -> resources.Document:
    """A listener that answers every connection with a word, and ends it."""
    word = {"response": {"inline_string": "here"}}
    answer = resources.extension(
        "envoy.filters.network.direct_response", "envoy.extensions.filters.network.direct_response.v3.Config", **word
    )
    return {
        "name": _WORKER,
        "address": resources.address("127.0.0.1", port),
        "filter_chains": [{"filters": [answer]}],
    }


@contextlib.asynccontextmanager
async def proxy(
    application_port: int,
    anchor: greeting.Anchor | None,
    longest: int = 3600,
    drain: int = 60,
) -> AsyncIterator[Proxy]:
    """With an anchor in the state before the first certificate; without one a plain proxy."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="hf-"))
    options = envoy.Options(node="pod", directory=directory, drain_seconds=drain)
    port = ports.Port(number=free_port(), application=application_port)
    facts = inbound.Facts(host="127.0.0.1", port=port, identity=IDENTITY if anchor else "", longest=longest)
    ends: list[int] = []
    seen = edges.Edges(greeting.CLOCK)
    held: list[Proxy] = []

    def demanded(name: str) -> None:
        held[0].demanded(name)

    try:
        async with (
            ads.Ads(greeting.CLOCK, demanded).on(options.agent_socket, seen.services) as sent,
            envoy.running(options, greeting.CLOCK, ends.append) as running,
        ):
            made = Proxy(sent, running, facts, ends, [], seen, free_port())
            held.append(made)
            for cluster in application_clusters.clusters(port):
                sent.put(KIND.CLUSTER, cluster["name"], cluster)
            if anchor is not None:
                sent.put(KIND.SECRET, tls.ANCHORS, tls.anchors(anchor.ca.pem))
            made.state(inbound.State.REFUSE if anchor else inbound.State.PLAIN)
            sent.put(KIND.LISTENER, _WORKER, _worker(made.worker))
            async with asyncio.timeout(SECONDS):
                await made.judge()
                await sent.acknowledged([made.listener])
            await until(made.listens, "the listener")
            yield made
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def client_hello(name: str | None) -> bytes:
    """The first octets of a TLS client, as OpenSSL writes them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def in_records(hello: bytes, size: int) -> bytes:
    """The same message in records of that size."""
    header, body = hello[:3], hello[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(header + len(piece).to_bytes(2, "big") + piece for piece in pieces)


async def exchange(port: int, data: bytes, *, piece: int = 0, enough: int = 1, end: bool = False) -> bytes:
    """What comes back to these octets, and to their end if it is told; b"" where the connection is reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answer = b""
    try:
        async with asyncio.timeout(SECONDS):
            for at in range(0, len(data), piece or len(data)):
                writer.write(data[at : at + (piece or len(data))])
                await writer.drain()
            if end:
                writer.write_eof()
            while len(answer) < enough and (read := await reader.read(65536)):
                answer += read
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer


class Http1:
    """One connection of HTTP/1.1, with TLS or without."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def get(
        self, host: str = "web.ns1", line: str = "GET /x", **headers: str
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Status, headers and body."""
        rows = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"{line} HTTP/1.1\r\nhost: {host}\r\n{rows}\r\n".encode())
        async with asyncio.timeout(SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            answer = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in head[1:])}
            body = await self._reader.readexactly(int(answer.get("content-length", 0)))
        return int(head[0].split()[1]), answer, json.loads(body) if body.startswith(b"{") else {"text": body.decode()}

    async def echo(self, data: bytes) -> bytes:
        """What comes back, once the connection is no longer HTTP's."""
        self._writer.write(data)
        async with asyncio.timeout(SECONDS):
            return await self._reader.readexactly(len(data))

    @property
    def tls(self) -> ssl.SSLObject:
        held: ssl.SSLObject = self._writer.get_extra_info("ssl_object")
        return held

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def http1(port: int, context: ssl.SSLContext | None = None, name: str = IDENTITY) -> AsyncIterator[Http1]:
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=name if context else None
        )
    made = Http1(reader, writer)
    try:
        yield made
    finally:
        made.close()
        # Else the loop of the test may end first.
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()


def context_of_tls_1_2(anchor: greeting.Anchor) -> ssl.SSLContext:
    context = greeting.context(anchor)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


async def is_served(port: int, context: ssl.SSLContext, name: str = IDENTITY) -> bool:
    """Whether a whole request goes through TLS; with TLS 1.3 a client learns only then that its certificate is refused."""
    try:
        async with http1(port, context, name) as connection:
            status, _, _ = await connection.get()
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False
    return status == 200


async def served_serial(port: int, context: ssl.SSLContext) -> bytes:
    """The certificate of the server, in DER."""
    async with http1(port, context) as connection:
        der = connection.tls.getpeercert(binary_form=True)
        assert der
        return der


@contextlib.asynccontextmanager
async def http2(port: int, anchor: greeting.Anchor, pair: pairs.Pair) -> AsyncIterator[Callable[[], Any]]:
    """One connection of HTTP/2 with a client certificate, as a gRPC channel; calls Greet, and says how it ended."""
    credentials = grpc.ssl_channel_credentials(anchor.ca.pem, pair.key_pem, pair.certificate_pem)
    options = [
        ("grpc.ssl_target_name_override", IDENTITY),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
    ]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        method = channel.unary_unary(f"/{greeting.SERVICE}/Greet")

        async def call() -> tuple[str, str]:
            try:
                await method(b"", timeout=SECONDS)
            except grpc.aio.AioRpcError as error:
                rows = [*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())]
                return error.code().name, str(dict(rows).get("l5d-proxy-error", ""))
            return "OK", ""

        yield call


def environment_of(pid: int | None) -> bytes:
    return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
