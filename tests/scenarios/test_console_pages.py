# SPDX-License-Identifier: Apache-2.0
"""Every page of the console in a real browser, in every form: light, dark, on a phone, without JavaScript; with everything that a stranger can write.

One control plane has a fleet in every state, machines and a pool, a mesh that is being rotated, requests and tokens. Each page is held to the same: axe-core finds nothing,
nothing scrolls sideways, neither the page nor a table in its window, no script of a stranger runs, and none of their characters turns a text around.
Pictures are kept in `.venv/console-shots`: see CONTRIBUTING.md.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright import sync_api as playwright

from handfast.api import machine_kinds
from tests.scenarios import console_attack, console_nodes, console_world, test_console_mesh, up_world
from tests.scenarios.test_console_people import file_request
from tests.unit.console.pages import mesh_objects

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
expect = playwright.expect

PAGES = {
    "overview": "/",
    "requests": "/requests",
    "request": "/requests/edge-0417",
    "request-evil": "/requests/evil",
    "tokens": "/tokens",
    "token": "/tokens/evilid",
    "token-new": "/tokens/new",
    "nodes": "/nodes",
    "node": "/nodes/edge-late",
    "machines": "/machines",
    "machine": f"/machines/{machine_kinds.NAMESPACE}%2Fm-2",
    "mesh": "/mesh?namespace=shop",
    "mesh-folded": "/mesh",
    "mesh-workloads": "/mesh/workloads",
    "mesh-edges": "/mesh/edges",
    "ledger": "/ledger",
    "ledger-entry": "/ledger/segment-0000000001%2F1",
    "rule": "/rules/NodeJoin",
    "check": "/check",
    "store": "/store",
    "nobody": "/nodes/nobody",
    "nowhere": "/nowhere",
}
# Where a stranger's text is to be seen, marked.
TOLD = {"requests", "request-evil", "tokens", "token", "machines", "machine", "mesh-edges", "ledger", "store"}
# Other pages where it is, and in which part.
ELSEWHERE = {
    "/nodes/edge-001": "#standing",
    "/machines": "#pools",
    "/tokens/evilnd": "#token",
    "/requests/evil": "#behind",
    "/requests?filter=evil": "tbody",
    "/check": "main",
    "/mesh/edges?filter=onerror": "tbody",
    "/store": "#store_servers",
    "/ledger?filter=onerror": "tbody",
    f"/nodes/{quote(console_attack.TEXT)}": "main",
    f"/requests/{quote(console_attack.TEXT)}": "main",
    f"/rules/{quote(console_attack.TEXT)}": "main",
}
LISTS = {"requests", "tokens", "nodes", "machines", "mesh-workloads", "mesh-edges", "ledger"}
FORMS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": console_world.PHONE, "has_touch": True},
    "phone-dark": {"viewport": console_world.PHONE, "color_scheme": "dark"},
    "plain": {"java_script_enabled": False},
}


# How many identities a mesh has that is folded to namespaces.
CROWD = 220


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[console_world.Console]:
    """A control plane of this file's own, with something of everything."""
    directory = tmp_path_factory.mktemp("pages")
    with up_world.Up(directory / "data", "--machines", *console_world.Console.FLAGS) as plane:
        made = console_world.Console(plane.ready())
        console_nodes.seed(plane.directory / "admin.conf")
        file_request(plane, "edge-0417")
        test_console_mesh.fill(plane)
        crowd = [mesh_objects.identity(f"a{number}", f"team-{number % 7}") for number in range(CROWD)]
        test_console_mesh.run(plane, "shop/busy", *(mesh_objects.edge("inbound", each) for each in crowd))
        console_attack.write(plane, directory)
        yield made


def require_text(page: playwright.Page) -> None:
    """Nothing of what strangers wrote is markup, and none of it turns a text around."""
    assert page.locator("main img, main script").count() == 0, page.url
    assert "\u202e" not in page.content() + page.title(), page.url


@pytest.mark.parametrize("form", FORMS)
def test_every_page_can_be_read_by_everybody(looker: console_world.Looker, form: str):
    page = looker.page("/", **FORMS[form])
    page.on("dialog", lambda _dialog: pytest.fail("a script of a stranger ran"))
    for name, path in PAGES.items():
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if form != "plain" and name not in {"nobody", "nowhere"}:
            page.locator("#live.on").wait_for()
        if name in TOLD:
            page.locator(".mark", has_text="U+202E").first.wait_for(state="attached")
        # Pools are followed from the first time on that somebody looks.
        if name == "machines" and form != "plain":
            page.locator("#pools article").first.wait_for()
        looker.picture(page, f"{name}-{form}")
        # What is folded is held to the same.
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        console_world.require_no_sideways_scroll(page)
        require_text(page)
        # In the dark only the colours differ. On a phone in the dark they are those of the desk, and the boxes those of the phone.
        if form not in {"plain", "phone-dark"}:
            console_world.require_accessible(page, colours_alone=form == "dark")
        elif form == "plain" and name in LISTS:
            assert page.locator("tbody tr[data-key]").count() > 0, path
            assert page.locator("nav.pager").is_visible(), path


def test_what_strangers_write_is_text_wherever_it_is_shown(looker: console_world.Looker, tmp_path: pathlib.Path):
    console_attack.renew(looker.console.plane, tmp_path)
    page = looker.page("/")
    page.on("dialog", lambda _dialog: pytest.fail("a script of a stranger ran"))
    for path, part in ELSEWHERE.items():
        page.goto(path)
        # The reason of a node stands in for such a character before it is shown.
        instead = "\ufffd" if part == "#pools" else "U+202E"
        expect(page.locator(part)).to_contain_text(f"<img src=x onerror=alert(1)>{instead}gnp", timeout=30_000)
        assert part == "#pools" or page.locator(f"{part} .mark").count() > 0, path
        require_text(page)
    # What is typed into a search is text, too, in the page and in what comes after it.
    page.goto(f"/nodes?filter={quote(console_attack.TEXT)}&sort={quote(console_attack.TEXT)}")
    page.locator("#live.on").wait_for()
    assert page.locator("main img, main script").count() == 0


def test_a_large_mesh_is_folded_and_a_roll_out_has_its_reasons(looker: console_world.Looker, tmp_path: pathlib.Path):
    console_attack.renew(looker.console.plane, tmp_path)
    page = looker.page("/mesh", viewport=console_world.PHONE)
    page.get_by_text("each box is a namespace").wait_for()
    boxes = page.locator("svg.picture a.box")
    assert boxes.count() < 20
    # A namespace opens by keyboard, and folds again.
    boxes.filter(has_text="team-3").press("Enter")
    page.wait_for_url("**/mesh?namespace=team-3")
    page.locator("a.box", has_text="team-3/a3").first.wait_for()
    page.get_by_role("link", name="Fold").press("Enter")
    page.get_by_text("each box is a namespace").wait_for()
    page.goto("/machines")
    worker = page.get_by_role("article", name="Pool worker")
    expect(worker).to_contain_text("1 of 4 machines have")
    for reason in ("Degraded", "Working", "NoAgent"):
        expect(worker.locator("summary", has_text=reason)).to_be_visible(timeout=30_000)
