# SPDX-License-Identifier: Apache-2.0
"""A token takes no living node's name, and nobody a revoked one: on a real server, and with real processes.

Proves: a request in a living node's name waits, says so, and is approved when the Lease has ended, is deleted, or a person
approves; a kubelet that lost its certificate comes through; two copies without a lock do not disturb one another; the rule
can be turned off; `join` refuses at once, and takes over where it is told to; in a revoked name nothing is filed, approved
or signed.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from typing import Any

import pytest

from handfast.api import objects
from handfast.assembly import controllers
from handfast.client import api
from handfast.client import requests as requesting
from handfast.controllers.certificates import approver, signer
from handfast.pki import keys
from handfast.rules import controller_rights
from handfast.rules.certificates import wishes
from tests.scenarios import callers, controlled, granting, up_world
from tests.scenarios import certified as c
from tests.scenarios.test_node_agent import CSRS, Machine

pytestmark = pytest.mark.slow
LEASES = api.Resource("coordination.k8s.io", "v1", "leases", True)
CLUSTER_ROLES = api.Resource("rbac.authorization.k8s.io", "v1", "clusterroles", False)
WHERE = "kube-node-lease"
BLIND = "system:bootstrappers:blind"


async def renew(story: c.Story, node: str = "n1") -> None:
    """What a node's agent does."""
    spec = {"renewTime": objects.micro_timestamp(story.clock.now()), "leaseDurationSeconds": 40, "holderIdentity": node}
    found = await story.find(LEASES, node, WHERE)
    if found is None:
        await story.client.create(LEASES, {"metadata": {"name": node}, "spec": spec}, namespace=WHERE)
    else:
        await story.client.update(LEASES, {**found, "spec": spec})


async def waiting(story: c.Story, name: str = "taken") -> str:
    """Have somebody ask for the name of a living node; what is said of it."""
    await renew(story)
    await story.ask(c.request("n1", name=name), story.joiner())

    async def told() -> str:
        return (await story.conditions(name)).get("Waiting", ("", ""))[1]

    return str(await story.eventually(told, "waiting"))


