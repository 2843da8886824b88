# SPDX-License-Identifier: Apache-2.0
"""Opens the database file of the SQLite engine: creates it, owns it, checks it.

It does not read or write entries (`sqlite.reader`, `sqlite.writer`). Until the checks have passed nothing on disk
is changed, not even by SQLite itself:

1. An absent file is created whole or not at all; an absent file whose write-ahead log still exists, or that a restore has
   begun to fill, is refused.
2. One process owns the file: an advisory `flock` on the database file itself, so that no lock file is left behind
   and a killed owner releases it. SQLite's own exclusive mode would rule out the second, reading connection. The
   lock is Linux's: there it does not meet the byte-range locks that SQLite takes on the same file.
3. The header must be SQLite's and carry our application id; an empty file is refused, because taking it for a new
   store would start the revisions again.
4. SQLite's own check of the whole file, then ours: the tables, the counters and a schema version we know.
5. What a killed process, or whoever copied the file here, left unsynced is synced before anything of it is shown: a power cut would take
   back what somebody has seen, and its revision would be given out again.
6. Only now: file mode 0600, the working connections and, from an older schema, a backup and the migration.

While a store is open nothing else in this process may open and close its file: closing any descriptor of a file
drops the locks SQLite holds on it. Copies are made with SQLite's backup interface.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from typing import Final

import apsw

from handfast.runtime import files
from handfast.store import protocol
from handfast.store.sqlite import schema

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_APPLICATION_ID_AT: Final = 68
BUSY_MILLISECONDS: Final = 2000
# For a moment another process may hold the lock that only looks (`is_owned`): how often it is tried, and seconds between.
_TRIES: Final = 10
_PAUSE: Final = 0.02
# Of a file that is being filled: see `sqlite.target`.
UNFINISHED: Final = ".unfinished"
_RESTORE: Final = "restore a backup; the file was not repaired"

_owned_here: set[tuple[int, int]] = set()


class OpenFile:
    """An owned, checked file with a writing and a reading connection, each to be used by one thread."""

    def __init__(self, path: str) -> None:
        # SQLite puts its files beside what a symbolic link points to.
        self._path = pathlib.Path(path).resolve()
        self.path = str(self._path)
        self._cleanup = contextlib.ExitStack()
        with self._cleanup, as_unavailable(self.path):
            _create_if_absent(self._path)
            self._cleanup.enter_context(_ownership(self._path))
            version = _check_content(self._path)
            _sync(self._path)
            _restrict_modes(self._path)
            self.writing = self._connect(apsw.SQLITE_OPEN_READWRITE)
            if version < schema.SCHEMA_VERSION:
                schema.migrate(self.writing, self._path, version)
            self.state = schema.read_state(self.writing)
            self.identity = schema.identify(self.writing)
            self.reading = self._connect(apsw.SQLITE_OPEN_READONLY)
            self._cleanup = self._cleanup.pop_all()

    def size(self) -> int:
        """What the store occupies on disk."""
        return occupied(self._path)

    def close(self) -> None:
        """Close the connections, which folds the write-ahead log into the file, then give up ownership."""
        self._cleanup.close()

    def _connect(self, flags: int) -> apsw.Connection:
        connection = apsw.Connection(self._path.as_uri(), flags=flags | apsw.SQLITE_OPEN_URI)
        self._cleanup.callback(connection.close)
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        connection.pragma("synchronous", "FULL")
        connection.pragma("temp_store", "MEMORY")  # sorting must not spill values into files elsewhere
        connection.pragma("cache_size", -16384)
        connection.pragma("journal_size_limit", 64 * 2**20)
        return connection


def occupied(path: pathlib.Path) -> int:
    """What a store occupies on disk, its write-ahead log included."""
    return _size(path) + _size(_beside(path, "-wal"))


def unavailable(path: str, error: apsw.Error) -> protocol.StoreUnavailable:
    """An engine's failure in words a person can act upon."""
    if isinstance(error, apsw.FullError):
        return protocol.StoreFull(
            f"{path}: no space left for this write", hint="free space on its file system; writing then resumes"
        )
    if isinstance(error, apsw.IOError):
        return protocol.StoreUnavailable(
            f"{path}: the disk failed: {error}", hint="look at the kernel's log; reads go on where they can"
        )
    if isinstance(error, apsw.BusyError):
        return protocol.StoreUnavailable(
            f"{path}: another program holds a lock on it", hint="end what else has the database open"
        )
    return protocol.StoreUnavailable(f"{path}: {error}")


