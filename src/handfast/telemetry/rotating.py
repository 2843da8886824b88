# SPDX-License-Identifier: Apache-2.0
"""Lines that go to a file without making anyone wait: a thread writes them in batches and rotates the file.

It does not know what is in the lines. What a caller may rely on:

1. `add` never blocks and never raises. At most `waiting_bytes` wait to be written; a line that has no room is lost, and
   counted.
2. The file holds whole lines: a batch that fits only in part is taken back and tried again. After a crash the file may
   end in half a line; the next one then starts on a new line.
3. New files can be read by their owner only (0600), and so can the directory if it is made here (0700). A symbolic link
   or anything that is no regular file is not written to.
4. A full disk, a removed directory or a file taken away by others stops nobody: the file is made again and lines are
   written as soon as that works. An outage is told in the log when it begins, when lines begin to be lost, and when it ends.
5. The file is renamed when it is full (`audit.log` to `audit-2026-01-31T12-00-00.000.log`), and old ones are deleted
   beyond a number or an age, whichever comes first. No other file is touched.
6. `close` writes what waits, within a deadline.

Lines are handed to the operating system, not forced to the disk: a power cut loses the last seconds. A crash of this
process loses what waits: the lines of `pause_seconds`, in an outage all since it began, at most `waiting_bytes`.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import re
import stat
import threading
from dataclasses import dataclass
from typing import Protocol

import structlog

from handfast import errors
from handfast.runtime import clock as clocks
from handfast.runtime import files

STANDARD_OUTPUT = "-"
_OPEN = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_STAMP = "%Y-%m-%dT%H-%M-%S"
_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)\.\d{3}")

_log = structlog.get_logger("handfast.rotating")


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a file is full, and how many full ones are kept for how long."""

    size_bytes: int = 100 << 20
    keep: int = 10
    days: float = 30.0


class Sink(Protocol):
    """Where batches of lines go; used by one thread at a time."""

    name: str

    def append(self, batch: bytes) -> None:
        """Write whole lines, all of them or none; raises OSError, or HandfastError where the path is to blame."""

    def close(self) -> None: ...


class StandardOutput:
    """Lines for whoever started this process."""

    name = STANDARD_OUTPUT

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._written = 0

    def append(self, batch: bytes) -> None:
        # What has been written cannot be taken back; the same batch comes again until all of it is out.
        while self._written < len(batch):
            self._written += os.write(self._descriptor, memoryview(batch)[self._written :])
        self._written = 0

    def close(self) -> None:
        """Nothing to do: it was open before."""


