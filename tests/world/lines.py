# SPDX-License-Identifier: Apache-2.0
"""A TCP line between a server and its etcd that hangs when a test says so. It tests nothing."""

from __future__ import annotations

import asyncio

from handfast.runtime import addresses


class Line:
    """A line to an etcd that can hang: what is sent meanwhile arrives when it is let go, as far as it was held."""

    def __init__(self, upstream: addresses.Address) -> None:
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._up: asyncio.StreamWriter | None = None
        self._hangs = False
        self._closed_off = False
        self._held = bytearray()
        self.address = addresses.Address("127.0.0.1", 0)
        self._ends: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = addresses.Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    def hang(self) -> None:
        self._hangs = True

    def close_off(self) -> None:
        """From now on nothing more is held: not that the sender gave up."""
        self._closed_off = True

    @property
    def held(self) -> int:
        return len(self._held)

    async def let_go(self) -> None:
        assert self._up is not None
        self._up.write(bytes(self._held))
        await self._up.drain()

    async def heal(self) -> None:
        """What was held is lost with its connection, and the next one gets through."""
        self._hangs = False
        for end in self._ends:
            end.close()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for end in self._ends:
            end.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, up = await asyncio.open_connection(self._upstream.host, self._upstream.port)
        self._up = up
        self._ends += [writer, up]
        await asyncio.gather(self._forth(reader, up), self._back(back, writer), return_exceptions=True)

    async def _forth(self, reader: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if not self._hangs:
                up.write(data)
                await up.drain()
            elif not self._closed_off:
                self._held += data

    async def _back(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await back.read(1 << 16):
            if not self._hangs:
                writer.write(data)
                await writer.drain()