async def test_it_waits_until_the_lease_has_ended(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, contextlib.AsyncExitStack() as stack:
        await story.bind("nodeclient", c.JOINERS)
        for _ in range(2):
            await stack.enter_async_context(c.running(story.world, copies=1))
        message = await waiting(story)
        assert 'the Node "n1" is alive' in message
        assert await story.eventually(lambda: story.told("taken"), "told")
        (found,) = {reason for reason, _, _ in await story.told("taken")}
        assert found == "NodeIsAlive"
        # For as long as it is renewed nothing else happens.
        for _ in range(12):
            await story.clock.advance(10)
            await renew(story)
        await story.quiet()
        assert set(await story.conditions("taken")) == {"Waiting"}
        # Its Lease ends, and is found so for a while.
        await story.clock.advance(41)
        await story.quiet()
        assert set(await story.conditions("taken")) == {"Waiting"}
        for _ in range(6):
            await story.clock.advance(4)
            await story.quiet()
        await story.issued("taken")
        assert set(await story.conditions("taken")) == {"Approved"}
        # Without a lock both copies may sign; one of the certificates is handed out.
        assert len(await story.ledger()) in {1, 2}


async def forbid(story: c.Story, plural: str = "") -> None:
    """Let the controllers do what the manifest for another API server grants, without one kind."""
    rights = [right.rule for name in c.ALL for right in controller_rights.RIGHTS[name]]
    role = await story.client.get(CLUSTER_ROLES, "system:kube-controller-manager")
    role["rules"] = [rule.document() for rule in rights if plural not in rule.resources]
    await story.client.update(CLUSTER_ROLES, role)


async def test_without_the_right_to_read_leases_only_taken_names_wait(tmp_path: pathlib.Path) -> None:
    """As with the manifest of an earlier release."""
    async with c.told(tmp_path) as story:
        await story.bind("nodeclient", c.JOINERS)
        await story.bind("selfnodeclient", "system:nodes")
        await forbid(story, "leases")
        await story.client.create(controlled.NODES, {"metadata": {"name": "n1"}})
        await renew(story)
        async with c.running(story.world):
            await story.ask(c.request("n1", name="taken"), story.joiner())
            (event,) = await story.eventually(lambda: story.told("taken"), "told")
            assert event[0] == "LeasesForbidden"
            assert 'cannot get resource "leases"' in event[1]
            # New names, and what the node asks for itself, go on.
            await story.ask(c.request("n2", name="new"), story.joiner())
            await story.issued("new")
            await story.ask(c.request("n1", name="renewal"), story.node("n1"))
            await story.issued("renewal")
            assert await story.conditions("taken") == {}
            await forbid(story)
            await story.clock.advance(30)

            async def told() -> bool:
                return (await story.conditions("taken")).get("Waiting", ("", ""))[0] == "NodeIsAlive"

            await story.eventually(told, "waiting")


async def test_without_the_right_to_read_revocations_nothing_is_approved(tmp_path: pathlib.Path) -> None:
    """Whoever asks may be one that is revoked."""
    async with c.told(tmp_path) as story:
        await story.bind("nodeclient", c.JOINERS)
        await forbid(story, "revocations")
        async with c.running(story.world):
            await story.ask(c.request("n2", name="new"), story.joiner())
            (event,) = await story.eventually(lambda: story.told("new"), "told")
            assert event[0] == "RevocationsForbidden"
            assert 'cannot list resource "revocations"' in event[1]
            assert await story.conditions("new") == {}
            await forbid(story)

            async def issued() -> bool:
                await story.clock.advance(10)
                return "certificate" in (await story.csr("new")).get("status", {})

            await story.eventually(issued, "issued")


async def test_a_lease_that_is_deleted_is_waited_for_no_longer(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, c.running(story.world):
        await story.bind("nodeclient", c.JOINERS)
        await waiting(story)
        begun = story.clock.monotonic()
        await story.client.delete(LEASES, "n1", namespace=WHERE)
        await story.issued("taken")
        assert story.clock.monotonic() - begun < 30


async def test_an_administrator_overrides(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, c.running(story.world):
        await story.bind("nodeclient", c.JOINERS)
        await waiting(story)
        begun = story.clock.monotonic()
        found = await story.csr("taken")
        row = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "it is being replaced"}
        found["status"]["conditions"].append(row)
        await story.client.update(c.CSRS, found, subresource="approval")
        await story.issued("taken")
        assert story.clock.monotonic() - begun < 30, "its Lease has not ended"


async def test_a_setting_turns_it_off(tmp_path: pathlib.Path) -> None:
    async with (
        c.told(tmp_path) as story,
        c.running(story.world, selection=controllers.Selection(protect_living_nodes=False)),
    ):
        await story.bind("nodeclient", c.JOINERS)
        await renew(story)
        begun = story.clock.monotonic()
        await story.ask(c.request("n1", name="taken"), story.joiner())
        await story.issued("taken")
        assert story.clock.monotonic() - begun < 30, "the Lease has not ended"
        assert "Waiting" not in await story.conditions("taken")


async def test_a_kubelet_that_lost_its_certificate_comes_through(tmp_path: pathlib.Path) -> None:
    """It files its request and waits, as a kubelet does; its own Lease is the one that it waits for."""
    async with c.told(tmp_path) as story, c.running(story.world), controlled.connected(story.world) as client:
        await story.bind("nodeclient", "system:masters")
        await renew(story)
        begun = story.clock.monotonic()
        wanted = wishes.node_client("n1")
        asking = asyncio.ensure_future(
            requesting.file_and_wait(client, keys.generate(), wanted, clock=story.clock, seconds=300)
        )
        await story.world.pass_time_until(asking, 0.25)
        assert asking.result().startswith(b"-----BEGIN CERTIFICATE-----")
        assert 59 <= story.clock.monotonic() - begun < 90


async def test_a_node_renews_while_it_is_alive(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, c.running(story.world):
        await story.bind("selfnodeclient", "system:nodes")
        await renew(story)
        begun = story.clock.monotonic()
        await story.ask(c.request("n1", name="renewal"), story.node("n1"))
        await story.issued("renewal")
        assert story.clock.monotonic() - begun < 30, "the Lease has not ended"
        assert "Waiting" not in await story.conditions("renewal")


async def test_nothing_is_filed_approved_or_signed_in_a_revoked_name(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story:
        await story.bind("nodeclient", c.JOINERS)
        for name in ("before", "approved"):
            await story.ask(c.request("n1", name=name), story.joiner())
        found = await story.csr("approved")
        row = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "m"}
        found["status"] = {"conditions": [row]}
        await story.client.update(c.CSRS, found, subresource="approval")
        await callers.revoke(story.world, "gone", node="n1", reason="stolen from the rack")
        # Nothing new is filed, whoever asks, and a person cannot approve what was there.
        for context in (story.joiner(), None):
            more = {} if context is None else {"context": context}
            answer = await story.world.request("POST", c.PATH, c.request("n1", name="after"), **more)
            assert answer.status == 403
            assert 'user "system:node:n1" is refused by Revocation "gone"' in answer.json()["message"]
            assert "stolen" not in answer.json()["message"]
        old = await story.csr("before")
        old["status"] = {"conditions": [row]}
        answer = await story.world.request("PUT", f"{c.PATH}/before/approval", old)
        assert answer.status == 403, answer.body
        # What was there is denied, and what was approved fails, before anything is signed.
        async with c.running(story.world, approver.NAME, signer.NAME):

            async def settled() -> bool:
                return "Denied" in await story.conditions("before") and "Failed" in await story.conditions("approved")

            await story.eventually(settled, "settled")
        assert (await story.conditions("before"))["Denied"][0] == "Revoked"
        assert (await story.conditions("approved"))["Failed"][0] == "Revoked"
        assert await story.ledger() == []


def machine(plane: up_world.Up, directory: pathlib.Path, name: str = "w1") -> Machine:
    directory.mkdir()
    return Machine(plane, directory, name)


def filed(plane: up_world.Up) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plane.call("GET", CSRS)[1]["items"]
    return found


def test_join_takes_no_living_nodes_name(plane: up_world.Up, tmp_path: pathlib.Path) -> None:
    first, second, third = (machine(plane, tmp_path / name) for name in ("first", "second", "third"))
    with first.joined().agent() as agent:
        agent.until_well()
        before = len(filed(plane))
        refused = second.join()
        assert refused.returncode == 1, refused.stderr
        assert 'there is a Node "w1" already, and it is Ready since ' in refused.stderr
        assert "--replace-node" in refused.stderr
        assert refused.stderr.endswith("reason: NodeIsAlive\n")
        assert (len(filed(plane)), second.kubeconfig.exists()) == (before, False)
        rehearsed = second.join("--dry-run")
        assert rehearsed.returncode == 1, rehearsed.stderr
        assert rehearsed.stderr.endswith("reason: NodeIsAlive\n")
        # With a token that may not look at Nodes it learns from what the approver says, and at once.
        bind(plane, BLIND, "system:node-bootstrapper", f"{c.ROLE}:nodeclient")
        blind = third.join_with(groups=BLIND)
        assert blind.returncode == 1, blind.stderr
        assert 'the Node "w1" is alive' in blind.stderr
        assert blind.stderr.endswith("reason: NodeIsAlive\n")
        # An administrator may have a node replaced that runs.
        with second.joining("--replace-node") as process:
            up_world.until(lambda: len(pending(plane)) == 2, what="two requests that wait")
            for name in pending(plane):
                done = up_world.run("csr", "approve", name, "--kubeconfig", plane.directory / "admin.conf")
                assert done.returncode == 0, done.stderr
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said
            assert "waiting until its Lease has ended" in said


def bind(plane: up_world.Up, group: str, *roles: str) -> None:
    for number, role in enumerate(roles):
        document = granting.binding(f"blind-{number}", "ClusterRole", role, granting.group(group))
        code, answer = plane.call("POST", granting.CLUSTER_BINDINGS, document)
        assert code == 201, answer


def pending(plane: up_world.Up) -> list[str]:
    return [
        found["metadata"]["name"]
        for found in filed(plane)
        if {row["type"] for row in (found.get("status") or {}).get("conditions") or ()} == {"Waiting"}
    ]


def test_join_under_a_revoked_name_is_refused(plane: up_world.Up, tmp_path: pathlib.Path) -> None:
    admin = ("--kubeconfig", plane.directory / "admin.conf")
    done = up_world.run("node", "revoke", "w9", *admin, "--reason", "stolen")
    assert done.returncode == 0, done.stderr
    before = len(filed(plane))
    new = machine(plane, tmp_path / "new", "w9")
    for refused in (new.join("--dry-run"), new.join()):
        assert refused.returncode == 1, refused.stderr
        assert 'user "system:node:w9" is refused by Revocation "' in refused.stderr
        assert "node revoke NAME --undo" in refused.stderr
        assert refused.stderr.endswith("reason: Revoked\n")
    assert len(filed(plane)) == before
