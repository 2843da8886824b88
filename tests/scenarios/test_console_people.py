# SPDX-License-Identifier: Apache-2.0
"""Requests and tokens in a real browser, on a real control plane.

Proves: a request is approved by keyboard alone and denied without JavaScript; a new token is shown once, a machine joins by what was shown, and the
page says so live; nobody's words become markup; every page can be read by everybody, also on a phone.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shlex
from typing import Any

import pytest
from playwright import sync_api as playwright

from handfast.bootstrap import kubeconfig
from handfast.pki import keys, names, requests
from handfast.runtime import tls
from tests.scenarios import console_world, up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
EVIL = "<img src=x onerror=alert(1)>\u202egnp"
_CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def request_document(name: str, *, cn: str = "", waits: bool = True) -> dict[str, Any]:
    """A node's request. One that waits has a usage too many: the rules leave it to a person."""
    subject = names.Subject(common_name=cn or f"system:node:{name}", organizations=("system:nodes",))
    content = requests.build(subject, names.Sans(), keys.generate())
    spec = {
        "request": base64.b64encode(content).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth", *(["server auth"] if waits else [])],
    }
    head = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}}
    return {**head, "spec": spec}


def file_request(plane: up_world.Up, name: str, *, cn: str = "", token: str = "") -> tuple[int, Any]:
    """One that waits; with a token it is a good one."""
    document = request_document(name, cn=cn, waits=not token)
    if not token:
        code, answer = plane.call("POST", _CSRS, document)
        assert code == 201, answer
        return code, answer
    trusted = kubeconfig.parse((plane.directory / "admin.conf").read_text()).cluster.certificate_authority_data
    with contextlib.closing(plane.connection(tls.client_context(trusted))) as connection:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        connection.request("POST", _CSRS, json.dumps(document), headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())


def look(looker: console_world.Looker, page: playwright.Page, name: str) -> None:
    """Keep a picture, and hold the page to what every page is held to."""
    looker.picture(page, name)
    console_world.require_accessible(page)
    console_world.require_no_sideways_scroll(page)


def go_back(page: playwright.Page) -> str:
    """What is there after the browser's button for it; of what it has not kept there is nothing to load, and it says so."""
    with contextlib.suppress(playwright.Error):
        page.go_back(wait_until="commit", timeout=10_000)
    found: list[str] = []

    def settled() -> bool:
        # While the browser puts its own page of an error there, there is nothing to read.
        with contextlib.suppress(playwright.Error):
            found.append(page.content())
        return bool(found)

    up_world.until(settled, 60, "a page after going back")
    return found[0]


def test_a_request_is_approved_by_keyboard_alone(looker: console_world.Looker) -> None:
    plane = looker.console.plane
    listing = looker.page("/requests")
    listing.locator("#live.on").wait_for()
    file_request(plane, "edge-0417")
    # Live: nobody has loaded the page again.
    listing.get_by_role("link", name="edge-0417").wait_for()
    look(looker, listing, "requests-light")
    console_world.tab_to(listing, "edge-0417")
    listing.keyboard.press("Enter")
    listing.get_by_role("heading", name="edge-0417 asks for a certificate").wait_for()
    assert listing.locator("table.checks tbody tr").count() >= 5
    assert "usages" in listing.locator("table.checks tr", has_text="fails").first.inner_text()
    look(looker, listing, "request-light")
    console_world.tab_to(listing, "Approve…")
    listing.keyboard.press("Enter")
    listing.keyboard.press("Tab")
    listing.keyboard.type("edge-0418")
    listing.keyboard.press("Enter")
    listing.get_by_role("alert").wait_for()
    assert listing.locator("#approve-word[aria-invalid=true]").count() == 1
    look(looker, listing, "request-mistyped")
    console_world.tab_to(listing, "Type edge-0417 to approve it")
    listing.keyboard.type("edge-0417")
    listing.keyboard.press("Enter")
    listing.get_by_text("The request edge-0417 is approved.").wait_for()
    condition = plane.call("GET", f"{_CSRS}/edge-0417")[1]["status"]["conditions"][0]
    assert (condition["type"], condition["reason"]) == ("Approved", "ConsoleApprove")


