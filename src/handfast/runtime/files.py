# SPDX-License-Identifier: Apache-2.0
"""Files that survive a crash and stay private: atomic writes, safe modes, capped reads, one owner per directory.

Every failure of the disk leaves here as an error of `errors` that names the path. It does not know what the files
mean (see `datadir.preparation`), nor by which flag they were chosen (see `otherwise`). What a caller may rely on:

1. A file written here is either the old one or the new one, after any crash; never a part. One that is replaced keeps
   owner, group and mode, or stays as it is (`replace_contents`).
2. Nobody but the owner can read a file between its creation and its final mode.
3. A directory has one owner at a time, also when the owner was killed and its children are still ending.
4. A directory is locked only if it is the caller's own and no other user may write to it: whoever may put files into
   it may replace the keys there. The directories above are the administrator's choice, and are not judged.
5. Private files and locks are opened without following a symbolic link, and are judged by what was opened.
6. Reading never waits for somebody else. What is no regular file is refused by what it is: a named pipe in place of a
   certificate would hold whoever opens it until somebody writes. Only what the user hands over as an open descriptor, as
   `<(command)` does (`/dev/fd/63`), may be a stream (`read_given`): its writer is the user's own command.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from handfast import errors

LOCK_NAME = ".lock"
_LEFTOVER_PATTERN = ".*.tmp"

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
# How a shell, or a parent process, names a descriptor that it has opened for a program.
_DESCRIPTOR = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/[0-9]+")
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# The reasons for which another path would do.
_CHOOSE_ANOTHER = frozenset(
    {
        *("PermissionDenied", "NotADirectory", "SymbolicLink", "FileNotFound", "NotAFile"),
        *("DirectoryInUse", "DirectoryNotOwned", "DirectoryNotPrivate"),
    }
)


def explain(error: OSError, doing: str, path: pathlib.Path) -> errors.HandfastError:
    """What a failed file operation means to the person who chose `path`; `doing` is a verb such as "write"."""
    why = (error.strerror or type(error).__name__).lower()
    text = f"cannot {doing} {path}: {why}"
    if error.errno in _NO_SPACE:
        return errors.Unavailable(text, reason="NoSpace", hint="free some space on that file system and try again")
    if error.errno in _NOT_ALLOWED:
        return errors.Refused(text, reason="PermissionDenied", hint="change who may use it")
    if error.errno in {errno.ENOTDIR, errno.EEXIST}:
        return errors.Refused(f"cannot {doing} {path}: a part of this path is a file", reason="NotADirectory")
    if error.errno in {errno.EISDIR, errno.ENXIO}:
        return errors.Refused(text, reason="NotAFile")
    if error.errno == errno.ELOOP:
        return errors.Refused(
            f"cannot {doing} {path}: it is a symbolic link, or its links lead in a circle",
            reason="SymbolicLink",
            hint="put the file itself there",
        )
    if error.errno == errno.ENOENT:
        return errors.Refused(text, reason="FileNotFound")
    return errors.Unavailable(text, reason="FileSystemError")


@contextlib.contextmanager
def otherwise(way_out: str) -> Iterator[None]:
    """Where a path inside cannot be used, hint at what only the caller knows: how to choose another one."""
    try:
        yield
    except errors.HandfastError as error:
        if error.reason in _CHOOSE_ANOTHER:
            error.hint = f"{error.hint}, or {way_out}" if error.hint else way_out
        raise


@contextlib.contextmanager
def _explained(doing: str, path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain(error, doing, path) from error


def create_directory(path: pathlib.Path, *, mode: int = 0o700) -> bool:
    """Make `path` and its missing parents; True if it was not there. An existing one keeps its mode."""
    with _explained("create directory", path):
        if path.is_dir():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=mode)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            # mkdir is subject to the umask, and a mode that is too narrow would lock the owner out.
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        sync_directory(path.parent)
    return True


def require_own_directory(path: pathlib.Path) -> None:
    """Refuse a directory that belongs to another user, or that another user may write to. Root counts as a user, too."""
    with _explained("open directory", path):
        status = path.stat()
    if status.st_uid != os.geteuid():
        raise errors.Refused(
            f"the directory {path} belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}: its "
            "owner could replace the keys in it",
            reason="DirectoryNotOwned",
            hint=f"run as its owner, or run: chown -R {os.geteuid()} {path}",
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise errors.Refused(
            f"the directory {path} can be written by others (mode {mode:04o}), who could replace the keys in it",
            reason="DirectoryNotPrivate",
            hint=f"run: chmod go-w {path}",
        )


def write_atomically(path: pathlib.Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`, durably: temporary file beside it, fsync, rename, fsync of the directory."""
    _write_atomically(path, data, mode, None)


def replace_contents(path: pathlib.Path, data: bytes) -> None:
    """The same for a file that exists, and may belong to another user: owner, group and mode stay as they are."""
    with _explained("write", path):
        status = path.lstat()
        _require_regular("write", path, status)
    _write_atomically(path, data, stat.S_IMODE(status.st_mode) & 0o777, (status.st_uid, status.st_gid))


