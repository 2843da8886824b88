# SPDX-License-Identifier: Apache-2.0
"""Asks kubelets what they serve beside the work on requests, so that one that is silent holds nobody up. It judges nothing.

Whoever wants to know is answered at once: with what was presented, with why nothing was, or that the kubelet is being asked.

1. A kubelet is asked in a task of its own. The workers of the controller never wait for a handshake.
2. Of one node, one handshake at most is under way, whatever its Node says about where it is.
3. What was presented counts for the requests that waited for it, and for ten seconds. A place that did not answer is not asked again for a minute.
4. Whoever subscribes is told of the node when its kubelet has answered, or has not.

| who | holding | tries | stopped by | shown in tests/unit/controllers/machines/test_dials.py |
|---|---|---|---|---|
| a node | a silent address, and hundreds of requests | hold up the first joins of others | 1 | test_two_hundred_requests_of_a_silent_node_hold_nobody_up |
| … | an address that it changes all the time | have us dial without end | 2 | test_of_one_node_one_handshake_is_under_way |
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from handfast.controllers.machines import kubelet_dial
from handfast.rules.machines import serving
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

# 3. for how many seconds an answer counts, and silence
ANSWERED_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a place presented, or why it did not."""

    place: serving.Place
    chain: kubelet_dial.Chain
    trouble: str
    ends: float
    # The requests that waited for it.
    waited: frozenset[str] = frozenset()

    def counts(self, place: serving.Place, request: str, now: float) -> bool:
        """Whether it answers this request, too (3.)."""
        return self.place == place and now < self.ends and (bool(self.trouble) or request in self.waited)


class Dials:
    """The handshakes that are under way, and what came of the last ones."""

    def __init__(self, dial: kubelet_dial.KubeletDial, clock: clocks.Clock) -> None:
        self._dial = dial
        self._clock = clock
        self._wanted: asyncio.Queue[tuple[str, serving.Place]] = asyncio.Queue()
        # 2. by node, the requests that wait
        self._under_way: dict[str, set[str]] = {}
        self._answers: dict[str, Answer] = {}
        self._subscribers: list[Callable[[str], None]] = []

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with the name of each node whose kubelet was asked (4.)."""
        self._subscribers.append(changed)

    def joins(self, node: str, request: str) -> bool:
        """Whether a handshake with this node is under way; the request waits for it then."""
        waiting = self._under_way.get(node)
        if waiting is None:
            return False
        waiting.add(request)
        return True

    def ask(self, node: str, place: serving.Place, request: str) -> Answer | None:
        """What this place presented just now, for a request; None: it is being asked."""
        answer = self._answers.get(node)
        # 3. what is known counts for a while
        if answer is not None and answer.counts(place, request, self._clock.monotonic()):
            return answer
        # 2. one for a node
        if not self.joins(node, request):
            self._under_way[node] = {request}
            self._wanted.put_nowait((node, place))
        return None

    async def run(self) -> None:
        """Ask whoever is to be asked, until cancelled (1.)."""
        async with tasks.Group("kubelet-dials") as group:
            while True:
                node, place = await self._wanted.get()
                group.start(self._one(node, place), name=node)

    async def _one(self, node: str, place: serving.Place) -> None:
        try:
            answer = await self._answer(place)
        finally:
            waited = self._under_way.pop(node)
        self._forget_old()
        self._answers[node] = dataclasses.replace(answer, waited=frozenset(waited))
        # 4. those who wait are judged
        for changed in self._subscribers:
            changed(node)

    async def _answer(self, place: serving.Place) -> Answer:
        try:
            chain = await self._dial.chain(place)
        except kubelet_dial.KubeletUnreachable as error:
            return Answer(place, (), error.message, self._clock.monotonic() + SILENT_SECONDS)
        return Answer(place, chain, "", self._clock.monotonic() + ANSWERED_SECONDS)

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        for node in [node for node, answer in self._answers.items() if answer.ends <= now]:
            del self._answers[node]
