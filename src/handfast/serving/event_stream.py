# SPDX-License-Identifier: Apache-2.0
"""An answer that does not end: server-sent events, written as they come (HTML Living Standard, section 9.2). What they say, it does not know.

1. An event has an id, a name and data. Data of several lines goes out line by line, so that nothing in it can begin another field.
2. A client that does not read is given up (`sending`); it comes back by itself, with the id of the last event that it has.
3. Whoever waits for something to write learns at once that the client is gone (`gone`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, cast

from aiohttp import web

from handfast import errors
from handfast.serving import connection as connection_module
from handfast.serving import sending

CONTENT_TYPE: Final = "text/event-stream; charset=utf-8"
# How long a client may take to make room for one event.
WRITE_SECONDS: Final = 10.0
_BREAKS: Final = frozenset("\r\n\0")


def event(name: str, data: str, number: str = "") -> bytes:
    """One event on the wire (1)."""
    if not _BREAKS.isdisjoint(name) or not _BREAKS.isdisjoint(number):
        raise errors.Misuse(f"the event {name!r} would break its line")
    lines = [f"id: {number}"] if number else []
    lines += [
        f"event: {name}",
        *(f"data: {line}" for line in data.replace("\r\n", "\n").replace("\r", "\n").split("\n")),
    ]
    return ("\n".join(lines) + "\n\n").encode()


class EventStream:
    """One stream to one client."""

    def __init__(self, http: web.BaseRequest, headers: Mapping[str, str]) -> None:
        self._http = http
        self._connection = cast("connection_module.Connection", http.protocol)
        self.answer = web.StreamResponse(headers={**headers, "Content-Type": CONTENT_TYPE})
        self.answer.enable_chunked_encoding()
        self.gone = asyncio.Event()
        self._told: Callable[[], None] = lambda: None

    def on_gone(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the client leaves (3)."""
        self._told = tell

    async def begin(self) -> None:
        """Send the head. From here on the client may leave at any time (3)."""
        self._connection.closed_hooks.add(self._left)
        await self.answer.prepare(self._http)

    async def send(self, part: bytes) -> None:
        """Write one or more events; ConnectionResetError where the client is gone, or does not read (2)."""
        if self.gone.is_set():
            raise ConnectionResetError("the client is gone")
        await sending.send(self._http, self.answer, part, WRITE_SECONDS)

    def wake(self) -> None:
        """Have whoever writes look again at once: something else than the client has changed."""
        self._told()

    def _left(self) -> None:
        self.gone.set()
        self._told()

    def end(self) -> None:
        """Nobody waits for it any more."""
        self._connection.closed_hooks.discard(self._left)
