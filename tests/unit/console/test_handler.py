# SPDX-License-Identifier: Apache-2.0
"""The way of a request: without a session there is nothing to see, forms do nothing without their token, and whatever goes wrong is a sentence."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import io
import logging
import pathlib
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from handfast import errors
from handfast.client import api, connection
from handfast.console import live, looking
from handfast.console.pages import overview
from handfast.rules import check
from handfast.rules.console import token_forms
from handfast.rules.diagnoses import facts
from handfast.telemetry import log
from tests.unit.console import between, served
from tests.unit.rules.diagnoses import known as known_facts
from tests.world import world as worlds

MARKUP = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


async def test_the_overview_is_a_whole_page(browser: served.Browser):
    reply = await browser.get("/")
    assert reply.status == 200
    assert "Nothing needs you" in reply.text
    assert "What expires, next 30 days" in reply.text
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert reply.headers["Cache-Control"] == "no-store"


async def test_an_address_opens_one_browser_and_leaves_no_code(browser: served.Browser):
    browser.cookie = ""
    code = browser.codes.code()
    opened = await browser.get(f"/open?code={code}", headers={"Sec-Fetch-Site": "none"})
    assert (opened.status, opened.headers["Location"], opened.text) == (303, "/", "")
    assert opened.headers["Referrer-Policy"] == "no-referrer"
    again = await browser.get(f"/open?code={code}")
    assert again.status == 400
    assert "only once" in again.text
    assert served.REOPEN in again.text
    assert "Set-Cookie" not in again.headers
    assert code not in again.text


async def test_a_head_uses_no_code_up(browser: served.Browser):
    browser.cookie = ""
    code = browser.codes.code()
    assert (await browser.request("HEAD", f"/open?code={code}")).status == 401
    assert (await browser.get(f"/open?code={code}")).status == 303


async def test_without_a_session_there_is_one_page(browser: served.Browser):
    browser.cookie = ""
    for path in ("/", "/nothing", "/live", "/nodes/rows"):
        reply = await browser.get(path)
        assert reply.status == 401
        assert served.REOPEN in reply.text
        assert "Nothing needs you" not in reply.text
    assert (await browser.get("/livez")).text == "ok\n"
    assert (await browser.get("/static/console.css")).status == 200
    for path in ("/static/../handler.py", "/static/%2e%2e/handler.py", "/static/nothing.js"):
        assert (await browser.get(path)).status in {401, 404}


async def test_another_site_has_nothing_sent(browser: served.Browser):
    led = await browser.get("/", headers={"Sec-Fetch-Site": "cross-site"})
    assert (led.status, "You came from another site" in led.text) == (200, True)
    assert "Nothing needs you" not in led.text
    for headers in ({"Host": "evil.example"}, {"Host": "evil.example:80"}):
        assert (await browser.get("/", headers=headers)).status == 421
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        reply = await browser.post("/sign-out", {}, of="/", headers=headers)
        assert (reply.status, "OriginNotOurs" in reply.text) == (403, True)
    assert (await browser.get("/")).status == 200


async def test_a_form_without_its_token_does_nothing(browser: served.Browser):
    reply = await browser.request("POST", "/sign-out", data={"form-token": "0" * 64})
    assert (reply.status, "FormNotOurs" in reply.text) == (400, True)
    assert (await browser.get("/")).status == 200
    signed_out = await browser.post("/sign-out", {}, of="/")
    assert signed_out.status == 200
    assert "Max-Age=0" in signed_out.headers["Set-Cookie"]
    assert (await browser.get("/")).status == 401


async def test_a_form_that_cannot_be_read_is_a_sentence(browser: served.Browser):
    token = (await browser.get("/")).form_token("/sign-out")
    bodies = {
        b"form-token=%ff": "cannot be read",
        b"form-token=a&form-token=b": "comes twice",
        f"form-token={token}&".encode() + b"x" * 70_000: "too large",
    }
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for body, sentence in bodies.items():
        reply = await browser.request("POST", "/sign-out", data=body, headers=form)
        assert reply.status in {400, 413}
        assert sentence in reply.text
    assert "A form is sent as" in (await browser.request("POST", "/sign-out", json={})).text
    assert (await browser.request("POST", "/nothing", data={"form-token": "x"})).status == 400


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        ("/nothing", 404, "NotFound"),
        ("/nothing/at/all", 404, "NotFound"),
        ("/?from=x", 400, "BadQuestion"),
        ("/?filter=" + "x" * 300, 400, "BadQuestion"),
    ],
)
async def test_what_is_not_there_is_a_sentence(browser: served.Browser, path: str, code: int, reason: str):
    reply = await browser.get(path)
    assert (reply.status, reason in reply.text) == (code, True)


async def test_what_nobody_expected_is_a_sentence(browser: served.Browser, monkeypatch, caplog):
    def fail(_known: object) -> None:
        raise KeyError("a secret of the code")

    monkeypatch.setattr(overview, "judge", fail)
    reply = await browser.get("/")
    assert (reply.status, "InternalError" in reply.text) == (500, True)
    assert "secret" not in reply.text
    assert "Traceback" not in reply.text


async def test_no_code_and_no_cookie_is_logged(world: worlds.World):
    written = io.BytesIO()
    log.configure(level="debug", stream=written)
    logging.getLogger().setLevel(logging.DEBUG)
    async with served.console(world) as browser:
        code = browser.codes.code()
        for path in (f"/open?code={code}", f"/open?code={code}", "/", "/nothing?x=1"):
            await browser.get(path)
    assert code.encode() not in written.getvalue()
    assert browser.cookie.partition("=")[2].encode() not in written.getvalue()


async def test_a_session_ends_while_its_stream_is_open(browser: served.Browser):
    async with browser.live("/") as stream:
        await stream.readuntil(b"event: upto")
        await browser.post("/sign-out", {}, of="/")
        async with asyncio.timeout(30):
            assert b"event: ended" in await stream.readuntil(b"event: ended")


async def test_a_stream_says_what_changed_and_goes_on_where_it_was(world: worlds.World, monkeypatch):
    monkeypatch.setattr(looking, "_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(live, "AGAIN_SECONDS", 0.05)
    seen = [known_facts.good(), known_facts.good(stranger=403)]

    async def look(_client: api.Client, _used: connection.Connection) -> facts.Facts:
        return seen.pop(0) if len(seen) > 1 else seen[0]

    async with served.console(world, look=look) as browser, browser.live("/") as stream:
        first = await stream.readuntil(b"event: upto")
        assert b"Nothing needs you" in first
        last = first.decode().rpartition("id: ")[2].partition("\n")[0]
        async with asyncio.timeout(60):
            changed = await stream.readuntil(b"1 thing needs somebody")
        assert b"data: needing" in changed
        async with browser.live("/", last) as again:
            assert b"1 thing needs somebody" in await again.readuntil(b"event: upto")


async def test_markup_that_a_stranger_wrote_stays_text(world: worlds.World):
    hostile = check.Unread(f"{MARKUP}\u202e", check.TIMEOUT, MARKUP)

    async def look(_client: api.Client, _used: connection.Connection) -> facts.Facts:
        return known_facts.good(tokens=hostile, webhooks=[facts.Hook(MARKUP, MARKUP, False, MARKUP)])

    async with served.console(world, look=look) as browser:
        reply = await browser.get("/")
        assert "<script>alert" not in reply.text
        assert "<img src=x" not in reply.text
        assert "&lt;script&gt;alert(1)" in reply.text
        assert "U+202E" in reply.text
        for path in (f"/{MARKUP}", f"/?filter={MARKUP}", f"/?{MARKUP}={MARKUP}", f"/open?code={MARKUP}"):
            reply = await browser.get(path, headers={"User-Agent": MARKUP.replace('"', "")})
            assert "<script>alert" not in reply.text
            assert "<img src=x" not in reply.text


# --- what is in the way of the API


async def test_what_may_not_be_read_is_named_with_its_binding(world: worlds.World, tmp_path: pathlib.Path):
    limited = served.kubeconfig_of(world, tmp_path / "limited.conf", "anna", "system:authenticated")
    async with served.console(world, kubeconfig=limited) as browser:
        reply = await browser.until("/", lambda page: "You may not read" in page.text)
        assert "You may not read <" not in reply.text
        assert "You may not read Events of failed joins." in reply.text
        assert "kubectl create role handfast-console:events --namespace=kube-system" in reply.text
        assert "--user=anna" in (await browser.until("/", lambda page: "--user=anna" in page.text)).text
        assert "Revocations" in reply.text


async def test_a_server_that_is_gone_leaves_what_was_known_with_its_age(world: worlds.World):
    async with served.console(world) as browser:
        await browser.get("/")
        await world.server.stop()
        await browser.until("/", lambda page: "The API server does not answer" in page.text)
        # Of one kind first, then of all.
        reply = await browser.until("/", lambda page: "What is shown was known before that." in page.text)
        assert "since <time" in reply.text
        assert "When it was last looked at, nothing was found." in reply.text
        assert "Nothing needs you" not in reply.text


@contextlib.asynccontextmanager
async def turning_down(code: int) -> AsyncIterator[str]:
    """An API server that answers everything with one code."""

    async def refuse(_request: web.BaseRequest) -> web.Response:
        return web.json_response(
            {"kind": "Status", "code": code, "message": f"no, {code}", "reason": ""},
            status=code,
            headers={"Retry-After": "1"},
        )

    runner = web.ServerRunner(web.Server(refuse))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (429, "turns requests down"),
        (503, "turns requests down"),
        (401, "does not know your credentials"),
        (410, "being read"),
    ],
)
async def test_a_server_that_turns_requests_down_is_told(
    world: worlds.World, tmp_path: pathlib.Path, code: int, sentence: str
):
    async with turning_down(code) as url:
        path = between.config_of(url, tmp_path / "busy.conf")
        async with served.console(world, kubeconfig=path, base=url) as browser:
            reply = await browser.until("/", lambda page: sentence in page.text)
            assert reply.status == 200
            if code != 410:
                assert "checks could not be made</h1>" in reply.text
                assert "Nothing needs you" not in reply.text
                assert "was read so far." in reply.text
                assert re.search(r'id="live"[^>]*>not live since \d\d:\d\d:\d\d UTC', reply.text)


# What would calm somebody, and is only said where it was looked.
CALMING = (
    *("Nothing needs you", "in order", "No request waits", "No token lets", "Nobody was refused", "There are no"),
    *("none of which needs", "This cluster has no", "is empty", "There is no mesh", "Nothing is hidden", "no Machine"),
    *("was known before that", "No Pod has", "Nobody was seen", "Every check is well", '<td class="number">0</td>'),
    *('count">0<', "0 in 0 segments", "0 nodes", "0 machines"),
)
EVERY_LIST = ("/", "/requests", "/tokens", "/nodes", "/machines", "/mesh", "/mesh/workloads", "/mesh/edges", "/ledger")


@contextlib.asynccontextmanager
async def seeing_nothing(world: worlds.World, way: str, place: pathlib.Path) -> AsyncIterator[served.Browser]:
    """A console that can read nothing at all."""
    unread = check.Unread("it could not be read")

    async def look(_client: api.Client, _used: connection.Connection) -> facts.Facts:
        return known_facts.good(nodes=unread, requests=unread, tokens=unread)

    async with contextlib.AsyncExitStack() as stack:
        if way == "rightless":
            path, base = served.kubeconfig_of(world, place / "anna.conf", "anna", "system:authenticated"), ""
        elif way == "stranger":
            base = await stack.enter_async_context(turning_down(401))
            path = between.config_of(base, place / "stranger.conf")
        else:
            base = "http://127.0.0.1:1"
            path = between.config_of(base, place / "nobody.conf")
        yield await stack.enter_async_context(served.console(world, look=look, kubeconfig=path, base=base))


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ("rightless", "You may not read"),
        ("stranger", "does not know your credentials"),
        ("unreachable", "The API server does not answer"),
    ],
)
async def test_where_nothing_could_be_read_no_page_says_that_all_is_well(
    world: worlds.World, tmp_path: pathlib.Path, way: str, sentence: str
):
    async with seeing_nothing(world, way, tmp_path) as browser:
        for path in EVERY_LIST:
            # Forbidden are kinds one by one, and each at its own time.
            page = await browser.until(path, lambda reply: sentence in reply.text and "is being read" not in reply.text)
            calming = [words for words in CALMING if words in page.text]
            assert (page.status, calming) == (200, []), path
        overview = (await browser.get("/")).text
        assert re.search(r"<h1[^>]*>[1-9]\d* of \d+ checks could not be made", overview)
        assert overview.count('<td class="number">–</td>') == 4


async def test_clocks_that_differ_are_told(world: worlds.World):
    async def look(_client: api.Client, _used: connection.Connection) -> facts.Facts:
        return known_facts.good(reach=known_facts.reach(ahead=datetime.timedelta(minutes=-3)))

    async with served.console(world, look=look) as browser:
        # On every page, whichever is opened first.
        reply = await browser.until("/nodes", lambda page: "Clocks differ" in page.text)
        assert "3 min behind" in reply.text


async def test_too_many_streams_are_turned_away_with_a_sentence(browser: served.Browser, monkeypatch):
    monkeypatch.setattr(live, "OF_ONE_SESSION", 1)
    async with browser.live("/"):
        reply = await browser.get("/live?page=/")
        assert (reply.status, "TooManyStreams" in reply.text) == (503, True)
        # A page can be read all the same.
        assert (await browser.get("/")).status == 200


@pytest.mark.parametrize("back", ["//evil.example/", "/\\evil.example", "/ok\r\nX: y"])
async def test_a_form_does_not_say_where_to_go_on(browser: served.Browser, monkeypatch: pytest.MonkeyPatch, back: str):
    """What was refused is told on a page of ours, whatever is written in the form."""

    def refuse(_form: object) -> None:
        raise errors.Refused("it may not be", reason="Forbidden")

    monkeypatch.setattr(token_forms, "read", refuse)
    form = {"number": "a" * 22, "back": back}
    reply = await browser.post("/tokens/new", form, of="/tokens/new")
    assert (reply.status, reply.headers["Location"]) == (303, "/tokens/new")
    assert "Not done: it may not be" in (await browser.get("/tokens/new")).text


async def test_a_look_that_fails_unexpectedly_is_told_and_tried_again(
    world: worlds.World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(looking, "_PAUSE_SECONDS", 0.2)
    failures = [ValueError("what no rule can read")]

    async def look(_client: api.Client, _used: connection.Connection) -> facts.Facts:
        for error in failures:
            raise error
        return known_facts.good()

    async with served.console(world, look=look) as browser:
        await browser.until("/", lambda reply: "the look failed" in reply.text)
        failures.clear()
        await browser.until("/", lambda reply: "Nothing needs you" in reply.text)
