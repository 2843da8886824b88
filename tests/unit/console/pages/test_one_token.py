# SPDX-License-Identifier: Apache-2.0
"""One token: what it was used for, and revoking it as the operator."""

from __future__ import annotations

import html
import json
import pathlib

from tests.unit.console import people_cases, served
from tests.world import world as worlds

PAGE = "/tokens/abcdef"


async def revoke(browser: served.Browser, word: str) -> served.Reply:
    sent = await browser.post("/tokens/revoke", {"id": "abcdef", "word": word}, of=PAGE)
    assert sent.status == 303
    return await browser.get(sent.headers["Location"])


async def test_a_token_is_shown_with_its_uses(world: worlds.World, browser: served.Browser) -> None:
    use = {"time": "2026-06-01T12:00:00Z", "node": "edge-1", "key": f"sha256:{7:064x}", "source": "10.0.0.7"}
    await people_cases.make_token(world, "abcdef", **{"handfast.dev/uses": json.dumps([use])})
    page = await browser.get(PAGE)
    for part in ("10.0.0.7", '<a href="/nodes/edge-1">', "made by", "kubernetes-admin", "not limited"):
        assert part in page.text


async def test_it_is_revoked_by_typing_its_id(world: worlds.World, browser: served.Browser) -> None:
    await people_cases.make_token(world, "abcdef")
    page = await revoke(browser, "abcdeg")
    assert "type abcdef, exactly as it stands there" in page.text
    assert (await world.get(f"{people_cases.SECRETS}/bootstrap-token-abcdef")).status == 200
    page = await revoke(browser, "abcdef")
    assert "The token abcdef is revoked" in page.text
    assert (await world.get(f"{people_cases.SECRETS}/bootstrap-token-abcdef")).status == 404
    page = await browser.get(PAGE)
    assert "There is no token" in page.text


async def test_one_that_is_gone_is_revoked_and_what_is_no_id_is_not_asked_for(
    world: worlds.World, browser: served.Browser
) -> None:
    await people_cases.make_token(world, "abcdef")
    token = (await browser.get(PAGE)).form_token("/tokens/revoke")
    await revoke(browser, "abcdef")
    for token_id, said in (("abcdef", "it was gone already"), ("../x", "Not done")):
        form = {"id": token_id, "word": token_id, "form-token": token}
        sent = await browser.request("POST", "/tokens/revoke", data=form)
        assert said in (await browser.get(sent.headers["Location"])).text
    assert "There is no token" in (await browser.get("/tokens/no-token")).text


async def test_who_may_not_is_told_which_right_would_let_them(world: worlds.World, tmp_path: pathlib.Path) -> None:
    await people_cases.make_token(world, "abcdef")
    reading = {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list", "watch"]}
    await people_cases.allow(world, "reader", [reading])
    kubeconfig = people_cases.kubeconfig_of(world, "reader", tmp_path / "reader.conf")
    async with served.console(world, kubeconfig=kubeconfig) as browser:
        page = await revoke(browser, "abcdef")
        text = html.unescape(page.text)
        assert "Not done: you may not revoke the token abcdef." in text
        assert "kubectl create role handfast-console:delete-secrets --namespace=kube-system" in text
        form = {"ttl": "1h", "signing": "yes", "number": "n" * 22}
        sent = await browser.post("/tokens/new", form, of="/tokens/new")
        text = html.unescape((await browser.get(sent.headers["Location"])).text)
        assert "Not done: you may not create a token." in text
        assert 'value="1h"' in text


async def test_who_may_read_nothing_is_told_what_would_let_them(world: worlds.World, tmp_path: pathlib.Path) -> None:
    await people_cases.make_token(world, "abcdef")
    await people_cases.file_request(world, "edge-1")
    kubeconfig = people_cases.kubeconfig_of(world, "nobody", tmp_path / "nobody.conf")
    async with served.console(world, kubeconfig=kubeconfig) as browser:
        for path, role in (
            (PAGE, "role handfast-console:secrets"),
            ("/requests/edge-1", "clusterrole handfast-console:cert"),
        ):
            page = await browser.until(path, lambda page: "The binding that would allow it" in page.text)
            assert "You may not read the" in page.text
            assert f"kubectl create {role}" in page.text
        listed = await browser.get("/requests")
        assert "You may not read certificate requests" in listed.text
        assert "There are no certificate requests" not in listed.text
