# SPDX-License-Identifier: Apache-2.0
"""The floor of streams: a bare grpcio server on uvloop that writes the same octets to every open stream when it is told to.

It knows no cluster, and encodes nothing: what discovery costs above it is what discovery itself costs.

    /floor.Streams/Get    a stream that stays open: one empty message, and then each broadcast
    /floor.Streams/Say    writes its request to every open stream

    python -m bench.grpc_floor [PORT]
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import uvloop


class Streams:
    """What was said last, and an event for those who wait for the next."""

    def __init__(self) -> None:
        self._said = b""
        self._next = asyncio.Event()

    async def get(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield b""
        while True:
            await self._next.wait()
            yield self._said

    async def say(self, request: bytes, _context: Any) -> bytes:
        self._said = request
        before, self._next = self._next, asyncio.Event()
        before.set()
        return b""


async def main() -> None:
    streams = Streams()
    server = grpc.aio.server()
    handlers = {
        "Get": grpc.unary_stream_rpc_method_handler(streams.get),
        "Say": grpc.unary_unary_rpc_method_handler(streams.say),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("floor.Streams", handlers),))
    port = server.add_insecure_port(f"127.0.0.1:{sys.argv[1] if len(sys.argv) > 1 else 0}")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
