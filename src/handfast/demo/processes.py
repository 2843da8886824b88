# SPDX-License-Identifier: Apache-2.0
"""The processes of the demo: a line is run to its end, or stays; at the end none is left, and that is looked at. It judges no output.

1. Each has a process group of its own: Ctrl-C in a terminal reaches the demo alone, which ends the others in order.
2. The kernel ends each with the demo, however that dies.
3. What was started last ends first: all that stays but the first, the control plane, at once, and then that one.
4. Whoever does not end when asked is killed after a while. What those have started, and lost, is found (`runtime.descendants`) and killed as well.
5. Every port at which one of them has listened is looked at after the end.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Final

from handfast import errors
from handfast.demo import lines
from handfast.runtime import addresses, descendants, files, listeners, tasks, tethers
from handfast.runtime import clock as clocks

_SHELL: Final = "/bin/sh"
_TICK: Final = 0.1
_GRACE: Final = 15.0
# How long the children of one that has ended may take to end.
_LINGER: Final = 5.0
_MOST: Final = 256 << 10


@dataclass(slots=True)
class Processes:
    """Those that the demo has started, in one directory and with one environment."""

    home: pathlib.Path
    variables: Mapping[str, str]
    clock: clocks.Clock
    jobs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _needed: set[str] = field(default_factory=set)
    # Children that this process had before: a shell that became it may have left some, which are none of ours.
    _before: frozenset[int] = field(default_factory=lambda: frozenset(descendants.alive()))
    _current: subprocess.Popen[bytes] | None = None

    def _start(self, text: str, output: int) -> subprocess.Popen[bytes]:
        # 2. the kernel ends it with us
        words = tethers.command([_SHELL, "-c", lines.as_run(text)], self.variables)
        try:
            return subprocess.Popen(  # noqa: S603  a line of the story
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                env=dict(self.variables),
                # 1. a group of its own
                process_group=0,
            )
        except OSError as error:
            raise errors.Unavailable(
                f"cannot start {_SHELL}: {(error.strerror or 'failed').lower()}", reason="NotStarted"
            ) from error

    def stay(self, text: str, *, may_end: bool) -> None:
        """Start a process that stays."""
        self.jobs[text] = self._start(text, subprocess.DEVNULL)
        if not may_end:
            self._needed.add(text)

    async def run(self, text: str, tick: Callable[[], None]) -> tuple[int, str]:
        """Run a line to its end; its exit code, and what it printed."""
        with self._file() as output:
            self._current = self._start(text, output.fileno())
            while not await tasks.within(tethers.ended(self._current), self.clock, _TICK):
                tick()
            code, self._current = self._current.wait(), None
            output.seek(0)
            return code, output.read(_MOST).decode(errors="replace")

    def _file(self) -> IO[bytes]:
        """One that takes what is printed, and has no name."""
        try:
            return tempfile.TemporaryFile(dir=self.home)
        except OSError as error:
            raise files.explain(error, "make a file in", self.home) from error

    def failed(self) -> str:
        """The line of a process that was to stay, and has ended badly; empty: none has."""
        return next((text for text, process in self.jobs.items() if process.poll() and text in self._needed), "")

    async def end(self) -> tuple[list[str], list[str]]:
        """End all of them; the processes and the ports that were left after that, which are ended, too."""
        listened = _listening(self._ours())
        if self._current is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._current.pid, signal.SIGKILL)
            await tethers.ended(self._current)
        running = [process for process in self.jobs.values() if process.poll() is None]
        # 3. all but the first at once, then that one
        for process in running[1:]:
            process.terminate()
        for process in reversed(running):
            await tethers.end(process, _GRACE)
        left = await self._lost()
        # 5. the sockets themselves: another process may have one of the ports by now
        taken = listened.keys() & listeners.addresses_by_inode().keys()
        return left, sorted(str(listened[inode]) for inode in taken)

    def _ours(self) -> dict[int, str]:
        return {pid: command for pid, command in descendants.alive().items() if pid not in self._before}

    async def _lost(self) -> list[str]:
        """What is left of those that have ended; it is killed (4)."""
        begun = self.clock.monotonic()
        while (rows := self._ours()) and self.clock.monotonic() < begun + _LINGER:
            descendants.reap()
            await self.clock.sleep(_TICK)
        for pid in rows:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        descendants.reap()
        return [f"{pid} {command}" for pid, command in rows.items()]


def _listening(pids: dict[int, str]) -> dict[int, addresses.Address]:
    """Where these processes listen (5), by the inode of the socket."""
    held = descendants.sockets(pids)
    return {inode: address for inode, address in listeners.addresses_by_inode().items() if inode in held}
