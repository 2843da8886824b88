# SPDX-License-Identifier: Apache-2.0
"""The directory in memory of a workload that this machine runs: the proxy's keys, its token, its sockets. What was left by others is removed.

1. It is in memory: in $XDG_RUNTIME_DIR where that is, else in /dev/shm. Without either, nothing starts [NoMemoryDirectory]. Either is this user's or
   root's, and nobody else can rename what is in it: a variable that was taken over from another user leads nowhere.
2. All directories of a user are in one of mode 0700, which is theirs, is no link, and is nobody else's to write.
3. A run holds a lock on its directory for as long as it lives. What has no holder is left over from a run that was killed: its files are removed by
   the next start, whoever's Pod that is for.
4. A run that makes a Pod writes its name down first. The record of a run that was killed stays until somebody has removed that Pod.

| who | holding | tries | stopped by | shown in tests/unit/node/test_workload_directory.py |
|---|---|---|---|---|
| another user of the machine | /dev/shm, where everybody may write | have keys written where they can read them, or others' files removed | 2 | test_a_directory_of_another_or_a_link_is_refused |
| … | $XDG_RUNTIME_DIR, which a program of root's took over from them | have another directory in its place later | 1 | test_a_runtime_directory_of_another_user_is_passed_over |
| who has the disk later | the disk | find keys or tokens on it | 1 | test_without_memory_nothing_starts |
| who comes after a crash | the directory | find the token of a run that was killed | 3 | test_what_a_killed_run_left_is_removed_and_its_pod_is_told |
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from handfast import errors
from handfast.runtime import files, mounts

_VARIABLE: Final = "XDG_RUNTIME_DIR"
_SHARED: Final = "/dev/shm"  # noqa: S108 - what is made there is checked
_RECORD: Final = "pod.json"
_LIMIT: Final = 64 << 10


class Record(msgspec.Struct, frozen=True):
    """A Pod that a run has made, or was about to."""

    server: str
    namespace: str
    name: str
    run: str


class Left(msgspec.Struct, frozen=True):
    """What a run that was killed has left: the record of its Pod."""

    path: pathlib.Path
    record: Record

    def forget(self) -> None:
        """The Pod is gone."""
        shutil.rmtree(self.path, ignore_errors=True)


class Directory(msgspec.Struct, frozen=True):
    """The directory of one run."""

    path: pathlib.Path

    @property
    def store(self) -> pathlib.Path:
        """Where the proxy's key is made."""
        return self.path / "identity"

    @property
    def tokens(self) -> pathlib.Path:
        return self.path / "tokens"

    @property
    def token(self) -> pathlib.Path:
        """The token of the proxy, whatever the Pod calls it."""
        return self.tokens / "token"

    @property
    def temporary(self) -> pathlib.Path:
        """For sockets."""
        return self.path / "t"

    def remember(self, record: Record) -> None:
        """Write down which Pod is about to be made (4)."""
        files.write_atomically(self.path / _RECORD, msgspec.json.encode(record))

    def forget(self) -> None:
        """The Pod is gone."""
        (self.path / _RECORD).unlink(missing_ok=True)


def home(variables: Mapping[str, str]) -> pathlib.Path:
    """The directory of this user's runs (1, 2)."""
    for place in filter(None, (variables.get(_VARIABLE, ""), _SHARED)):
        if os.access(place, os.W_OK | os.X_OK) and mounts.in_memory(pathlib.Path(place)) and _is_kept(place):
            path = pathlib.Path(place) / f"handfast-mesh-{os.geteuid()}"
            _require_own(path)
            return path
    # 1. in memory, or not at all
    raise errors.Refused(
        f"there is no directory in memory for keys: neither ${_VARIABLE} nor {_SHARED} is one that can be written",
        reason="NoMemoryDirectory",
        hint=f"set {_VARIABLE} to a directory of a tmpfs",
    )


def _is_kept(place: str) -> bool:
    """Whether what this user makes there can be renamed by no other (1)."""
    status = pathlib.Path(place).stat()
    for_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in {0, os.geteuid()} and (not for_others or bool(status.st_mode & stat.S_ISVTX))


def _require_own(path: pathlib.Path) -> None:
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    # 2. ours, no link, and nobody else's
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise errors.Refused(f"{path} is no directory", reason="NotADirectory", hint=f"remove it, or set {_VARIABLE}")
    files.require_own_directory(path)


@contextlib.contextmanager
def opened(parent: pathlib.Path, run: str) -> Iterator[tuple[Directory, tuple[Left, ...]]]:
    """The directory of one run, while the block lasts; and what others have left."""
    guard = files.lock_directory(parent, queue=True)
    try:
        # 3. whoever holds no lock is gone; a new one has it before others look
        left = tuple(_sweep(parent))
        directory = Directory(parent / run)
        for path in (directory.path, directory.store, directory.tokens, directory.temporary):
            path.mkdir(mode=0o700)
        lock = files.lock_directory(directory.path)
    finally:
        guard.release()
    try:
        yield directory, left
    finally:
        _empty(directory.path)
        lock.release()


def _sweep(parent: pathlib.Path) -> Iterator[Left]:
    for path in sorted(parent.iterdir()):
        if not stat.S_ISDIR(path.lstat().st_mode):
            continue
        try:
            lock = files.lock_directory(path, patience=0.0)
        except errors.HandfastError:
            continue
        try:
            if (record := _empty(path)) is not None:
                yield Left(path, record)
        finally:
            lock.release()


def _empty(path: pathlib.Path) -> Record | None:
    """Remove all but the record of a Pod; that record."""
    record = _record(path)
    if record is None:
        shutil.rmtree(path, ignore_errors=True)
        return None
    for each in path.iterdir():
        if each.name != _RECORD and each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
    return record


def _record(path: pathlib.Path) -> Record | None:
    try:
        return msgspec.json.decode(files.read(path / _RECORD, limit=_LIMIT), type=Record)
    except (errors.HandfastError, msgspec.DecodeError):
        return None
