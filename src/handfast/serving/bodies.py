# SPDX-License-Identifier: Apache-2.0
"""The whole body of a request, within a size and a time. What is in it, it does not look at.

1. A body is refused as soon as it is known to be too long: by its length, where that is said, before it is read.
2. It is not compressed (415).
3. It arrives in time (408).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
from aiohttp import web

from handfast.api import status
from handfast.serving import aiohttp_parts

# Raises if so many bytes are too many.
Require = Callable[[int], None]


def at_most(limit: int) -> Require:
    """The same limit for everybody."""

    def require(size: int) -> None:
        if size > limit:
            raise status.StatusError("RequestEntityTooLarge", f"Request entity too large: limit is {limit}")

    return require


async def read(http: web.BaseRequest, seconds: float, require: Require, take: Callable[[int], None]) -> bytes:
    """The body. `require` is asked about its size as far as it is known, and `take` is told of each part that is kept meanwhile."""
    # 1. not too long
    if http.content_length is not None:
        require(http.content_length)
    if (broken := http.content.exception()) is not None:
        raise _unreadable(broken)
    if not http.can_read_body:
        return b""
    coding = http.headers.get("Content-Encoding", "identity")
    # 2. not compressed
    if coding.lower() != "identity":
        raise status.StatusError(
            "UnsupportedMediaType", f'the body has the content encoding "{coding}": send it as it is, without one'
        )
    if http.content.is_eof():
        # It arrived with the head, as small bodies do: no need to wait, nor for a timer.
        body = aiohttp_parts.arrived(http.content)
        require(len(body))
        return body
    if "Expect" in http.headers:
        await _invite(http)
    return await _arriving(http, seconds, require, take)


async def _arriving(http: web.BaseRequest, seconds: float, require: Require, take: Callable[[int], None]) -> bytes:
    parts: list[bytes] = []
    size = 0
    # 3. in time
    try:
        async with asyncio.timeout(seconds):
            while part := await http.content.readany():
                size += len(part)
                require(size)
                take(len(part))
                parts.append(part)
    except TimeoutError:
        raise status.StatusError("Timeout", f"the body did not arrive within {seconds:g} seconds", code=408) from None
    except web.RequestPayloadError as error:
        raise _unreadable(error) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _invite(http: web.BaseRequest) -> None:
    """Tell a client that waits to be asked for the body (RFC 9110, section 10.1.1) to go on."""
    expectation = http.headers["Expect"]
    if expectation.lower() != "100-continue":
        raise status.StatusError("BadRequest", f'the expectation "{expectation}" cannot be met', code=417)
    if http.version >= aiohttp.HttpVersion11:
        await http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # What the answer itself writes is counted from here.
        http.writer.output_size = 0


def _unreadable(error: BaseException) -> status.StatusError:
    return status.bad_request(f"the body cannot be read: {error}")
