# SPDX-License-Identifier: Apache-2.0
"""The console in a real browser, on a real control plane: opening it, its first page, and what no other site can do to it."""

from __future__ import annotations

import contextlib
import os
import re
import signal

import pytest
from playwright import sync_api as playwright

from tests.scenarios import console_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
expect = playwright.expect


def test_an_address_opens_one_browser(looker: console_world.Looker, console: console_world.Console):
    address = console.address()
    first = looker.context(signed_in=False).new_page()
    first.goto(address)
    # No code is left: neither in the address, nor for the pages that follow.
    assert first.url == f"{console.base}/"
    expect(first.get_by_role("heading", level=1)).to_be_visible()
    assert first.evaluate("document.cookie") == ""
    assert first.evaluate("document.referrer") == ""
    second = looker.context(signed_in=False).new_page()
    second.goto(address)
    expect(second.get_by_role("heading", level=1)).to_have_text(re.compile("only once"))
    expect(second.get_by_text("handfast console --url")).to_be_visible()
    looker.picture(second, "opening-used")
    console_world.require_accessible(second)
    second.emulate_media(color_scheme="dark")
    second.set_viewport_size(console_world.PHONE)
    second.goto("/")
    expect(second.get_by_role("heading", level=1)).to_have_text("This browser is not signed in")
    looker.picture(second, "opening-phone-dark")
    console_world.require_accessible(second)
    console_world.require_no_sideways_scroll(second)
    # The first one goes on, until it signs out.
    console_world.tab_to(first, "Sign out")
    first.keyboard.press("Enter")
    expect(first.get_by_role("heading", level=1)).to_have_text("This browser is not signed in")


def test_everything_is_reached_by_keys(looker: console_world.Looker):
    page = looker.page("/", reduced_motion="reduce")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_be_visible()
    looker.picture(page, "overview-keys")
    console_world.require_accessible(page)
    for key in ("/", "Enter", "?", "+"):
        expect(keys.locator("kbd", has_text=key).first).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    # An instant shows when exactly, on focus.
    page.locator("time[tabindex]").first.focus()
    assert "UTC" in page.evaluate("getComputedStyle(document.activeElement, '::after').content")


def test_what_changes_is_shown_and_a_lost_stream_is_told(looker: console_world.Looker, console: console_world.Console):
    wire = console_world.Wire(console.base)
    page = looker.page("/", proxy={"server": wire.url, "bypass": "<-loopback>"})
    page.locator("#live.on").wait_for()
    wire.cut()
    expect(page.locator("#live")).to_contain_text("not live since", timeout=60_000)
    looker.picture(page, "overview-not-live")
    wire.mend()
    # It goes on by itself, and has what changed meanwhile.
    page.locator("#live.on").wait_for()
    request = console_world.csr("console-waits")
    assert console.plane.call("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", request)[0] == 201
    try:
        expect(page.locator("#needing")).to_contain_text("console-waits", timeout=90_000)
        looker.picture(page, "overview-needing")
        console_world.require_accessible(page)
    finally:
        console.plane.call("DELETE", "/apis/certificates.k8s.io/v1/certificatesigningrequests/console-waits")
        wire.close()


def test_another_site_cannot_have_anything_done(looker: console_world.Looker, console: console_world.Console):
    cookie = console.cookie()
    signed_in = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    host = console.base.removeprefix("http://")
    assert console.request("GET", "/", {**signed_in, "Host": host})[0] == 200
    assert console.request("GET", "/", {**signed_in, "Host": "evil.example"})[0] == 421
    form = {**signed_in, "Host": host, "Content-Type": "application/x-www-form-urlencoded"}
    forged = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert console.request("POST", "/sign-out", {**form, **forged}, "form-token=x")[0] == 403
    assert console.request("POST", "/sign-out", {**form, "Origin": console.base}, "form-token=x")[0] == 400
    # In a browser: a name of somebody else's that leads here,
    rebound = looker.context().new_page()
    answer = rebound.goto(f"http://{console_world.REBOUND}:{host.rpartition(':')[2]}/")
    assert answer is not None
    assert answer.status == 421
    # and a page of another origin, with a form, a frame and a script of its own.
    page = looker.context().new_page()
    hostile = (
        f"<form id=f method=post action='{console.base}/sign-out'><input name=form-token value=x></form>"
        f"<iframe id=i src='{console.base}/'></iframe>"
    )
    page.route("http://evil.example/", lambda route: route.fulfill(body=hostile, content_type="text/html"))
    page.goto("http://evil.example/")
    assert page.evaluate(f"fetch('{console.base}/').then(() => 'read', () => 'kept')") == "kept"
    # What is in the frame is the browser's own page, which says that it was refused.
    assert page.frame_locator("#i").locator(".brand").count() == 0
    with page.expect_response(lambda answer: answer.request.method == "POST") as posted:
        page.evaluate("document.getElementById('f').submit()")
    assert posted.value.status == 403
    assert console.request("GET", "/", {**signed_in, "Host": host})[0] == 200


def test_an_api_server_that_hangs_is_not_called_live(looker: console_world.Looker, console: console_world.Console):
    page = looker.page("/nodes")
    page.locator("#live.on").wait_for()
    pid = console.plane.pids()["apiserver"]
    os.kill(pid, signal.SIGSTOP)
    try:
        expect(page.locator("#banner")).to_contain_text("The API server does not answer", timeout=60_000)
        expect(page.locator("#live")).to_contain_text(re.compile(r"not live since \d\d:\d\d:\d\d UTC"))
        looker.picture(page, "api-server-hangs")
        console_world.require_accessible(page)
    finally:
        # The supervisor may have ended it by then.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    expect(page.locator("#live")).to_have_text("live", timeout=120_000)
    expect(page.locator("#banner")).not_to_contain_text("does not answer")


def test_a_browser_whose_session_is_gone_is_told_so(looker: console_world.Looker):
    context = looker.context()
    page = context.new_page()
    page.goto("/nodes")
    # As after a restart of the console, which knows no session of before: there is no stream.
    context.clear_cookies()
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("This browser is not signed in")
    page = looker.context().new_page()
    page.route("**/live?*", lambda route: route.fulfill(status=401, content_type="text/html", body="no session"))
    page.goto("/nodes")
    expect(page.locator("#live")).to_contain_text("this browser is not signed in any more")
