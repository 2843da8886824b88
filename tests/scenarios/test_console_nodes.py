# SPDX-License-Identifier: Apache-2.0
"""The pages of nodes, machines and the ledger in a real browser: states, keyboard, zoom, live rows, phone, without JavaScript, axe."""

from __future__ import annotations

import pathlib
import re

import pytest
from playwright import sync_api as playwright

from handfast.api import resources
from handfast.rules.nodes import liveness
from handfast.runtime import clock as clocks
from tests.scenarios import console_nodes, console_world, up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

expect = playwright.expect


@pytest.fixture(scope="module", autouse=True)
def _fleet(console: console_world.Console) -> None:
    console_nodes.seed(console.plane.directory / "admin.conf")


def zoom_of(page: playwright.Page) -> float:
    return float(page.evaluate("+getComputedStyle(document.querySelector('.lives')).getPropertyValue('--zoom')"))


def test_every_state_of_a_node_is_told(looker: console_world.Looker):
    page = looker.page("/nodes")
    expect(page.locator("tr[data-key]").first).to_contain_text("edge-expired")
    for state in ("expired", "late", "silent", "revoked", "good"):
        expect(page.locator("#summary")).to_contain_text(state)
    bar = page.locator("tr[data-key=edge-late] svg.life")
    expect(bar.locator("title")).to_have_text(
        re.compile(r"issued 23 h ago, renewal was due until 1 h \d+ min ago, ends in")
    )


def test_the_axis_is_zoomed_by_keys_and_by_the_wheel(looker: console_world.Looker):
    page = looker.page("/nodes")
    axis = page.locator(".axis")
    axis.focus()
    assert zoom_of(page) == 1
    page.keyboard.press("+")
    page.keyboard.press("+")
    up_world.until(lambda: zoom_of(page) > 2, what="the zoom")
    words = axis.inner_text()
    page.keyboard.press("ArrowRight")
    expect(axis).not_to_have_text(words)
    looker.picture(page, "nodes-zoomed")
    page.keyboard.press("0")
    up_world.until(lambda: zoom_of(page) == 1, what="the zoom")
    axis.hover()
    page.mouse.wheel(0, -300)
    up_world.until(lambda: zoom_of(page) > 2, what="the zoom")


def test_by_keyboard_alone_one_gets_from_a_filter_to_a_certificate_and_what_is_behind_it(looker: console_world.Looker):
    page = looker.page("/nodes")
    page.locator("#live.on").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("edge-late")
    expect(page.locator("tr[data-key]")).to_have_count(1)
    page.locator(".window").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/edge-late")
    expect(page.get_by_role("heading", level=1)).to_contain_text("edge-late")
    trail = page.locator(".trail").first
    assert [each.inner_text() for each in trail.locator(".label").all()] == ["request", "rule", "token", "made by"]
    looker.picture(page, "node")
    console_world.require_accessible(page)
    page.locator(".certificates a").first.press("Enter")
    page.wait_for_url("**/ledger/segment-*")
    expect(page.get_by_role("heading", name="What is behind it")).to_be_visible()
    looker.picture(page, "ledger-entry")
    console_world.require_accessible(page)
    page.get_by_role("link", name="NodeJoin").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Rule NodeJoin")


