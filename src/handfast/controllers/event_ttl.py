# SPDX-License-Identifier: Apache-2.0
"""Deletes Events an hour after they last happened.

Each Event has a timer of its own in the queue; nothing is polled and no Event is kept in memory. An Event that
happened again meanwhile is seen to be younger when its timer fires, and gets a new one.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable

import msgspec

from handfast.api import objects, resources
from handfast.client import api, partial, watch
from handfast.controllers import loop
from handfast.runtime import clock as clocks

NAME = "event-ttl-controller"
TTL = dt.timedelta(hours=1)


class _Series(msgspec.Struct, rename="camel", frozen=True, gc=False):
    last_observed_time: str | None = None


class _Meta(partial.Meta, frozen=True, gc=False):
    creation_timestamp: str | None = None


class Event(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """When an Event happened: the newest of what its several forms say."""

    metadata: _Meta = _Meta()
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None

    def last(self) -> dt.datetime | None:
        texts = (
            self.metadata.creation_timestamp,
            self.last_timestamp,
            self.event_time,
            self.series.last_observed_time if self.series else None,
        )
        return max((instant for text in texts if (instant := _instant(text)) is not None), default=None)


_events = msgspec.json.Decoder(Event)


def _instant(text: str | None) -> dt.datetime | None:
    try:
        return objects.parse_timestamp(text) if text else None
    except ValueError:
        return None


class Timers:
    """Sets a timer for each Event seen; deletions need none."""

    def __init__(self, clock: clocks.Clock, later: Callable[[partial.Key, float], None]) -> None:
        self._clock = clock
        self._later = later
        self._synced = asyncio.Event()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def begin(self) -> None:
        """Timers that are set already stay."""

    def put(self, item: Event) -> None:
        self._later(item.metadata.key, seconds_left(item, self._clock.now()))

    def remove(self, item: Event) -> None:
        """The timer finds nothing when it fires."""

    def end(self) -> None:
        self._synced.set()


def seconds_left(event: Event, now: dt.datetime) -> float:
    """How long the Event may stay; an Event that tells no time is old."""
    last = event.last()
    return 0.0 if last is None else max(0.0, (last + TTL - now).total_seconds())


class EventTTL:
    """Handles one Event."""

    def __init__(self, client: api.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock

    async def reconcile(self, key: partial.Key) -> float | None:
        namespace, name = key
        with api.MISSING_OK:
            event = await self._client.view(resources.EVENTS, name, _events, namespace=namespace)
            left = seconds_left(event, self._clock.now())
            if left > 0:
                return left
            meta = event.metadata
            await self._client.delete(
                resources.EVENTS, name, namespace=namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        return None


def build(context: loop.Context) -> loop.Controller[partial.Key]:
    handler = EventTTL(context.client, context.clock)
    controller: loop.Controller[partial.Key] = loop.Controller(
        NAME, handler.reconcile, clock=context.clock, workers=2, wall=True
    )
    timers = Timers(context.clock, controller.queue.add_after)
    context.informers.follow(watch.Source(resource=resources.EVENTS, view=Event), timers)
    controller.needs(timers)
    return controller
