# SPDX-License-Identifier: Apache-2.0
"""Files below one directory, the root of a machine: read, written and removed, and never outside it.

It does not know what the files are for: see `configuration_state`. Everything goes by descriptors of directories, from the
root down, one segment at a time (`root_walk`, which has 1 to 3).

1. A path is absolute and plain: no `..`, no `.`, no empty segment, no NUL. `/` is the root.
2. A symbolic link in the place of a directory is followed only if it belongs to root or to this process's user, and never out of the
   root: an absolute one begins at the root, and a `..` above the root is refused. After `root_walk.MAX_LINKS` links the walk ends.
3. A directory, once open, is used by its descriptor: whoever swaps its name for a link changes nothing that is under way.
4. What lies at the end of a path is never followed: a link there is replaced, or removed, itself. What is neither file nor link is
   refused, and not opened; a link whose target is no text counts as that.
5. A write is a new file beside the old one, nobody else's to read until it has its owner and mode; it is synced, renamed, and the
   directory is synced. After a crash there is the old file or the new one.
6. What is read has a limit.
7. Where nothing is there, to look, to sweep and to remove succeed: also on a read-only file system, and for a name that is too long to be
   one. Else what could not be written could not be taken back either.
8. The owner of a link is changed by a descriptor of that link, once it is seen to be the one that was made. A name could be another file's by
   then.

| who | holding | tries | stopped by | shown in tests/unit/node/test_root_files.py |
|---|---|---|---|---|
| who writes a MachineConfig | a path | write outside the root with `..` | 1 | test_a_path_with_dots_is_refused_by_name |
| who made the image below the root | a link in a path | have it written outside, absolutely or by `..` | 2 | test_a_link_never_leads_out_of_the_root |
| a user of the machine | a directory that all may write to | lead a write elsewhere by a link of theirs | 2 | test_a_link_of_another_user_is_not_followed |
| … | … | swap a directory for a link during the write | 3 | test_a_directory_that_is_swapped_for_a_link_during_the_write_changes_nothing |
| … | a link in the place of the file | have the file behind it overwritten, or read | 4 | test_a_link_at_the_end_is_replaced_and_not_followed |
| … | a named pipe in the place of the file | hold the agent for ever | 4 | test_what_is_no_file_is_refused_and_not_opened |
| … | a link to what is no text | end the agent by what it cannot write down | 4 | test_a_link_whose_target_is_no_text_is_nothing_that_is_replaced |
| … | a look at the directory | read a credential before it has its mode | 5 | test_nobody_else_can_read_a_file_before_it_has_its_mode |
| … | a directory of theirs, with a file of root's in it | swap that file for a link whose owner is about to be changed | 8 | test_a_file_that_is_swapped_for_a_new_link_keeps_its_owner |
| … | a huge file in the place of the old one | fill the agent's memory | 6 | test_what_is_read_has_a_limit |
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import stat
from collections.abc import Iterator
from typing import Final

from handfast import errors
from handfast.node import root_walk
from handfast.rules.machine_config import drift
from handfast.runtime import files

# What lay there before has to be kept: more than this is refused.
MAX_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 20

# Size, both times and the number of the file: where these are the same, so is the content.
Trace = tuple[int, ...]


class Root:
    """The files of one machine."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        with _explained("open directory", str(path)):
            # The root itself is the operator's choice: a link there is followed.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._descriptor)

    def inside(self, path: pathlib.Path) -> tuple[str, ...]:
        """How a path of this machine is called below the root, as it was named and without links; nothing: it lies elsewhere."""
        pairs = ((path.absolute(), self.path.absolute()), (path.resolve(), self.path.resolve()))
        called = [f"/{real.relative_to(root)}" for real, root in pairs if real.is_relative_to(root) and real != root]
        return tuple(dict.fromkeys(called))

    def entry(self, path: str, *, limit: int = MAX_BYTES) -> drift.Entry:
        """What lies there."""
        with self._at(path, "look at") as (directory, name):
            if directory is None:
                return drift.NOTHING
            status = _status(directory, name)
            if status is None:
                return drift.NOTHING
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(name, dir_fd=directory)
                if not _is_text(target):
                    # 4. no record could hold it
                    return drift.Entry(drift.OTHER)
                return drift.Entry(drift.LINK, uid=status.st_uid, gid=status.st_gid, target=target)
            if not stat.S_ISREG(status.st_mode):
                return drift.Entry(drift.OTHER)
            content, status = self._content(directory, name, path, limit)
            digest = hashlib.sha256(content).hexdigest()
            return drift.Entry(drift.FILE, digest, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)

    def trace(self, path: str) -> Trace:
        """What changes whenever the content, mode or owner does, as far as the file system says; empty: nothing is there."""
        with self._at(path, "look at") as (directory, name):
            status = None if directory is None else _status(directory, name)
            if status is None:
                return ()
            times = (status.st_mtime_ns, status.st_ctime_ns)
            return (status.st_mode, status.st_uid, status.st_gid, status.st_size, status.st_ino, *times)

    def read(self, path: str, *, limit: int = MAX_BYTES) -> bytes | None:
        """The content of a file; None: nothing is there, or a link is."""
        with self._at(path, "read") as (directory, name):
            status = None if directory is None else _status(directory, name)
            if directory is None or status is None or stat.S_ISLNK(status.st_mode):
                return None
            _require_replaceable(path, status)
            return self._content(directory, name, path, limit)[0]

    @staticmethod
    def _content(directory: int, name: str, path: str, limit: int) -> tuple[bytes, os.stat_result]:
        """The content, and what the same descriptor says of the file."""
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            _require_replaceable(path, status)
            # 6. at most so much
            content = file.read(limit + 1)
        if len(content) > limit:
            raise errors.Refused(f"cannot read {path}: larger than {limit} bytes", reason="FileTooLarge")
        return content, status

    def put_file(self, path: str, content: bytes, *, mode: int, owner: tuple[int, int]) -> None:
        """Replace what lies there by a file, durably (5); missing directories are made."""
        with self._replacing(path) as (directory, temporary):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
            try:
                _fill(descriptor, content, mode, owner)
            finally:
                os.close(descriptor)

    def put_link(self, path: str, target: str, *, owner: tuple[int, int]) -> None:
        """Replace what lies there by a symbolic link. Whose it is decides whether it is followed."""
        with self._replacing(path) as (directory, temporary):
            os.symlink(target, temporary, dir_fd=directory)
            if owner != (os.geteuid(), os.getegid()):
                _give_link(directory, temporary, path, target, owner)

    @contextlib.contextmanager
    def _replacing(self, path: str) -> Iterator[tuple[int, str]]:
        """A directory and a name in it; what is made under that name then takes the place of what lies at `path` (5)."""
        with self._at(path, "write", create=True) as (directory, name):
            if directory is None:
                raise _gone(path)
            _require_replaceable(path, _status(directory, name))
            temporary = _temporary(name)
            _discard(directory, temporary)
            try:
                yield directory, temporary
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                _discard(directory, temporary)
                raise
            os.fsync(directory)

    def remove(self, path: str) -> None:
        """Nothing lies there afterwards; directories stay."""
        with self._at(path, "remove") as (directory, name):
            if directory is None:
                return
            status = _status(directory, name)
            _require_replaceable(path, status)
            if status is not None:
                _discard(directory, name)
                os.fsync(directory)

    def sweep(self, path: str) -> None:
        """Remove what a write at this path, which a crash cut short, left beside it."""
        with self._at(path, "remove") as (directory, name):
            # 7. without an attempt to remove what is not there
            if directory is not None and _status(directory, _temporary(name)) is not None:
                _discard(directory, _temporary(name))

    def names(self, path: str) -> tuple[str, ...]:
        """The names in a directory, sorted; none where it is not there."""
        with self._at(f"{path}/-", "list") as (directory, _):
            return () if directory is None else tuple(sorted(os.listdir(directory)))  # noqa: PTH208 - by its descriptor

    def private_directory(self, path: str) -> None:
        """A directory that is this user's alone, made where it is missing; refused where others may look into it."""
        with self._at(f"{path}/-", "open directory", create=True, private=True) as (directory, _):
            if directory is None:
                raise _gone(path)
            status = os.fstat(directory)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            shown = pathlib.Path(self.path, path.lstrip("/"))
            raise errors.Refused(
                f"the directory {shown} belongs to user {status.st_uid} and has the mode {stat.S_IMODE(status.st_mode):04o}: it "
                f"holds credentials, and has to be of user {os.geteuid()} with 0700",
                reason="DirectoryNotPrivate",
                hint=f"run: chown {os.geteuid()} {shown} && chmod 700 {shown}",
            )

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """The directory is this process's while it lasts; refused while it is another's."""
        with self._at(f"{path}/-", "lock") as (directory, _):
            if directory is None:
                raise _gone(path)
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise errors.Unavailable(
                    f"another process is changing the configuration below {self.path}",
                    reason="ConfigurationBusy",
                    hint="wait until it is done and try again",
                ) from None
            yield

    @contextlib.contextmanager
    def _at(
        self, path: str, doing: str, *, create: bool = False, private: bool = False
    ) -> Iterator[tuple[int | None, str]]:
        """The open directory in which `path` lies, None where it is not there, and the last segment of the path."""
        *above, name = root_walk.segments(path)
        with contextlib.ExitStack() as opened, _explained(doing, path):
            walk = root_walk.Walk(self._descriptor, path, opened, create=create, private=private)
            yield walk.to(above), name


