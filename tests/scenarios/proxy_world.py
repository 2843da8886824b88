# SPDX-License-Identifier: Apache-2.0
"""`mesh proxy run` beside an application: with the real start-up, the real identity service and a real Envoy, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pathlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib import request as urls
from urllib.error import HTTPError

import grpc
import grpc.aio

from handfast.assembly import proxy
from handfast.rules.envoy import ports
from handfast.rules.mesh import proxy_clients, proxy_environment
from handfast.runtime import addresses
from tests.scenarios import envoy_world, http2_world, mesh_world, up_world
from tests.scenarios.test_mesh_credentials import AgentsClock
from tests.unit.wire import greeting

NAME = mesh_world.identity_of("ns1", "web")
P = "LINKERD2_PROXY_"


def variables_of(
    plane: mesh_world.Plane,
    directory: pathlib.Path,
    identity: str,
    who: tuple[str, str] = ("ns1", "web"),
    pod: str = "",
) -> dict[str, str]:
    """As the seed has them, for a new Pod of an account, by namespace and name."""
    token = plane.workload(*who, pod or f"{who[1]}-{identity.rpartition(':')[2]}")
    return identity_variables(plane, directory, identity, mesh_world.identity_of(*who), token)


def identity_variables(
    plane: mesh_world.Plane, directory: pathlib.Path, identity: str, name: str, token: bytes
) -> dict[str, str]:
    """The same for who has a token; `identity` is where the identity service is."""
    (directory / "token").write_bytes(token)
    (directory / "store").mkdir()
    return {
        f"{P}LOCAL_IDENTITY_NAME": name,
        f"{P}IDENTITY_TRUST_ANCHORS_BLOB": base64.b64encode(plane.anchors()).decode(),
        f"{P}IDENTITY_TOKEN_FILE": str(directory),
        f"{P}IDENTITY_STORE_DIR": str(directory / "store"),
        f"{P}IDENTITY_ADDR": identity,
    }


def started(
    variables: dict[str, str], leads: dict[int, int], doors: Doors, log: pathlib.Path, temporary: pathlib.Path
) -> subprocess.Popen[bytes]:
    """`mesh proxy init`, which becomes `mesh proxy run`, as a process. What is killed leaves a directory behind, without a secret; sockets need a short path."""
    words = ["mesh", "proxy", "run", "--pod-ip", "127.0.0.1", "--outbound", f"127.0.0.1:{envoy_world.free_port()}"]
    for number, application in leads.items():
        words += ["--inbound", f"{number}:{application}"]
    words += ["--admin-listen", f"127.0.0.1:{doors.port}"]
    with log.open("ab") as file:
        return subprocess.Popen(
            [*up_world.COMMAND, "mesh", "proxy", "init", "--", *up_world.COMMAND, *words],
            env={**up_world.environment(), **variables, "TMPDIR": str(temporary)},
            stdout=file,
            stderr=file,
        )


def context_of(plane: mesh_world.Plane) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=plane.anchors().decode())
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class Doors:
    """The admin port of a proxy."""

    def __init__(self) -> None:
        self.port = envoy_world.free_port()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urls.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    async def until(self, path: str, code: int) -> None:
        await until(lambda: self.get(path)[0] == code, lambda: self.get(path))

    async def identity(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((await asyncio.to_thread(self.get, "/identity"))[1])
        return document


async def recovers(doors: Doors, clock: AgentsClock) -> None:
    """Until it is ready; what is tried again after a while is tried at once."""

    async def is_ready() -> bool:
        clock.passed += 5
        return (await asyncio.to_thread(doors.get, "/ready"))[0] == 200

    await until_async(is_ready)


async def until(reached: Callable[[], bool], what: Callable[[], object]) -> None:
    try:
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(reached):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(await asyncio.to_thread(what)) from None


async def until_async(question: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await question():
            await asyncio.sleep(0.05)


def prepared(variables: dict[str, str]) -> dict[str, str]:
    """The same variables after `mesh proxy init`."""
    done = subprocess.run(
        [*up_world.COMMAND, "mesh", "proxy", "init", "--", "env"],
        env={**up_world.environment(), **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return variables | dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith(P))


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


def ports_of(leads: dict[int, int]) -> tuple[ports.Port, ...]:
    return tuple(ports.Port(number=number, application=application) for number, application in leads.items())


def options_of(doors: Doors, leads: dict[int, int], **more: Any) -> proxy.Options:
    """Ports, and where each leads; without more a plain proxy."""
    return proxy.Options(
        pod_ip="127.0.0.1",
        outbound=addresses.Address("127.0.0.1", envoy_world.free_port()),
        admin_listen=addresses.Address("127.0.0.1", doors.port),
        **{"files": None, "clients": None, "ports": ports_of(leads), **more},
    )


def identified(doors: Doors, leads: dict[int, int], variables: dict[str, str], **more: Any) -> proxy.Options:
    """The same with the identity of the variables."""
    files, clients = proxy_environment.read_files(variables), proxy_clients.read(variables)
    return options_of(doors, leads, files=files, clients=clients, **more)


@contextlib.asynccontextmanager
async def running(options: proxy.Options, clock: AgentsClock) -> AsyncIterator[None]:
    task = asyncio.create_task(proxy.run(options, clock))
    try:
        yield
    finally:
        has_ended = task.done()
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        if has_ended and isinstance(result, Exception):
            # Whatever the test has seen came of that.
            raise result


class Beside:
    """What is behind a proxy: an application of HTTP/1.1, which sends everything else back, one of gRPC, and one of h2c; and how each is called."""

    def __init__(self, application: envoy_world.Application, grpc_port: int, h2c_port: int) -> None:
        self.application = application
        self.port, self.grpc, self.h2c = (envoy_world.free_port() for _ in range(3))
        self.leads = {self.port: application.port, self.grpc: grpc_port, self.h2c: h2c_port}

    async def listens(self, what: Callable[[], object]) -> None:
        """Until all its ports do."""
        await until(lambda: all(listens(port) for port in self.leads), what)

    async def passes_what_is_not_for_it(self) -> None:
        """Other SNI, no SNI, HTTP, TCP, h2c, gRPC, and WebSocket: in every state alike."""
        for name in ("other.ns1.example", None):
            hello = envoy_world.client_hello(name)
            for data, piece in ((hello, 0), (hello, 1), (envoy_world.in_records(hello, 50), 0)):
                assert await envoy_world.exchange(self.port, data, piece=piece, enough=len(data)) == data
                assert data in self.application.octets
        assert await envoy_world.exchange(self.port, b"\x00\x01 no HTTP\r\n", enough=12) == b"\x00\x01 no HTTP\r\n"
        async with envoy_world.http1(self.port) as connection:
            status, _, seen = await connection.get(l5d_client_id="liar", l5d_anything="liar")
            assert (status, seen["line"]) == (200, "GET /x HTTP/1.1")
            assert not [name for name in seen["headers"] if name.startswith("l5d-")]
            await upgrades(connection)
        async with http2_world.client(self.h2c) as older:
            await _is_nobody(older)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc}", OWN_CONNECTION) as channel:
            await greets(channel)

    async def refuses_its_own_name(self) -> None:
        """Not an octet comes back, and none reaches the application, however the ClientHello comes."""
        before = self.application.connections, len(self.application.octets)
        hello = envoy_world.client_hello(NAME)
        for data in (hello, envoy_world.in_records(hello, 50), envoy_world.client_hello(NAME.upper())):
            for piece in (0, 1):
                assert await envoy_world.exchange(self.port, data, piece=piece) == b""
        assert (self.application.connections, len(self.application.octets)) == before

    async def serves_its_own_name(self, context: ssl.SSLContext, anchors: bytes) -> None:
        """HTTP, WebSocket, HTTP/2 and gRPC by TLS 1.3, however the ClientHello comes; nothing of the TLS reaches the application."""
        hello = envoy_world.client_hello(NAME)
        for data, piece in ((hello, 1), (envoy_world.in_records(hello, 50), 0)):
            assert (await envoy_world.exchange(self.port, data, piece=piece))[:1] == _HANDSHAKE
            assert data not in self.application.octets
        async with envoy_world.http1(self.port, context, NAME) as connection:
            assert connection.tls.version() == "TLSv1.3"
            status, _, seen = await connection.get(l5d_client_id="liar")
            assert (status, "l5d-client-id" in seen["headers"]) == (200, False)
            await upgrades(connection)
        context.set_alpn_protocols(["h2"])
        async with http2_world.client(self.h2c, context, NAME) as newer:
            await _is_nobody(newer)
        options = [*OWN_CONNECTION, ("grpc.ssl_target_name_override", NAME)]
        target = f"127.0.0.1:{self.grpc}"
        async with grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(anchors), options) as channel:
            await greets(channel)


_HANDSHAKE = b"\x16"
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]


async def upgrades(connection: envoy_world.Http1, host: str = "web.ns1") -> dict[str, str]:
    """To a WebSocket, which gives back what it gets; the headers of the answer."""
    upgrade = {"sec-websocket-key": "x", "sec-websocket-version": "13"}
    status, headers, _ = await connection.get(host, upgrade="websocket", connection="Upgrade", **upgrade)
    assert status == 101
    assert await connection.echo(b"as it is") == b"as it is"
    return headers


async def greets(channel: grpc.aio.Channel) -> dict[str, str]:
    """The headers of an answer by gRPC."""
    call = channel.unary_unary(f"/{greeting.SERVICE}/Greet")(b"", timeout=envoy_world.SECONDS)
    await call
    return {str(name): str(value) for name, value in await call.initial_metadata()}


async def _is_nobody(connection: http2_world.Client) -> None:
    """A client without a certificate, whatever it says; it speaks HTTP/2 to an application that speaks it."""
    answer = await connection.get(l5d_client_id="liar", trailers=[("l5d-client-id", "liar"), ("x-own", "1")])
    assert (answer.status, answer.seen["trailers"]) == (200, {"x-own": "1"})
    assert not [name for name in answer.seen["headers"] if name.startswith("l5d-")]


@contextlib.asynccontextmanager
async def beside() -> AsyncIterator[Beside]:
    async with (
        envoy_world.application() as application,
        greeting.serving() as address,
        http2_world.application() as newer,
    ):
        yield Beside(application, address.port, newer.port)


def envoys() -> list[int]:
    """The Envoys that this process has started."""
    children = [
        int(child)
        for path in pathlib.Path(f"/proc/{os.getpid()}/task").glob("*/children")
        for child in path.read_text().split()
    ]
    return [pid for pid in children if pathlib.Path(f"/proc/{pid}/exe").resolve().name == "envoy"]


@contextlib.asynccontextmanager
async def proxied(variables: dict[str, str], clock: AgentsClock) -> AsyncIterator[tuple[Beside, Doors]]:
    """A proxy with its identity that listens, ready or not."""
    doors = Doors()
    async with beside() as made, running(identified(doors, made.leads, variables), clock):
        await made.listens(lambda: doors.get("/ready"))
        yield made, doors
