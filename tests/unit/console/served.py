# SPDX-License-Identifier: Apache-2.0
"""A whole console in this process, as a client of a real API server in this process, and a browser's half of HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import aiohttp

from handfast.assembly import console as assembly
from handfast.client import api, connection, transport
from handfast.console import looking, opening
from handfast.pki import names
from handfast.rules.diagnoses import facts
from handfast.runtime import addresses
from handfast.runtime import clock as clocks
from tests.unit.rules.diagnoses import known as known_facts
from tests.world import kubeconfigs
from tests.world import world as worlds

REOPEN = "Press Enter in the terminal"


class Reply:
    """An answer, read whole."""

    def __init__(self, answer: aiohttp.ClientResponse, text: str) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.text = text

    def form_token(self, path: str) -> str:
        """The token of the form of this page that is sent to `path`."""
        match = re.search(
            rf'action="{re.escape(path)}"[^>]*>\s*<input type="hidden" name="form-token" value="([^"]+)"', self.text
        )
        assert match is not None, f"no form for {path} in\n{self.text}"
        return match[1]


class Browser:
    """Somebody who opens pages: with a cookie once they have opened the console."""

    def __init__(self, base: str, codes: assembly.Running) -> None:
        self.base = base
        self.codes = codes
        self.cookie = ""
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())

    async def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Reply:
        sent = {"Cookie": self.cookie, "Sec-Fetch-Site": "same-origin", **(headers or {})}
        sent = {name: value for name, value in sent.items() if value}
        if method == "POST":
            sent.setdefault("Origin", self.base)
        async with self._session.request(
            method, self.base + path, headers=sent, allow_redirects=False, **options
        ) as answer:
            return Reply(answer, await answer.text())

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.request("GET", path, **options)

    async def post(self, path: str, form: Mapping[str, str], *, of: str, **options: Any) -> Reply:
        """Fill in the form of the page `of` and send it."""
        token = (await self.get(of)).form_token(path)
        return await self.request("POST", path, data={"form-token": token, **form}, **options)

    async def open(self) -> Reply:
        """By an address that works once."""
        reply = await self.get(f"/open?code={self.codes.code()}")
        self.cookie = reply.headers.get("Set-Cookie", "").partition(";")[0]
        return reply

    @contextlib.asynccontextmanager
    async def live(self, path: str, last: str = "") -> AsyncIterator[aiohttp.StreamReader]:
        """The live stream of a page."""
        headers = {"Cookie": self.cookie, **({"Last-Event-ID": last} if last else {})}
        async with self._session.get(f"{self.base}/live", params={"page": path}, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            yield answer.content

    async def until(self, path: str, question: Callable[[Reply], bool], seconds: float = 30.0) -> Reply:
        """The page, once it is as it should be: informers follow, and are never ahead."""
        async with asyncio.timeout(seconds):
            while not question(reply := await self.get(path)):
                await asyncio.sleep(0.05)
        return reply

    async def close(self) -> None:
        await self._session.close()


# A look that does not tell how far it is.
Look = Callable[[api.Client, connection.Connection], Awaitable[facts.Facts]]


async def well(_client: api.Client, _used: connection.Connection) -> facts.Facts:
    """A look at a control plane where all is well."""
    return known_facts.good()


def kubeconfig_of(world: worlds.World, path: pathlib.Path, name: str, *groups: str) -> pathlib.Path:
    """The kubeconfig of somebody with a certificate of this world's CA."""
    subject = names.Subject(common_name=name, organizations=groups)
    return kubeconfigs.of_subject(world.place, world.base, subject, path, world.clock.now())


def leading_to(world: worlds.World, kubeconfig: pathlib.Path | None = None, base: str = "") -> pathlib.Path:
    """A kubeconfig that reaches this world."""
    # The file names the port that the world was prepared for, which is not the one that it got.
    text = (kubeconfig or world.place.admin_kubeconfig).read_text()
    path = world.place.root.parent / "console.conf"
    path.write_text(re.sub(r"https://127\.0\.0\.1:\d+", base or world.base, text))
    return path


@contextlib.asynccontextmanager
async def client(world: worlds.World) -> AsyncIterator[api.Client]:
    """The administrator's own, beside the console's."""
    link = transport.Transport(connection.load(str(leading_to(world))), clock=clocks.SystemClock())
    try:
        yield api.Client(link)
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def console(
    world: worlds.World,
    *,
    look: Look = well,
    telling: assembly.Look | None = None,
    clock: clocks.Clock | None = None,
    kubeconfig: pathlib.Path | None = None,
    base: str = "",
) -> AsyncIterator[Browser]:
    """A console of this world, with a browser that has opened it."""

    async def looked(client: api.Client, used: connection.Connection, _tell: looking.Tell) -> facts.Facts:
        return await look(client, used)

    path = leading_to(world, kubeconfig, base)
    async with standing(path, telling or looked, clock or clocks.SystemClock()) as browser:
        await browser.open()
        yield browser


@contextlib.asynccontextmanager
async def standing(kubeconfig: pathlib.Path, look: assembly.Look, clock: clocks.Clock) -> AsyncIterator[Browser]:
    """A console with this kubeconfig, and a browser that has not opened it yet."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        options = assembly.Options(
            kubeconfigs=(str(kubeconfig),),
            listen=addresses.Address("127.0.0.1", sock.getsockname()[1]),
            key=opening.new_key(),
            reopen=REOPEN,
        )
        async with assembly.served(options, sock, look, clock) as codes:
            browser = Browser(options.base, codes)
            try:
                yield browser
            finally:
                await browser.close()
