# SPDX-License-Identifier: Apache-2.0
"""The pages of the mesh, made from its kinds on a real API server."""

from __future__ import annotations

import base64
import datetime
import re
from typing import Any

from handfast.pki import certificates, pem
from handfast.rules.mesh import anchor_rotation, control_plane, issuer
from handfast.runtime import clock as clocks
from tests.unit.console import served
from tests.unit.console.pages import mesh_objects as made
from tests.unit.rules.mesh.rotation_cases import Step, after
from tests.world import world as worlds

NOW = clocks.SystemClock().now()
MATERIAL = issuer.generate(NOW)
ROOT = certificates.fingerprint(pem.certificates_from_pem(MATERIAL.anchors)[0])
EVIL = "<script>alert(1)</script>\u202e"


async def post(world: worlds.World, path: str, document: dict[str, Any]) -> Any:
    answer = await world.request("POST", path, json=document)
    assert answer.status == 201, answer.body
    return answer.json()


async def install(world: worlds.World, material: issuer.Material = MATERIAL, anchors: bytes | None = None) -> None:
    for path, document in made.installation(material, anchors):
        await post(world, path, document)
    await post(world, *made.namespace("shop"))


async def run(world: worlds.World, name: str, account: str, *edges: dict[str, Any], **more: Any) -> None:
    """A Pod of an account, and what its agent reported."""
    answer = await world.request("POST", *made.account("shop", account)[:1], json=made.account("shop", account)[1])
    assert answer.status in {201, 409}
    pod = await post(world, *made.pod("shop", name, account, MATERIAL.anchors))
    path, document, status = made.workload(pod, account, [ROOT], *edges, now=clocks.SystemClock().now(), **more)
    there = await post(world, path, document)
    answer = await world.request("PUT", f"{path}/{name}/status", json={**there, "status": status})
    assert answer.status == 200, answer.body


async def test_without_a_mesh_the_page_says_how_to_get_one(browser: served.Browser):
    reply = await browser.until("/mesh", lambda reply: "There is no mesh" in reply.text)
    assert "handfast mesh install" in reply.text
    for path in ("/mesh/workloads", "/mesh/edges"):
        assert "There is no mesh" in (await browser.get(path)).text


async def test_workloads_edges_roots_and_the_picture_are_shown(world: worlds.World, browser: served.Browser):
    await install(world)
    web, db = made.identity("web"), made.identity("db")
    await run(world, "web-1", "web", made.edge("outbound", db, destination="db.shop:8080"))
    await run(
        world,
        "db-1",
        "db",
        made.edge("inbound", web),
        made.edge("inbound", unsecured="plaintext", refused="identity-required"),
        made.edge("inbound", made.identity("eve"), wouldBeRefused="not-allowed"),
        lives=datetime.timedelta(hours=-1),
    )
    await post(world, *made.policy("shop", "db", mode="audit", clients=[{"serviceAccount": {"name": "web"}}]))
    reply = await browser.until("/mesh", lambda reply: 'data-box="box3"' in reply.text and "1 of 1" not in reply.text)
    text = reply.text
    assert ROOT[:16] in text
    assert "2 of 2" in text
    for word in ("shop/web", "shop/db", "shop/eve", "without an identity", "would be refused", "expired", "audit"):
        assert word in text, word
    assert len(re.findall(r'<path class="line ', text)) == 3 + 4
    assert '<td><bdi>shop/web</bdi></td><td data-label="to"><bdi>shop/db</bdi></td>' in text


async def test_no_key_of_the_mesh_is_in_any_page(world: worlds.World, browser: served.Browser):
    await install(world, anchors=MATERIAL.anchors)
    record = after(Step.ADD)
    await post(world, *made.rotation(anchor_rotation.encode(record)))
    reply = await browser.until("/mesh", lambda reply: "The root is being replaced" in reply.text)
    for key in (MATERIAL.key, record.old.key, record.new.key):
        assert base64.b64encode(key).decode()[:40] not in reply.text
    assert "handfast mesh anchors rotate --undo" in reply.text


