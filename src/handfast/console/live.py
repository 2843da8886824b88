# SPDX-License-Identifier: Apache-2.0
"""Live updates: the parts of a page that changed, sent as HTML to every browser that shows it. What is in them is `handler`'s to make.

1. Browsers that show the same page with the same question share a channel. A part is made once, however many there are; each then costs one write.
2. A channel looks again when something changed that its page needs, once a second at most, and every half minute, since "3 min ago" grows old. It looks once more
   when the change has settled: what pages keep may be a moment older than the change. A part that came out as it was is not sent.
3. A part has the number of the change that made it. A browser that comes back says the last number that it has (Last-Event-ID), and gets what is newer; one with
   a number of another run gets everything. There is no history to keep: the newest of each part is all there is to know.
4. A browser that reads slowly is not waited for: it gets the newest of each part when it reads again. One that does not read at all is given up, and comes back.
5. Rows are not sent. Browsers are told that they changed, and ask for those that they show.
6. Streams are bounded, in all and for each session. A stream ends with its session.
7. Every quarter of a minute there is a tick, so that a browser notices a connection that has died.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from handfast import errors
from handfast.api import objects
from handfast.console import known as known_module
from handfast.console import page as page_module
from handfast.rules.console import questions
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from handfast.serving import event_stream

MANY: Final = 128
OF_ONE_SESSION: Final = 32
AGAIN_SECONDS: Final = 1.0
STALE_SECONDS: Final = 30.0
TICK_SECONDS: Final = 15.0
# What pages keep between two makings (`Known.once`) is no older than this.
SETTLED_SECONDS: Final = 6.0
ROWS: Final = "rows"
_NOT_ROWS: Final = frozenset({"facts", known_module.SERVER})
_log = structlog.get_logger("handfast.console")

# Makes the parts of a page, by their names.
Make = Callable[[page_module.Page, questions.Question], Awaitable[Mapping[str, str]]]
# A part as one browser gets it: with the tokens of its forms.
Fill = Callable[[str], str]


@dataclass(slots=True)
class _Part:
    number: int
    html: str


@dataclass(slots=True, eq=False)
class Channel:
    """One page with one question, and who shows it."""

    page: page_module.Page
    question: questions.Question
    wants: frozenset[str]
    parts: dict[str, _Part] = field(default_factory=dict)
    number: int = 0
    rows_at: int = -1
    dirty: bool = True
    rows_dirty: bool = False
    made_at: float = 0.0
    again_at: float = math.inf
    rows_again: bool = False
    readers: set[asyncio.Event] = field(default_factory=set)

    def take(self, parts: Mapping[str, str]) -> None:
        """New parts; those that changed get a number (2, 3)."""
        changed = [name for name, html in parts.items() if name not in self.parts or self.parts[name].html != html]
        rows, self.rows_dirty = self.rows_dirty and self.page.rows, False
        if not changed and not rows:
            return
        self.number += 1
        for name in changed:
            self.parts[name] = _Part(self.number, parts[name])
        if rows:
            self.rows_at = self.number
        for reader in self.readers:
            reader.set()

    def since(self, number: int, run: str, fill: Fill) -> bytes:
        """What is newer than a number, on the wire; the last event says up to where it goes (3)."""
        newer = [(name, part.html) for name, part in self.parts.items() if part.number > number]
        events = [event_stream.event("fragment", f"{name}\n{fill(html)}") for name, html in newer]
        if self.rows_at > number:
            events.append(event_stream.event(ROWS, str(self.rows_at)))
        return b"".join([*events, event_stream.event("upto", ".", f"{run}-{self.number}")]) if events else b""


class Hub:
    """The channels of a console."""

    def __init__(self, make: Make, clock: clocks.Clock) -> None:
        self._make = make
        self._clock = clock
        # 3. numbers of another run mean nothing here
        self.run_id = secrets.token_hex(4)
        self._channels: dict[tuple[str, ...], Channel] = {}
        self._awake = asyncio.Event()
        self.streams = 0

    def changed(self, name: str) -> None:
        """Something of a need changed. Called thousands of times a second: see `known`."""
        for channel in self._channels.values():
            if name in channel.wants:
                channel.dirty = True
                channel.rows_dirty = channel.rows_dirty or name not in _NOT_ROWS

    async def run(self) -> None:
        """Never returns. While nobody shows anything, it sleeps."""
        while True:
            if not self._channels:
                self._awake.clear()
                await self._awake.wait()
            for channel in tuple(self._channels.values()):
                await self._refresh(channel)
            await self._clock.sleep(AGAIN_SECONDS)

    async def _refresh(self, channel: Channel) -> None:
        now = self._clock.monotonic()
        # 2. when something changed, has settled, or grew old
        if not channel.dirty and now < channel.again_at and now - channel.made_at < STALE_SECONDS:
            return
        if channel.dirty:
            channel.again_at, channel.rows_again = now + SETTLED_SECONDS, channel.rows_dirty
        else:
            channel.again_at, channel.rows_dirty = math.inf, channel.rows_again and now >= channel.again_at
        channel.dirty, channel.made_at = False, now
        try:
            # 1. once for all
            channel.take(await self._make(channel.page, channel.question))
        except (errors.Refused, errors.Unavailable) as error:
            _log.debug("a page was not made anew", page=channel.page.path, reason=error.reason, error=error.message)
        except Exception as error:  # noqa: BLE001  an object that no rule can read takes no other page with it
            _log.error("a page was not made anew", page=channel.page.path, exc_info=error)

    def room(self, of_session: int) -> None:
        """Return if one more stream may begin (6)."""
        if self.streams >= MANY or of_session >= OF_ONE_SESSION:
            raise errors.Unavailable(
                "too many pages are open live", reason="TooManyStreams", hint="close some of them; this one can be read"
            )

    async def follow(
        self,
        page: page_module.Page,
        question: questions.Question,
        stream: event_stream.EventStream,
        last: str,
        fill: Fill,
        is_alive: Callable[[], bool],
    ) -> None:
        """Send what changes, until the client leaves or its session ends."""
        channel = self._channel(page, question)
        wake = asyncio.Event()
        channel.readers.add(wake)
        stream.on_gone(wake.set)
        self.streams += 1
        seen = _number(last, self.run_id)
        try:
            await stream.begin()
            ticked = self._clock.monotonic()
            while is_alive():
                if part := channel.since(seen, self.run_id, fill):
                    seen = channel.number
                    # 4. whoever does not read is given up here
                    await stream.send(part)
                    continue
                # 7. a tick
                if self._clock.monotonic() - ticked >= TICK_SECONDS:
                    ticked = self._clock.monotonic()
                    await stream.send(event_stream.event("tick", objects.timestamp(self._clock.now())))
                await tasks.wait_for_event(wake, self._clock, TICK_SECONDS)
                wake.clear()
                if stream.gone.is_set():
                    return
            await stream.send(event_stream.event("ended", "the session has ended"))
        except ConnectionError:
            return
        finally:
            stream.end()
            self.streams -= 1
            channel.readers.discard(wake)
            if not channel.readers:
                self._channels.pop(_key(page, question), None)

    def _channel(self, page: page_module.Page, question: questions.Question) -> Channel:
        key = _key(page, question)
        if key not in self._channels:
            wants = frozenset(
                {known_module.SERVER, *(need.name for need in page.needs), *(("facts",) if page.facts else ())}
            )
            self._channels[key] = Channel(page, question, wants)
            self._awake.set()
        return self._channels[key]


def _key(page: page_module.Page, question: questions.Question) -> tuple[str, ...]:
    return (page.path, *question.key)


def _number(last: str, run: str) -> int:
    """Up to where a browser has everything; -1: it has nothing of this run (3)."""
    name, _, number = last.partition("-")
    return int(number) if name == run and number.isascii() and number.isdecimal() and len(number) < 16 else -1
