# SPDX-License-Identifier: Apache-2.0
"""The way of a request: without a session there is nothing to see, and forms do nothing without their token."""

from __future__ import annotations

from tests.unit.console import served


async def test_the_overview_is_a_whole_page(browser: served.Browser):
    reply = await browser.get("/")
    assert reply.status == 200
    assert "Nothing needs you" in reply.text
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]


async def test_without_a_session_there_is_one_page(browser: served.Browser):
    browser.cookie = ""
    for path in ("/", "/nothing", "/live", "/check"):
        reply = await browser.get(path)
        assert reply.status == 401
        assert served.REOPEN in reply.text
        assert "Nothing needs you" not in reply.text


async def test_a_form_without_its_token_does_nothing(browser: served.Browser):
    reply = await browser.request("POST", "/sign-out", data={"form-token": "0" * 64})
    assert (reply.status, "FormNotOurs" in reply.text) == (400, True)
    assert (await browser.get("/")).status == 200
    signed_out = await browser.post("/sign-out", {}, of="/")
    assert signed_out.status == 200
    assert (await browser.get("/")).status == 401
