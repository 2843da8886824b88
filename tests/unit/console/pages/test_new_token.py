# SPDX-License-Identifier: Apache-2.0
"""A new token: the form, the one time that it is shown, and that it is nowhere else."""

from __future__ import annotations

import base64
import contextlib
import html
import re

import pytest

from handfast.bootstrap import token_views
from tests.unit.console import people_cases, served
from tests.world import world as worlds

FORM = {
    "description": "rack 7",
    "ttl": "2h",
    "max-uses": "3",
    "nodes": "rack-*",
    "cidrs": "10.0.0.0/8",
    "groups": "",
    "signing": "yes",
    "authentication": "yes",
}


async def number_of(browser: served.Browser) -> str:
    """That of a new form."""
    match = re.search(r'name="number" value="([^"]+)"', (await browser.get("/tokens/new")).text)
    assert match is not None
    return match[1]


async def send(browser: served.Browser, form: dict[str, str]) -> served.Reply:
    """The answer to a form, or the page that it leads to."""
    sent = await browser.post("/tokens/new", form, of="/tokens/new")
    return await browser.get(sent.headers["Location"]) if sent.status == 303 else sent


async def create(browser: served.Browser, **changes: str) -> served.Reply:
    return await send(browser, {**FORM, "number": await number_of(browser), **changes})


async def tokens_of(world: worlds.World) -> list[token_views.View]:
    items = (await world.get(people_cases.SECRETS)).json()["items"]
    return [token_views.view(each) for each in items if each["metadata"]["name"].startswith("bootstrap-token-")]


async def test_the_token_has_every_limit_of_the_form(world: worlds.World, browser: served.Browser) -> None:
    page = await create(browser)
    (view,) = await tokens_of(world)
    assert (view.description, view.limits.max_uses, view.limits.nodes) == ("rack 7", 3, ("rack-*",))
    assert "Copy this now: it is shown once" in page.text
    assert f"--token {view.token.text}" in html.unescape(page.text)
    assert "--discovery-token-ca-cert-hash sha256:" in page.text
    assert "within its limits" in page.text
    assert "No other machine reaches 127.0.0.1" in page.text


async def test_the_join_command_is_shown_once_and_never_again(world: worlds.World, browser: served.Browser) -> None:
    page = await create(browser)
    (view,) = await tokens_of(world)
    # The answer to the form itself: nothing keeps it on the way to another page.
    assert page.status == 200
    assert page.headers["Cache-Control"] == "no-store"
    assert 'aria-label="QR code of the join command"' in page.text
    for path in ("/tokens/new", f"/tokens/{view.token.id}", "/tokens", "/"):
        again = await browser.get(path)
        assert again.status == 200
        assert view.token.secret not in again.text
        assert 'aria-label="QR code' not in again.text


async def test_a_form_that_was_sent_makes_no_second_token(world: worlds.World, browser: served.Browser) -> None:
    form = {**FORM, "number": await number_of(browser)}
    assert "Copy this now" in (await send(browser, form)).text
    again = await send(browser, form)
    (view,) = await tokens_of(world)
    assert f"This form was sent before, and the token {view.token.id} was made then" in again.text
    assert view.token.secret not in again.text
    assert "open the form, and send it from there" in (await send(browser, {**FORM, "number": "1"})).text
    assert len(await tokens_of(world)) == 1


async def test_errors_stand_at_their_fields_with_what_was_typed(world: worlds.World, browser: served.Browser) -> None:
    page = await create(browser, ttl="soon", nodes="Rack <b>", cidrs="10.0.0.1/8")
    text = html.unescape(page.text)
    assert "3 fields are not as they should be; no token was made" in text
    assert 'id="ttl-wrong"' in text
    assert '"soon" is no duration' in text
    assert 'aria-describedby="nodes-hint nodes-wrong"' in page.text
    assert 'value="Rack &lt;b&gt;"' in page.text
    assert 'value="rack 7"' in page.text
    assert await tokens_of(world) == []
    # Once: the form is empty again.
    assert "soon" not in (await browser.get("/tokens/new")).text


async def test_a_box_that_was_not_ticked_stays_so(browser: served.Browser) -> None:
    form = {"ttl": "1h", "signing": "yes", "max-uses": "x", "number": await number_of(browser)}
    page = await send(browser, form)
    boxes = re.findall(r'<input type="checkbox" id="(\w+)"[^>]*?( checked)?>', page.text)
    assert boxes == [("signing", " checked"), ("authentication", "")]
    page = await send(browser, {"ttl": "1h", "number": await number_of(browser)})
    assert "choose at least one" in page.text


async def test_no_page_no_stream_and_no_log_has_the_secret(
    world: worlds.World,
    browser: served.Browser,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    await people_cases.make_token(world, "abcdef")
    await people_cases.file_request(world, "edge-1", by="system:bootstrap:abcdef")
    await create(browser)
    secrets = {view.token.secret for view in await tokens_of(world)}
    ids = [view.token.id for view in await tokens_of(world)]
    assert len(secrets) == 2
    await browser.until("/tokens", lambda page: all(each in page.text for each in ids))
    everything = ""
    paths = [
        "/",
        "/requests",
        "/requests/edge-1",
        "/tokens",
        "/tokens/new",
        "/tokens/rows?from=0",
        *(f"/tokens/{each}" for each in ids),
    ]
    for path in paths:
        page = await browser.get(path)
        everything += page.text + str(page.headers)
    for path in ("/", "/tokens", f"/tokens/{ids[0]}", "/requests/edge-1"):
        async with browser.live(path) as stream:
            read = b""
            while b"event: upto" not in read:
                read += await stream.readany()
            everything += read.decode()
    said = capfd.readouterr()
    everything += caplog.text + said.out + said.err
    for secret in secrets:
        assert secret not in everything
        assert base64.b64encode(secret.encode()).decode() not in everything


async def test_nothing_is_made_where_the_join_command_cannot_be(world: worlds.World, browser: served.Browser) -> None:
    path = "/api/v1/namespaces/kube-public/configmaps"
    other = "apiVersion: v1\nkind: Config\nclusters: []\n"
    document = {"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": other}}
    with contextlib.suppress(AssertionError):
        await world.request("POST", path, document)
    await world.request("PUT", f"{path}/cluster-info", document)
    page = await create(browser)
    assert "Not done" in page.text
    assert await tokens_of(world) == []
