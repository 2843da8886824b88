# SPDX-License-Identifier: Apache-2.0
"""Every page of the console in a real browser, in every form: light, dark, on a phone, without JavaScript; with everything that a stranger can write.

One control plane has a fleet in every state, machines and a pool, a mesh that is being rotated, requests and tokens. Each page is held to the same: axe-core finds nothing,
nothing scrolls sideways, neither the page nor a table in its window, no script of a stranger runs, and none of their characters turns a text around.
Pictures are kept in `.venv/console-shots`: see CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright import sync_api as playwright

from handfast.api import handfast_kinds, machine_kinds
from handfast.client import ledger as ledger_writer
from handfast.runtime import clock as clocks
from tests.scenarios import console_nodes, console_world, test_console_mesh, up_world
from tests.scenarios.test_console_people import file_request
from tests.unit.console.pages import mesh_objects
from tests.unit.console.pages.test_machines import MACHINES, machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
expect = playwright.expect

EVIL = "<img src=x onerror=alert(1)>\u202egnp"
# What is shown of what somebody else wrote.
HARMLESS = "<img src=x onerror=alert(1)>U+202Egnp"
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
    "mesh": "/mesh",
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
TOLD = {"requests", "request-evil", "tokens", "token", "machines", "machine", "mesh-edges", "ledger"}
LISTS = {"requests", "tokens", "nodes", "machines", "mesh-workloads", "mesh-edges", "ledger"}
FORMS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": console_world.PHONE, "has_touch": True},
    "phone-dark": {"viewport": console_world.PHONE, "color_scheme": "dark"},
    "plain": {"java_script_enabled": False},
}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[console_world.Console]:
    """A control plane of this file's own, with something of everything."""
    place = tmp_path_factory.mktemp("pages") / "data"
    with up_world.Up(place, "--machines", *console_world.Console.FLAGS) as plane:
        made = console_world.Console(plane.ready())
        fill(plane)
        yield made


def fill(plane: up_world.Up) -> None:
    admin = plane.directory / "admin.conf"
    console_nodes.seed(admin)
    entry = console_nodes.entry("strange", clocks.SystemClock().now(), names=(f"CN=system:node:{EVIL}",))
    console_nodes.run(admin, lambda client: ledger_writer.Ledger(client, clocks.SystemClock()).append(entry))
    kind = handfast_kinds.REVOCATION
    revocation = {"metadata": {"name": "node-edge-001"}, "spec": {"node": "edge-001", "reason": EVIL}}
    require(
        plane,
        f"/apis/{kind.api_version}/revocations",
        {"apiVersion": kind.api_version, "kind": kind.kind, **revocation},
    )
    file_request(plane, "edge-0417")
    file_request(plane, "evil", cn=f"system:node:{EVIL}")
    event = {
        "metadata": {"name": "told", "namespace": "default"},
        "involvedObject": {"kind": "CertificateSigningRequest", "name": "evil", "apiVersion": "certificates.k8s.io/v1"},
        "reason": "Told",
        "message": EVIL,
        "type": "Warning",
    }
    require(plane, "/api/v1/namespaces/default/events", event)
    data = {
        "token-id": "evilid",
        "token-secret": "0123456789abcdef",
        "description": EVIL,
        "usage-bootstrap-signing": "true",
    }
    secret = {
        "metadata": {"name": "bootstrap-token-evilid"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    }
    require(plane, "/api/v1/namespaces/kube-system/secrets", secret)
    for name in ("m-1", "m-2"):
        require(plane, MACHINES, machine(name))
    code, there = plane.call("GET", f"{MACHINES}/m-2")
    status = {"addresses": [{"type": "InternalDNS", "address": "m-2.example"}, {"type": "Hostname", "address": EVIL}]}
    code, answer = plane.call("PUT", f"{MACHINES}/m-2/status", {**there, "status": status})
    assert code == 200, answer
    test_console_mesh.fill(plane)
    edges = (mesh_objects.edge("inbound", EVIL),)
    test_console_mesh.run(plane, "shop/evil", *edges)


def require(plane: up_world.Up, path: str, document: dict[str, Any]) -> None:
    code, answer = plane.call("POST", path, document)
    assert code == 201, answer


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
        looker.picture(page, f"{name}-{form}")
        console_world.require_no_sideways_scroll(page)
        assert page.locator("main img, main script").count() == 0, path
        assert "\u202e" not in page.content() + page.title(), path
        if form != "plain":
            console_world.require_accessible(page)
        elif name in LISTS:
            assert page.locator("tbody tr[data-key]").count() > 0, path
            assert page.locator("nav.pager").is_visible(), path
