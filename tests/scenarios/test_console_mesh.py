# SPDX-License-Identifier: Apache-2.0
"""The pages of the mesh, the checks and the store in a real browser, on a real control plane.

The mesh is made of its own kinds over the API, as the services and agents of one would write them. It goes with the file: other files have a control plane in order.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from playwright import sync_api as playwright

from handfast.pki import certificates, pem
from handfast.rules import trust_rotation
from handfast.rules.mesh import anchor_rotation, issuer
from handfast.runtime import clock as clocks
from tests.scenarios import console_world, up_world
from tests.unit.console.pages import mesh_objects as made

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NOW = clocks.SystemClock().now()
OLD, NEW = issuer.generate(NOW), issuer.generate(NOW)
BOTH = issuer.read_anchors(OLD.anchors + NEW.anchors).to_pem()
ROOTS = [certificates.fingerprint(pem.certificates_from_pem(side.anchors)[0]) for side in (OLD, NEW)]
EVIL = "<script>document.title='owned'</script>\u202eevil"
HOUR = datetime.timedelta(hours=1)
# Who runs, and whom each is seen to be called by.
SHOP: dict[str, list[dict[str, Any]]] = {
    "shop/web": [made.edge("inbound", unsecured="plaintext")],
    "shop/api": [made.edge("inbound", made.identity("web"), count=40210)],
    "shop/cart": [made.edge("inbound", made.identity("api")), made.edge("inbound", made.identity("cart"))],
    "pay/ledger": [
        made.edge("inbound", made.identity("api"), count=811),
        made.edge("inbound", made.identity("batch"), refused="not-allowed"),
    ],
    "pay/cards": [
        made.edge("inbound", made.identity("ledger", "pay")),
        made.edge("outbound", destination="bank.example.com:443", unsecured="no-identity"),
    ],
    "shop/batch": [made.edge("inbound", made.identity("web"), wouldBeRefused="not-allowed", count=3)],
    "shop/idle": [],
}


def post(plane: up_world.Up, path: str, document: dict[str, Any]) -> dict[str, Any]:
    code, answer = plane.call("POST", path, document)
    assert code in {201, 409}, answer
    return answer


def run(plane: up_world.Up, title: str, *edges: dict[str, Any], **more: Any) -> None:
    """A Pod of an account, and what its agent reported."""
    space, account = title.split("/")
    post(plane, *made.account(space, account))
    pod = post(plane, *made.pod(space, f"{account}-7f9", account, OLD.anchors))
    roots = ROOTS[:1] if account == "batch" else ROOTS
    path, document, status = made.workload(pod, account, roots, *edges, now=clocks.SystemClock().now(), **more)
    there = post(plane, path, document)
    code, answer = plane.call("PUT", f"{path}/{document['metadata']['name']}/status", {**there, "status": status})
    assert code == 200, answer


def fill(plane: up_world.Up) -> None:
    """A mesh that is being rotated, and who talks to whom in it."""
    for path, document in (*made.installation(OLD, BOTH), made.namespace("shop"), made.namespace("pay")):
        post(plane, path, document)
    state = trust_rotation.State(
        target=trust_rotation.Target.MESH,
        old=anchor_rotation.signer_of(OLD),
        new=anchor_rotation.signer_of(NEW),
        done=((trust_rotation.Step.ADD, NOW - HOUR),),
    )
    post(plane, *made.rotation(anchor_rotation.encode(anchor_rotation.Record(state, OLD, NEW))))
    for number, (title, edges) in enumerate(SHOP.items()):
        lives = {"shop/cart": -HOUR, "pay/cards": HOUR}.get(title, (16 + number) * HOUR)
        run(plane, title, *edges, lives=lives)
    post(
        plane,
        *made.policy(
            "pay",
            "only-the-shop",
            targets={"serviceAccounts": ["ledger"]},
            clients=[{"serviceAccount": {"namespace": "shop", "name": "api"}}],
        ),
    )
    post(plane, *made.policy("shop", "batch", mode="audit", targets={"serviceAccounts": ["batch"]}, clients=[]))


@pytest.fixture(scope="module")
def mesh(console: console_world.Console) -> Iterator[up_world.Up]:
    plane = console.plane
    fill(plane)
    yield plane
    for space in ("shop", "pay", made.NAMESPACE):
        plane.call("DELETE", f"/api/v1/namespaces/{space}")
    for space in ("shop", "pay", made.NAMESPACE):
        up_world.until(lambda at=space: plane.call("GET", f"/api/v1/namespaces/{at}")[0] == 404, 120, space)


@pytest.fixture
def mesh_looker(mesh: up_world.Up, looker: console_world.Looker) -> console_world.Looker:
    """Somebody in front of the console of this mesh."""
    del mesh
    return looker


def require_readable(looker: console_world.Looker, page: playwright.Page, name: str) -> None:
    """In both schemes; the pictures are kept."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        looker.picture(page, f"{name}-{scheme}")
        console_world.require_accessible(page)
    console_world.require_no_sideways_scroll(page)


