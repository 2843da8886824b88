# SPDX-License-Identifier: Apache-2.0
"""The processes that are measured: a real `handfast up` in a directory of its own, and the floor beside it.

Nothing is tuned for the measurement: the control plane runs with its defaults, and with rate limits unless a case says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from bench import load, measure
from handfast.bootstrap import kubeconfig
from handfast.datadir import layout
from handfast.runtime import tls


def client_context(path: str | pathlib.Path) -> ssl.SSLContext:
    """TLS as the user of a kubeconfig."""
    found = kubeconfig.parse(pathlib.Path(path).read_text())
    if found.user is None:
        raise LookupError(f"{path}: no user")
    return tls.client_context(
        found.cluster.certificate_authority_data, found.user.client_certificate_data, found.user.client_key_data
    )


# Free ports for every service of `up --mesh`.
MESH_PORTS = tuple(
    word
    for name in (
        "identity",
        "identity-admin",
        "destination",
        "policy",
        "agents",
        "destination-admin",
        "injector",
        "injector-admin",
    )
    for word in (f"--{name}-listen", "127.0.0.1:0")
)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where, which processes, and how to call it."""

    port: int
    pids: Mapping[str, int]
    context: ssl.SSLContext
    place: layout.Layout

    def meter(self) -> measure.Meter:
        return measure.Meter(self.pids)

    async def settle(self) -> None:
        await measure.settle(tuple(self.pids.values()))


async def free_port() -> int:
    """A port that nobody has at this moment."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        return int(server.sockets[0].getsockname()[1])


async def stop(process: asyncio.subprocess.Process) -> None:
    """End a process, and wait for its end."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


@contextlib.asynccontextmanager
async def launched(directory: pathlib.Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`handfast up`, just started. Its log goes to a file beside its directory."""
    log = directory.with_suffix(".log")
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handfast", "up", "--dir", str(directory)),
            # As JSON, because only who asks for it gets a first token without a terminal.
            *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "-o", "json", *flags),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
        )
    try:
        yield process
    finally:
        await stop(process)


async def wait_ready(process: asyncio.subprocess.Process, directory: pathlib.Path) -> Server:
    """Until `up` says on its output that every role is ready."""
    if process.stdout is None or not await process.stdout.readline():
        tail = directory.with_suffix(".log").read_text()[-2000:]
        raise load.UnexpectedAnswer(f"`handfast up` ended before it was ready:\n{tail}")
    return described(directory)


def described(directory: pathlib.Path) -> Server:
    """What the running control plane says about itself."""
    place = layout.Layout.at(directory)
    found = json.loads((directory / "endpoints.json").read_text())
    port = int(found["apiserver"].rpartition(":")[2])
    return Server(port, found["pids"], client_context(place.admin_kubeconfig), place)


@contextlib.asynccontextmanager
async def plane(directory: pathlib.Path, *flags: str) -> AsyncIterator[Server]:
    """A control plane that is ready and has nothing left to do."""
    async with launched(directory, *flags) as process:
        server = await wait_ready(process, directory)
        await server.settle()
        yield server


@contextlib.asynccontextmanager
async def floor(beside: Server, body: bytes) -> AsyncIterator[Server]:
    """The floor, with the key and certificates of a control plane, serving `body`."""
    place = beside.place
    file = place.root.with_suffix(".object")
    file.write_bytes(body)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.floor", str(place.apiserver_certificate), str(place.apiserver_key)),
        *(str(place.ca_certificate), str(file)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if process.stdout is None:
            raise load.UnexpectedAnswer("the floor has no output")
        port = int(await process.stdout.readline())
        yield Server(port, {"floor": process.pid}, beside.context, place)
    finally:
        await stop(process)


@dataclass(frozen=True, slots=True)
class Start:
    """How long one start took, in seconds: to a 200 from /readyz, to everything ready, and the CPU time until then."""

    readyz: float
    everything: float
    cpu: float


async def timed_start(directory: pathlib.Path) -> Start:
    """Start a control plane, time it, stop it."""
    begun = time.monotonic()
    async with launched(directory) as process:
        endpoints = directory / "endpoints.json"
        while not endpoints.exists():
            await asyncio.sleep(0.005)
            if process.returncode is not None:
                raise load.UnexpectedAnswer(f"`handfast up` ended with {process.returncode}")
        found = described(directory)
        # The socket listens before the API server is there: this waits in its backlog.
        body = await load.fetch(found.port, found.context, "/readyz")
        readyz = time.monotonic() - begun
        if body != b"ok":
            raise load.UnexpectedAnswer(f"/readyz said {body[:80]!r}")
        server = await wait_ready(process, directory)
        return Start(readyz, time.monotonic() - begun, measure.cpu_total(server.pids.values()))