def uncertain(path: str, error: apsw.IOError) -> protocol.StoreUncertain:
    """The disk took a commit and then failed to sync it: after a restart it may be found there."""
    return protocol.StoreUncertain(
        f"{path}: the disk failed, and may have kept this write: {error}", hint="look at the kernel's log"
    )


@contextlib.contextmanager
def as_unavailable(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise protocol.StoreUnavailable(f"{path}: {error.strerror or error}") from error
    except apsw.Error as error:
        raise unavailable(path, error) from error


def _corrupt(path: pathlib.Path, why: str, hint: str) -> protocol.StoreCorrupt:
    return protocol.StoreCorrupt(f"{path}: {why}; nothing was changed", hint=hint)


def _create_if_absent(path: pathlib.Path) -> None:
    """A new file appears under its name complete (1). It never replaces one that appeared meanwhile."""
    if path.exists():
        return
    log = _beside(path, "-wal")
    if _size(log):
        raise _corrupt(
            path,
            "the file is missing, but its write-ahead log is there",
            f"restore the file, or move {log} away to begin a new store",
        )
    unfinished = _beside(path, UNFINISHED)
    if unfinished.exists():
        raise _corrupt(
            path,
            "there is none, but a restore or a copy was begun and is not complete",
            f"begin it again and start when it is done, or remove {unfinished} to begin a new store",
        )
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.new-", dir=path.parent)
    temporary = pathlib.Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(schema.empty_database())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        temporary.unlink()
    files.sync_directory(path.parent)


@contextlib.contextmanager
def _ownership(path: pathlib.Path, tries: int = _TRIES) -> Iterator[None]:
    """Hold the lock (2), having seen that the file is ours to lock (3)."""
    info = path.stat()
    if not stat.S_ISREG(info.st_mode):
        raise _corrupt(path, "not a regular file", "name a file, or a path where one can be created")
    identity = (info.st_dev, info.st_ino)
    # Within one process a second descriptor must not even be opened: closing it would drop SQLite's locks.
    if identity in _owned_here:
        raise _in_use(path)
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _lock(handle, path, tries)
        _check_header(path, os.pread(handle, _HEADER_BYTES, 0))
        _owned_here.add(identity)
        try:
            yield
        finally:
            _owned_here.discard(identity)
    finally:
        os.close(handle)


def _lock(handle: int, path: pathlib.Path, tries: int) -> None:
    for left in reversed(range(tries)):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise _in_use(path) from None
            time.sleep(_PAUSE)
        else:
            return


def is_owned(path: str) -> bool:
    """Whether a process has the store at `path` open. It must not be open in this one in any other way."""
    try:
        with _ownership(pathlib.Path(path).resolve(), 1):
            return False
    except protocol.StoreUnavailable:
        return True
    except (OSError, protocol.StoreCorrupt):
        # Absent, or no store: whoever opens it says so.
        return False


def _in_use(path: pathlib.Path) -> protocol.StoreUnavailable:
    return protocol.StoreUnavailable(
        f"{path}: in use by another server", hint="one process at a time can have a store file open; end the other"
    )


def _check_header(path: pathlib.Path, header: bytes) -> None:
    if not header:
        raise _corrupt(path, "the file is empty", "restore a backup, or delete the file to begin a new store")
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise _corrupt(path, "not a SQLite database", "check the path, or restore a backup")
    (application,) = struct.unpack_from(">I", header, _APPLICATION_ID_AT)
    ours = schema.APPLICATION_ID
    if application != ours:
        raise _corrupt(
            path,
            f"a SQLite database of another program (application id {application:#x}, not {ours:#x})",
            "check the path",
        )


def _check_content(path: pathlib.Path) -> int:
    """The schema version of a sound file (4).

    Opening a database usually leaves traces: files beside it, or a log folded in on closing. Without a log the file
    is read as immutable; with one, in exclusive mode (which keeps the log's index in memory), not folding on close.
    """
    if _size(_beside(path, "-wal")):
        connection = _connect_to_log(path)
    else:
        uri = path.as_uri() + "?immutable=1"
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        connection.pragma("query_only", "ON")
        verdict = connection.pragma("quick_check", 1)
        if verdict != "ok":
            raise _corrupt(path, f"damaged: {verdict}", _RESTORE)
        version = _check_version(path, connection)
        _check_counters(path, connection)
    except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError, KeyError) as error:
        raise _corrupt(path, f"damaged: {error}", _RESTORE) from error
    finally:
        connection.close()
    return version


