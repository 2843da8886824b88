# SPDX-License-Identifier: Apache-2.0
"""Writes the issuance ledger: a signer appends the entry of a certificate before it hands the certificate out.

`rules.ledger.entries` says what an entry is, and `rules.ledger.segments` what segments and their chain are. The API server
lets nothing else be written. It deletes nothing (`ledger_retention`) and signs nothing.

1. While one write is under way, what is to be appended next gathers, and leaves in one write.
2. `append` returns when the entry is stored, and raises when that is not known. So the ledger may have an entry whose
   certificate nobody received. Nobody ever has a certificate without an entry.
3. Each write is made at a version of the segment. Several copies of a signer may write at once: who loses looks again.
4. A segment is sealed in the write that fills it, or before the first write after its hour has passed.
5. Who appends much may have writes wait a moment while there is a rush (`gather_seconds`): a write costs the server as much as several
   certificates. An entry that comes alone does not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import prometheus_client

from handfast import errors
from handfast.api import handfast_kinds, status
from handfast.client import api
from handfast.rules.ledger import entries, segments
from handfast.runtime import batches
from handfast.runtime import clock as clocks

LOGS: Final = handfast_kinds.ISSUANCE_LOG
# With a few copies of a signer, losing more often in a row means that something else is wrong.
_TRIES: Final = 16
_LOST: Final = frozenset({"Conflict", "AlreadyExists", "NotFound"})

ENTRIES = prometheus_client.Counter("handfast_ledger_entries", "Entries appended to the issuance ledger.")
WRITES = prometheus_client.Counter("handfast_ledger_writes", "Writes of the issuance ledger, by result.", ["result"])


# One encoded entry on its way.
_Waiting = batches.Waiting[str, None]


class Ledger:
    """The end of one chain of the ledger, as this process knows it. One for all signers of a process that write in it."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        chain: str = segments.ORDINARY,
        *,
        gather_seconds: float = 0.0,
    ) -> None:
        self._chain = chain
        self._client = client
        self._clock = clock
        self._gather_seconds = gather_seconds
        self._batches: batches.Batches[str, str, None] = batches.Batches(self._write_all, self._gather)
        # Whether the last write had company: then the next one is in a rush.
        self._is_rush = False
        # The newest segment, and its version (empty: it is not stored yet); None: to be read.
        self._newest: tuple[segments.Segment, str] | None = None
        # Where to look for it first: listing every segment is for the first time only.
        self._last = ""

    async def append(self, entry: entries.Entry) -> None:
        """Returns when the entry is durable."""
        # 1. in one write with whatever else waits
        await self._batches.join(LOGS.plural, entries.encode(entry))

    async def _gather(self) -> None:
        # 5. in a rush, wait for more
        if self._gather_seconds and self._is_rush:
            await self._clock.sleep(self._gather_seconds)

    async def _write_all(self, _: str, batch: Sequence[_Waiting]) -> None:
        self._is_rush = len(batch) > 1
        problem: Exception = errors.Unavailable("the ledger's write was given up half-way", reason="Abandoned")
        try:
            await self._commit(batch)
        except Exception as error:  # noqa: BLE001 - it is raised where the entry was appended
            problem = error
        finally:
            # 2. also after a cancellation, whoever waited for this write learns that its end is not known
            for waiting in batch:
                if not waiting.settled:
                    waiting.fail(problem)
                    self._newest = None

    async def _commit(self, batch: Sequence[_Waiting]) -> None:
        lost = 0
        left = list(batch)
        while left:
            try:
                written = await self._step(left)
            except status.StatusError as error:
                # 3. who loses the race looks again
                lost += 1
                WRITES.labels("lost" if error.reason in _LOST else "refused").inc()
                self._newest = None
                if error.reason not in _LOST or lost >= _TRIES:
                    raise
                continue
            for waiting in left[:written]:
                waiting.settle(None)
            left = left[written:]
            ENTRIES.inc(written)

    async def _step(self, left: Sequence[_Waiting]) -> int:
        """One write; returns how many of the entries it stored."""
        if self._newest is None:
            self._newest = await self._read()
        segment, version = self._newest
        # 4. sealed before the first write after its hour
        if segments.is_over(segment, self._clock.now()):
            await self._store(segment, version, segments.sealed(segment))
            return 0
        fitting = segments.fitting(segment, [waiting.item for waiting in left])
        await self._store(segment, version, segments.extended(segment, fitting))
        return len(fitting)

    async def _store(self, old: segments.Segment, version: str, new: segments.Segment) -> None:
        if version:
            version = await self._patch(old, version, new)
        else:
            # Kubernetes takes objects that do not name their kind, but not those of a CustomResourceDefinition.
            head = {"apiVersion": LOGS.api_version, "kind": LOGS.kind}
            created = await self._client.create(
                LOGS, {**head, "metadata": {"name": new.name}, "spec": segments.spec_of(new)}
            )
            version = created["metadata"]["resourceVersion"]
        WRITES.labels("ok").inc()
        self._newest = (segments.following(new), "") if new.sealed else (new, version)

    async def _patch(self, old: segments.Segment, version: str, new: segments.Segment) -> str:
        """Send only what is added, and have only the metadata sent back: a segment is far larger than either."""
        added = new.entries[len(old.entries) :]
        # 3. at a version: the server refuses a result that names another version than it has
        changes: list[dict[str, object]] = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}]
        changes += [{"op": "add", "path": "/spec/entries/-", "value": line} for line in added]
        if new.sealed:
            changes += [
                {"op": "replace", "path": "/spec/sealed", "value": True},
                {"op": "add", "path": "/spec/hash", "value": new.hash},
            ]
        answer = await self._client.patch(LOGS, old.name, changes, content_type=api.JSON_PATCH, metadata=True)
        return str(answer["metadata"]["resourceVersion"])

    async def _read(self) -> tuple[segments.Segment, str]:
        """The segment to write to next: the newest if it is open, else the one after it."""
        document = await self._client.find(LOGS, self._last) if self._last else None
        if document is None:
            names = await self._names()
            document = await self._client.get(LOGS, max(names)) if names else None
        while document is not None:
            segment = segments.read(document)
            self._last = segment.name
            if not segment.sealed:
                return segment, document["metadata"]["resourceVersion"]
            document = await self._client.find(LOGS, segments.segment_name(segment.sequence + 1, self._chain))
            if document is None:
                return segments.following(segment), ""
        return segments.following(None, self._chain), ""

    async def _names(self) -> list[str]:
        try:
            listed = [str(item["metadata"]["name"]) for item in await self._client.list(LOGS, metadata=True)]
        except status.StatusError as error:
            if error.reason != "NotFound":
                raise
            raise errors.Unavailable(
                f"this API server does not serve {LOGS.plural}.{LOGS.group}, and nothing is signed that is not written down",
                reason="NoLedger",
                hint="define it there with what `handfast serve controllers --print-manifest` prints",
            ) from None
        return [name for name in listed if name.startswith(segments.prefix(self._chain))]
