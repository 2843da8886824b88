# SPDX-License-Identifier: Apache-2.0
"""Whether the store that this server is to serve is the one it knows, and no older copy of it.

What the server has seen is in a file of its data directory: the store's identity, its epoch offset, how far it had come, and
a witness, which is a note that this server left in the store. Before anything is served:

1. A store that was sealed with keys that are not ours is another cluster's: refused. One that nobody has sealed is sealed now: of
   several servers that begin it at once, one does, and those with other keys are refused. So it is with a restore or a copy that
   fills the store (`transfer.CLAIM`): nobody begins to serve from it.
2. So is one with another identity, unless it has no objects: then it was begun anew, and its epoch is raised.
3. Under an epoch that was raised since, this server has given out no version yet: nothing needs to be raised.
4. An epoch lower than ours, a revision lower than ours, or a store without our witness: its history went back, or is
   another. The epoch is raised, past the greatest one that was seen.
5. A new witness is left before the file names it, and the old one goes after that: whenever the server is killed, the file
   names one that is there. So it goes on while the server runs: a copy of the store that is older than the last one is noticed,
   however far others have brought it since.
6. A server that saw the history change under it notes that down: whatever it finds next, the epoch is raised.

A server without such a file has seen nothing, and believes what it finds. A restore of the data directory and the store
together is not noticed: nothing is left that knows better.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/state/test_lineage.py |
|---|---|---|---|---|
| an operator, by mistake | another cluster's prefix | serve its objects with other keys | 1, 2 | test_a_store_of_another_cluster_is_refused |
| two operators, by mistake | one empty prefix | begin there at once, with different keys | 1 | test_of_two_that_begin_at_once_with_other_keys_one_is_refused |
| whoever restores a backup | an older copy of the store | have versions given out twice | 4 | test_a_store_that_went_back_gets_a_new_epoch |
| whoever restores a backup | an older copy that others brought further | have versions given out twice | 5 | test_an_older_copy_that_others_brought_further_is_noticed |
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import pathlib
import secrets
from typing import Final

import msgspec
import structlog

from handfast import errors
from handfast.apiserver.state import envelope
from handfast.runtime import clock as clocks
from handfast.runtime import files
from handfast.store import epochs, protocol, transfer

# How much of its history a store can lose unnoticed while no server of it runs.
INTERVAL: Final = 60.0
_FILE_BYTES: Final = 64 << 10
_PLACE: Final = b"handfast/notes/sealed"
# What an engine says of a store whose history is no longer the one that was served.
_CHANGED: Final = "HistoryChanged"
_log = structlog.get_logger("handfast.store")


class _Seen(msgspec.Struct, frozen=True, rename="camel"):
    identity: str
    epoch_offset: int
    revision: int
    witness: str


class Lineage:
    """What this server has seen of its store, and what it concludes."""

    def __init__(self, store: protocol.Store, path: pathlib.Path, sealer: envelope.Sealer) -> None:
        self._store = store
        self._path = path
        self._sealer = sealer
        self._seen: _Seen | None = None

    async def begin(self) -> str:
        """Before anything is served; why the epoch was raised, or nothing."""
        seen = await asyncio.to_thread(self._read)
        # 1. sealed with keys of ours
        await self._claim()
        why = "" if seen is None else await self._difference(seen)
        if seen is not None and why:
            offset = await self._store.raise_epoch(above=seen.epoch_offset)
            await self._store.set_note(epochs.SERVER_NOTE, f"{offset}: {why}")
            _log.warning("the epoch of the store was raised", why=why, offset=offset)
        try:
            await self._leave_witness(seen)
        except errors.Unavailable as error:
            # No space, say: what was left before still holds.
            self._seen = seen
            _log.warning("the store keeps its old witness", reason=error.reason, error=error.message)
        return why

    async def _claim(self) -> None:
        """Seal the store for those who have our keys, or find that it is (1)."""
        name, value = self._sealer.seal(b"handfast", _PLACE)
        own = f"{name}:{base64.b64encode(value).decode()}"
        there = await self._store.note(transfer.CLAIM)
        if there is not None:
            self._require_own_seal(there)
            if there.partition(":")[0] == name:
                return
        try:
            # Again once another key is in use: the one of before may then be taken away.
            there = await self._store.swap_note(transfer.CLAIM, there, own)
        except protocol.StoreFull as error:
            # Nobody else can seal it either, for now. It is tried again.
            _log.warning("the store was not sealed", reason=error.reason, error=error.message)
            return
        self._require_own_seal(there)

    async def _leave_witness(self, seen: _Seen | None) -> None:
        # 5. a new witness, then the file, then the end of the old one
        witness = secrets.token_hex(8)
        await self._store.set_note(f"witness/{witness}", "seen")
        revision = await self._store.current_revision()
        await self._remember(_Seen(self._store.identity, self._store.epoch_offset, revision, witness))
        if seen is not None:
            await self._store.set_note(f"witness/{seen.witness}", None)

    async def seen(self, revision: int) -> None:
        """Remember how far the store has come."""
        if self._seen is not None and revision > self._seen.revision:
            try:
                await self._claim()
                await self._leave_witness(self._seen)
            except errors.Unavailable:
                # No space, say: the old one holds, and how far it came is in the file.
                await self._remember(msgspec.structs.replace(self._seen, revision=revision))

    async def ended(self, error: errors.Unavailable) -> None:
        """The store could not be asked how far it has come when the server stopped."""
        # 6. no store has this witness
        if self._seen is not None and error.reason == _CHANGED:
            await self._remember(msgspec.structs.replace(self._seen, witness=""))

    async def keep(self, clock: clocks.Clock) -> None:
        """Remember it for ever; the caller runs it as a task."""
        while True:
            await clock.sleep(INTERVAL)
            try:
                await self.seen(await self._store.current_revision())
            except errors.Unavailable as error:
                _log.warning("how far the store has come was not noted", reason=error.reason, error=error.message)

    async def _difference(self, seen: _Seen) -> str:
        """In what the store differs from what was seen of it; nothing if it does not."""
        store = self._store
        # 2. the same store
        if store.identity != seen.identity:
            if (await store.list_at("", limit=1)).entries:
                raise protocol.StoreCorrupt(
                    f"the store is another one: its identity is {store.identity}, and this data directory belongs to {seen.identity}",
                    reason="OtherStore",
                    hint=f"name the store that this data directory was used with; if this one is right, remove {self._path}",
                )
            return "the store was begun anew"
        # 3. an epoch that was raised since
        if store.epoch_offset > seen.epoch_offset:
            return ""
        # 4. went back, or is another
        revision = await store.current_revision()
        if store.epoch_offset < seen.epoch_offset:
            return f"the store's epoch went back from {seen.epoch_offset} to {store.epoch_offset}"
        if revision < seen.revision:
            return f"the store's history went back from revision {seen.revision} to {revision}"
        if await store.note(f"witness/{seen.witness}") is None:
            return "the store's history is not the one that this server has seen"
        return ""

    def _require_own_seal(self, text: str | None) -> None:
        if text is not None and text.startswith(transfer.FILLING):
            raise transfer.unfinished()
        name, _, value_text = (text or "").partition(":")
        try:
            self._sealer.unseal(name, base64.b64decode(value_text, validate=True), _PLACE)
        except (errors.Refused, binascii.Error):
            raise protocol.StoreCorrupt(
                f"the store is another cluster's: it was sealed with the key {name!r}, which does not open it here",
                reason="OtherStore",
                hint="use the encryption.key of the servers that share this store, or another place for this one's objects",
            ) from None

    def _read(self) -> _Seen | None:
        if not self._path.exists():
            return None
        try:
            return msgspec.json.decode(files.read(self._path, limit=_FILE_BYTES), type=_Seen)
        except msgspec.MsgspecError as error:
            raise errors.Refused(
                f"{self._path}: not what a server writes there: {error}",
                reason="LineageUnreadable",
                hint="remove the file if the store is the right one",
            ) from None

    async def _remember(self, seen: _Seen) -> None:
        self._seen = seen
        await asyncio.to_thread(files.write_atomically, self._path, msgspec.json.encode(seen) + b"\n")