def _is_text(target: str) -> bool:
    try:
        target.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _gone(path: str) -> errors.Refused:
    return errors.Refused(f"cannot use {path}: its directory is not there", reason="FileNotFound")


def _temporary(name: str) -> str:
    """Always the same for a name, so that what a crash left is found again."""
    return f".handfast-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}.tmp"


def _status(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        # 7. a name that no file can have is one that nothing has
        if error.errno in root_walk.NOTHING_THERE:
            return None
        raise


def _discard(directory: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _require_replaceable(path: str, status: os.stat_result | None) -> None:
    # 4. neither file nor link
    if status is not None and not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        raise errors.Refused(
            f"cannot use {path}: what lies there is no file, but {files.kind(status.st_mode)}",
            reason="NotAFile",
            hint="move it away, or have the configuration name another path",
        )


def _fill(descriptor: int, content: bytes, mode: int, owner: tuple[int, int]) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest[:_CHUNK]) :]
    status = os.fstat(descriptor)
    if owner != (status.st_uid, status.st_gid):
        os.fchown(descriptor, *owner)
    # After the owner, since a change of owner takes special bits away.
    os.fchmod(descriptor, mode)
    os.fsync(descriptor)


def _give_link(directory: int, name: str, path: str, target: str, owner: tuple[int, int]) -> None:
    # 8. by a descriptor, and of the link that was made
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        is_link = stat.S_ISLNK(status.st_mode) and status.st_uid == os.geteuid()
        if not is_link or os.readlink("", dir_fd=descriptor) != target:
            raise errors.Unavailable(f"what lies at {path} changes while it is written", reason="FileChanges")
        # Python has no fchownat by an empty name. What proc names is what is open, and is not followed further.
        os.chown(f"/proc/self/fd/{descriptor}", *owner)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _explained(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise files.explain(error, doing, pathlib.Path(path)) from error
