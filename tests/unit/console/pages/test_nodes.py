# SPDX-License-Identifier: Apache-2.0
"""The pages of nodes and of the ledger, in process: every state, names of strangers, ranges, and what is behind a certificate."""

from __future__ import annotations

import base64

from handfast.api import signer_names
from handfast.client import ledger as ledger_writer
from handfast.pki import keys, names, requests
from tests.scenarios import console_nodes
from tests.unit.console import served
from tests.world import world as worlds

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
STRANGE = "<img src=x onerror=alert(1)>\u202ebmalp"


async def seed(world: worlds.World) -> None:
    """The fleet, over the API."""
    async with served.client(world) as client:
        await console_nodes.write(client, world.clock.now())


async def test_without_nodes_the_pages_say_what_to_do(browser: served.Browser):
    reply = await browser.until("/nodes", lambda reply: "There are no nodes" in reply.text)
    assert "handfast token create" in reply.text
    assert "The ledger is empty." in (await browser.until("/ledger", lambda reply: "is empty" in reply.text)).text
    machines = await browser.until("/machines", lambda reply: "has no kind of Machine" in reply.text)
    assert "handfast up --machines" in machines.text
    for path in ("/nodes/nobody", "/ledger/segment-0000000001%2F9", "/rules/nothing", "/machines/a%2Fb", "/ledger/x"):
        reply = await browser.get(path)
        assert (reply.status, "Reason: <code>NotFound</code>" in reply.text) == (404, True)
    reply = await browser.get("/nodes/%3Cscript%3E%E2%80%AE")
    assert "&lt;script&gt;" in reply.text
    assert "U+202E" in reply.text


async def test_every_node_is_a_row_with_its_state_its_bar_and_what_is_behind_its_certificate(
    world: worlds.World, browser: served.Browser
):
    await seed(world)
    every = len(console_nodes.FLEET)
    reply = await browser.until("/nodes", lambda reply: f"{every} nodes" in reply.text and "> good<" in reply.text)
    for state in ("expired", "late", "silent", "revoked", "good"):
        assert f"</span> {state}</span>" in reply.text
    assert reply.text.count('<svg class="life"') == every
    assert "its renewal is" in reply.text
    # Those that need somebody come first, and a filter and a range are the server's.
    rows = await browser.get("/nodes/rows?count=2&from=1")
    assert (rows.headers["Handfast-Total"], rows.text.count("<tr ")) == (str(every), 2)
    assert (await browser.get("/nodes/rows?from=0&filter=zone%3Dzone-1&state=late")).headers["Handfast-Total"] == "1"
    assert (await browser.get("/nodes?filter=nobody")).text.count("No node fits this filter.") == 1
    assert (await browser.get("/nodes?count=-1")).status == 400
    # From a node to its certificate, its rule, and the ledger.
    one = await browser.get("/nodes/edge-late")
    assert 'href="/rules/NodeJoin"' in one.text
    assert "It was deleted" not in one.text
    assert "A node&#39;s first certificate." in (await browser.get("/rules/NodeJoin")).text
    serial = console_nodes.digest("key edge-late")
    found = await browser.get(f"/ledger?filter={serial}")
    assert "1–1 of 1 (of" in found.text
    place = found.text.partition('href="/ledger/')[2].partition('"')[0]
    entry = await browser.get(f"/ledger/{place}")
    assert serial in entry.text
    # Who made the token is on record, although nobody has the token any more; and is found by it.
    for page in (one, entry):
        assert 'href="/ledger?filter=night-shift"' in page.text
    assert "system:node:edge-" in (await browser.get("/ledger?filter=night-shift")).text
    assert "system:node:edge-" not in (await browser.get("/ledger?filter=day-shift")).text


async def test_a_stranger_s_name_is_shown_escaped_and_marked_as_a_node_that_waits(
    world: worlds.World, browser: served.Browser
):
    subject = names.Subject(common_name=f"system:node:{STRANGE}", organizations=("system:nodes",))
    spec = {
        "signerName": signer_names.KUBELET_CLIENT,
        "usages": ["digital signature", "client auth"],
        "request": base64.b64encode(requests.build(subject, names.Sans(), keys.generate())).decode(),
    }
    head = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    answer = await world.request("POST", CSRS, {**head, "metadata": {"name": "csr-strange"}, "spec": spec})
    assert answer.status == 201, answer.body
    reply = await browser.until("/nodes", lambda reply: "csr-strange" in reply.text)
    assert "<img" not in reply.text
    assert "&lt;img src=x onerror=alert(1)&gt;" in reply.text
    assert 'class="mark" title="a character that cannot be printed">U+202E</span>' in reply.text


async def test_the_chain_is_verified_and_a_noted_head_is_there_or_not(world: worlds.World, browser: served.Browser):
    async with served.client(world) as client:
        ledger = ledger_writer.Ledger(client, world.clock)
        await ledger.append(console_nodes.entry("w1", world.clock.now(), names=(f"CN=system:node:{STRANGE}",)))
    reply = await browser.until("/ledger", lambda reply: "> verified<" in reply.text)
    assert "<img" not in reply.text
    head = reply.text.partition('Head to note: <code class="mono">')[2][:64]
    assert "It is in the chain" in (await browser.get(f"/ledger?head={head}")).text
    assert "It is in no chain" in (await browser.get(f"/ledger?head={'0' * 63}1")).text
    assert "a hash has 64 hex digits" in (await browser.get("/ledger?head=abc")).text
    assert "is no date" in (await browser.get("/ledger?since=yesterday")).text
    assert "No entry fits." in (await browser.get("/ledger?since=2020-01-01&until=2020-01-02")).text
    assert (await browser.get("/ledger?from=500")).text.count("<tr ") == 1


async def test_what_the_first_page_says_of_nodes_is_what_their_page_shows_though_no_look_listed_them(
    world: worlds.World, browser: served.Browser
):
    await seed(world)
    # The look of these tests knows one good node: what is told of several comes from what is followed.
    await browser.until("/nodes?state=late", lambda reply: "its renewal is" in reply.text)
    overview = await browser.until("/", lambda reply: "node edge-late" in reply.text)
    assert "1 of them is late, and nobody renews it" in overview.text
    assert "edge-late: its renewal is" in (await browser.get("/check")).text