def test_the_mesh_can_be_read_by_everybody(mesh_looker: console_world.Looker):
    page = mesh_looker.page("/mesh")
    page.locator("a.box", has_text="shop/idle").wait_for()
    page.locator("#live.on").wait_for()
    page.get_by_text("The root is being replaced").wait_for()
    page.get_by_text("The lines as a table").click()
    require_readable(mesh_looker, page, "mesh")
    # The picture as text: every line of it is a row.
    lines, rows = page.locator("svg.picture path.line").count(), page.locator("details tbody tr").count()
    assert lines == rows >= 9
    # Who lags is named, and what would be refused is counted.
    assert "shop/batch-7f9" in page.locator("#mesh_trust").inner_text()
    assert "would be refused 1" in " ".join(page.locator("#mesh_summary .counts").last.inner_text().split())


def test_the_picture_moves_by_keyboard_and_shows_whose_lines_are_whose(mesh_looker: console_world.Looker):
    page = mesh_looker.page("/mesh")
    box = page.locator("a.box", has_text="pay/ledger")
    box.wait_for()
    svg = page.locator("svg.picture")
    whole = svg.get_attribute("viewBox")
    page.locator(".graph").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert svg.get_attribute("viewBox") != whole
    box.focus()
    assert svg.locator("path.line.on").count() == 3
    mesh_looker.picture(page, "mesh-focus")
    page.keyboard.press("0")
    assert svg.get_attribute("viewBox") == whole
    # A box opens its edges.
    page.keyboard.press("Enter")
    page.wait_for_url("**/mesh/edges?filter=pay%2Fledger")
    assert page.locator("tbody tr[data-key]").count() == 3


def test_a_report_changes_the_page_while_somebody_looks(mesh_looker: console_world.Looker, mesh: up_world.Up):
    page = mesh_looker.page("/mesh")
    page.locator("#live.on").wait_for()
    run(mesh, "shop/late-comer", made.edge("inbound", made.identity("web")))
    page.locator("a.box", has_text="shop/late-comer").wait_for()


def test_what_a_stranger_reports_stays_text(mesh_looker: console_world.Looker, mesh: up_world.Up):
    run(mesh, "shop/evil", made.edge("inbound", EVIL), made.edge("outbound", destination=EVIL, unsecured="plaintext"))
    for path in ("/mesh", "/mesh/edges?filter=evil", "/mesh/workloads"):
        page = mesh_looker.page(path)
        page.locator("text=evil >> visible=true").first.wait_for()
        assert "owned" not in page.title()
        assert page.locator("main script").count() == 0
        assert "\u202e" not in page.content()
    page = mesh_looker.page("/mesh/edges?filter=evil")
    page.locator(".mark:visible", has_text="U+202E").first.wait_for()


def test_rows_are_filtered_and_sorted_by_the_server(mesh_looker: console_world.Looker):
    page = mesh_looker.page("/mesh/workloads")
    for path in ("/mesh/workloads", "/mesh/edges"):
        page.goto(path)
        page.locator("tbody tr[data-key]").first.wait_for()
        mesh_looker.picture(page, path.strip("/").replace("/", "-"))
        console_world.require_accessible(page)
        page.get_by_role("searchbox").fill("ledger")
        page.locator("tbody tr[data-key]").nth(4).wait_for(state="detached")
        assert "ledger" in page.locator("tbody tr[data-key]").first.inner_text()
    # The one that is over comes first.
    page.goto("/mesh/workloads")
    assert "expired" in page.locator("tbody tr[data-key]").first.inner_text()


def test_the_checks_of_a_mesh_without_its_services_are_told_with_the_next_step(mesh_looker: console_world.Looker):
    page = mesh_looker.page("/check")
    page.locator("#check-mesh-services").get_by_text("failed").wait_for(timeout=120_000)
    row = page.locator("#check-mesh-services").inner_text()
    assert "Next: " in row
    assert "handfast explain NoEndpoints" in row
    assert "check" in page.get_by_role("heading", level=1).inner_text()
    require_readable(mesh_looker, page, "check")
    page.get_by_role("link", name="Only what is not well").click()
    page.locator("#check-mesh-services").wait_for()
    assert page.locator("#check-api").count() == 0


def test_the_store_is_shown_as_the_api_tells_of_it(looker: console_world.Looker):
    page = looker.page("/store")
    page.get_by_text("resource version").wait_for()
    page.locator("#store_servers tbody tr").first.wait_for()
    require_readable(looker, page, "store")