def _connect_to_log(path: pathlib.Path) -> apsw.Connection:
    connection = apsw.Connection(path.as_uri(), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("locking_mode", "EXCLUSIVE")
    try:
        connection.pragma("schema_version")
    except apsw.BusyError:
        # A reader, such as a backup: the owner's lock is ours. It keeps the log's index on disk, so nothing new appears.
        connection.close()
        return apsw.Connection(path.as_uri(), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    except apsw.Error:
        # What is wrong with it is said by the checks.
        return connection
    return connection


def check_foreign(path: pathlib.Path, connection: apsw.Connection) -> None:
    """Refuse a file that is no store of a schema this version knows, as a connection sees it that owns nothing."""
    try:
        application = connection.pragma("application_id")
        if application != schema.APPLICATION_ID:
            raise _corrupt(
                path, f"a SQLite database of another program (application id {application:#x})", "check the path"
            )
        _check_version(path, connection)
    except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError, KeyError) as error:
        raise _corrupt(path, f"not a store, or damaged: {error}", _RESTORE) from error


def _check_version(path: pathlib.Path, connection: apsw.Connection) -> int:
    version, ours = schema.read_meta(connection)["schema_version"], schema.SCHEMA_VERSION
    if version > ours:
        raise _corrupt(
            path,
            f"schema version {version} is newer than this program's {ours}",
            "start the version that wrote it, or restore a backup from before the upgrade",
        )
    if any(step not in schema.MIGRATIONS for step in range(version, ours)):
        raise _corrupt(
            path,
            f"schema version {version} cannot be migrated to {ours}",
            "upgrade by way of a version that knows both",
        )
    return version


def _check_counters(path: pathlib.Path, connection: apsw.Connection) -> None:
    """What the structure check cannot know: no revision issued is missing from the end, and no key's value."""
    state = schema.read_state(connection)
    issued = schema.number(connection, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'log'")
    if issued != state.revision:
        raise _corrupt(
            path, f"damaged: the log ends at {state.revision}, but {issued} revisions were given out", _RESTORE
        )
    if not state.swept <= state.floor <= state.revision:
        raise _corrupt(path, f"damaged: compaction floor {state.floor} beyond revision {state.revision}", _RESTORE)
    lost = schema.number(
        connection, "SELECT count(*) FROM cur LEFT JOIN log ON log.rev = cur.rev WHERE log.key IS NOT cur.key"
    )
    if lost:
        raise _corrupt(path, f"damaged: {lost} keys have lost their values", _RESTORE)


def _sync(path: pathlib.Path) -> None:
    """Make what is there durable (5). SQLite has the files not open yet: it would lose its locks."""
    for file in (path, _beside(path, "-wal")):
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    files.sync_directory(path.parent)


def _restrict_modes(path: pathlib.Path) -> None:
    """Give the files mode 0600: they hold secrets (6). SQLite gives new files beside the database the database's own mode."""
    for file in (path, _beside(path, "-wal"), _beside(path, "-shm")):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_IMODE(file.stat().st_mode) != 0o600:
                file.chmod(0o600)


def _beside(path: pathlib.Path, suffix: str) -> pathlib.Path:
    return path.with_name(path.name + suffix)


def _size(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
