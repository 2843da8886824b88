# SPDX-License-Identifier: Apache-2.0
"""What is told of each review: a metric, a line in the log where there is a reason, and an Event for whoever wonders why a Pod has no proxy.

It decides nothing, and nobody waits for it.

1. An Event is about what makes the Pod, or about the namespace where nothing does: the Pod is not there yet.
2. Nothing is told of a dry run, nor of Pods that nobody wanted in the mesh.
3. The same Event is written once a minute at most, a few in a second, and no more wait than `MOST_WAITING`. What is over that is counted.
4. Nothing is written about a namespace that is not there: whoever reaches the port could name any.
5. Of one kind, one line a second is told to the log: the metric counts them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import prometheus_client
import structlog

from handfast.api import jsonpath
from handfast.client import events
from handfast.rules.mesh import admission, injectable, workloads
from handfast.rules.mesh import admission_reviews as reviews
from handfast.runtime import clock as clocks

INJECTED: Final = "Injected"
SKIPPED: Final = "InjectionSkipped"
MOST_WAITING: Final = 256
_AGAIN_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.2
_SAY_SECONDS: Final = 1.0
_MOST_REMEMBERED: Final = 4096
_SENTENCE: Final = "the mesh's proxy was injected"
_log = structlog.get_logger("handfast.mesh.injector")

REVIEWS = prometheus_client.Counter(
    "handfast_mesh_injections", "Reviews of the injector, by what became of them.", ["kind", "result", "reason"]
)
LOST = prometheus_client.Counter("handfast_mesh_injection_events_lost", "Events that were not written: too many.")

_Event = tuple[events.Regarding, str, str]


class Reports:
    """Tells of reviews; `knows` is whether a namespace is there."""

    def __init__(self, recorder: events.Recorder, knows: Callable[[str], bool], clock: clocks.Clock) -> None:
        self._recorder = recorder
        self._knows = knows
        self._clock = clock
        self._waiting: asyncio.Queue[_Event] = asyncio.Queue(MOST_WAITING)
        self._written: dict[_Event, float] = {}
        # When a line was told last, by result and reasons, of which there are few.
        self._said: dict[tuple[str, ...], float] = {}

    def note(self, review: reviews.Review, verdict: admission.Verdict) -> None:
        """One review that was answered."""
        REVIEWS.labels(
            review.kind or "other", verdict.result.value, verdict.reasons[0] if verdict.reasons else ""
        ).inc()
        # 2. nobody wanted it
        quiet = not review.kind or set(verdict.reasons) <= {injectable.Reason.ABSENT, admission.NOTHING}
        unwanted = verdict.result is admission.Result.SKIPPED and quiet
        # A Pod that has its proxy is no news: the metric and the Event tell.
        if verdict.reasons and not unwanted and self._is_news(verdict):
            _log.info(
                f"an object was {verdict.result.value}",
                namespace=review.namespace,
                object=workloads.title(review.document),
                reasons=list(verdict.reasons),
                why=verdict.sentence,
            )
        if not review.dry_run and not unwanted and review.kind == reviews.POD:
            self._tell(review, verdict)

    def _is_news(self, verdict: admission.Verdict) -> bool:
        now, kind = self._clock.monotonic(), (verdict.result, *verdict.reasons)
        # 5. of one kind one a second
        if now - self._said.get(kind, -_SAY_SECONDS) < _SAY_SECONDS:
            return False
        self._said[kind] = now
        return True

    def failed(self, reason: str) -> None:
        """One that was not."""
        REVIEWS.labels("other", "failed", reason).inc()

    def _tell(self, review: reviews.Review, verdict: admission.Verdict) -> None:
        if verdict.result is admission.Result.INJECTED:
            self._add((_about(review), INJECTED, _SENTENCE))
        elif verdict.result is admission.Result.SKIPPED:
            self._add((_about(review), SKIPPED, f"the mesh's proxy was not injected: {verdict.sentence}"))

    def _add(self, event: _Event) -> None:
        now = self._clock.monotonic()
        # 4. about what is there
        if not self._knows(event[0].namespace):
            return
        # 3. once a minute
        if now - self._written.get(event, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
            return
        if len(self._written) >= _MOST_REMEMBERED:
            del self._written[next(iter(self._written))]
        self._written[event] = now
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            LOST.inc()

    async def run(self) -> None:
        """Write Events, until cancelled."""
        while True:
            about, reason, sentence = await self._waiting.get()
            await self._recorder.record(about, reason, sentence)
            # 3. a few in a second
            await self._clock.sleep(_PAUSE_SECONDS)


def _about(review: reviews.Review) -> events.Regarding:
    # 1. what makes it
    row: dict[str, Any] = reviews.owner(review.document)
    if name := jsonpath.text(row, "name"):
        return events.Regarding(
            api_version=jsonpath.text(row, "apiVersion"),
            kind=jsonpath.text(row, "kind"),
            name=name,
            namespace=review.namespace,
            uid=jsonpath.text(row, "uid"),
        )
    return events.Regarding(api_version="v1", kind="Namespace", name=review.namespace, namespace=review.namespace)
