# SPDX-License-Identifier: Apache-2.0
"""Something between the console and its API server, which hands requests on and can be told to spoil some of them: as balancers, proxies and bad days do."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from handfast.bootstrap import kubeconfig
from handfast.runtime import tls
from tests.world import world as worlds


class Between:
    """Hands on what it is asked, as the administrator. Lists come in pages of one."""

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
        self._flowing = asyncio.Event()
        self._flowing.set()

    def hang(self) -> None:
        """Answer nobody, and end nothing."""
        self._flowing.clear()

    def go_on(self) -> None:
        self._flowing.set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._flowing.wait()
        query = dict(request.query)
        is_list = request.method == "GET" and request.path.endswith(f"/{self.plural}") and "watch" not in query
        if is_list and self.code and "continue" in query:
            self.refused += 1
            body = {"kind": "Status", "code": self.code, "message": f"no, {self.code}", "reason": "Expired"}
            return web.json_response(body, status=self.code, headers={"Retry-After": "1"})
        if "limit" in query:
            query["limit"] = "1"
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
            async for chunk in answer.content.iter_any():
                await self._flowing.wait()
                await handed.write(chunk)
            return handed


@contextlib.asynccontextmanager
async def between(world: worlds.World, plural: str = "nodes") -> AsyncIterator[Between]:
    """… while the block runs; its `url` is plain HTTP."""
    place = world.place
    admin = kubeconfig.parse(place.admin_kubeconfig.read_text())
    assert admin.user is not None
    context = tls.client_context(
        admin.cluster.certificate_authority_data, admin.user.client_certificate_data, admin.user.client_key_data
    )
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        made = Between(world.base, session)
        made.plural = plural
        runner = web.ServerRunner(web.Server(made.answer), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
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
