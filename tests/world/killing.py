# SPDX-License-Identifier: Apache-2.0
"""A node that kills itself with SIGKILL at its Nth call to the file system or to the API server.

Run as a program it is a zygote: it imports everything once, and forks a child for each order it reads. The child counts
every call that can change or read a file under its directory, every request it sends, every answer and every piece of a
watch it gets. It shows nothing by raising errors: the process is gone, and no clean-up runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Self

import structlog

from handfast.client import transport
from handfast.node import identity as identities
from handfast.runtime import clock as clocks

# Calls that take paths, and calls that take a descriptor.
BY_PATH = ("open", "mkdir", "rename", "replace", "link", "symlink", "unlink", "remove", "chmod", "rmdir", "truncate")
BY_DESCRIPTOR = ("write", "fsync", "fdatasync", "fchmod", "ftruncate")


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is to do: `kill_at` 0 lets it live. `first` is the serial of the certificate that a rotation replaces."""

    scenario: str
    directory: str
    node: str
    kill_at: int = 0
    first: str = ""


class Counter:
    """Counts, notes and kills."""

    def __init__(self, order: Order) -> None:
        self._root = order.directory
        self._kill_at = order.kill_at
        self.calls: list[str] = []
        self._descriptors: set[int] = set()

    def tick(self, what: str) -> None:
        self.calls.append(what)
        if len(self.calls) == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_files(self) -> None:
        for name in BY_PATH:
            setattr(os, name, self._path_call(name, getattr(os, name)))
        for name in BY_DESCRIPTOR:
            setattr(os, name, self._descriptor_call(name, getattr(os, name)))
        plain_close, plain_fdopen = os.close, os.fdopen

        def close(descriptor: int) -> None:
            self._descriptors.discard(descriptor)
            plain_close(descriptor)

        def fdopen(descriptor: int, mode: str = "r", *more: Any, **named: Any) -> Any:
            # The buffered writer calls write(2) from C, where nobody can count it.
            if mode == "wb" and descriptor in self._descriptors:
                return PlainFile(descriptor)
            self._descriptors.discard(descriptor)
            return plain_fdopen(descriptor, mode, *more, **named)

        vars(os).update(close=close, fdopen=fdopen)

    def _path_call(self, name: str, plain: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            paths = [str(argument) for argument in arguments if isinstance(argument, (str, os.PathLike))]
            mine = any(path.startswith(self._root) for path in paths)
            if mine:
                self.tick(f"{name} {' '.join(path.removeprefix(self._root) for path in paths)}")
            result = plain(*arguments, **named)
            if mine and name == "open":
                self._descriptors.add(result)
            return result

        return call

    def _descriptor_call(self, name: str, plain: Any) -> Any:
        def call(descriptor: int, *arguments: Any) -> Any:
            if descriptor in self._descriptors:
                self.tick(name)
            return plain(descriptor, *arguments)

        return call

    def watch_api(self) -> None:
        plain_send, plain_read = transport.Transport._send, transport._Stream.readany

        async def send(this: Any, link: Any, method: str, path: str, **more: Any) -> Any:
            kind = "WATCH" if "watch" in (more.get("params") or {}) else method
            self.tick(f"api > {kind} {path}")
            answer = await plain_send(this, link, method, path, **more)
            self.tick(f"api < {kind} {answer.status}")
            return answer

        async def readany(this: Any) -> bytes:
            chunk = await plain_read(this)
            self.tick("api < event")
            return chunk

        for owner, name, made in ((transport.Transport, "_send", send), (transport._Stream, "readany", readany)):
            setattr(owner, name, made)


class PlainFile:
    """As much of a file as atomic writes use, without a buffer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def flush(self) -> None: ...

    def fileno(self) -> int:
        return self._descriptor


def places(order: Order) -> identities.Places:
    root = pathlib.Path(order.directory)
    return identities.Places(
        node=order.node,
        kubeconfig=root / "kubelet.conf",
        bootstrap_kubeconfig=root / "bootstrap-kubelet.conf",
        directory=root / "pki",
        rotate=True,
    )


async def boot(order: Order) -> str:
    """From nothing to a certificate and a kubeconfig; the serial of what is held."""
    identity = identities.Identity(places(order), clock=clocks.SystemClock())
    try:
        await identity.ensure(30.0)
        return held(identity)
    finally:
        await identity.close()


async def rotate(order: Order) -> str:
    """Renew, unless the certificate that the story began with is no longer the one in use."""
    identity = identities.Identity(places(order), clock=clocks.SystemClock())
    try:
        await identity.ensure(30.0)
        if held(identity) != order.first:
            return held(identity)
        changed = asyncio.Event()

        async def note(_: object) -> None:
            changed.set()

        identity.keeper.subscribe(note)
        identity.keeper.renew_now()
        running = asyncio.create_task(identity.keeper.run())
        async with asyncio.timeout(30):
            await changed.wait()
        running.cancel()
        await identity.client.transport.request("GET", "/version")
        return held(identity)
    finally:
        await identity.close()


def held(identity: identities.Identity) -> str:
    pair = identity.keeper.current()
    assert pair is not None
    return pair.leaf.serial


SCENARIOS = {"boot": boot, "rotate": rotate}


def child(order: Order) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    counter = Counter(order)
    counter.watch_files()
    counter.watch_api()
    serial = asyncio.run(SCENARIOS[order.scenario](order))
    os.write(1, json.dumps({"serial": serial, "calls": counter.calls}).encode() + b"\n")


def zygote() -> None:
    """Fork a child for each order; its own line, or the signal that ended it, is the answer."""
    for line in sys.stdin:
        order = Order(**json.loads(line))
        pid = os.fork()
        if pid == 0:
            try:
                child(order)
            except BaseException as error:  # the parent must see it
                os.write(1, json.dumps({"error": repr(error)}).encode() + b"\n")
            os._exit(0)
        _, code = os.waitpid(pid, 0)
        if os.WIFSIGNALED(code):
            os.write(1, json.dumps({"signal": os.WTERMSIG(code)}).encode() + b"\n")


class Zygote:
    """The other end, for tests: orders in, outcomes out, one after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, *before: str) -> Zygote:
        command = [*before, sys.executable, "-m", "tests.world.killing"]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, limit=1 << 20
        )
        return cls(process)

    async def run(self, order: Order) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        fields = {name: getattr(order, name) for name in Order.__slots__}
        self._process.stdin.write(json.dumps(fields).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        outcome: dict[str, Any] = json.loads(line)
        return outcome

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


if __name__ == "__main__":
    zygote()
