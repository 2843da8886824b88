# SPDX-License-Identifier: Apache-2.0
"""What streams are about, and what is said of each now: computed once however many ask, and again only when it may have changed.

1. A stream has the newest answer, and never a queue: who reads slowly misses what was in between.
2. The same answer is not sent twice. Two are the same if their octets are.
3. There are so many streams at once, so many of them of one client, and no more: the next one is told to come later.
4. A subject lasts as long as somebody asks.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Generic, TypeVar

import prometheus_client

from handfast.wire import server

K = TypeVar("K")
MAX_STREAMS: Final = 50_000
MAX_OF_ONE: Final = 4_096
_AGAIN_MS: Final = 5_000

STREAMS = prometheus_client.Gauge("handfast_mesh_policy_streams", "Streams of policy that are open.")
COMPUTED = prometheus_client.Counter("handfast_mesh_policy_computed", "Policies that were computed for proxies.")


class _Subject:
    """One of them; `answer` is the last that was computed, and is `stale` where it has to be again."""

    def __init__(self) -> None:
        self.streams = 0
        self.answer: Any = None
        self.octets = b""
        self.stale = True
        self.changed = asyncio.Event()


class Subjects(Generic[K]):
    """All that somebody asks about, by key.

    `compute` gives the message for a key, or raises `server.Refusal`; `about` says by which object a key changes.
    """

    def __init__(
        self,
        compute: Callable[[K], Any],
        about: Callable[[K], tuple[str, str]],
        most: int = MAX_STREAMS,
        most_of_one: int = MAX_OF_ONE,
    ) -> None:
        self._compute = compute
        self._about = about
        self._most = most
        self._most_of_one = most_of_one
        # Keys by their objects: a cluster has many Pods, and most changes are of one.
        self._by_object: dict[tuple[str, str], set[K]] = {}
        self._subjects: dict[K, _Subject] = {}
        self._streams = 0
        self._of_one: collections.Counter[str] = collections.Counter()
        self._closed = False
        self._newest: tuple[Any, bytes] | None = None

    def __len__(self) -> int:
        return len(self._subjects)

    def now(self, key: K) -> Any:
        """The answer of this moment."""
        subject = self._subjects.get(key)
        return self._answer(key, _Subject() if subject is None else subject)

    async def follow(self, key: K, client: str) -> AsyncIterator[Any]:
        """The answer, and each that differs from the one before (1, 2)."""
        # 3. so many, and no more
        if self._streams >= self._most or self._of_one[client] >= self._most_of_one:
            raise server.Refusal("RESOURCE_EXHAUSTED", "too many streams of policy are open", _AGAIN_MS)
        subject = self._subjects.setdefault(key, _Subject())
        self._by_object.setdefault(self._about(key), set()).add(key)
        subject.streams += 1
        self._count(client, 1)
        try:
            sent = None
            while not self._closed:
                changed = subject.changed
                answer = self._answer(key, subject)
                # 2. not the same twice
                if answer is not sent:
                    sent = answer
                    yield answer
                await changed.wait()
        finally:
            subject.streams -= 1
            self._count(client, -1)
            # 4. as long as somebody asks
            if not subject.streams:
                self._forget(key)

    def close(self) -> None:
        """End every stream, and those that come: whoever asks again is answered by the next process."""
        self._closed = True
        self.namespace_changed("")

    def object_changed(self, about: tuple[str, str]) -> None:
        """What is said by this object may have changed."""
        for key in self._by_object.get(about, ()):
            self._touch(key)

    def namespace_changed(self, namespace: str) -> None:
        """What is said by the objects of this namespace may have changed; an empty one is all of them."""
        for home, name in tuple(self._by_object):
            if namespace in {"", home}:
                self.object_changed((home, name))

    def _touch(self, key: K) -> None:
        subject = self._subjects[key]
        subject.stale = True
        subject.changed.set()
        subject.changed = asyncio.Event()

    def _forget(self, key: K) -> None:
        del self._subjects[key]
        about = self._about(key)
        self._by_object[about].discard(key)
        if not self._by_object[about]:
            del self._by_object[about]

    def _answer(self, key: K, subject: _Subject) -> Any:
        if subject.stale:
            COMPUTED.inc()
            message = self._compute(key)
            if message is not subject.answer:
                octets = self._octets(message)
                if subject.answer is None or octets != subject.octets:
                    subject.answer, subject.octets = message, octets
            subject.stale = False
        return subject.answer

    def _octets(self, message: Any) -> bytes:
        """For comparing. Many subjects in a row have one message: with 2,000 names in it, 150 of 200 µs went here."""
        if self._newest is None or self._newest[0] is not message:
            self._newest = message, message.SerializeToString(deterministic=True)
        return self._newest[1]

    def _count(self, client: str, step: int) -> None:
        self._streams += step
        self._of_one[client] += step
        if not self._of_one[client]:
            del self._of_one[client]
        STREAMS.inc(step)
