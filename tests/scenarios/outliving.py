# SPDX-License-Identifier: Apache-2.0
"""Clients that outlive a server: they ask until they are answered, and watch on from the last version; nothing here is under test."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

import msgspec

from tests.scenarios import wire

# What ends with a server that dies: at any moment of a connection.
BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError)


class Client:
    """Asks a server, or the next one where there are several, as often as is needed."""

    def __init__(self, ports: tuple[int, ...], context: ssl.SSLContext) -> None:
        self.ports = ports
        self.context = context
        self.failures = 0

    async def ask(self, method: str, path: str, document: Any = None, tries: int = 200) -> wire.Reply:
        """The first answer that is not 429, 503 or a broken connection."""
        body = b"" if document is None else msgspec.json.encode(document)
        for number in range(tries):
            port = self.ports[number % len(self.ports)]
            with contextlib.suppress(*BROKEN):
                async with wire.line(port, self.context) as line:
                    reply = await line.ask(method, path, body, Content_Type="application/json")
                if reply.status not in {429, 503}:
                    return reply
            self.failures += 1
            await asyncio.sleep(0.1)
        raise AssertionError(f"{method} {path}: no answer")

    async def version_of(self, path: str) -> str:
        return str((await self.ask("GET", f"{path}?limit=1")).json()["metadata"]["resourceVersion"])


class Watcher:
    """Remembers the last version it saw, as client-go does, and comes back with it after every broken connection."""

    def __init__(self, client: Client, path: str, version: str, query: str = "") -> None:
        self._client = client
        self._path = f"{path}?watch=1&allowWatchBookmarks=true{query}"
        self.version = version
        self.names: list[str] = []
        self.relists = 0
        self.begun = 0

    async def follow(self, last: str) -> None:
        """Until the object `last` was seen, or the server says that the version is too old."""
        number = 0
        while last not in self.names and not self.relists:
            port = self._client.ports[number % len(self._client.ports)]
            number += 1
            with contextlib.suppress(*BROKEN):
                async with wire.line(port, self._client.context) as line:
                    await line.send(wire.request("GET", f"{self._path}&resourceVersion={self.version}"))
                    if (await line.reply(head_only=True)).status == 200:
                        self.begun += 1
                        await self._read(line, lambda: last in self.names)
            await asyncio.sleep(0.01)

    async def _read(self, line: wire.Line, is_done: Callable[[], bool]) -> None:
        async for part in line.chunks():
            for text in part.splitlines():
                event = msgspec.json.decode(text)
                if event["type"] == "ERROR":
                    self.relists += event["object"]["code"] == 410
                    return
                self.version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.names.append(event["object"]["metadata"]["name"])
            if is_done():
                return