class RotatingFile:
    """The file and its full predecessors."""

    def __init__(self, path: pathlib.Path, clock: clocks.Clock, rotation: Rotation) -> None:
        self.name = str(path)
        self._path = path
        self._clock = clock
        self._rotation = rotation
        self._descriptor = -1
        self._size = 0
        self._pruned: datetime.date | None = None

    def open(self) -> None:
        """Make the file ready, or say what is wrong with the path."""
        # 3. the directory, for its owner only
        files.create_directory(self._path.parent)
        try:
            descriptor = os.open(self._path, _OPEN, 0o600)
            try:
                self._size = self._ready(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise files.explain(error, "write", self._path) from error
        self._descriptor = descriptor

    def _ready(self, descriptor: int) -> int:
        """How long the file is, once it ends in a whole line."""
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise errors.Refused(f"cannot write {self._path}: not a regular file", reason="NotAFile")
        # 2. after half a line, a new line
        if not status.st_size or os.pread(descriptor, 1, status.st_size - 1) == b"\n":
            return status.st_size
        _write(descriptor, b"\n")
        return status.st_size + 1

    def append(self, batch: bytes) -> None:
        # 4. taken away by others: made again
        if not self._is_current():
            self.close()
            self.open()
        # 5. full: renamed
        if self._size and self._size + len(batch) > self._rotation.size_bytes:
            self._rotate()
        self._prune_daily()
        try:
            _write(self._descriptor, batch)
        except OSError:
            # 2. a part of a batch is taken back
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            self.close()
            raise
        self._size += len(batch)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _is_current(self) -> bool:
        """Whether the open file is still the one at the path, and as long as it was left."""
        if self._descriptor < 0:
            return False
        try:
            named = self._path.lstat()
        except OSError:
            return False
        mine = os.fstat(self._descriptor)
        return (named.st_dev, named.st_ino, named.st_size) == (mine.st_dev, mine.st_ino, self._size)

    def _rotate(self) -> None:
        os.fsync(self._descriptor)
        self._path.rename(self._free_name())
        self.close()
        self.open()
        self._pruned = None

    def _free_name(self) -> pathlib.Path:
        now = self._clock.now()
        for later in range(1000):
            moment = now + datetime.timedelta(milliseconds=later)
            text = f"{moment.strftime(_STAMP)}.{moment.microsecond // 1000:03}"
            path = self._path.with_name(f"{self._path.stem}-{text}{self._path.suffix}")
            if not path.exists():
                return path
        raise OSError(f"no free name to rename {self._path} to")

    def _prune_daily(self) -> None:
        today = self._clock.now().date()
        if self._pruned == today:
            return
        self._pruned = today
        try:
            self._prune()
        except OSError as error:
            # Writing goes on; the next rotation, or the next day, tries again.
            _log.warning("old files cannot be deleted", file=self.name, error=str(error))

    def _prune(self) -> None:
        oldest = (self._clock.now() - datetime.timedelta(days=self._rotation.days)).strftime(_STAMP)
        start, end = f"{self._path.stem}-", self._path.suffix
        full: list[tuple[str, pathlib.Path]] = []
        for path in self._path.parent.iterdir():
            if path.name.startswith(start) and path.name.endswith(end):
                stamp = _STAMPED.fullmatch(path.name[len(start) : len(path.name) - len(end)])
                if stamp is not None:
                    full.append((stamp[1], path))
        full.sort(key=lambda pair: pair[1].name, reverse=True)
        for number, (stamped, path) in enumerate(full):
            if number >= self._rotation.keep or stamped < oldest:
                path.unlink(missing_ok=True)


def _write(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def open_sink(path: str, clock: clocks.Clock, rotation: Rotation | None = None) -> Sink:
    """The place that `path` names: `-` is standard output, anything else a file, which is opened now."""
    if path == STANDARD_OUTPUT:
        return StandardOutput()
    file = RotatingFile(pathlib.Path(path).absolute(), clock, rotation or Rotation())
    file.open()
    return file


class LineWriter:
    """A queue with a bound, and the thread that empties it."""

    def __init__(
        self,
        sink: Sink,
        *,
        waiting_bytes: int = 8 << 20,
        hurry_lines: int = 1000,
        pause_seconds: float = 0.1,
        retry_seconds: float = 1.0,
    ) -> None:
        self._sink = sink
        self._most = waiting_bytes
        self._hurry = hurry_lines
        self._pause = pause_seconds
        self._retry = retry_seconds
        self._lock = threading.Lock()
        # Under the lock: what has been added and not taken; the bytes of that and of the batch being written.
        self._lines: list[bytes] = []
        self._waiting = 0
        self._closed = False
        # Lines added, and of them those that will never be written.
        self.lines = 0
        self.lost = 0
        # Why lines cannot be written now.
        self.trouble: str | None = None
        # The thread sleeps on the first while there is nothing to do, and on the second while a batch gathers.
        self._some = threading.Event()
        self._many = threading.Event()
        self._closing = threading.Event()
        # A daemon: what cannot be written must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Bytes that a crash would lose now."""
        return self._waiting

    def add(self, line: bytes) -> None:
        """Have `line`, which ends in a newline, written soon; from any thread."""
        with self._lock:
            self.lines += 1
            if self._waiting + len(line) > self._most or self._closed:
                self.lost += 1
                return
            self._waiting += len(line)
            self._lines.append(line)
            count = len(self._lines)
        if count == 1:
            self._some.set()
        elif count == self._hurry:
            self._many.set()

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits. What is not out after `seconds`, or cannot be written now, is lost."""
        with self._lock:
            self._closed = True
        self._closing.set()
        self._some.set()
        self._many.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            with self._lock:
                self.lost += len(self._lines)
                self._lines = []
            _log.warning("lines are lost: writing them takes too long", file=self._sink.name, lost=self.lost)

    def _run(self) -> None:
        while True:
            self._some.wait()
            # Either is set once closing has begun, and then no wait below lasts.
            self._some.clear()
            self._many.wait(self._pause)
            self._many.clear()
            closing = self._closing.is_set()
            with self._lock:
                taken, self._lines = self._lines, []
            if taken:
                self._write(taken)
            if closing:
                self._sink.close()
                return

    def _write(self, taken: list[bytes]) -> None:
        """Write a batch, however long it takes; when closing, try once."""
        batch = b"".join(taken)
        before = self.lost
        told_of_loss = False
        while True:
            last = self._closing.is_set()
            try:
                self._sink.append(batch)
            except (OSError, errors.HandfastError) as error:
                if self.trouble is None:
                    self.trouble = str(error)
                    _log.error("lines cannot be written: they wait in memory", file=self._sink.name, error=str(error))
                if self.lost > before and not told_of_loss:
                    told_of_loss = True
                    _log.error("lines are lost: too many wait", file=self._sink.name, waiting_bytes=self._waiting)
            else:
                break
            if last:
                with self._lock:
                    self.lost += len(taken)
                return
            self._closing.wait(self._retry)
        with self._lock:
            self._waiting -= len(batch)
        if self.trouble is not None:
            self.trouble = None
            _log.warning("lines are written again", file=self._sink.name, lost=self.lost)
