# SPDX-License-Identifier: Apache-2.0
"""An informer: a local read-only copy of a resource, with indexes, and callbacks on change.

The copy follows the server but is never ahead of it: whoever acts on it must bear that the world has moved on, and
uses preconditions. It does not fetch anything itself: a `watch.Reflector` feeds it.

What a handler raises ends the watch, and with it the process: a controller that misses a change must not go on. Whoever only shows objects
gives a `Guard`, which is told of the object instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, Protocol, TypeVar

from handfast import errors
from handfast.client import api, partial, watch
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

T = TypeVar("T")
V = TypeVar("V", bound=partial.Viewed)

Handler = Callable[[V | None, V | None], None]
Index = Callable[[V], Iterable[str]]


class Guard(Protocol):
    """Who is told of objects that a handler cannot read."""

    def forget(self, plural: str, namespace: str, name: str) -> None:
        """An object has changed, or is gone: what was wrong with it is no matter."""
        ...

    def failed(self, plural: str, namespace: str, name: str, error: Exception) -> None:
        """A handler has raised this at an object."""
        ...


class Informer(Generic[V]):
    """Objects by (namespace, name). Views are frozen structs: share them, never change them."""

    def __init__(
        self, source: watch.Source[V], indexes: Mapping[str, Index[V]] | None = None, guard: Guard | None = None
    ) -> None:
        self.source = source
        self._guard = guard
        self._items: dict[partial.Key, V] = {}
        self._functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[partial.Key, V]]] = {name: {} for name in self._functions}
        self._handlers: list[Handler[V]] = []
        self._unseen: set[partial.Key] | None = None
        self._synced = asyncio.Event()
        self._answered = asyncio.Event()
        # Why the server forbids to follow it now; empty while it does not. What is here is then what was known before.
        self.refusal = ""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[V]:
        return iter(tuple(self._items.values()))

    def get(self, namespace: str, name: str) -> V | None:
        return self._items.get((namespace, name))

    @property
    def indexes(self) -> AbstractSet[str]:
        return self._functions.keys()

    def by_index(self, index: str, value: str) -> Sequence[V]:
        """The objects for which the index function gave `value`."""
        return tuple(self._indexes[index].get(value, {}).values())

    def subscribe(self, handler: Handler[V]) -> None:
        """Call `handler(old, new)` on every change: old is None for an addition, new is None for a deletion.

        Objects already here are added to it at once, so that the order of subscribing and starting is no matter.
        """
        self._handlers.append(handler)
        for item in self:
            self._tell(handler, None, item, item.metadata.key)

    @property
    def synced(self) -> bool:
        """Whether the first list is complete, so that what comes now is news."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Until the first list is complete."""
        await self._synced.wait()

    async def wait_answered(self) -> None:
        """Until the first list is complete, or the server forbids it (`refusal`)."""
        await self._answered.wait()

    # What the reflector calls.

    def refused(self, refusal: str) -> None:
        self.refusal = refusal
        self._answered.set()

    def begin(self) -> None:
        self._unseen = set(self._items)

    def put(self, item: V) -> None:
        key = item.metadata.key
        if self._unseen is not None:
            self._unseen.discard(key)
        old = self._items.get(key)
        if old is not None and old.metadata.resource_version == item.metadata.resource_version:
            return
        self._items[key] = item
        self._changed(key, old, item)

    def remove(self, item: V) -> None:
        key = item.metadata.key
        old = self._items.pop(key, None)
        if old is not None:
            self._changed(key, old, None)

    def end(self) -> None:
        gone, self._unseen = self._unseen or (), None
        for key in gone:
            self._changed(key, self._items.pop(key), None)
        self._synced.set()
        self._answered.set()

    def _changed(self, key: partial.Key, old: V | None, new: V | None) -> None:
        for name, function in self._functions.items():
            self._reindex(self._indexes[name], key, set(function(old)) if old is not None else set(), new, function)
        if self._guard is not None:
            self._guard.forget(self.source.resource.plural, *key)
        for handler in self._handlers:
            self._tell(handler, old, new, key)

    def _tell(self, handler: Handler[V], old: V | None, new: V | None, key: partial.Key) -> None:
        try:
            handler(old, new)
        except Exception as error:
            if self._guard is None:
                raise
            self._guard.failed(self.source.resource.plural, *key, error)

    @staticmethod
    def _reindex(
        index: dict[str, dict[partial.Key, V]], key: partial.Key, before: set[str], new: V | None, function: Index[V]
    ) -> None:
        after = set(function(new)) if new is not None else set()
        for value in before - after:
            del index[value][key]
            if not index[value]:
                del index[value]
        if new is not None:
            for value in after:
                index.setdefault(value, {})[key] = new


