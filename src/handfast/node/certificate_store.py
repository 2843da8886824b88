# SPDX-License-Identifier: Apache-2.0
"""Keeps a node's pairs of certificate and key on disk, in the kubelet's layout, so that a crash at any instant loses none.

It does not ask for certificates nor decide when (`certificates`): it writes what it is given and finds it again.

    <prefix>-2026-11-16-02-09-35.pem   one pair: the chain, leaf first, then the key
    <prefix>-current.pem               a symbolic link to the pair in use
    <prefix>-updated.pem               the next link, for the instant before it is renamed to current
    <prefix>.key.tmp                   the key of a request that has no certificate yet

What holds at every instant, also after a crash:

1. A file with one of these names is whole: it is written beside, made durable, and only then given its name.
2. A pair is never overwritten; two in one second get different names.
3. `current` changes by one rename, after its pair is durable; the key of the request goes after that.
4. Every file is the owner's alone (0600).
5. `current` as a regular file was put there by somebody, and is refused rather than replaced.
6. No key gets a second certificate: one whose pair is stored is not pending any more, also if the crash came
   before `current` led to the pair. Then the owner's next start links it.

`find` takes the pair that `current` leads to unless it has expired; else the newest that has not; else, so that an
expired identity can still be shown and recovered, the one of `current` or the newest. What cannot be read is named.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import re
import stat
from collections.abc import Callable, Iterator

import msgspec
import structlog

from handfast import errors
from handfast.pki import keys, pairs
from handfast.runtime import clock as clocks
from handfast.runtime import files

CLIENT = "kubelet-client"
SERVER = "kubelet-server"

_MAX_BYTES = 1 << 20
# In UTC, unlike the kubelet, so that names sort as time goes also when summer ends.
_STAMP = "%Y-%m-%d-%H-%M-%S"
# No `open` of ours follows a link: a file here is judged by what it is.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# The file is there and may be good: asking for a new identity instead would hide the fault.
_UNREADABLE = frozenset({"PermissionDenied", "FileNotPrivate", "FileNotOwned", "FileSystemError"})

_log = structlog.get_logger("handfast.node")


class StoredPair(msgspec.Struct, frozen=True):
    """The best pair there is, its file, whether `current` leads to it, and what could not be read."""

    pair: pairs.Pair | None
    path: pathlib.Path | None
    linked: bool
    problems: tuple[errors.HandfastError, ...] = ()


class CertificateStore:
    """The pairs of one prefix in one directory, of which this process is the only writer."""

    def __init__(
        self,
        directory: pathlib.Path,
        prefix: str,
        clock: clocks.Clock,
        *,
        keep: int = 3,
        generate: Callable[[], keys.PrivateKey] = keys.generate,
    ) -> None:
        self.directory = directory.absolute()
        self.prefix = prefix
        self.current = self.directory / f"{prefix}-current.pem"
        self._updated = self.directory / f"{prefix}-updated.pem"
        self._pending = self.directory / f"{prefix}.key.tmp"
        self._pattern = re.compile(re.escape(prefix) + r"-(\d{4}(?:-\d\d){5})(?:-(\d+))?\.pem")
        self._clock = clock
        self._keep = keep
        self._generate = generate

    def find(self) -> StoredPair:
        """The best pair as the module's text says; nothing is changed."""
        now = self._clock.now()
        target = self._target(self.current)
        # Upstream's writer removes `current` before it renames `updated`.
        first = target or self._target(self._updated)
        problems: list[errors.HandfastError] = []
        rest: StoredPair | None = None
        for path in dict.fromkeys((*([first] if first else ()), *self._stored())):
            try:
                pair = pairs.read(files.read_private(path, limit=_MAX_BYTES))
            except errors.HandfastError as error:
                problems.append(_about(path, error))
                continue
            candidate = StoredPair(pair, path, path == target, tuple(problems))
            if unexpired(pair, now):
                return candidate
            rest = rest or candidate
        return rest or StoredPair(None, None, linked=False, problems=tuple(problems))

    def load(self) -> pairs.Pair | None:
        """The best pair; a link that does not lead to it is mended where the directory allows.

        Where nothing can be read and a file that may be good is out of reach, its error is raised.
        """
        stored = self.find()
        for problem in stored.problems:
            _log.warning("a stored certificate cannot be used", error=problem.message, reason=problem.reason)
        if stored.pair is None:
            for problem in stored.problems:
                if problem.reason in _UNREADABLE:
                    raise problem
            return None
        if not stored.linked and stored.path is not None:
            self._mend(stored.path)
        return stored.pair

    def save(self, pair: pairs.Pair) -> pathlib.Path:
        """Store a pair and make it current; its key stops being the pending one, and old pairs go."""
        self._require_links()
        files.create_directory(self.directory, mode=0o755)
        path = self._store(pair.pem)
        if pairs.read(files.read_private(path, limit=_MAX_BYTES)).chain != pair.chain:
            raise errors.Unavailable(f"{path} does not hold what was written to it", reason="FileSystemError")
        with _explained("link", self.current):
            self._link(path)
        pending = self._read_pending()
        if pending is not None and pending.public.spki == pair.key.public.spki:
            self.discard_pending()
        self._prune(path)
        return path

    def pending_key(self) -> keys.PrivateKey:
        """The key of the request under way, from before a restart if there is one; durable when this returns."""
        files.create_directory(self.directory, mode=0o755)
        pending = self._read_pending()
        # 6. a key whose pair is stored is not pending
        if pending is not None and self._stored_with(pending) is None:
            return pending
        key = self._generate()
        with _explained("write", self._pending):
            temporary = self._write(self._pending.name, key.to_pem())
            temporary.replace(self._pending)
            files.sync_directory(self.directory)
        return key

    def rehearsal_key(self) -> keys.PrivateKey:
        """The key of the request under way, or else one for a rehearsal: nothing is written."""
        return self._read_pending() or self._generate()

    def has_pending_key(self) -> bool:
        """Whether a request is under way, or was when the last process ended."""
        return self._pending.exists()

    def discard_pending(self) -> None:
        """Forget the key of a request that has its certificate, or will never get one."""
        with _explained("remove", self._pending), contextlib.suppress(FileNotFoundError):
            self._pending.unlink()
            files.sync_directory(self.directory)

    def remove_leftovers(self) -> None:
        """Finish or delete what a crash left half done; for the owner of the directory, at its start."""
        with _explained("clean", self.directory):
            for path in self.directory.glob(f".{self.prefix}*.tmp"):
                path.unlink(missing_ok=True)
        pending = self._read_pending()
        stored = None if pending is None else self._stored_with(pending)
        if stored is not None:
            # 6. the crash came before the link
            path, pair = stored
            found = self.find()
            newest = (found.pair or pair).leaf.not_before <= pair.leaf.not_before
            if newest and not (found.linked and found.path == path):
                self._mend(path)
            self.discard_pending()

    def _target(self, link: pathlib.Path) -> pathlib.Path | None:
        """The file that a link leads to; what lies elsewhere may be another's choice, and is followed to be read."""
        try:
            return self.directory / link.readlink()
        except FileNotFoundError:
            return None
        except OSError as error:
            if _is_regular(link):
                return link
            raise files.explain(error, "read", link) from error

    def _stored(self) -> list[pathlib.Path]:
        """Every file of a pair, newest first; none where there is no directory."""
        paths: list[pathlib.Path] = []
        with _explained("list", self.directory), contextlib.suppress(FileNotFoundError):
            paths += self.directory.iterdir()
        rows = [(match[1], int(match[2] or 0), path) for path in paths if (match := self._pattern.fullmatch(path.name))]
        return [path for _, _, path in sorted(rows, reverse=True)]

    def _store(self, data: bytes) -> pathlib.Path:
        """Give the data, durable, a name that nothing had (1, 2, 4)."""
        stem = f"{self.prefix}-{self._clock.now():{_STAMP}}"
        with _explained("write", self.directory / f"{stem}.pem"):
            temporary = self._write(f"{stem}.pem", data)
            number = 1
            while True:
                path = self.directory / (f"{stem}.pem" if number == 1 else f"{stem}-{number}.pem")
                try:
                    # A rename would overwrite; a second name is refused where there is a first.
                    os.link(temporary, path)
                    break
                except FileExistsError:
                    number += 1
            temporary.unlink()
            files.sync_directory(self.directory)
        return path

    def _write(self, name: str, data: bytes) -> pathlib.Path:
        """A durable file beside the one it will become."""
        temporary = self.directory / f".{name}.{os.getpid()}.tmp"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, _NEW, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        return temporary

    def _link(self, path: pathlib.Path) -> None:
        """Makes a durable pair the current one, by one rename (3)."""
        self._updated.unlink(missing_ok=True)
        self._updated.symlink_to(path)
        self._updated.replace(self.current)
        files.sync_directory(self.directory)

    def _mend(self, path: pathlib.Path) -> None:
        try:
            self._require_links()
            with _explained("link", self.current):
                self._link(path)
        except errors.HandfastError as error:
            _log.warning("the link to the current certificate cannot be mended", error=error.message)
        else:
            _log.warning("the link to the current certificate was mended", link=str(self.current), target=str(path))

    def _require_links(self) -> None:
        """Refuses links that are regular files (5)."""
        for link in (self.current, self._updated):
            if _is_regular(link):
                raise errors.Refused(
                    f"expected {json.dumps(str(link))} to be a symlink but it is a file",
                    reason="NotASymlink",
                    hint=f"if the pair in it is in use, rename it to a name such as {self.prefix}-"
                    f"{self._clock.now():{_STAMP}}.pem; else remove it",
                )

    def _read_pending(self) -> keys.PrivateKey | None:
        try:
            return keys.private_from_pem(files.read_private(self._pending, limit=_MAX_BYTES))
        except errors.Refused as error:
            if error.reason == "FileNotFound":
                return None
            if error.reason in _UNREADABLE:
                raise
            _log.warning("the key of the pending request cannot be used", path=str(self._pending), error=error.message)
            return None

    def _stored_with(self, key: keys.PrivateKey) -> tuple[pathlib.Path, pairs.Pair] | None:
        """The pair of a key, if a crash came between storing it and forgetting that its key was pending."""
        target = self._target(self.current)
        for path in dict.fromkeys((*([target] if target else ()), *self._stored())):
            # What cannot be read is told by `load`.
            with contextlib.suppress(errors.HandfastError):
                pair = pairs.read(files.read_private(path, limit=_MAX_BYTES))
                if pair.key.public.spki == key.public.spki:
                    return path, pair
        return None

    def _prune(self, path: pathlib.Path) -> None:
        """Keep the newest pairs and the one in use; that an old one cannot be removed stops nobody."""
        kept = {path, *self._stored()[: self._keep]}
        for old in self._stored():
            if old not in kept:
                try:
                    old.unlink(missing_ok=True)
                except OSError as error:
                    _log.warning("an old certificate cannot be removed", path=str(old), error=error.strerror)


def unexpired(pair: pairs.Pair, now: datetime.datetime) -> bool:
    """A pair that begins later counts: it is this machine's clock that is behind, and the server's that decides."""
    return now < pair.leaf.not_after


def _is_regular(path: pathlib.Path) -> bool:
    try:
        return not stat.S_ISLNK(path.lstat().st_mode)
    except OSError:
        return False


def _about(path: pathlib.Path, error: errors.HandfastError) -> errors.HandfastError:
    """The same error with the file in its text."""
    if str(path) in error.message:
        return error
    return type(error)(f"{path}: {error.message}", reason=error.reason, hint=error.hint)


@contextlib.contextmanager
def _explained(doing: str, path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise files.explain(error, doing, path) from error
