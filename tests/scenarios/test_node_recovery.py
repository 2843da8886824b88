# SPDX-License-Identifier: Apache-2.0
"""A node whose certificate expired while it was off comes back by itself, over real TLS, on a clock that is moved.

Proves that it gets a new certificate where policy allows and waits where it does not, that an expired certificate is good
for nothing else, and that no window, no Node, a revocation, a running node or a newer certificate means 401. The audit log
has each step.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast.api import objects
from handfast.apiserver import identity
from handfast.apiserver.strategy import strategies
from handfast.assembly import apiserver, guard
from handfast.pki import authority, certificates, keys, names, pem, profiles
from handfast.rules.ledger import entries
from handfast.runtime import tls
from tests.scenarios import certified as c
from tests.scenarios import controlled, granting
from tests.world import world as worlds

pytestmark = pytest.mark.slow
DAY = datetime.timedelta(days=1)
WINDOW = 30 * DAY
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
RECOVERING = "system:node-recovery:n1"


class Story(c.Story):
    """The node n1, with the pair it was issued, as the ledger has it."""

    old: ssl.SSLContext
    leaf: certificates.Certificate

    async def join(self) -> None:
        """The certificate of a day, issued by the signer."""
        await self.bind("nodeclient", c.JOINERS)
        await self.world.request("POST", "/api/v1/nodes", NODE)
        key = keys.generate()
        asked = c.request("n1", key=key, expirationSeconds=86400)
        await self.ask(asked, self.joiner())
        self.leaf = await self.issued(asked["metadata"]["name"])
        ca = self.world.place.ca_certificate.read_bytes()
        self.old = tls.client_context(ca, pem.certificates_to_pem([self.leaf.der]), key.to_pem())
        assert (await self.world.get("/api/v1/nodes/n1", context=self.old)).status == 200

    async def try_to_ask(self, **more: Any) -> worlds.Answer:
        return await self.world.request("POST", c.PATH, c.request("n1", **more), context=self.old)


@contextlib.asynccontextmanager
async def told(
    directory: pathlib.Path, *, window: datetime.timedelta = WINDOW, days: float = 3
) -> AsyncIterator[Story]:
    """A node that joined and was then off for so many days."""
    options = guard.GuardOptions(bootstrap_tokens=True, node_recovery_window=window)
    audit = apiserver.AuditOptions(path=str(directory / "audit.log"))
    async with controlled.story_of(Story, directory, guard=options, audit=audit) as story:
        await story.bind("file", c.JOINERS)
        async with c.running(story.world):
            await story.join()
        # At once: what would have happened in these days, minute by minute, is not what is told here.
        story.clock.set_wall((days * DAY).total_seconds())
        yield story


async def test_it_comes_back(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story:
        world = story.world
        key = keys.generate()
        asked = c.request("n1", key=key)
        name = asked["metadata"]["name"]
        made = await story.ask(asked, story.old)
        assert (made["spec"]["username"], made["spec"]["groups"]) == (
            RECOVERING,
            ["system:node-recovery", "system:authenticated"],
        )
        # Only one at a time; the same one again is there already.
        assert (await story.try_to_ask()).status == 403
        assert (await story.try_to_ask(key=key)).reason == "AlreadyExists"
        watched = {"watch": "1", "timeoutSeconds": "1", "fieldSelector": f"metadata.name={name}"}
        assert (await world.get(c.PATH, params=watched, context=story.old)).status == 200
        async with c.running(world):
            issued = await story.issued(name)
        assert issued.subject == story.leaf.subject
        found = await world.get(f"{c.PATH}/{name}", context=story.old)
        assert base64.b64decode(found.json()["status"]["certificate"])
        # With the new one it is the node again.
        ca = world.place.ca_certificate.read_bytes()
        new = tls.client_context(ca, pem.certificates_to_pem([issued.der]), key.to_pem())
        assert (await world.get("/api/v1/nodes/n1", context=new)).status == 200
        last = entries.decode(entries.line_of((await story.ledger())[-1]))
        assert (last.requester, last.authenticated_by, last.token_id) == (
            RECOVERING,
            "node-recovery",
            story.leaf.fingerprint,
        )
        # Once it has had time to fetch it, the old one is over.
        await story.clock.advance(601)
        assert (await world.get(f"{c.PATH}/{name}", context=story.old)).status == 401
        assert (await story.try_to_ask()).status == 401
        assert (await world.get("/api/v1/nodes/n1", context=new)).status == 200
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    steps = [
        (line["verb"], line["responseStatus"]["code"], line["annotations"]["handfast.dev/authenticated-by"])
        for line in lines
        if line.get("user", {}).get("username") == RECOVERING and line["stage"] == "ResponseComplete"
    ]
    assert steps[0] == ("create", 201, "node-recovery")
    assert ("get", 200, "node-recovery") in steps
    assert ("create", 403, "node-recovery") in steps


async def test_an_expired_certificate_is_good_for_nothing_else(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story:
        world = story.world
        others = await story.ask(c.request("n2"), story.joiner())
        for method, path in (
            ("GET", "/api/v1/nodes/n1"),
            ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"),
            ("GET", "/api/v1/namespaces/kube-system/secrets"),
            ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"),
            ("GET", "/api"),
            ("GET", "/version"),
            ("DELETE", f"{c.PATH}/{others['metadata']['name']}"),
        ):
            assert (await world.request(method, path, context=story.old)).status == 401, path
        for path in (c.PATH, f"{c.PATH}/{others['metadata']['name']}", f"{c.PATH}?watch=1"):
            assert (await world.get(path, context=story.old)).status == 403, path
        # Nobody acts for others, or asks for more.
        headers = {"Impersonate-User": "kubernetes-admin", "Impersonate-Group": "system:masters"}
        assert (await world.get(f"{c.PATH}/x", context=story.old, headers=headers)).status == 403
        for more in (
            {"common_name": "system:node:n2"},
            {"common_name": "kubernetes-admin", "organizations": ("system:masters",)},
            {"organizations": ("system:nodes", "system:masters")},
            {"signerName": "kubernetes.io/kube-apiserver-client"},
        ):
            assert (await story.try_to_ask(**more)).status == 403, more
        assert (await story.try_to_ask()).status == 201


async def test_policy_may_want_a_human(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story:
        binding = f"{granting.CLUSTER_BINDINGS}/handfast:node-recovery"
        assert (await story.world.request("DELETE", binding)).status == 200
        asked = c.request("n1")
        await story.ask(asked, story.old)
        async with c.running(story.world):
            await story.quiet()
            assert await story.conditions(asked["metadata"]["name"]) == {}


async def lease(story: Story) -> None:
    world = story.world
    kind = next(row for row in world.server.table if row.resource == ("coordination.k8s.io", "leases"))
    spec = {"renewTime": objects.micro_timestamp(world.clock.now()), "leaseDurationSeconds": 40}
    document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1"}, "spec": spec}
    strategies.prepare_create(kind, document, "kube-node-lease", identity.User("test", ()), world.clock.now())
    await world.server.storage.create(kind, document)
    await world.server.replica.fresh()


async def test_a_node_that_runs_is_not_elsewhere(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story:
        await lease(story)
        assert (await story.try_to_ask()).status == 401
        # When it has been silent for the length of its Lease it may need help.
        await story.clock.advance(41)
        assert (await story.try_to_ask()).status == 201


@pytest.mark.parametrize("spec", ["node", "serialNumber", "keyFingerprint"])
async def test_a_revoked_node_is_not_let_in_until_that_is_undone(tmp_path: pathlib.Path, spec: str) -> None:
    async with told(tmp_path) as story:
        value = {
            "node": "n1",
            "serialNumber": story.leaf.serial,
            "keyFingerprint": f"sha256:{story.leaf.public_key.fingerprint}",
        }[spec]
        document = {"metadata": {"name": "r"}, "spec": {spec: value}}
        path = "/apis/handfast.dev/v1alpha1/revocations"
        assert (await story.world.request("POST", path, document)).status == 201
        assert (await story.try_to_ask()).status == 401
        assert (await story.world.request("DELETE", f"{path}/r")).status == 200
        assert (await story.try_to_ask()).status == 201


async def test_a_deleted_node_stays_out(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story:
        assert (await story.world.request("DELETE", "/api/v1/nodes/n1")).status == 200
        assert (await story.try_to_ask()).status == 401


@pytest.mark.parametrize(("window", "days"), [(WINDOW, 31.1), (datetime.timedelta(), 1.5)])
async def test_outside_the_window(tmp_path: pathlib.Path, window: datetime.timedelta, days: float) -> None:
    async with told(tmp_path, window=window, days=days) as story:
        assert (await story.try_to_ask()).status == 401


async def test_a_key_that_is_not_on_record(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story:
        world = story.world
        ca = authority.Authority(
            pem.certificates_from_pem(world.place.ca_certificate.read_bytes())[0],
            keys.private_from_pem(world.place.ca_key.read_bytes()),
        )
        key = keys.generate()
        subject = names.Subject(common_name="system:node:n1", organizations=("system:nodes",))
        issued = ca.issue(key.public, subject, names.Sans(), profiles.CLIENT, world.clock.now() - 2 * DAY, DAY)
        story.old = tls.client_context(world.place.ca_certificate.read_bytes(), issued.pem, key.to_pem())
        assert (await story.try_to_ask()).status == 401
