# SPDX-License-Identifier: Apache-2.0
"""One computation for each subject, however many streams are about it. What is computed, `subjects` says.

1. A subject is computed when the first stream comes, and again when something has changed that it looked up: nothing else, and not once for
   each stream.
2. What changes while a stream is being written is told in one step when that is done: a slow stream gets from what it knows to what is now, and
   nothing is queued for it.
3. Between two passes there is a pause, at least as long as the pass took. A storm of changes takes half of the time at most.
4. Who is withheld is looked at again every few seconds: a Revocation ends by itself.
5. When the service stops, every stream ends.
6. What nobody expected ends the streams about that one subject, and is told to the log. All others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import structlog

from handfast.client import cache, revoked
from handfast.mesh import cluster as cluster_module
from handfast.mesh.destination import lookups, messages, subjects
from handfast.mesh.destination import withheld as withheld_module
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

_PACE_SECONDS: Final = 0.02
_AGAIN_SECONDS: Final = 5.0
_SHOWN: Final = 320
_log = structlog.get_logger("handfast.mesh.destination")


class Publisher:
    """The answer of one subject, and who waits for the next one."""

    def __init__(self, subject: subjects.Subject) -> None:
        self.subject = subject
        self.keys: frozenset[lookups.Key] = frozenset()
        self.streams = 0
        self.answer: Any = None
        self._before: Any = None
        # What new streams are told, and what those are told who know the answer before: encoded once for all.
        self._first: messages.Messages | None = None
        self._step: messages.Messages | None = None
        self._changed = asyncio.Event()

    def publish(self, answer: subjects.Answer) -> None:
        """Say this from now on."""
        if answer == self.answer:
            return
        self._before, self.answer = self.answer, answer
        self._first = self._step = None
        self._wake()

    def close(self) -> None:
        """End every stream (5)."""
        self.answer = subjects.Profile(refusal=(subjects.UNAVAILABLE, "the service stops"))
        self._wake()

    def _wake(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """What is to be said now, and then every change; server.Refusal where it ends."""
        known: Any = None
        while True:
            answer = self.answer
            if answer is known:
                await self._changed.wait()
                continue
            if answer.refusal is not None:
                raise subjects.refusal(answer.refusal)
            said = self._beginning() if known is None else self._since(known)
            # 2. whatever changes meanwhile is told in the next step
            for index in range(len(said)):
                yield said[index]
            known = answer

    def _beginning(self) -> messages.Messages:
        if self._first is None:
            self._first = self.answer.first()
        return self._first

    def _since(self, known: Any) -> messages.Messages:
        if known is not self._before:
            since: messages.Messages = self.answer.since(known)
            return since
        if self._step is None:
            self._step = self.answer.since(known)
        return self._step


class Publishers:
    """The publishers of a process, by subject; `run` computes what they say."""

    def __init__(
        self,
        cluster: cluster_module.Cluster,
        informers: cache.Informers,
        reports: withheld_module.Reports,
        clock: clocks.Clock,
    ) -> None:
        self._cluster = cluster
        self._reports = reports
        self._clock = clock
        self._all: dict[subjects.Subject, Publisher] = {}
        self._dependents: dict[lookups.Key, set[Publisher]] = {}
        # What is being computed, and for whom: between two steps of it, others have their turn.
        self._looking: tuple[Publisher, lookups.Lookups] | None = None
        # In order, each once.
        self._due: dict[Publisher, None] = {}
        self._work = asyncio.Event()
        self.closed = False
        cluster.subscribe(self._changed)
        # Somebody is revoked, or is no more: that may be anybody's endpoint.
        self.revocations = revoked.follow(informers, self.look_again)

    def __len__(self) -> int:
        return len(self._all)

    async def stream(self, subject: subjects.Subject) -> AsyncGenerator[bytes, None]:
        """A stream about a subject, for as long as somebody listens."""
        publisher = self._all.get(subject)
        if publisher is None:
            # 1. when the first stream comes
            publisher = self._all[subject] = Publisher(subject)
            self._add(publisher)
        publisher.streams += 1
        try:
            async with contextlib.aclosing(publisher.stream()) as said:
                async for message in said:
                    yield message
        finally:
            publisher.streams -= 1
            if not publisher.streams:
                self._forget(publisher)

    def look_again(self) -> None:
        """Compute everything again."""
        for publisher in self._all.values():
            self._add(publisher)

    def close(self) -> None:
        """End every stream (5)."""
        self.closed = True
        for publisher in self._all.values():
            publisher.close()

    async def run(self) -> None:
        """Compute what is due, until cancelled."""
        while True:
            # 4. every few seconds, who is withheld
            if not await tasks.wait_for_event(self._work, self._clock, _AGAIN_SECONDS):
                for publisher in self._all.values():
                    if publisher.answer is not None and publisher.answer.withheld:
                        self._add(publisher)
            began = self._clock.monotonic()
            await self._pass()
            # 3. half of the time at most
            await self._clock.sleep(max(_PACE_SECONDS, self._clock.monotonic() - began))

    async def _pass(self) -> None:
        self._work.clear()
        due, self._due = self._due, {}
        for publisher in due:
            if publisher.streams and not self.closed:
                await self._compute(publisher)

    async def _compute(self, publisher: Publisher) -> None:
        mesh = self._cluster.mesh
        if mesh is None:
            return
        known = lookups.Lookups(self._cluster, self.revocations, mesh, self._clock.now())
        self._looking = publisher, known
        try:
            answer = await self._answer(publisher.subject, known)
        except Exception as error:  # noqa: BLE001  6. that one subject
            _log.error("an answer cannot be computed", subject=str(publisher.subject)[:_SHOWN], exc_info=error)
            answer = subjects.Profile(refusal=(subjects.UNAVAILABLE, "internal error"))
        if not publisher.streams or self.closed:
            return
        self._depend(publisher, frozenset(known.keys))
        self._reports.note(publisher.subject, answer.about, answer.withheld)
        publisher.publish(answer)

    async def _answer(self, subject: subjects.Subject, known: lookups.Lookups) -> subjects.Answer:
        steps = subject.steps(known)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                answer: subjects.Answer = done.value
                return answer
            await self._clock.sleep(0)

    def _changed(self, change: cluster_module.Change) -> None:
        if change.resource == cluster_module.INSTALLATION:
            self.look_again()
            return
        for key in lookups.keys_of(change):
            for publisher in self._dependents.get(key, ()):
                self._add(publisher)
            # It has seen what is over, and depends on it only when it is done.
            if self._looking is not None and key in self._looking[1].keys:
                self._add(self._looking[0])

    def _add(self, publisher: Publisher) -> None:
        self._due[publisher] = None
        self._work.set()

    def _depend(self, publisher: Publisher, keys: frozenset[lookups.Key]) -> None:
        for key in publisher.keys - keys:
            dependents = self._dependents[key]
            dependents.discard(publisher)
            if not dependents:
                del self._dependents[key]
        for key in keys - publisher.keys:
            self._dependents.setdefault(key, set()).add(publisher)
        publisher.keys = keys

    def _forget(self, publisher: Publisher) -> None:
        self._depend(publisher, frozenset())
        self._due.pop(publisher, None)
        self._all.pop(publisher.subject, None)
        self._reports.forget(publisher.subject)
