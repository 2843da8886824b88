# SPDX-License-Identifier: Apache-2.0
"""Long answers, part by part: a client that stops reading is given up, and what was held for it is let go.

It waits for the network and decides nothing.
"""

from __future__ import annotations

import asyncio

from aiohttp import web


async def send(http: web.BaseRequest, response: web.StreamResponse, part: bytes, seconds: float) -> None:
    """Write `part`; ConnectionResetError if the client has not made room for it within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await response.write(part)
    except TimeoutError:
        if http.transport is not None:
            http.transport.abort()
        raise ConnectionResetError("the client does not read its answer") from None
