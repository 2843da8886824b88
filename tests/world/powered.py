# SPDX-License-Identifier: Apache-2.0
"""SQLite on a disk that can lose power: a VFS, and the calls of `os` by which a store's files are made, that tell `tests.world.power`.

SQLite's own VFS for Unix does the work. It syncs the directory with the first sync of a new journal or write-ahead log, and after a
delete that asks for it; nobody above it sees that, so it is told here (`strace -y -e trace=fsync,fdatasync` shows the same). The index
of the log is not noted: it is made again from the log by whoever opens it first.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import apsw

from tests.world import power

_NEW_ENTRY_IS_SYNCED = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


class _File(apsw.VFSFile):
    def __init__(self, disk: power.Disk, name: str | apsw.URIFilename, flags: list[int]) -> None:
        self._disk = disk
        self._path = name if isinstance(name, str) else name.filename()
        super().__init__("unix", name, flags)
        disk.opened(self._path)
        # Once, with the first sync, as the VFS below does it.
        self._sync_entry = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _NEW_ENTRY_IS_SYNCED)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.write(self._path, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._disk.write(self._path, newsize, None)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.sync(self._path, with_directory=self._sync_entry)
        self._sync_entry = False


class _Vfs(apsw.VFS):
    def __init__(self, disk: power.Disk) -> None:
        self._disk = disk
        super().__init__("power", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if name is None or not self._disk.holds(path):
            return apsw.VFSFile("unix", name, flags)
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        if self._disk.holds(filename):
            self._disk.entries({pathlib.Path(filename).name: None})
            if syncdir:
                self._disk.sync_directory()


@contextlib.contextmanager
def powered(disk: power.Disk) -> Iterator[None]:
    """Everything that SQLite and `os` do within is done to this disk."""
    vfs = _Vfs(disk)
    plain = {name: getattr(os, name) for name in ("open", "fsync", "link", "unlink", "replace")}
    vars(os).update(_calls(disk, plain))
    try:
        yield
    finally:
        vars(os).update(plain)
        vfs.unregister()


def _calls(disk: power.Disk, plain: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The calls of `os` by which files are made and named outside SQLite. What they write counts once it is synced."""

    def opening(path: Any, flags: int, *more: Any, **named: Any) -> int:
        descriptor: int = plain["open"](path, flags, *more, **named)
        if flags & os.O_CREAT and disk.holds(path):
            disk.opened(os.fspath(path))
        return descriptor

    def fsync(descriptor: int) -> None:
        plain["fsync"](descriptor)
        path = pathlib.Path(f"/proc/self/fd/{descriptor}").readlink()
        if path == disk.root:
            disk.sync_directory()
        elif disk.holds(path):
            disk.replace(str(path), path.read_bytes())

    def link(source: Any, target: Any, **named: Any) -> None:
        plain["link"](source, target, **named)
        if disk.holds(target):
            disk.entries({pathlib.Path(target).name: disk.content(os.fspath(source))})

    def unlink(path: Any, **named: Any) -> None:
        plain["unlink"](path, **named)
        if disk.holds(path):
            disk.entries({pathlib.Path(path).name: None})

    def replace(source: Any, target: Any, **named: Any) -> None:
        plain["replace"](source, target, **named)
        if disk.holds(target):
            content = disk.content(os.fspath(source))
            disk.entries({pathlib.Path(source).name: None, pathlib.Path(target).name: content})

    return {"open": opening, "fsync": fsync, "link": link, "unlink": unlink, "replace": replace}
