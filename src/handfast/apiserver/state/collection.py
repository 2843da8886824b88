# SPDX-License-Identifier: Apache-2.0
"""All objects of one stored resource, in key order, with recent changes and who listens to them.

The replica hands it every change, and it calls its listeners. It reads no store: see `replica`.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Callable, Iterator

import msgspec

from handfast.apiserver.state import items as items_module

# Per resource: how many past events a watch can resume from. client-go relists on 410, so this bounds memory only.
HISTORY_EVENTS = 4096
HISTORY_BYTES = 16 << 20

Listener = Callable[[items_module.Change], None]


class Index(msgspec.Struct, frozen=True):
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

    def tell(self, change: items_module.Change) -> None:
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
        self.items: dict[str, items_module.Item] = {}
        self.names: list[str] = []

    def put(self, item: items_module.Item) -> items_module.Item | None:
        before = self.items.get(item.name)
        self.items[item.name] = item
        if before is None:
            names = self.names
            if names and item.name > names[-1]:
                names.append(item.name)
            else:
                bisect.insort(names, item.name)
        return before

    def drop(self, name: str) -> items_module.Item | None:
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
        self.history: collections.deque[items_module.Change] = collections.deque()
        self._history_bytes = 0
        self._listeners = Listeners()

    def get(self, namespace: str, name: str) -> items_module.Item | None:
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

    def iterate(self, namespace: str = "", after: tuple[str, str] | None = None) -> Iterator[items_module.Item]:
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

    def snapshot(self, namespace: str = "") -> list[items_module.Item]:
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

    def load(self, item: items_module.Item) -> None:
        """Put an item without telling anyone: only for the first load."""
        self._bucket(item.namespace).put(item)

    def apply(
        self, namespace: str, name: str, after: items_module.Item | None, version: int
    ) -> items_module.Change | None:
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
        change = items_module.Change(version, before, after)
        self.changed = version
        self._remember(change)
        self._listeners.tell(change)
        return change

    def listen(self, owner: object, listener: Listener, index: Index | None = None) -> None:
        """Call `listener` for changes until `forget`; with an index, only for those that touch its value."""
        self._listeners.add(owner, listener, index)

    def forget(self, owner: object) -> None:
        self._listeners.remove(owner)

    def since(self, version: int) -> list[items_module.Change]:
        """Changes after `version`, oldest first."""
        changes = []
        for change in reversed(self.history):
            if change.version <= version:
                break
            changes.append(change)
        changes.reverse()
        return changes

    def _bucket(self, namespace: str) -> Bucket:
        bucket = self.buckets.get(namespace)
        if bucket is None:
            bucket = self.buckets[namespace] = Bucket()
            bisect.insort(self._namespaces, namespace, key=lambda space: space + "/")
        return bucket

    def _remember(self, change: items_module.Change) -> None:
        self.history.append(change)
        self._history_bytes += _size(change)
        while len(self.history) > HISTORY_EVENTS or self._history_bytes > HISTORY_BYTES:
            gone = self.history.popleft()
            self._history_bytes -= _size(gone)
            self.window = gone.version


def _size(change: items_module.Change) -> int:
    # What the history may come to keep alive alone: the replaced state, and the new one once it is replaced.
    return sum(len(item.body) for item in (change.before, change.after) if item is not None)
