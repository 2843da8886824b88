# SPDX-License-Identifier: Apache-2.0
"""The one reconcile loop: a controller is a name, what concerns it, and a handler of one key.

The handler is told a key, never what happened: it compares what should be with what is, does one step towards it,
and may be called again at any time, by several copies of the process at once. The queue, retries with back-off,
workers, metrics and log lines are here; no controller has its own. Nothing here knows what any controller does.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import prometheus_client
import structlog

from handfast import errors
from handfast.client import api, cache, partial, queue
from handfast.runtime import backoff, tasks
from handfast.runtime import clock as clocks

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=partial.Viewed)

_log = structlog.get_logger("handfast.controller")

RECONCILES = prometheus_client.Counter(
    "handfast_controller_reconciles", "Keys handled, by controller and result.", ["controller", "result"]
)
SECONDS = prometheus_client.Histogram(
    "handfast_controller_reconcile_seconds",
    "How long handling one key took.",
    ["controller"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0),
)
DEPTH = prometheus_client.Gauge("handfast_controller_queue_depth", "Keys waiting to be handled.", ["controller"])

# When a handler wants to be called again: after so many seconds, at an instant of the wall clock (and whenever somebody sets
# that clock), or not before something happens.
Again = float | datetime.datetime | None

# What a lost race looks like: someone else was faster, and looking again settles it. Not worth a warning.
RACES = frozenset({"Conflict", "AlreadyExists"})


class NotYet(errors.Unavailable):
    """A handler waits for something that no watch will tell it of; it is called again, later each time."""

    reason = "NotYet"


class Syncing(Protocol):
    """Something that must be complete before the first key is handled."""

    async def wait_synced(self) -> None: ...


class Answering(Protocol):
    """Something that is asked for before the first key is handled, and that may be forbidden."""

    async def wait_answered(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a controller may use: the API, what is followed of it, and the time."""

    client: api.Client
    informers: cache.Informers
    clock: clocks.Clock


class Controller(Generic[K]):
    """One controller. `reconcile(key)` says when to call it again, see `Again`."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Again]],
        *,
        clock: clocks.Clock,
        workers: int = 1,
        schedule: backoff.Schedule = queue.RETRY,
    ) -> None:
        self.name = name
        self.queue: queue.WorkQueue[K] = queue.WorkQueue(clock=clock, schedule=schedule)
        self._reconcile = reconcile
        self._clock = clock
        self._workers = workers
        self._needs: list[Callable[[], Awaitable[None]]] = []
        self._beside: list[tuple[Callable[[], Coroutine[Any, Any, None]], str]] = []
        self._ready = False
        self._handled = RECONCILES.labels(name, "ok")
        self._seconds = SECONDS.labels(name)
        # Bound once: binding anew for every line costs more than the line, which is rarely written.
        self._log = _log.bind(controller=name)
        DEPTH.labels(name).set_function(lambda: len(self.queue))

    def watches(
        self,
        informer: cache.Informer[V],
        keys: Callable[[V], Iterable[K]],
        unless: Callable[[V | None, V | None], bool] = lambda _old, _new: False,
    ) -> None:
        """Queue `keys(object)` whenever an object changes; of what it was before, too, if it was something else.

        `unless` tells changes that make no difference.
        """

        def changed(old: V | None, new: V | None) -> None:
            if unless(old, new):
                return
            for item in (old, new):
                if item is not None:
                    for key in keys(item):
                        self.queue.add(key)

        informer.subscribe(changed)
        self.needs(informer)

    def needs(self, other: Syncing) -> None:
        """Handle nothing before `other` has synced."""
        self._needs.append(other.wait_synced)

    def uses(self, other: Answering) -> None:
        """Handle nothing before `other` has synced or was forbidden: then the handler does what can be done without."""
        self._needs.append(other.wait_answered)

    def beside(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run `work` beside the workers, as long as they run."""
        self._beside.append((work, name))

    @property
    def ready(self) -> bool:
        """Whether everything it needs has synced and its workers run."""
        return self._ready

    async def run(self) -> None:
        """Handle keys until cancelled."""
        for come in self._needs:
            await come()
        async with tasks.Group(self.name) as group:
            group.start(self.queue.run(), name="timer")
            for work, name in self._beside:
                group.start(work(), name=name)
            for number in range(self._workers):
                group.start(self._work(), name=f"worker-{number}")
            self._ready = True
            await group.wait()

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                await self._handle(key)
            finally:
                self.queue.done(key)

    async def _handle(self, key: K) -> None:
        started = self._clock.monotonic()
        try:
            again = await self._reconcile(key)
        except errors.HandfastError as error:
            self._failed(key, error.reason, error.message, quiet=error.reason in RACES or isinstance(error, NotYet))
            return
        except Exception as error:  # noqa: BLE001 - a bug over one object must not stop the work on all others
            self._failed(key, "InternalError", repr(error), quiet=False, trace=error)
            return
        seconds = self._clock.monotonic() - started
        self.queue.forget(key)
        if isinstance(again, datetime.datetime):
            self.queue.add_at(key, again)
        elif again is not None:
            self.queue.add_after(key, again)
        self._handled.inc()
        self._seconds.observe(seconds)
        shown = again.isoformat() if isinstance(again, datetime.datetime) else again
        self._log.debug("reconciled", item=key, seconds=round(seconds, 4), again=shown)

    def _failed(self, key: K, reason: str, message: str, *, quiet: bool, trace: BaseException | None = None) -> None:
        wait = self.queue.retry(key)
        RECONCILES.labels(self.name, "retry" if quiet else "error").inc()
        write: Any = self._log.debug if quiet else self._log.warning
        write(
            "reconcile failed",
            item=key,
            reason=reason,
            error=message,
            wait=round(wait, 3),
            exc_info=trace,
        )
