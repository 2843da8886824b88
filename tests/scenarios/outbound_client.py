# SPDX-License-Identifier: Apache-2.0
"""What an application says to the outbound port of its proxy, and what comes back. Who is where, others know."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.scenarios import envoy_world


class Client:
    """Asks at a port of this machine, each time on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def get(self, host: str, **headers: str) -> tuple[int, dict[str, str], dict[str, Any]]:
        async with envoy_world.http1(self.port) as connection:
            return await connection.get(host=host, **headers)

    async def why_not(self, host: str, **headers: str) -> tuple[int, str]:
        """The status of a refusal, and its reason."""
        status, answer, _ = await self.get(host, **headers)
        return status, answer.get("l5d-proxy-error", "")

    async def connect(self, authority: str, data: bytes, *, enough: int = 0, **headers: str) -> tuple[int, bytes]:
        """The status of a tunnel, and what comes back through it: as many octets as were sent, or `enough`."""
        rows = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(envoy_world.SECONDS):
                writer.write(f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n{rows}\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                status = int(head.split()[1])
                if status != 200:
                    return status, head
                writer.write(data)
                return status, await reader.readexactly(enough or len(data))
        finally:
            writer.close()
