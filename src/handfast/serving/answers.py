# SPDX-License-Identifier: Apache-2.0
"""A whole answer, written in one piece: status line, headers and body in a single write.

aiohttp's own `Response` builds, orders and copies headers step by step for what is nearly always the same dozen lines;
that was a quarter of the cost of a GET. Answers that leave in parts (lists, watches) stay aiohttp's. It decides nothing.

1. A header that would break the line it stands in is refused, not sent: nobody can smuggle in another.
2. A HEAD gets the headers of the GET and no body; 204 and 304 have neither a body nor its length.
3. Who asked to close the connection, or speaks HTTP/1.0 without `keep-alive`, is told that it closes.
"""

from __future__ import annotations

import functools
import http as statuses
from collections.abc import Iterable, Mapping

from aiohttp import HttpVersion10, HttpVersion11, web

from handfast import errors
from handfast.serving import aiohttp_parts

TEXT: Mapping[str, str] = {"Content-Type": "text/plain; charset=utf-8"}
JSON: Mapping[str, str] = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
_BODILESS = frozenset({204, 304})
_BREAKS = frozenset("\r\n\0")


class Answer:
    """Status, headers and body. `add` puts one more header in; nothing can be changed once it has been sent."""

    __slots__ = ("_closing", "added", "body", "headers", "keep_alive", "status")

    # aiohttp asks these of its own responses.
    prepared = False

    def __init__(self, body: bytes = b"", *, status: int = 200, headers: Mapping[str, str] = JSON) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.keep_alive = True
        self.added: list[tuple[str, str]] = []
        self._closing = False

    def add(self, name: str, value: str) -> None:
        """One more header; the same name may come again."""
        self.added.append((name, value))

    def force_close(self) -> None:
        """End the connection after this answer."""
        self._closing = True

    def bytes_for(self, http: web.BaseRequest) -> bytes:
        """All that goes over the wire in answer to `http`."""
        # 3. say if the connection closes
        self.keep_alive = http.keep_alive and not self._closing
        if not self.keep_alive:
            connection = b"Connection: close\r\n"
        elif http.version == HttpVersion10:
            connection = b"Connection: keep-alive\r\n"
        else:
            connection = b""
        # 2. which answers have a body
        body = self.body
        length = b"" if self.status in _BODILESS else b"Content-Length: %d\r\n" % len(body)
        if http.method == "HEAD" or self.status in _BODILESS:
            body = b""
        known = _JSON_LINES if self.headers is JSON else _lines(self.headers.items())
        date = aiohttp_parts.date().encode()
        start = _start(self.status, 1 if http.version >= HttpVersion11 else 0)
        return b"%b%b%b%b%bDate: %b\r\n\r\n%b" % (start, known, _lines(self.added), length, connection, date, body)

    def stepwise(self) -> web.Response:
        """The same as an answer of aiohttp's, for the connections whose bookkeeping only aiohttp knows."""
        response = web.Response(status=self.status, body=self.body, headers=self.headers)
        for name, value in self.added:
            response.headers.add(name, value)
        if self._closing:
            response.force_close()
        return response


Response = Answer | web.StreamResponse


def text(code: int, content: str) -> Answer:
    """An answer for people."""
    return Answer(content.encode(), status=code, headers=TEXT)


def refusal(code: int, message: str) -> Answer:
    """What a service answers to what is no request, or when its handler failed."""
    return text(code, f"{code} {message or _phrase(code)}\n")


@functools.lru_cache
def _start(code: int, minor: int) -> bytes:
    return f"HTTP/1.{minor} {code} {_phrase(code)}\r\n".encode()


def _phrase(code: int) -> str:
    try:
        return statuses.HTTPStatus(code).phrase
    except ValueError:
        return ""


def _line(name: str, value: str) -> bytes:
    # 1. a header stays in its line
    if not _BREAKS.isdisjoint(value) or not _BREAKS.isdisjoint(name):
        raise errors.Misuse(f"the header {name!r} would break its line")
    return f"{name}: {value}\r\n".encode()


def _lines(headers: Iterable[tuple[str, str]]) -> bytes:
    return b"".join([_line(name, value) for name, value in headers])


_JSON_LINES = _lines(JSON.items())
