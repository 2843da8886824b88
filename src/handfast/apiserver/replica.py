# SPDX-License-Identifier: Apache-2.0
"""The API server's copy of the store in memory, as encoded bytes, kept current by one watch.

Reads are linearizable: a default read asks the store for its current revision and waits until the copy has reached it,
so with two servers on one store a write on one is seen by the very next read on the other. Nobody receives a shared
mutable object: items hold bytes, and decode anew for who asks. It does not write to the store; see `storage`.
"""

from __future__ import annotations

import asyncio
import bisect
import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from handfast import errors
from handfast.api import objects
from handfast.apiserver import envelope
from handfast.store import protocol

_decode = msgspec.json.Decoder().decode
# Per resource: how many past events a watch can resume from. client-go relists on 410, so this bounds memory only.
HISTORY_EVENTS = 4096
HISTORY_BYTES = 16 << 20
_PAGE = 2000


class _Meta(msgspec.Struct):
    labels: dict[str, str | None] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Meta


_labels_of = msgspec.json.Decoder(_Labelled).decode


class Item:
    """One object as stored: its served JSON, and what selectors ask of it, found when first asked."""

    __slots__ = ("_fields", "_labels", "at", "body", "name", "namespace", "version")

    def __init__(self, namespace: str, name: str, version: int, payload: bytes) -> None:
        self.namespace = namespace
        self.name = name
        self.version = version
        self.at = envelope.metadata_at(payload)
        self.body = envelope.with_resource_version(payload, self.at, version)
        self._labels: dict[str, str] | None = None
        self._fields: tuple[Sequence[tuple[str, str]], dict[str, str]] | None = None

    @property
    def listed(self) -> bytes:
        """As an item of a typed list: without apiVersion and kind."""
        return b"{" + self.body[self.at :]

    def document(self) -> objects.Document:
        """A fresh copy that the caller owns."""
        document: objects.Document = _decode(self.body)
        return document

    def at_version(self, version: int) -> Item:
        """The same state under a later resource version: what a DELETED event carries."""
        # Drop `"resourceVersion":"N",` and put the new one in.
        start = self.at + len(b'"metadata":{')
        payload = self.body[:start] + self.body[self.body.index(b",", start) + 1 :]
        copy = Item(self.namespace, self.name, version, payload)
        copy._labels = self._labels
        return copy

    def labels(self) -> dict[str, str]:
        if self._labels is None:
            # Null values are refused today; what was stored before must not stop us.
            found = _labels_of(self.body).metadata.labels or {}
            self._labels = {key: value or "" for key, value in found.items()}
        return self._labels

    def fields(self, paths: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The values of selectable fields, selector name -> text; `paths` are all of the kind's, or none."""
        if not paths:
            return {"metadata.name": self.name, "metadata.namespace": self.namespace}
        # Two kinds may show the same stored object with fields of different names (core and newer Events).
        if self._fields is None or self._fields[0] != paths:
            document = _decode(self.body)
            found = {label: objects.field_text(document, path) for label, path in paths}
            found["metadata.name"] = self.name
            found["metadata.namespace"] = self.namespace
            self._fields = (paths, found)
        return self._fields[1]


class Change:
    """One applied write: before and after; `frames` caches what was encoded of it for watchers."""

    __slots__ = ("_gone", "after", "before", "frames", "version")

    def __init__(self, version: int, before: Item | None, after: Item | None) -> None:
        self.version = version
        self.before = before
        self.after = after
        self.frames: dict[Any, bytes] = {}
        self._gone: Item | None = None

    def gone(self) -> Item:
        """The last state under the version of this change: what whoever no longer sees the object is told."""
        if self._gone is None:
            if self.before is None:
                raise errors.Misuse("an object that was not there cannot go")
            self._gone = self.before.at_version(self.version)
        return self._gone


Listener = Callable[[Change], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Index:
    """A field that must equal `value` in whatever a listener is told of; `paths` are the kind's selectable fields."""

    field: str
    value: str
    paths: tuple[tuple[str, str], ...] = ()


class Listeners:
    """Who is told of the changes of a collection.

    Thousands of nodes each follow their own Pods: those that ask for one value of a field are found by that value, so
    that a change costs what it concerns and not what is open.
    """

    def __init__(self) -> None:
        self._everyone: dict[object, Listener] = {}
        self._by_field: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, dict[object, Listener]]] = {}
        self._indexes: dict[object, Index] = {}

    def add(self, owner: object, listener: Listener, index: Index | None) -> None:
        if index is None:
            self._everyone[owner] = listener
            return
        self._indexes[owner] = index
        by_value = self._by_field.setdefault((index.field, index.paths), {})
        by_value.setdefault(index.value, {})[owner] = listener

    def remove(self, owner: object) -> None:
        self._everyone.pop(owner, None)
        index = self._indexes.pop(owner, None)
        if index is None:
            return
        by_value = self._by_field[index.field, index.paths]
        del by_value[index.value][owner]
        if not by_value[index.value]:
            del by_value[index.value]
        if not by_value:
            del self._by_field[index.field, index.paths]

    def tell(self, change: Change) -> None:
        for listener in tuple(self._everyone.values()):
            listener(change)
        for (field, paths), by_value in tuple(self._by_field.items()):
            # The value before counts too: who followed it must hear that the object left.
            items = (item for item in (change.before, change.after) if item is not None)
            for value in {item.fields(paths)[field] for item in items}:
                for listener in tuple(by_value.get(value, {}).values()):
                    listener(change)