async def test_rows_are_filtered_sorted_and_ranged_by_the_server(world: worlds.World, browser: served.Browser):
    await install(world)
    for number in range(4):
        lives = datetime.timedelta(hours=-1 if number == 2 else 20 + number)
        await run(world, f"web-{number}", "web", made.edge("inbound", made.identity(f"c{number}")), lives=lives)
    await browser.until("/mesh/workloads", lambda reply: "1 expired" in reply.text and "3 good" in reply.text)
    first = await browser.get("/mesh/workloads/rows?from=0&count=2")
    assert re.findall(r'data-key="([^"]+)"', first.text) == ["shop/web-2", "shop/web-0"]
    assert first.headers["Handfast-Total"] == "4"
    expired = await browser.get("/mesh/workloads/rows?from=0&state=expired")
    assert re.findall(r'data-key="([^"]+)"', expired.text) == ["shop/web-2"]
    by_name = await browser.get("/mesh/workloads/rows?from=0&sort=-pod")
    assert re.findall(r'data-key="([^"]+)"', by_name.text)[0] == "shop/web-3"
    edges = await browser.get("/mesh/edges/rows?from=0&filter=c1&sort=count")
    assert (edges.headers["Handfast-Total"], "shop/c1" in edges.text) == ("1", True)
    for sort in ("client", "server", "state", "last", "-count"):
        assert (await browser.get(f"/mesh/edges/rows?from=0&sort={sort}")).headers["Handfast-Total"] == "4"
    for sort in ("account", "state", "ends", "proxy"):
        assert (await browser.get(f"/mesh/workloads/rows?from=0&sort={sort}")).headers["Handfast-Total"] == "4"
    nothing = await browser.get("/mesh/edges?filter=nobody-is-called-so")
    assert "No edge is like this" in nothing.text
    nothing = await browser.get("/mesh/workloads?filter=nobody-is-called-so")
    assert "No workload is like this" in nothing.text


async def test_what_strangers_report_is_escaped_and_marked(world: worlds.World, browser: served.Browser):
    await install(world)
    await run(
        world, "web-1", "web", made.edge("inbound", EVIL), made.edge("outbound", destination=EVIL, unsecured=EVIL[:30])
    )
    for path in ("/mesh", "/mesh/edges", "/mesh/workloads"):
        reply = await browser.until(path, lambda reply: "web" in reply.text and "is being read" not in reply.text)
        assert "<script>alert" not in reply.text
        assert "\u202e" not in reply.text
    edges = await browser.until("/mesh/edges", lambda reply: "U+202E" in reply.text)
    assert '<span class="mark"' in edges.text
    picture = await browser.until("/mesh", lambda reply: "⟨U+202E⟩" in reply.text)
    # In a picture there are no marks of HTML: a browser would take the rest out of it.
    svg = picture.text[picture.text.index('<svg class="picture"') : picture.text.index("</svg>\n</div>")]
    assert "<span" not in svg
    assert "<bdi" not in svg


async def test_settings_that_cannot_be_used_are_told(world: worlds.World, browser: served.Browser):
    await install(world)
    path = f"/api/v1/namespaces/{made.NAMESPACE}/configmaps/{control_plane.CONFIG}"
    there = (await world.get(path)).json()
    answer = await world.request("PUT", path, json={**there, "data": {"trustDomain": "No Domain"}})
    assert answer.status == 200
    reply = await browser.until("/mesh", lambda reply: "cannot be used" in reply.text)
    assert "handfast mesh check" in reply.text


async def test_anchors_and_issuer_that_are_damaged_are_told(world: worlds.World, browser: served.Browser):
    await install(world, anchors=b"junk")
    path = f"/api/v1/namespaces/{made.NAMESPACE}/secrets/{control_plane.SIGNING}"
    there = (await world.get(path)).json()
    answer = await world.request("PUT", path, json={**there, "data": {"tls.crt": "anVuaw=="}})
    assert answer.status == 200
    reply = await browser.until("/mesh", lambda reply: "certificate cannot be read" in reply.text)
    assert "the trust anchors cannot be used" in reply.text


async def test_a_mesh_of_more_than_two_hundred_identities_is_folded_and_one_namespace_unfolds(
    world: worlds.World, browser: served.Browser
):
    await install(world)
    peers = [made.edge("inbound", made.identity(f"a{number}", f"team-{number % 7}")) for number in range(220)]
    await run(world, "web-1", "web", *peers)
    reply = await browser.until("/mesh", lambda reply: "each box is a namespace" in reply.text)
    assert "team-6" in reply.text
    unfolded = await browser.get("/mesh?namespace=team-3")
    assert "team-3/a3" in unfolded.text
    assert "Fold" in unfolded.text
