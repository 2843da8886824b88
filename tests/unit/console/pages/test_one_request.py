# SPDX-License-Identifier: Apache-2.0
"""One request: its checks, and deciding it as the operator."""

from __future__ import annotations

import html
import pathlib
from typing import Any

import pytest

from tests.unit.console import people_cases, served
from tests.world import world as worlds

PAGE = "/requests/edge-1"


async def decide(browser: served.Browser, verb: str, request: Any, word: str, why: str = "") -> served.Reply:
    """Fill in the form, and look at the page that it leads to."""
    form = {"name": request["metadata"]["name"], "uid": request["metadata"]["uid"], "word": word, "why": why}
    sent = await browser.post(f"/requests/{verb}", form, of=PAGE)
    assert sent.status == 303
    return await browser.get(sent.headers["Location"])


async def test_every_check_is_a_numbered_line_and_the_smallest_change_is_told(
    world: worlds.World, browser: served.Browser
) -> None:
    filing = {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]}
    await people_cases.allow(world, "system:bootstrap:abcdef", [filing])
    await people_cases.file_request(world, "edge-1", by="system:bootstrap:abcdef", group="none")
    page = await browser.get(PAGE)
    assert "waits for somebody" in page.text
    for number, check in enumerate(("signer", "organization", "common name"), start=1):
        assert f'<tr><td>{number}</td><th scope="row">{check}</th>' in page.text
    assert "The smallest change that turns it" in page.text
    assert "create certificatesigningrequests/nodeclient" in page.text
    assert "asked for with token" in page.text
    assert "which is gone" in page.text
    assert "Type edge-1 to approve it" in page.text


@pytest.mark.parametrize(
    ("verb", "why", "kind", "message"),
    [
        ("approve", "", "Approved", "This CSR was approved in the console of Handfast."),
        ("deny", "not ours", "Denied", "not ours"),
    ],
)
async def test_the_operator_decides_by_typing_the_name(
    world: worlds.World, browser: served.Browser, verb: str, why: str, kind: str, message: str
) -> None:
    request = await people_cases.file_request(world, "edge-1")
    page = await decide(browser, verb, request, "edge-1", why)
    assert f"The request edge-1 is {kind.lower()}." in page.text
    condition = await people_cases.condition(world, "edge-1")
    assert (condition["type"], condition["message"]) == (kind, message)
    # It is decided: there is no form any more.
    assert f'action="/requests/{verb}"' not in page.text
    assert f"The request edge-1 is {kind.lower()}." not in (await browser.get(PAGE)).text


async def test_another_word_and_a_denial_without_a_reason_do_nothing(
    world: worlds.World, browser: served.Browser
) -> None:
    request = await people_cases.file_request(world, "edge-1")
    page = await decide(browser, "approve", request, "edge-2")
    assert "type edge-1, exactly as it stands there" in page.text
    assert "<details open>" in page.text
    page = await decide(browser, "deny", request, "edge-1", "two\nlines")
    assert "one line of characters" in page.text
    assert "aria-invalid" in page.text
    assert not await people_cases.condition(world, "edge-1")


async def test_another_request_of_the_same_name_is_not_decided(world: worlds.World, browser: served.Browser) -> None:
    looked_at = await people_cases.file_request(world, "edge-1")
    await world.request("DELETE", f"{people_cases.CSRS}/edge-1")
    await people_cases.file_request(world, "edge-1")
    page = await decide(browser, "approve", looked_at, "edge-1")
    assert "reason RequestReplaced" in page.text
    assert not await people_cases.condition(world, "edge-1")


async def test_one_that_is_decided_or_gone_meanwhile_says_so(world: worlds.World, browser: served.Browser) -> None:
    request = await people_cases.file_request(world, "edge-1")
    token = (await browser.get(PAGE)).form_token("/requests/deny")
    await decide(browser, "approve", request, "edge-1")
    form = {"name": "edge-1", "uid": request["metadata"]["uid"], "word": "edge-1", "why": "x", "form-token": token}
    late = await browser.request("POST", "/requests/deny", data=form)
    assert "reason AlreadyApproved" in (await browser.get(late.headers["Location"])).text
    await world.request("DELETE", f"{people_cases.CSRS}/edge-1")
    gone = await browser.request("POST", "/requests/deny", data=form)
    page = await browser.get(gone.headers["Location"])
    assert "is not there any more" in page.text
    assert "There is no request" in page.text


