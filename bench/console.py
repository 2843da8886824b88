# SPDX-License-Identifier: Apache-2.0
"""The console beside many nodes: what a page costs, a live update, an idle console, its memory; and what a browser says of it.

Two control planes, of few nodes and of many, each with a real `handfast console`. Every node has its Lease and its entry in the ledger. CPU is that of the console
alone. What it costs to write an update to one more browser is compared with the floor's broadcast of as many octets (`bench.floor`, which has TLS that the console
on loopback does not have).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from bench import load, measure, preload, servers, settings
from handfast.api import handfast_kinds, signer_names
from handfast.pki import names
from handfast.rules import user_names
from handfast.rules.ledger import entries, segments
from handfast.runtime import clock as clocks

PAGE_RATIO: Final = 3.0
LIVE_RATIO: Final = 1.5
IDLE_PER_CENT: Final = 1.0
MEMORY_MIB: Final = 60.0
_BYTES_A_NODE: Final = 1000
_ROWS: Final = 100
_PAGES: Final = 40
_BROWSERS: Final = 20
_UPDATES: Final = 6
_IDLE_SECONDS: Final = 30.0
_LONGEST_SECONDS: Final = 120.0
_SCROLLS: Final = 60
_DAY: Final = datetime.timedelta(days=1)
_LOGS: Final = handfast_kinds.ISSUANCE_LOG


def _name(number: int) -> str:
    return f"node-{number:05d}"


def fleet(count: int, now: datetime.datetime) -> Iterator[preload.Stored]:
    """Nodes that are seen, Leases that stay good for the run, and a ledger with a certificate of each."""
    for number in range(count):
        (resource, node), (lease_resource, lease) = preload.node(_name(number), {"zone": f"zone-{number % 9}"})
        renewed = (now + _DAY).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease["spec"] |= {"renewTime": renewed, "leaseDurationSeconds": 300}
        yield resource, node
        yield lease_resource, lease
    segment = segments.following(None)
    for start in range(0, count, segments.MAX_ENTRIES):
        numbers = range(start, min(count, start + segments.MAX_ENTRIES))
        segment = segments.extended(segment, [entries.encode(_entry(number, now)) for number in numbers])
        document = {
            "apiVersion": _LOGS.api_version,
            "kind": _LOGS.kind,
            "metadata": {"name": segment.name},
            "spec": segments.spec_of(segment),
        }
        yield (_LOGS.group, _LOGS.version, _LOGS.plural), document
        segment = segments.following(segment) if segment.sealed else segment


def _entry(number: int, now: datetime.datetime) -> entries.Entry:
    name = _name(number)
    digest = hashlib.sha256(name.encode()).hexdigest()
    issued = now - (number % 300) * _DAY
    return entries.Entry(
        issued_at=issued.replace(microsecond=0),
        not_after=(issued + 365 * _DAY).replace(microsecond=0),
        signer=signer_names.KUBELET_CLIENT,
        requester="system:bootstrap:abcdef",
        authenticated_by="bootstrap-token",
        token_id="abcdef",
        key_fingerprint=digest,
        serial=digest[:32],
        names=entries.names_of(user_names.node_subject(name), names.Sans()),
        rule=entries.JOIN,
        request=f"node-csr-{digest[:43]}",
        certificate=hashlib.sha256(digest.encode()).hexdigest(),
    )


@dataclass(frozen=True, slots=True)
class Console:
    """A console that runs, and a session of it."""

    base: str
    pid: int
    http: aiohttp.ClientSession
    cookie: str

    def meter(self) -> measure.Meter:
        return measure.Meter({"console": self.pid})

    async def get(self, path: str) -> str:
        async with self.http.get(self.base + path, headers={"Cookie": self.cookie}) as answer:
            text = await answer.text()
            if answer.status != 200:
                raise load.UnexpectedAnswer(f"{path} was answered with {answer.status}: {text[:300]}")
            return text


@contextlib.asynccontextmanager
async def _console(plane: servers.Server, nodes: int) -> AsyncIterator[Console]:
    """`handfast console` of a control plane, once it shows every node."""
    log = plane.place.root.with_suffix(".console.log")
    words = (
        "console",
        "--dir",
        plane.place.root,
        "--kubeconfig",
        plane.place.admin_kubeconfig,
        "--listen",
        "127.0.0.1:0",
    )
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handfast", *map(str, words), "-o", "json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
        )
    try:
        found = await _described(process)
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
            async with http.get(found["opens"], allow_redirects=False) as answer:
                cookie = answer.headers["Set-Cookie"].partition(";")[0]
            console = Console(found["console"], process.pid, http, cookie)
            async with asyncio.timeout(_LONGEST_SECONDS):
                while f"{nodes:,} nodes, none" not in await console.get("/nodes"):
                    await asyncio.sleep(0.5)
            await measure.settle((process.pid,))
            yield console
    finally:
        await servers.stop(process)


async def _described(process: asyncio.subprocess.Process) -> dict[str, str]:
    text = ""
    while process.stdout is not None and (line := await process.stdout.readline()):
        text += line.decode()
        with contextlib.suppress(ValueError):
            found: dict[str, str] = json.loads(text)
            return found
    raise load.UnexpectedAnswer(f"`handfast console` has ended: {text}")


async def console(run: settings.Run) -> list[measure.Figure]:
    """The figures of the console."""
    sizes, now = run.sizes, clocks.SystemClock().now()
    few, many = run.directory / "console-few", run.directory / "console-many"
    preload.write(few, fleet(sizes.few_nodes, now))
    preload.write(many, fleet(sizes.many_nodes, now))
    async with (
        servers.plane(few) as beside_few,
        servers.plane(many) as beside_many,
        _console(beside_few, sizes.few_nodes) as small,
        _console(beside_many, sizes.many_nodes) as large,
    ):
        empty = measure.pss(small.pid) / measure.MIB
        return [
            *await _pages(run, small, large),
            *await _live(run, beside_few, small),
            *await _idle(sizes, large),
            measure.Figure("console.memory.few", f"  PSS of that of {sizes.few_nodes}", "MiB", [empty]),
            *await _browser(sizes, large),
        ]


async def _pages(run: settings.Run, small: Console, large: Console) -> list[measure.Figure]:
    used: dict[str, list[tuple[float, float]]] = {}
    middle = run.sizes.many_nodes // 2
    for title, few, many in (
        ("page", f"/nodes?count={_ROWS}", f"/nodes?count={_ROWS}"),
        ("rows", f"/nodes/rows?from=0&count={_ROWS}", f"/nodes/rows?count={_ROWS}&from={middle}"),
        ("filter", f"/nodes/rows?from=0&count={_ROWS}&filter=node", f"/nodes/rows?from=0&count={_ROWS}&filter=node"),
        ("ledger", f"/ledger/rows?from=0&count={_ROWS}", f"/ledger/rows?count={_ROWS}&from={middle}"),
    ):
        for number in range(run.sizes.rounds + 1):
            round_ = [await _each(console, path) for console, path in ((small, few), (large, many))]
            if number:
                used.setdefault(title, []).append((round_[0], round_[1]))
    found = []
    for title, rounds in used.items():
        limit = PAGE_RATIO if title == "page" else None
        about = f"console, {title}: {_ROWS} of {run.sizes.many_nodes:,}, CPU ÷ that of {run.sizes.few_nodes}"
        found.append(measure.Figure(f"console.{title}", about, "×", [many / few for few, many in rounds], limit))
        found.append(measure.Figure(f"console.{title}.cpu", "  CPU", "ms", [many * 1e3 for _, many in rounds]))
    return found


async def _each(console: Console, path: str) -> float:
    async with console.meter() as meter:
        for _ in range(_PAGES):
            await console.get(path)
    return meter.total / _PAGES


# --- live updates


async def _live(run: settings.Run, plane: servers.Server, console: Console) -> list[measure.Figure]:
    """An update to many browsers beside one to one: nodes come and go, and the counts of the page with them."""
    one, several = [], []
    for number in range(run.sizes.rounds + 1):
        alone = await _updates(plane, console, 1)
        together = await _updates(plane, console, _BROWSERS)
        if number:
            one.append(alone)
            several.append(together)
    write = await _floor_write(plane)
    allowed = [LIVE_RATIO * each + _BROWSERS * write for each in one]
    title = f"live update to {_BROWSERS} pages: CPU ÷ ({LIVE_RATIO:g} × that to one + {_BROWSERS} writes of the floor)"
    return [
        measure.Figure("console.live", title, "×", measure.ratios(several, allowed), 1.0),
        measure.Figure("console.live.one", "  CPU of an update to one page", "ms", [each * 1e3 for each in one]),
        measure.Figure("console.live.many", f"  … to {_BROWSERS}", "ms", [each * 1e3 for each in several]),
        measure.Figure("console.live.write", "  a write of the floor", "µs", [write * 1e6]),
    ]


async def _updates(plane: servers.Server, console: Console, browsers: int) -> float:
    """CPU of one update to so many browsers, without what following the nodes costs by itself."""
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(_stream(console)) for _ in range(browsers)]
        for stream in streams:
            await _heard(stream)
        async with console.meter() as meter:
            for number in range(_UPDATES):
                await _toggle(plane, number)
                await asyncio.gather(*map(_heard, streams))
        return meter.total / _UPDATES


@contextlib.asynccontextmanager
async def _stream(console: Console, page: str = "/nodes") -> AsyncIterator[aiohttp.StreamReader]:
    address, headers = f"{console.base}/live?page={page}", {"Cookie": console.cookie}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as http, http.get(address, headers=headers) as answer:
        if answer.status != 200:
            raise load.UnexpectedAnswer(f"/live was answered with {answer.status}")
        yield answer.content


async def _heard(stream: aiohttp.StreamReader) -> None:
    """Until one update is there whole."""
    async with asyncio.timeout(_LONGEST_SECONDS):
        while True:
            line = await stream.readline()
            if line.startswith(b"event: upto"):
                return


async def _toggle(plane: servers.Server, number: int) -> None:
    body = json.dumps({"metadata": {"name": "newcomer"}}).encode()
    create, delete = load.send("POST", "/api/v1/nodes", body), load.send("DELETE", "/api/v1/nodes/newcomer", b"{}")
    status, answer = await load.exchange(plane.port, plane.context, delete if number % 2 else create)
    if status not in {200, 201}:
        raise load.UnexpectedAnswer(f"a node: {status} {answer[:200]!r}")


async def _floor_write(plane: servers.Server) -> float:
    """What the floor takes to write so many octets to one more connection."""
    body = b"x" * 2000
    async with servers.floor(plane, body) as floor:
        alone = await _broadcasts(floor, 0)
        return max(0.0, (await _broadcasts(floor, _BROWSERS) - alone) / _BROWSERS)


async def _broadcasts(floor: servers.Server, watchers: int) -> float:
    times = 100
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(watchers):
            reader, writer = await asyncio.open_connection("127.0.0.1", floor.port, ssl=floor.context)
            stack.callback(writer.close)
            writer.write(load.get("/watch"))
            task = asyncio.create_task(_drain(reader))
            stack.callback(task.cancel)
        async with floor.meter() as meter:
            for _ in range(times):
                await load.exchange(floor.port, floor.context, load.send("POST", "/broadcast", b"{}"))
        return meter.total / times


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


# --- nothing happens


async def _idle(sizes: settings.Sizes, console: Console) -> list[measure.Figure]:
    """With the overview open, which people leave open: it looks at the control plane twice a minute."""
    shares = []
    await console.get("/")
    async with _stream(console, "/") as stream:
        await _heard(stream)
        task = asyncio.create_task(_drained(stream))
        await measure.settle((console.pid,))
        for _ in range(2):
            before, begun = measure.cpu_seconds(console.pid), time.monotonic()
            await asyncio.sleep(_IDLE_SECONDS)
            shares.append(100 * (measure.cpu_seconds(console.pid) - before) / (time.monotonic() - begun))
        task.cancel()
    memory = [(measure.pss(console.pid) - _BYTES_A_NODE * sizes.many_nodes) / measure.MIB]
    return [
        measure.Figure(
            "console.idle",
            f"idle, {sizes.many_nodes:,} nodes and the overview open: share of a core",
            "%",
            shares,
            IDLE_PER_CENT,
        ),
        measure.Figure(
            "console.memory", f"console of {sizes.many_nodes:,} nodes: PSS less 1 kB a node", "MiB", memory, MEMORY_MIB
        ),
    ]


async def _drained(stream: aiohttp.StreamReader) -> None:
    while await stream.readany():
        pass


# --- a browser

_LONG_TASKS: Final = """
window.longest = 0;
new PerformanceObserver((list) => { for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration); }).observe({ type: "longtask" });
"""


async def _browser(sizes: settings.Sizes, console: Console) -> list[measure.Figure]:
    """What Chromium says of the page; nothing where there is none."""
    path = shutil.which("chromium")
    if path is None:
        return []
    from playwright import async_api as playwright

    paints, longest = [], []
    async with playwright.async_playwright() as driver:
        words = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = await driver.chromium.launch(executable_path=path, args=words)
        for _ in range(sizes.rounds):
            context = await browser.new_context(base_url=console.base)
            name, _, value = console.cookie.partition("=")
            await context.add_cookies([{"name": name, "value": value, "url": console.base}])
            page = await context.new_page()
            await page.goto("/nodes")
            paints.append(await _painted(page))
            longest.append(await _scrolled(page))
            await context.close()
        await browser.close()
    return [
        measure.Figure(
            "console.paint", f"Chromium: first paint with {sizes.many_nodes:,} nodes (aim 300)", "ms", paints
        ),
        measure.Figure("console.scroll", "  longest task while scrolling (aim 50; 0: none was long)", "ms", longest),
    ]


async def _painted(page: Any) -> float:
    expression = "() => (performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime"
    await page.wait_for_function(expression)
    return float(await page.evaluate(expression))


async def _scrolled(page: Any) -> float:
    await page.wait_for_selector(".window tr[data-key]")
    await page.evaluate(_LONG_TASKS)
    await page.hover(".window")
    for _ in range(_SCROLLS):
        await page.mouse.wheel(0, 2500)
        await page.wait_for_timeout(50)
    return float(await page.evaluate("window.longest"))
