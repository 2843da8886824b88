# SPDX-License-Identifier: Apache-2.0
"""The way from the root of a machine down to one of its directories, one segment at a time and by descriptors.

It opens and makes directories, and no files: see `root_files`, which says who would lead it astray and what stops them.

1. A path is absolute and plain.
2. A symbolic link is followed only if it belongs to root or to this process's user.
3. It never leads above the root: an absolute link begins at the root, and a `..` above it is refused.
4. After `MAX_LINKS` links the walk ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

from handfast import errors

MAX_LINKS: Final = 16
# What the kernel says of a name that nothing has, or can have.
NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENAMETOOLONG})
_DIRECTORY_MODE: Final = 0o755


class Walk:
    """From the root down to a directory."""

    def __init__(self, root: int, path: str, opened: contextlib.ExitStack, *, create: bool, private: bool) -> None:
        self._path = path
        self._opened = opened
        self._create = create
        self._private = private
        # The directories from the root to here.
        self._trail = [root]
        self._links = 0

    def to(self, above: list[str]) -> int | None:
        """A descriptor by which the directory is written and synced; None: it is not there."""
        pending = above[::-1]
        while pending:
            name = pending.pop()
            if name == "..":
                self._up()
                continue
            descriptor = self._open(name, last=not pending)
            if descriptor is None:
                return None
            status = os.fstat(descriptor)
            if stat.S_ISLNK(status.st_mode):
                pending += self._followed(descriptor, name, status)[::-1]
            elif stat.S_ISDIR(status.st_mode):
                self._trail.append(descriptor)
            else:
                raise errors.Refused(
                    f"cannot use {self._path}: {name!r} in it is a file, and no directory", reason="NotADirectory"
                )
        return self._keep(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._trail[-1]))

    def _keep(self, descriptor: int) -> int:
        self._opened.callback(os.close, descriptor)
        return descriptor

    def _up(self) -> None:
        # 3. never above the root
        if len(self._trail) == 1:
            raise _leaves(self._path)
        self._trail.pop()

    def _open(self, name: str, *, last: bool) -> int | None:
        """What has this name in the directory reached so far; made there if it is to be."""
        here = self._trail[-1]
        try:
            return self._keep(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here))
        except OSError as error:
            if error.errno not in NOTHING_THERE:
                raise
            if not self._create:
                return None
        mode = 0o700 if self._private and last else _DIRECTORY_MODE
        os.mkdir(name, 0o700, dir_fd=here)
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        # mkdir is subject to the umask.
        os.fchmod(self._keep(descriptor), mode)
        above = self._keep(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here))
        os.fsync(above)
        return descriptor

    def _followed(self, descriptor: int, name: str, status: os.stat_result) -> list[str]:
        """The segments that a link stands for."""
        # 2. of root, or of this user
        if status.st_uid not in {0, os.geteuid()}:
            raise errors.Refused(
                f"cannot use {self._path}: {name!r} in it is a symbolic link of user {status.st_uid}, which is not followed",
                reason="LinkNotTrusted",
                hint="make it a directory, or have the link belong to root",
            )
        # 4. not for ever
        self._links += 1
        if self._links > MAX_LINKS:
            raise errors.Refused(
                f"cannot use {self._path}: it leads over more than {MAX_LINKS} symbolic links", reason="SymbolicLink"
            )
        target = os.readlink("", dir_fd=descriptor)
        if target.startswith("/"):
            del self._trail[1:]
        return [part for part in target.split("/") if part not in {"", "."}]


def segments(path: str) -> list[str]:
    """The parts of an absolute, plain path."""
    # 1. absolute and plain
    parts = path.split("/")[1:]
    if not path.startswith("/") or not parts or any(part in {"", ".", ".."} for part in parts) or "\0" in path:
        raise errors.Refused(
            f"{path!r} is not an absolute path without '..', '.' and empty parts, and could lead out of the root",
            reason="PathEscapes",
            hint="write the path as it is, as in /etc/motd",
        )
    return parts


def _leaves(path: str) -> errors.Refused:
    return errors.Refused(
        f"cannot use {path}: a symbolic link in it leads out of the root",
        reason="PathEscapes",
        hint="make it a directory, or have the link stay below the root",
    )
