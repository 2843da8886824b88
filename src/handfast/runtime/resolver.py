# SPDX-License-Identifier: Apache-2.0
"""The addresses of a name, looked up by a thread for which nobody has to wait. It caches nothing.

asyncio's own `getaddrinfo` runs in a pool, and a loop that ends waits for its pool: with a resolver that hangs for 20 s a command took 20.6 s,
whatever its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading


async def addresses(host: str, port: int) -> list[str]:
    """Every address of a name, each once; OSError or UnicodeError where it has none."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def give(rows: list[str], error: OSError | UnicodeError | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(rows)
        else:
            answer.set_exception(error)

    def ask() -> None:
        rows: list[str] = []
        trouble: OSError | UnicodeError | None = None
        try:
            rows = [str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError) as error:
            trouble = error
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(give, list(dict.fromkeys(rows)), trouble)

    threading.Thread(target=ask, name="resolver", daemon=True).start()
    return await answer