class Bucket:
    """The objects of one namespace, by name and in name order."""

    __slots__ = ("items", "names")

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.names: list[str] = []

    def put(self, item: Item) -> Item | None:
        before = self.items.get(item.name)
        self.items[item.name] = item
        if before is None:
            names = self.names
            if names and item.name > names[-1]:
                names.append(item.name)
            else:
                bisect.insort(names, item.name)
        return before

    def drop(self, name: str) -> Item | None:
        before = self.items.pop(name, None)
        if before is not None:
            del self.names[bisect.bisect_left(self.names, name)]
        return before


class Collection:
    """All objects of one stored resource, in key order, with recent changes and who listens to them."""

    def __init__(self, start: int) -> None:
        self.buckets: dict[str, Bucket] = {}
        # Sorted by namespace + "/": the order of the store's keys, which continue tokens rely on.
        self._namespaces: list[str] = []
        self.changed = start
        # A watch can resume after any version from here on.
        self.window = start
        self.history: collections.deque[Change] = collections.deque()
        self._history_bytes = 0
        self._listeners = Listeners()

    def get(self, namespace: str, name: str) -> Item | None:
        bucket = self.buckets.get(namespace)
        return None if bucket is None else bucket.items.get(name)

    def count(self, namespace: str = "") -> int:
        if namespace:
            bucket = self.buckets.get(namespace)
            return 0 if bucket is None else len(bucket.names)
        return sum(len(bucket.names) for bucket in self.buckets.values())

    def count_upto(self, namespace: str, last: tuple[str, str]) -> int:
        """How many objects sort at or before `last` (namespace, name); within one namespace if one is given."""
        last_namespace, last_name = last
        total = 0
        if not namespace:
            for other in self._namespaces:
                if other + "/" < last_namespace + "/":
                    total += len(self.buckets[other].names)
        bucket = self.buckets.get(last_namespace)
        return total + (0 if bucket is None else bisect.bisect_right(bucket.names, last_name))

    def iterate(self, namespace: str = "", after: tuple[str, str] | None = None) -> Iterator[Item]:
        """Items in key order, as they are at each step; not stable while writes are applied."""
        for name_space in self._spaces(namespace, after):
            bucket = self.buckets[name_space]
            start = 0
            if after is not None and name_space == after[0]:
                start = bisect.bisect_right(bucket.names, after[1])
            # By position: a slice would copy the names of the whole namespace for a page of it.
            names = bucket.names
            for position in range(start, len(names)):
                yield bucket.items[names[position]]

    def snapshot(self, namespace: str = "") -> list[Item]:
        """All items now, as a list of references: cheap, and stable while the list is sent."""
        return [
            item
            for name_space in self._spaces(namespace, None)
            for item in map(self.buckets[name_space].items.__getitem__, self.buckets[name_space].names)
        ]

    def _spaces(self, namespace: str, after: tuple[str, str] | None) -> list[str]:
        if namespace:
            return [namespace] if namespace in self.buckets else []
        if after is None:
            return list(self._namespaces)
        return [space for space in self._namespaces if space + "/" >= after[0] + "/"]

    def load(self, item: Item) -> None:
        """Put an item without telling anyone: only for the first load."""
        self._bucket(item.namespace).put(item)

    def apply(self, namespace: str, name: str, after: Item | None, version: int) -> Change | None:
        if after is not None:
            before = self._bucket(namespace).put(after)
        else:
            bucket = self.buckets.get(namespace)
            before = None if bucket is None else bucket.drop(name)
            if before is None:
                return None
            if bucket is not None and not bucket.names:
                del self.buckets[namespace]
                self._namespaces.remove(namespace)
        change = Change(version, before, after)
        self.changed = version
        self._remember(change)
        self._listeners.tell(change)
        return change

    def listen(self, owner: object, listener: Listener, index: Index | None = None) -> None:
        """Call `listener` for changes until `forget`; with an index, only for those that touch its value."""
        self._listeners.add(owner, listener, index)

    def forget(self, owner: object) -> None:
        self._listeners.remove(owner)

    def since(self, version: int) -> list[Change]:
        """Changes after `version`, oldest first."""
        found = []
        for change in reversed(self.history):
            if change.version <= version:
                break
            found.append(change)
        found.reverse()
        return found

    def _bucket(self, namespace: str) -> Bucket:
        bucket = self.buckets.get(namespace)
        if bucket is None:
            bucket = self.buckets[namespace] = Bucket()
            bisect.insort(self._namespaces, namespace, key=lambda space: space + "/")
        return bucket

    def _remember(self, change: Change) -> None:
        self.history.append(change)
        self._history_bytes += _size(change)
        while len(self.history) > HISTORY_EVENTS or self._history_bytes > HISTORY_BYTES:
            gone = self.history.popleft()
            self._history_bytes -= _size(gone)
            self.window = gone.version