async def test_what_no_request_can_be_called_is_not_asked_for(browser: served.Browser) -> None:
    for path in ("/requests/a%2Fb", "/requests/a%25b"):
        assert "There is no request" in (await browser.get(path)).text


async def test_who_may_not_is_told_which_right_would_let_them(world: worlds.World, tmp_path: pathlib.Path) -> None:
    request = await people_cases.file_request(world, "edge-1")
    reading = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"],
        "verbs": ["get", "list", "watch"],
    }
    await people_cases.allow(world, "reader", [reading])
    kubeconfig = people_cases.kubeconfig_of(world, "reader", tmp_path / "reader.conf")
    async with served.console(world, kubeconfig=kubeconfig) as browser:
        await browser.until("/requests", lambda page: "1 request waits" in page.text)
        page = await browser.get(PAGE)
        # What may not be asked is told, and the rest is shown.
        assert "some checks are missing" in page.text
        page = await decide(browser, "approve", request, "edge-1")
        text = html.unescape(page.text)
        assert "Not done: you may not approve the request edge-1." in text
        assert "kubectl create clusterrole handfast-console:update-certificatesigningrequests" in text
        assert "--resource-name=kubernetes.io/kube-apiserver-client-kubelet" in text
        assert not await people_cases.condition(world, "edge-1")
        # Tokens are hidden from them, and the binding that would show them is named.
        tokens = await browser.until("/tokens", lambda page: "You may not read bootstrap tokens" in page.text)
        assert "kubectl create role handfast-console:secrets --namespace=kube-system" in tokens.text


async def test_what_strangers_write_is_escaped_and_marked(world: worlds.World, browser: served.Browser) -> None:
    evil = people_cases.EVIL
    # Our own server lets no such character into a name; others do, and every server lets it into a request.
    name = "".join(letter for letter in evil if letter.isprintable() and letter not in "/%")
    cn = "system:node:\u202e\u0007<img src=x onerror=alert(1)>"
    request = await people_cases.file_request(world, name, cn=cn, by="system:bootstrap:<b>x")
    about = {"kind": "CertificateSigningRequest", "name": "x", "uid": request["metadata"]["uid"]}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "<b>", "message": evil, "type": "Normal"}
    assert (await world.request("POST", "/api/v1/namespaces/default/events", event)).status == 201
    page = await browser.until("/requests", lambda page: "1 request waits" in page.text)
    quoted = next(part for part in page.text.split('"') if part.startswith("/requests/%"))
    for path in ("/requests", f"/requests?filter={name[:8]}", "/requests/rows?from=0", html.unescape(quoted)):
        page = await browser.get(path)
        assert page.status == 200
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        assert "{{7*7}}" in page.text
        assert "\u202e" not in page.text
        assert "\u0007" not in page.text
        assert '<span class="mark"' in page.text
    # Nobody can type that: the beginning of its UID confirms.
    assert f"Type {request['metadata']['uid'][:8]} to approve it" in page.text


async def test_while_the_server_is_away_nothing_is_half_done(world: worlds.World, browser: served.Browser) -> None:
    request = await people_cases.file_request(world, "edge-1")
    page = await browser.get(PAGE)
    new = await browser.get("/tokens/new")
    await world.server.stop()
    form = {"name": "edge-1", "uid": request["metadata"]["uid"], "word": "edge-1", "why": ""}
    sent = await browser.request(
        "POST", "/requests/approve", data={**form, "form-token": page.form_token("/requests/approve")}
    )
    assert sent.status == 303
    # The list goes on with what was known, and says since when.
    listed = await browser.until("/requests", lambda page: "The API server does not answer" in page.text)
    assert "edge-1" in listed.text
    one = await browser.get(PAGE)
    assert one.status >= 500
    assert "Reason: <code>" in one.text
    form = {"ttl": "1h", "signing": "yes", "number": "n" * 22, "form-token": new.form_token("/tokens/new")}
    sent = await browser.request("POST", "/tokens/new", data=form)
    form_again = await browser.get(sent.headers["Location"])
    assert "Not done: the API server gave no answer" in form_again.text
    assert 'value="1h"' in form_again.text