def test_by_keyboard_alone_a_token_is_made_and_revoked_and_a_request_denied(looker: console_world.Looker) -> None:
    plane = looker.console.plane
    file_request(plane, "edge-0555")
    page = looker.page("/tokens")
    console_world.tab_to(page, "Create a token…")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="A new token").wait_for()
    console_world.tab_to(page, "Description")
    page.keyboard.type("rack 5")
    console_world.tab_to(page, "machines log in with it (authentication)")
    page.keyboard.press("Space")
    console_world.tab_to(page, "Create it")
    page.keyboard.press("Enter")
    token = page.locator("pre.secret").inner_text().partition("--token ")[2][:6]
    console_world.tab_to(page, "I have it: to the token")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"Token {token}").wait_for()
    assert "rack 5" in page.locator("#token_head").inner_text()
    assert "signing" in page.locator("main").inner_text()
    assert "authentication" not in page.locator("main .facts").first.inner_text()
    console_world.tab_to(page, "Revoke…")
    page.keyboard.press("Enter")
    console_world.tab_to(page, f"Type {token} to revoke it")
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    page.get_by_text("is revoked").wait_for()
    assert plane.call("GET", f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token}")[0] == 404
    console_world.tab_to(page, "Requests")
    page.keyboard.press("Enter")
    page.wait_for_url("**/requests")
    console_world.tab_to(page, "edge-0555")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="edge-0555 asks for a certificate").wait_for()
    console_world.tab_to(page, "Deny…")
    page.keyboard.press("Enter")
    console_world.tab_to(page, "Type edge-0555 to deny it")
    page.keyboard.type("edge-0555")
    console_world.tab_to(page, "Why")
    page.keyboard.type("nobody knows it")
    console_world.tab_to(page, "Deny")
    page.keyboard.press("Space")
    page.get_by_text("The request edge-0555 is denied.").wait_for()
    condition = plane.call("GET", f"{_CSRS}/edge-0555")[1]["status"]["conditions"][0]
    assert (condition["type"], condition["message"]) == ("Denied", "nobody knows it")
    # These were the operator's own requests: the audit log has them as theirs.
    written = {f"secrets/bootstrap-token-{token}", "edge-0555/approval"}
    up_world.until(lambda: all(path in audited(plane, "kubernetes-admin") for path in written), what="the audit log")


def audited(plane: up_world.Up, user: str) -> set[str]:
    """The ends of the paths that somebody has written to, by the audit log."""
    lines = (plane.directory / "audit" / "audit.log").read_text().splitlines()
    events = [json.loads(line) for line in lines if line.endswith("}")]
    mine = [event for event in events if event["user"]["username"] == user and event["verb"] not in {"get", "list"}]
    return {"/".join(event["requestURI"].partition("?")[0].split("/")[-2:]) for event in mine}


def test_a_request_is_denied_on_a_phone_without_javascript(looker: console_world.Looker) -> None:
    plane = looker.console.plane
    file_request(plane, "edge-0666")
    page = looker.page(
        "/requests?filter=edge-0666", viewport=console_world.PHONE, java_script_enabled=False, color_scheme="dark"
    )
    looker.picture(page, "requests-phone-dark")
    console_world.require_no_sideways_scroll(page)
    page.get_by_role("link", name="edge-0666").click()
    page.locator("summary", has_text="Deny").click()
    page.get_by_label("Type edge-0666 to deny it").fill("edge-0666")
    page.get_by_label("Why").fill("we have no such machine")
    looker.picture(page, "request-phone-dark")
    console_world.require_no_sideways_scroll(page)
    page.get_by_role("button", name="Deny", exact=True).click()
    page.get_by_text("The request edge-0666 is denied.").wait_for()
    assert "we have no such machine" in page.locator("#behind").inner_text()
    condition = plane.call("GET", f"{_CSRS}/edge-0666")[1]["status"]["conditions"][0]
    assert (condition["type"], condition["message"]) == ("Denied", "we have no such machine")


