# SPDX-License-Identifier: Apache-2.0
"""Envoy as a child process: started, asked through its admin socket, started anew when it dies. What it is told is not known here.

1. It dies with the agent, however that dies: an Envoy without its agent would serve past the end of its certificate. The kernel sees to it
   (`runtime.tethers`).
2. The thread that starts it is the loop's, which lives as long as the process.
3. Its configuration has no secret, and its file is for this user alone. It gets none of our environment.
4. What it logs is taken in, line by line, each up to so many characters. Where it writes out a resource, which might be a secret, the line ends.
5. When it ends, that is told, and it is started anew, after a delay that grows; one that ran for a minute counts as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import json
import os
import pathlib
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, cast

import msgspec
import structlog

from handfast import errors
from handfast.proxy import binary
from handfast.rules.envoy import bootstrap
from handfast.runtime import backoff, descriptors, tasks, tethers
from handfast.runtime import clock as clocks

_LONGEST_LINE: Final = 2000
_LIMIT: Final = 1 << 20
# With which protobuf's library begins to write out a message.
_WRITTEN_OUT: Final = "goo.gle/debug"
_GRACE: Final = 3.0
_ANSWER: Final = 5.0
_STEADY: Final = 60.0
_SCHEDULE: Final = backoff.Schedule(initial=0.1, cap=10.0)
_log = structlog.get_logger("handfast.envoy")

# What the admin socket answers to a path: the status and the body.
Ask = Callable[[str], Awaitable[tuple[int, bytes]]]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The name of the workload, a directory of this user alone, and how long Envoy drains a chain that was replaced."""

    node: str
    directory: pathlib.Path
    # A minute, and not Envoy's ten: a chain is replaced when a certificate is over, or when a policy lets fewer in.
    drain_seconds: int = 60
    workers: int = 1

    @property
    def agent_socket(self) -> pathlib.Path:
        return self.directory / "agent.sock"

    @property
    def admin_socket(self) -> pathlib.Path:
        return self.directory / "admin.sock"


class Envoy:
    """One Envoy, kept running while `run` runs; `on_end` is told the exit code each time it ends."""

    def __init__(self, options: Options, clock: clocks.Clock, on_end: Callable[[int], None] | None = None) -> None:
        self._options = options
        self._clock = clock
        self._on_end = on_end
        # How often it ended.
        self.ends = 0
        self._program = binary.path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the one that runs; None while none does."""
        return self._process.pid if self._process is not None else None

    async def run(self) -> None:
        """Until cancelled."""
        delays = backoff.Backoff(_SCHEDULE)
        configuration = self._write()
        while True:
            started = self._clock.monotonic()
            code = await self._once(configuration)
            self.ends += 1
            _log.error("envoy ended", code=code)
            if self._on_end is not None:
                # 5. that is told
                self._on_end(code)
            if self._clock.monotonic() - started >= _STEADY:
                delays.reset()
            await self._clock.sleep(next(delays))

    def _write(self) -> pathlib.Path:
        options = self._options
        facts = bootstrap.Bootstrap(
            node=options.node,
            agent_socket=str(options.agent_socket),
            admin_socket=str(options.admin_socket),
            # As many as this process, which Envoy has its limits from.
            files=descriptors.allowed(),
        )
        path = options.directory / "envoy.json"
        # 3. for this user alone
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            json.dump(bootstrap.document(facts), file)
        return path

    def _command(self, configuration: pathlib.Path) -> Sequence[str]:
        words = ["--config-path", configuration, "--disable-hot-restart", "--concurrency", self._options.workers]
        words += ["--drain-time-s", self._options.drain_seconds, "--log-level", "warning", "--log-format", "%l %n %v"]
        # 4. a message is a line
        words += ["--log-format-escaped"]
        # 1. it dies with this process; 3. without our environment
        return tethers.command([str(word) for word in (self._program, *words)], {})

    async def _once(self, configuration: pathlib.Path) -> int:
        self._options.admin_socket.unlink(missing_ok=True)
        try:
            # 2. vfork, in this thread. uvloop would fork, and gRPC, which has threads here, acts upon every fork.
            process = subprocess.Popen(  # noqa: S603, ASYNC220  words of our own; it returns once exec is done
                self._command(configuration),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env={},
            )
        except OSError as error:
            raise errors.Unavailable(
                f"cannot start Envoy: {(error.strerror or 'failed').lower()}", reason="EnvoyNotStarted"
            ) from error
        self._process = process
        try:
            await _take_in(process)
            return await tethers.ended(process)
        finally:
            await tethers.end(process, _GRACE)
            self._process = None

    async def ask(self, path: str) -> tuple[int, bytes]:
        """What the admin socket answers to GET: the status and the body. `Unavailable` where nobody answers."""
        return await ask(self._options.admin_socket, path)


async def ask(socket: pathlib.Path, path: str) -> tuple[int, bytes]:
    """The same, of whichever Envoy listens there."""
    try:
        async with asyncio.timeout(_ANSWER):
            answer = await _get(socket, path)
        response = http.client.HTTPResponse(cast("Any", _Answered(answer)))
        response.begin()
        return response.status, response.read()
    except (OSError, TimeoutError, http.client.HTTPException) as error:
        raise errors.Unavailable("Envoy does not answer", reason="EnvoyNotAnswering") from error


@contextlib.asynccontextmanager
async def running(
    options: Options, clock: clocks.Clock, on_end: Callable[[int], None] | None = None
) -> AsyncIterator[Envoy]:
    """An Envoy that runs while the block does."""
    envoy = Envoy(options, clock, on_end)
    async with tasks.Group("envoy") as group:
        group.start(envoy.run(), name="run")
        yield envoy


async def _take_in(process: subprocess.Popen[bytes]) -> None:
    lines = asyncio.StreamReader(limit=_LIMIT)
    protocol = asyncio.StreamReaderProtocol(lines)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: protocol, cast("io.BufferedReader", process.stderr)
    )
    try:
        while line := await lines.readline():
            # 4. line by line
            text = line.decode("utf-8", "replace").strip()[:_LONGEST_LINE].partition(_WRITTEN_OUT)[0]
            level, _, words = text.partition(" ")
            say = _log.error if level in {"error", "critical"} else _log.warning
            say("envoy says", words=words)
    finally:
        transport.close()


async def _get(socket: pathlib.Path, path: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n".encode("ascii"))
        return await reader.read()
    finally:
        writer.close()


class _Answered:
    """Octets that were read already, as the library wants them: as a socket."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._octets)