def test_a_new_node_appears_without_a_reload_also_where_there_was_none(looker: console_world.Looker):
    page, none = looker.page("/nodes?sort=-name"), looker.page("/nodes?filter=zz-newcomer")
    for each in (page, none):
        each.locator("#live.on").wait_for()
    expect(none.get_by_text("No node fits this filter.")).to_be_visible()
    expect(none.locator(".listing")).to_be_hidden()
    document = console_nodes.node_document("zz-newcomer")
    path = looker.console.plane.directory / "admin.conf"
    console_nodes.run(path, lambda client: client.create(resources.NODES, document))
    for each in (page, none):
        expect(each.locator("tr[data-key]").first).to_contain_text("zz-newcomer", timeout=30_000)
        expect(each.locator(".listing")).to_be_visible()
    expect(none.get_by_text("No node fits this filter.")).to_be_hidden()
    expect(none.locator("nav.pager")).to_have_text("1–1 of 1")
    console_nodes.run(path, lambda client: client.delete(resources.NODES, "zz-newcomer"))
    expect(page.locator("tr[data-key]").first).not_to_contain_text("zz-newcomer", timeout=30_000)
    expect(none.get_by_text("No node fits this filter.")).to_be_visible(timeout=30_000)
    # What is typed is answered in the same way.
    page.get_by_role("searchbox").fill("nobody-at-all")
    expect(page.get_by_text("No node fits this filter.")).to_be_visible()
    page.get_by_role("searchbox").fill("edge-late")
    expect(page.locator("tr[data-key]")).to_have_count(1)


def test_the_ledger_is_searched_and_its_chain_verified(looker: console_world.Looker):
    page = looker.page("/ledger", color_scheme="dark")
    expect(page.locator("#chains")).to_contain_text("verified")
    looker.picture(page, "ledger")
    console_world.require_accessible(page)
    head = page.locator(".head code").first.inner_text()
    page.get_by_label("A head that was noted before").fill(head)
    page.get_by_role("button", name="Is it still there?").click()
    expect(page.get_by_text("It is in the chain")).to_be_visible()
    page.goto("/ledger?filter=edge-silent")
    expect(page.locator("tr[data-key]")).to_have_count(1)


def test_without_javascript_rows_are_filtered_sorted_and_paged(looker: console_world.Looker):
    page = looker.page("/nodes?count=10", java_script_enabled=False)
    expect(page.locator("tr[data-key]")).to_have_count(10)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("nav.pager")).to_contain_text("11–20 of")
    page.get_by_role("link", name="Node").last.click()
    page.get_by_role("searchbox").fill("edge-late")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tr[data-key]")).to_have_count(1)
    before = page.locator("tr[data-key] svg.life rect").first.get_attribute("width")
    page.get_by_role("link", name="zoom in").click()
    assert page.locator("tr[data-key] svg.life rect").first.get_attribute("width") != before
    looker.picture(page, "nodes-without-javascript")


def test_a_node_that_writes_an_absurd_lease_stops_neither_the_console_nor_the_control_plane(
    console: console_world.Console, tmp_path: pathlib.Path
):
    plane, name = console.plane, "absurd"
    pids = plane.pids()
    own = console_nodes.kubeconfig_of_node(plane.directory, plane.facts["apiserver"], name, tmp_path / "node.conf")
    lease = console_nodes.lease(name, clocks.SystemClock().now(), seen=True)
    lease["spec"]["renewTime"] = "9999-12-31T23:59:59.999999Z"
    console_nodes.run(
        plane.directory / "admin.conf", lambda api: api.create(resources.NODES, console_nodes.node_document(name))
    )
    # With its own certificate, and with nothing else.
    console_nodes.run(own, lambda api: api.create(resources.LEASES, lease, namespace=liveness.NAMESPACE))
    cookie = console.cookie()
    session = {"Cookie": f"{cookie['name']}={cookie['value']}"}

    def shown() -> bool:
        code, _, text = console.request("GET", f"/nodes?filter={name}", session)
        return code == 200 and f'data-key="{name}"' in text

    up_world.until(shown, what="the node's row")
    assert (plane.is_ready(), plane.pids()) == (True, pids)
    code, _, text = console.request("GET", f"/nodes/{name}", session)
    assert (code, "9999-12-31" in text) == (200, True), text
    for kind in ("nodes", f"namespaces/{liveness.NAMESPACE}/leases"):
        prefix = "/api/v1" if kind == "nodes" else "/apis/coordination.k8s.io/v1"
        assert plane.call("DELETE", f"{prefix}/{kind}/{name}")[0] == 200