def test_a_token_is_shown_once_and_a_machine_joins_by_it(looker: console_world.Looker) -> None:
    plane = looker.console.plane
    page = looker.page("/tokens/new")
    page.get_by_label("How long it lives").fill("soon")
    page.get_by_label("Description").fill("rack 7")
    page.get_by_label("Which nodes").fill("rack-7-*")
    page.get_by_role("button", name="Create it").click()
    page.get_by_text("1 field is not as it should be").wait_for()
    assert page.get_by_label("Description").input_value() == "rack 7"
    look(looker, page, "token-form-wrong")
    page.get_by_label("How long it lives").fill("2h")
    page.get_by_role("button", name="Create it").click()
    command = page.locator("pre.secret").inner_text()
    look(looker, page, "token-once")
    token = shlex.split(command)[shlex.split(command).index("--token") + 1]
    secret = token.partition(".")[2]
    address = f"/tokens/{token.partition('.')[0]}"
    assert secret not in page.url
    # It is gone: the answer cannot be gone back to, and to send the form again makes nothing.
    page.get_by_role("link", name="I have it").click()
    page.get_by_role("heading", name="Token").wait_for()
    assert secret not in page.content()
    assert secret not in go_back(page)
    page.goto(address)
    # The machine joins by what was shown, and the page says so live.
    page.locator("#live.on").wait_for()
    code, answer = file_request(plane, "rack-7-1", token=token)
    assert code == 201, answer
    page.get_by_text("1 of 1").wait_for()
    page.get_by_role("link", name="rack-7-1").wait_for()
    code, answer = file_request(plane, "rack-7-2", token=token)
    assert code == 403, answer
    page.get_by_text("TokenUsedUp").first.wait_for()
    look(looker, page, "token-used-up")
    page.goto("/tokens")
    page.locator("#refusals", has_text="TokenUsedUp").wait_for()
    look(looker, page, "tokens-light")
    page.goto(address)
    page.locator("summary", has_text="Revoke").click()
    page.get_by_label(re.compile("to revoke it")).fill(token.partition(".")[0])
    page.get_by_role("button", name="Revoke", exact=True).click()
    page.get_by_text("is revoked").wait_for()
    logs = [path.read_text() for path in plane.directory.parent.rglob("*.log")]
    assert logs
    assert not any(secret in text for text in logs)


def test_without_javascript_a_new_token_cannot_be_gone_back_to(looker: console_world.Looker) -> None:
    page = looker.page("/tokens/new", java_script_enabled=False, viewport=console_world.PHONE)
    page.get_by_role("button", name="Create it").click()
    secret = page.locator("pre.secret").inner_text().partition("--token ")[2].split()[0].partition(".")[2]
    looker.picture(page, "token-once-phone")
    console_world.require_no_sideways_scroll(page)
    page.goto("/requests")
    assert secret not in go_back(page)


def test_what_strangers_write_is_text(looker: console_world.Looker) -> None:
    plane = looker.console.plane
    name = "evil-<img src=x onerror=alert(1)>"
    file_request(plane, name, cn=f"system:node:{EVIL}")
    data = {
        "token-id": "evilid",
        "token-secret": "0123456789abcdef",
        "description": EVIL,
        "usage-bootstrap-signing": "true",
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "bootstrap-token-evilid"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    }
    code, answer = plane.call("POST", "/api/v1/namespaces/kube-system/secrets", secret)
    assert code == 201, answer
    page = looker.page("/requests?filter=evil")
    page.on("dialog", lambda _dialog: pytest.fail("a script of a stranger ran"))
    link = page.locator("tbody a[href*=evil]").first
    link.wait_for()
    assert page.locator("tbody img").count() == 0
    assert page.locator("tbody .mark").count() >= 1
    link.click()
    page.locator("#behind").wait_for()
    look(looker, page, "request-evil")
    page.goto("/tokens/evilid")
    page.locator("#token_head .mark").wait_for()
    assert page.locator("img").count() == 0