def _write_atomically(path: pathlib.Path, data: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    with _explained("write", path):
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                status = os.fstat(file.fileno())
                if owner is not None and owner != (status.st_uid, status.st_gid):
                    os.fchown(file.fileno(), *owner)
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            pathlib.Path(temporary).replace(path)
        except BaseException:
            pathlib.Path(temporary).unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def sync_directory(path: pathlib.Path) -> None:
    """Make the names in a directory survive a power cut; the caller explains an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(directory: pathlib.Path) -> None:
    """Delete the temporary files of writes that a crash cut short; only the owner of the directory may call it."""
    with _explained("clean", directory):
        for path in directory.glob(_LEFTOVER_PATTERN):
            path.unlink(missing_ok=True)


def read(path: pathlib.Path, *, limit: int) -> bytes:
    """All of a regular file of at most `limit` bytes."""
    return _read(path, limit, private=False)


def read_private(path: pathlib.Path, *, limit: int) -> bytes:
    """All of a file that holds a secret; refused while anyone but this process's user may open it."""
    return _read(path, limit, private=True)


def require_regular(path: pathlib.Path) -> None:
    """Refuse what exists and is no regular file (6): for files that another library opens."""
    with contextlib.suppress(OSError):
        _require_regular("read", path, path.stat())


def read_given(path: pathlib.Path, *, limit: int) -> bytes:
    """All of what the user named on a command line: a regular file, or a descriptor that the shell opened (6)."""
    if _DESCRIPTOR.fullmatch(str(path)) is None:
        return read(path, limit=limit)
    with _explained("read", path), open(os.open(path, os.O_RDONLY | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        data = file.read(limit + 1)
    return _within(path, data, limit)


def _read(path: pathlib.Path, limit: int, *, private: bool) -> bytes:
    with _explained("read", path):
        # Without O_NONBLOCK the open of a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (os.O_NOFOLLOW if private else 0))
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            _require_regular("read", path, status)
            if private:
                _require_private(path, status)
            data = file.read(limit + 1)
    return _within(path, data, limit)


def _within(path: pathlib.Path, data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise errors.Refused(f"cannot read {path}: larger than {limit} bytes", reason="FileTooLarge")
    return data


def kind(mode: int) -> str:
    """In words, what lies there: for what is no regular file."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def _require_regular(doing: str, path: pathlib.Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise errors.Refused(
            f"cannot {doing} {path}: not a regular file, but {kind(status.st_mode)}", reason="NotAFile"
        )


def _require_private(path: pathlib.Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise errors.Refused(
            f"{path} holds secrets and belongs to user {status.st_uid}, while this process runs as user {os.geteuid()}",
            reason="FileNotOwned",
            hint=f"if you trust whoever wrote it, run: chown {os.geteuid()} {path}",
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise errors.Refused(
            f"{path} holds secrets and can be opened by others (mode {mode:04o}; allowed: 0600)",
            reason="FileNotPrivate",
            hint=f"run: chmod 600 {path}; if others had access to this machine, treat them as known",
        )


@dataclass(slots=True)
class DirectoryLock:
    """The exclusive ownership of a directory, for as long as `descriptor` is open in any process.

    A child that inherits the descriptor shares the ownership: when its parent is killed, the directory stays taken
    until the child has ended, too.
    """

    directory: pathlib.Path
    descriptor: int

    def release(self) -> None:
        """Give the directory up; the lock file stays, because removing it would race with the next owner."""
        os.close(self.descriptor)


def lock_directory(directory: pathlib.Path, *, patience: float = 10.0, queue: bool = False) -> DirectoryLock:
    """Become the owner of `directory`, or be refused with the owner's process id.

    Where the owner is dead and only its children still hold the lock, they are given `patience` seconds to end. With
    `queue` an owner that is alive is waited for as long: for directories that nobody keeps.
    """
    require_own_directory(directory)
    path = directory / LOCK_NAME
    with _explained("lock", path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            _require_regular("lock", path, os.fstat(descriptor))
            _wait_for_lock(descriptor, directory, patience, queue=queue)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
    return DirectoryLock(directory, descriptor)


def owner_of(directory: pathlib.Path) -> str | None:
    """The process id of who has locked `directory`, as it wrote it down; None: nobody, or nobody may look."""
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        # Shared, so that those who look are not in one another's way.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(descriptor)
    return None


def _wait_for_lock(descriptor: int, directory: pathlib.Path, patience: float, *, queue: bool) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            if (_alive(holder) and not queue) or time.monotonic() >= deadline:
                raise errors.Refused(
                    f"the directory {directory} is in use by process {holder or 'unknown'}",
                    reason="DirectoryInUse",
                    hint="stop that process",
                ) from None
            time.sleep(0.05)
        else:
            return


def _alive(holder: str) -> bool:
    """Whether the process with this id may still run; a text that is no id counts as yes, to refuse at once."""
    if not holder.isdecimal():
        # The owner has the lock and is about to write its id.
        return True
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
