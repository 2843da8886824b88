# SPDX-License-Identifier: Apache-2.0
"""Space for the SQLite engine's files: what is left, what is kept for removals, and when the disk counts as full.

A store on a full disk can still remove. Otherwise nobody could make room through it.

1. The last `MARGIN` bytes of the file system are for removals, which need space themselves: a removal is a line of the log,
   too, and the write-ahead log has to be folded into the file. Writes that add something are refused before that.
   Pages of the file that are free count as space: what was removed and compacted can be used again.
2. Others fill disks as well. A file beside the store, `RESERVE` bytes that are really allocated, is given back to the
   file system piece by piece when a removal finds no space. What was given back is for removals all the same.
3. It is made again when there is room for it. Without it the space that it would take is not for other writes either.
   (Of a very small file system the margin is an eighth, and the reserve a quarter.)
4. When the disk counts as full the log says so, again every few minutes while writes are refused, and when it has ended.

It does not write to the store's own files, and does not decide which writes are removals.
"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Final, NamedTuple

import structlog

from handfast.runtime import clock as clocks
from handfast.store import protocol

MARGIN: Final = 4 << 20
RESERVE: Final = 16 << 20
# 2. Of which one is enough to fold the log into the file.
_PIECES: Final = 4
# Without so much the store cannot even be opened: SQLite makes files beside it.
_OPENING: Final = 1 << 20
# 3. How often the reserve is tried for.
_MAKE_SECONDS: Final = 5.0
_FULL: Final = "the disk is full: writes are refused, deletes are not"
# 4. How often the log says that the disk is full.
_TELL_SECONDS: Final = 300.0
_log = structlog.get_logger("handfast.store")


class _Measured(NamedTuple):
    """Of the file system: free, and kept for removals. Of the reserve: all of it, and what is not there now."""

    free: int
    margin: int
    wanted: int
    missing: int


class Space:
    """The space of one store. Used by the thread that writes, but for `room`."""

    def __init__(self, path: pathlib.Path, clock: clocks.Clock, reserve: int = RESERVE) -> None:
        self._path = path
        self._file = path.with_name(f"{path.name}.reserve")
        self._clock = clock
        self._wanted = reserve
        self._made_at = -_MAKE_SECONDS
        self._told_at = 0.0
        self._full = False
        # Writes refused since the disk was found full, and ever.
        self._refused_now = 0
        self._refused = 0

    def room(self) -> protocol.Room:
        """What an operator wants to know; from any thread."""
        # Nobody may have tried to write since there is space again.
        full = self._full and not self.is_plenty(0)
        return protocol.Room(self._look().free, self._reserved(), full, self._refused, _FULL)

    def prepare(self) -> None:
        """Before the store is opened: with nothing left, SQLite could not make the files it needs."""
        if self._look().free < _OPENING:
            self.release()

    def make(self) -> None:
        """Have the reserve, if there is room for it beside the margin (3)."""
        self._made_at = self._clock.monotonic()
        space = self._look()
        if not space.missing or space.free < space.missing + 2 * space.margin:
            return
        try:
            handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(handle, 0, space.wanted)
            finally:
                os.close(handle)
        except OSError as error:
            _log.warning("no space can be kept for removals", file=str(self._file), error=error.strerror)

    def is_plenty(self, size: int) -> bool:
        """Whether so much can be added, in the log and in the file, before the margin (1)."""
        space = self._look()
        return space.free - space.missing >= space.margin + 2 * size

    def fits(self, size: int, free_pages_bytes: int) -> bool:
        """Whether so much can be added, there or in pages of the file that are free (1)."""
        return self.is_plenty(size) or free_pages_bytes >= self._look().margin + size

    def release(self) -> bool:
        """Give a piece of the reserve back to the file system; false if there is none left (2)."""
        left = self._reserved()
        if not left:
            return False
        try:
            os.truncate(self._file, max(left - -(-self._look().wanted // _PIECES), 0))
        except OSError:
            return False
        return True

    def refuse(self) -> protocol.StoreFull:
        """Count one more refused write and log it (4); returns what to tell whoever wanted it."""
        self._refused += 1
        self._refused_now += 1
        now = self._clock.monotonic()
        if not self._full or now - self._told_at >= _TELL_SECONDS:
            self._full = True
            self._told_at = now
            room = self.room()
            _log.error(
                _FULL,
                reason=protocol.StoreFull.reason,
                file=str(self._path),
                free_bytes=room.free_bytes,
                reserve_bytes=room.reserve_bytes,
                refused=self._refused_now,
                hint="free space on its file system, or delete objects: what they took can be used within ten minutes",
            )
        return protocol.StoreFull(
            f"{self._path}: no space left for this write",
            hint="free space on its file system, or delete objects; writing then resumes",
        )

    def accepted(self) -> None:
        """A write that adds something was committed."""
        if self._wanted and self._clock.monotonic() - self._made_at >= _MAKE_SECONDS:
            self.make()
        if self._full:
            self._full = False
            _log.warning("the disk has room again", file=str(self._path), refused=self._refused_now)
            self._refused_now = 0

    def _look(self) -> _Measured:
        try:
            file_system = os.statvfs(self._path.parent)
        except OSError:
            # Whoever writes will find out what is wrong.
            return _Measured(sys.maxsize, 0, 0, 0)
        block = file_system.f_frsize
        total, free = file_system.f_blocks * block, file_system.f_bavail * block
        wanted = min(self._wanted, total // 4)
        missing = max(wanted - self._reserved(), 0) if wanted else 0
        return _Measured(free, min(MARGIN, total // 8), wanted, missing)

    def _reserved(self) -> int:
        try:
            reserve = self._file.stat()
            # A copy of it may be all holes, which keep no room.
            return min(reserve.st_size, reserve.st_blocks * 512)
        except OSError:
            return 0