class Following:
    """One reflector at work for one sink."""

    def __init__(self, name: str, reflector: watch.Reflector[Any]) -> None:
        self._name = name
        self._reflector = reflector
        self._task: asyncio.Task[None] | None = None
        self.stopped = False

    @property
    def refusal(self) -> str:
        """Why the server forbids it now; empty while it does not."""
        return self._reflector.refusal

    @property
    def trouble(self) -> watch.Trouble | None:
        """What is in its way now, since when; None while it lists or watches."""
        return self._reflector.trouble

    @property
    def resource(self) -> api.Addressable:
        """As it is followed now: of several versions, the one that the server prefers."""
        return self._reflector.resource

    def start(self, group: tasks.Group) -> None:
        if self._task is None and not self.stopped:
            self._task = group.start(self._reflector.run(), name=f"watch-{self._name}")

    def stop(self) -> None:
        """The sink hears no more."""
        self.stopped = True
        if self._task is not None:
            self._task.cancel()


class Informers:
    """The watches of one process: one for each source, however many ask for its informer."""

    def __init__(self, client: api.Client, clock: clocks.Clock, guard: Guard | None = None) -> None:
        self._client = client
        self._clock = clock
        self._guard = guard
        self._shared: dict[tuple[str, str, api.Scope, bool], Informer[Any]] = {}
        self._built: dict[Hashable, Any] = {}
        self._beside: dict[api.Client, Informers] = {}
        self._waiting: list[Following] = []
        self._all: list[Following] = []
        self._group: tasks.Group | None = None

    def get(self, source: watch.Source[V], indexes: Mapping[str, Index[V]] | None = None) -> Informer[V]:
        """The shared informer of this source; made, with its indexes, at the first request."""
        key = (source.resource.group, source.resource.plural, source.scope, source.metadata)
        if key not in self._shared:
            self._shared[key] = Informer(source, indexes, self._guard)
            self.follow(source, self._shared[key], self._shared[key].refused)
        found: Informer[V] = self._shared[key]
        if found.source.view is not source.view or not set(indexes or ()) <= found.indexes:
            raise errors.Misuse(f"{source.resource.plural} is already followed with another view or other indexes")
        return found

    def shared(self, key: Hashable, build: Callable[[], T]) -> T:
        """What is built on informers and shared as they are: built at the first request for this key."""
        if key not in self._built:
            self._built[key] = build()
        built: T = self._built[key]
        return built

    def beside(self, client: api.Client) -> Informers:
        """The watches of this process on another server; they start with these."""
        if client not in self._beside:
            self._beside[client] = Informers(client, self._clock, self._guard)
            if self._group is not None:
                self._beside[client].start(self._group)
        return self._beside[client]

    def refusals(self) -> tuple[str, ...]:
        """What a server forbids to follow, in its words: rights that this process lacks."""
        ours = [following.refusal for following in self._all if following.refusal]
        return tuple(dict.fromkeys([*ours, *(text for other in self._beside.values() for text in other.refusals())]))

    def missing_rights(self) -> str | None:
        """The same as a sentence, for a readiness check; None where nothing is forbidden."""
        refusals = self.refusals()
        return f"a right is missing: {', '.join(refusals)}" if refusals else None

    def follow(
        self, source: watch.Source[V], sink: watch.Sink[V], refused: Callable[[str], None] = lambda _: None
    ) -> Following:
        """Feed `sink` from now on, or from `start` on if that is yet to come; `refused` is told what the server forbids."""
        reflector = watch.Reflector(self._client, source, sink, clock=self._clock, refused=refused)
        following = Following(source.resource.plural, reflector)
        self._all = [*(each for each in self._all if not each.stopped), following]
        if self._group is None:
            self._waiting.append(following)
        else:
            following.start(self._group)
        return following

    def start(self, group: tasks.Group) -> None:
        """Follow whatever was asked for so far, and from now on at once."""
        self._group = group
        for following in self._waiting:
            following.start(group)
        self._waiting.clear()
        for other in self._beside.values():
            other.start(group)
