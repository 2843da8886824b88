# SPDX-License-Identifier: Apache-2.0
"""Deletes Events an hour after they last happened.

Each Event has a timer (`timed`). One that happened again meanwhile is seen to be younger when its timer fires, and gets a
new one. Whose Event it is, and what it says, is no matter.

One that says to have happened in the future, because a clock was wrong or its writer would have it stay for ever, ends an hour
after it was found so, on the clock that nobody can set; if it is written meanwhile, an hour after that.
"""

from __future__ import annotations

import datetime

import msgspec

from handfast.api import objects, resources
from handfast.client import api, partial, timers, watch
from handfast.controllers import loop, timed
from handfast.runtime import clock as clocks

NAME = "event-ttl-controller"
TTL = datetime.timedelta(hours=1)
_LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC) - TTL


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

    def last(self) -> datetime.datetime | None:
        texts = (
            self.metadata.creation_timestamp,
            self.last_timestamp,
            self.event_time,
            self.series.last_observed_time if self.series else None,
        )
        return max((instant for text in texts if (instant := _instant(text)) is not None), default=None)

    def due(self) -> datetime.datetime:
        """When it is deleted; an Event that tells no time is old."""
        last = self.last()
        if last is None:
            return timers.AT_ONCE
        return last + TTL if last < _LAST else _LAST


_events = msgspec.json.Decoder(Event)


def _instant(text: str | None) -> datetime.datetime | None:
    try:
        return objects.parse_timestamp(text) if text else None
    except ValueError:
        return None


class EventTTL:
    """Handles one Event."""

    def __init__(self, client: api.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock
        # Of Events from the future: the version that was found, and when by the monotonic clock.
        self._found: dict[partial.Key, tuple[str, float]] = {}

    def look_at(self, event: Event) -> datetime.datetime:
        """When to look at it: in an hour at the latest, because what it says of itself may be wrong."""
        return min(event.due(), self._clock.now() + TTL)

    async def reconcile(self, key: partial.Key) -> datetime.datetime | None:
        namespace, name = key
        found = self._found.pop(key, ("", 0.0))
        with api.MISSING_OK:
            event = await self._client.view(resources.EVENTS, name, _events, namespace=namespace)
            meta, now = event.metadata, self._clock.now()
            due = event.due()
            if due > now + TTL:
                if found[0] != meta.resource_version:
                    found = (meta.resource_version, self._clock.monotonic())
                self._found[key] = found
                due = now + TTL - datetime.timedelta(seconds=self._clock.monotonic() - found[1])
            if due > now:
                return due
            self._found.pop(key, None)
            await self._client.delete(
                resources.EVENTS, name, namespace=namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        return None


def build(context: loop.Context) -> loop.Controller[partial.Key]:
    handler = EventTTL(context.client, context.clock)
    controller: loop.Controller[partial.Key] = loop.Controller(NAME, handler.reconcile, clock=context.clock, workers=2)
    source = watch.Source(resource=resources.EVENTS, view=Event)
    timed.follow(context, controller, source, lambda item: item.metadata.key, handler.look_at)
    return controller
