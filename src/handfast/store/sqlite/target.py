# SPDX-License-Identifier: Apache-2.0
"""A new store's file that is being filled: it has its name only when it is complete.

1. A file that has the name already is left alone, and refused with what is in it. So is the write-ahead log of one that was
   moved away without it: SQLite would take it for the new file's.
2. Everything is written to a file beside it, with `.unfinished` after the name. No server opens that, nor
   begins a store of its own beside it.
3. When everything is there the epoch is raised, the file is closed, and gets its name: in one step, and never in place of
   a file that appeared meanwhile.

An unfinished file that was left behind is gone on with: `transfer.synchronise` compares what is there. The engine's own lock
keeps two from filling it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import pathlib

from handfast import errors
from handfast.runtime import files
from handfast.store import epochs, transfer
from handfast.store.sqlite import engine, file, snapshot


class Target:
    """See `transfer.Target`; made by `open_target`."""

    def __init__(self, path: pathlib.Path, store: engine.SqliteStore) -> None:
        self._path = path
        self._unfinished = _unfinished(path)
        self.place = str(path)
        self.store = store

    async def finish(self, first_version: int, why: str, now: datetime.datetime) -> None:
        revision = await self.store.current_revision()
        # The floor rises to now with it: what was replaced on the way is nobody's history.
        await self.store.raise_epoch(first_version - revision - self.store.epoch_offset)
        await self.store.compact(revision)
        await epochs.remember(self.store, why, now)
        await self.store.close()
        # 3. its name, unless something has it by now
        await asyncio.to_thread(self._publish)

    async def close(self, *, keep: bool) -> None:
        await self.store.close()
        if not keep:
            for suffix in ("", "-wal", "-shm"):
                self._unfinished.with_name(self._unfinished.name + suffix).unlink(missing_ok=True)

    def _publish(self) -> None:
        try:
            self._path.hardlink_to(self._unfinished)
        except FileExistsError:
            raise _taken(self._path) from None
        except OSError as error:
            raise files.explain(error, "write", self._path) from error
        self._unfinished.unlink()
        files.sync_directory(self._path.parent)


async def open_target(path: str, identity: str) -> Target:
    """Begin to fill a store's file, or go on; it becomes a copy of the store with this identity."""
    resolved = await asyncio.to_thread(_free, path)
    store = await engine.open_store(str(_unfinished(resolved)))
    try:
        await transfer.adopt(store, identity, str(resolved))
    except BaseException:
        await store.close()
        raise
    return Target(resolved, store)


def _free(path: str) -> pathlib.Path:
    resolved = pathlib.Path(path).resolve()
    # 1. what is there is left alone
    if resolved.exists():
        raise _taken(resolved)
    log = resolved.with_name(f"{resolved.name}-wal")
    if log.exists() and log.stat().st_size:
        raise errors.Refused(
            f"{log}: the last writes of a store that was there are still in it",
            reason="StoreNotEmpty",
            hint=f"move it to where the store was moved, beside it: it belongs to {resolved.name}",
        )
    return resolved


def _unfinished(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + file.UNFINISHED)


def _taken(path: pathlib.Path) -> errors.Refused:
    what = "a file that is no store"
    with contextlib.suppress(errors.HandfastError):
        what = _described(path)
    return errors.Refused(
        f"{path}: there is {what}",
        reason="StoreNotEmpty",
        hint=f"move it away if it is not needed: mv {path} {path}.old",
    )


def _described(path: pathlib.Path) -> str:
    there = snapshot.Snapshot(str(path))
    try:
        return f"a store already, with {there.objects} object{'s' * (there.objects != 1)} at revision {there.revision}"
    finally:
        there.end()
