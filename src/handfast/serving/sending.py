# SPDX-License-Identifier: Apache-2.0
"""Long answers, part by part: a client that stops reading is given up, and what was held for it is let go.

A part goes out in pieces: of a part that is not read, the connection then holds one or two pieces beside the part itself,
and not all of it again, encrypted. It waits for the network and decides nothing.
"""

from __future__ import annotations

import asyncio
from typing import cast

from aiohttp import web

from handfast.serving import connection as connection_module


async def send(http: web.BaseRequest, response: web.StreamResponse, part: bytes, seconds: float) -> None:
    """Write `part`; ConnectionResetError if the client has not made room for a piece of it within `seconds`."""
    connection = cast("connection_module.Connection", http.protocol)
    connection.kept = len(part)
    view = memoryview(part)
    # Most parts are a little longer than a piece: two writes instead of one would cost a list a tenth more.
    step = connection_module.PIECE if len(part) > 2 * connection_module.PIECE else len(part)
    try:
        for start in range(0, len(part), step):
            piece = view[start : start + step]
            connection.count(len(piece))
            async with asyncio.timeout(seconds):
                await response.write(piece)
    except TimeoutError:
        if http.transport is not None:
            http.transport.abort()
        raise ConnectionResetError("the client does not read its answer") from None
    finally:
        connection.kept = 0