def _size(change: Change) -> int:
    # What the history may come to keep alive alone: the replaced state, and the new one once it is replaced.
    return sum(len(item.body) for item in (change.before, change.after) if item is not None)


class Replica:
    """Every collection, and how far the copy has come. Versions here are resource versions (offset included)."""

    def __init__(self, store: protocol.Store, envelopes: envelope.Envelopes) -> None:
        self._store = store
        self._envelopes = envelopes
        self._collections: dict[str, Collection] = {}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.version = 0
        self.start = 0
        self.on_batch: list[Callable[[], None]] = []
        self.failed: BaseException | None = None

    async def load(self) -> None:
        """Read the whole store at one revision."""
        offset = self._store.epoch_offset
        revision = await self._store.current_revision()
        self.start = self.version = revision + offset
        after = ""
        while True:
            page = await self._store.list_at("", revision=revision, after=after, limit=_PAGE)
            for entry in page.entries:
                collection, namespace, name = self._place(entry.key)
                payload = self._envelopes.open(entry.key, entry.value)
                collection.load(Item(namespace, name, entry.revision + offset, payload))
            if not page.more:
                return
            after = page.entries[-1].key

    async def follow(self) -> None:
        """Apply the store's events for ever; the caller runs it as a task and ends it by cancelling."""
        offset = self._store.epoch_offset
        watch = self._store.watch("", after=self.version - offset)
        try:
            while True:
                events, revision = await watch.next()
                changes = [self._apply(event, offset) for event in events]
                self.version = max(self.version, revision + offset)
                for hook in self.on_batch:
                    hook()
                for change in changes:
                    # Everybody has been told: what was encoded for them need not stay in memory with the history.
                    if change is not None:
                        change.frames.clear()
                self._wake()
        except Exception as error:
            # A copy that has stopped must not be read from: fail every reader, now and later.
            self.failed = error
            self._wake()
            raise
        finally:
            watch.close()

    async def fresh(self) -> None:
        """Wait until the copy holds every write acknowledged before this call."""
        version = await self._store.current_revision() + self._store.epoch_offset
        if version > self.version or self.failed is not None:
            await self.reached(version)

    async def reached(self, version: int) -> None:
        if self.failed is not None:
            raise errors.Unavailable("the server's copy of the store has stopped", reason="ReplicaStopped")
        if version <= self.version:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((version, future))
        await future
        if self.failed is not None:
            raise errors.Unavailable("the server's copy of the store has stopped", reason="ReplicaStopped")

    def collection(self, prefix: str) -> Collection:
        """The collection stored under `prefix` (`group/plural/`)."""
        found = self._collections.get(prefix)
        if found is None:
            found = self._collections[prefix] = Collection(self.start)
        return found

    def counts(self) -> dict[str, int]:
        """Objects per stored resource, for metrics."""
        return {prefix: collection.count() for prefix, collection in self._collections.items()}

    def _place(self, key: str) -> tuple[Collection, str, str]:
        group, plural, rest = key.split("/", 2)
        namespace, slash, name = rest.partition("/")
        if not slash:
            namespace, name = "", rest
        return self.collection(f"{group}/{plural}/"), namespace, name

    def _apply(self, event: protocol.Event, offset: int) -> Change | None:
        collection, namespace, name = self._place(event.key)
        version = event.revision + offset
        after = None
        if event.value is not None:
            after = Item(namespace, name, version, self._envelopes.open(event.key, event.value))
        return collection.apply(namespace, name, after, version)

    def _wake(self) -> None:
        if not self._waiters:
            return
        waiting, self._waiters = self._waiters, []
        for version, future in waiting:
            if future.done():
                continue
            if version <= self.version or self.failed is not None:
                future.set_result(None)
            else:
                self._waiters.append((version, future))
