# SPDX-License-Identifier: Apache-2.0
"""Something between the console and its API server, which hands requests on and can be told to spoil some of them: as balancers, proxies and bad days do."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import email.utils
import pathlib
import ssl
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from handfast.bootstrap import kubeconfig
from handfast.datadir import layout
from handfast.runtime import clock as clocks
from handfast.runtime import tls
from tests.world import world as worlds

# As an API server names them.
REASONS = {410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


class Between:
    """Hands on what it is asked, as the administrator."""

    def __init__(self, base: str, session: aiohttp.ClientSession) -> None:
        self._base = base
        self._session = session
        self.url = ""
        # What follows the first page of a list of this kind is answered with this code; none: it is handed on.
        self.plural = ""
        self.code = 0
        # Texts that are put into the place of others in lists of this kind.
        self.changes: dict[str, str] = {}
        self.refused = 0
        # How many objects a page of a list has; empty: as many as were asked for.
        self.limit = "1"
        # Every request is answered with this code; none: it is handed on.
        self.everything = 0
        # By how much its clock is ahead.
        self.ahead = datetime.timedelta()
        self._watched: set[asyncio.Transport] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def hang(self) -> None:
        """Answer nobody, and end nothing."""
        self._flowing.clear()

    def turn_down(self, code: int) -> None:
        """Answer everything with this code, and end every watch."""
        self.everything = code
        for each in self._watched:
            each.abort()

    def go_on(self) -> None:
        """Hand on what comes, at the right time."""
        self.everything, self.ahead = 0, datetime.timedelta()
        self._flowing.set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._flowing.wait()
        answer = await self._answer(request) if not self.everything else self._refusal(self.everything)
        if not answer.prepared:
            date = clocks.SystemClock().now() + self.ahead
            answer.headers["Date"] = email.utils.format_datetime(date, usegmt=True)
        return answer

    def _refusal(self, code: int) -> web.Response:
        self.refused += 1
        body = {"kind": "Status", "code": code, "message": f"no, {code}", "reason": REASONS[code]}
        return web.json_response(body, status=code, headers={"Retry-After": "1"})

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        query = dict(request.query)
        is_list = request.method == "GET" and request.path.endswith(f"/{self.plural}") and "watch" not in query
        if is_list and self.code and "continue" in query:
            return self._refusal(self.code)
        if self.limit and "limit" in query:
            query["limit"] = self.limit
        headers = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
        async with self._session.request(
            request.method, self._base + request.path, params=query, headers=headers, data=await request.read()
        ) as answer:
            if "watch" not in query:
                text = await answer.text()
                for old, new in self.changes.items() if is_list else ():
                    text = text.replace(old, new)
                return web.Response(text=text, status=answer.status, content_type=answer.content_type)
            handed = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await handed.prepare(request)
            await self._watch(request, answer.content, handed)
            return handed

    async def _watch(self, request: web.BaseRequest, content: aiohttp.StreamReader, handed: web.StreamResponse) -> None:
        there = request.transport
        assert there is not None
        self._watched.add(there)
        # Whoever was cut off takes no more.
        with contextlib.suppress(ConnectionError):
            async for chunk in content.iter_any():
                await self._flowing.wait()
                await handed.write(chunk)
        self._watched.discard(there)


@contextlib.asynccontextmanager
async def between(world: worlds.World, plural: str = "nodes") -> AsyncIterator[Between]:
    """… while the block runs; its `url` is plain HTTP, and lists come in pages of one."""
    async with in_front_of(world.place, world.base, None) as made:
        made.plural = plural
        yield made


@contextlib.asynccontextmanager
async def in_front_of(place: layout.Layout, base: str, served: ssl.SSLContext | None) -> AsyncIterator[Between]:
    """… of the API server of a data directory."""
    admin = kubeconfig.parse(place.admin_kubeconfig.read_text())
    assert admin.user is not None
    context = tls.client_context(
        admin.cluster.certificate_authority_data, admin.user.client_certificate_data, admin.user.client_key_data
    )
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        made = Between(base, session)
        runner = web.ServerRunner(web.Server(made.answer), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served)
        await site.start()
        made.url = f"{'http' if served is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield made
        finally:
            made.go_on()
            await runner.cleanup()


def config_of(url: str, path: pathlib.Path) -> pathlib.Path:
    """A kubeconfig of a server that asks nobody who they are."""
    path.write_text(
        f"apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: '{url}'}}}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: t}}]\n"
    )
    return path
