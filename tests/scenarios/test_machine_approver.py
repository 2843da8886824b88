# SPDX-License-Identifier: Apache-2.0
"""The machine-approver on a real server with real watches: who joins, who does not, and what the operator sees."""

from __future__ import annotations

import datetime
import pathlib

import pytest

from handfast.client import api
from handfast.controllers.machines import approver as machine_approver
from handfast.pki import keys
from handfast.rules.ledger import entries as ledger_entries
from handfast.rules.machines import inventory
from tests.scenarios import certified as c
from tests.scenarios import controlled, granting
from tests.scenarios import fleet_story as f

pytestmark = [pytest.mark.slow, pytest.mark.measured]


async def test_a_known_machine_joins_and_the_record_names_it(tmp_path: pathlib.Path) -> None:
    async with f.told(tmp_path) as story, f.running(story):
        await story.machine("w1", "w1.example")
        key = keys.generate()
        await story.ask(c.request("w1.example", name="join", key=key), story.bootstrapper())
        issued = await story.issued("join")
        conditions = await story.conditions("join")
        assert conditions["Approved"] == f.APPROVED
        assert conditions["MatchedMachine"] == ("MatchedMachine", f"Machine {f.FLEET}/w1")
        assert issued.subject.common_name == "system:node:w1.example"
        machine = await story.find(f.MACHINES, "w1", f.FLEET)
        assert machine["metadata"]["annotations"] == {inventory.APPROVED_KEY: key.public.fingerprint}
        # Without a lock both copies may sign: each certificate is in the ledger, and one of them was handed out.
        entries = [ledger_entries.decode_stored(line) for line in await story.ledger()]
        assert {entry.rule for entry in entries} == {f"MachineJoin: Machine {f.FLEET}/w1"}
        assert issued.fingerprint in {entry.certificate for entry in entries}


async def test_an_intruder_gets_nothing_and_the_operator_sees_why(tmp_path: pathlib.Path) -> None:
    async with f.told(tmp_path) as story, f.running(story):
        await story.machine("w1")
        await story.ask(c.request("w1", name="honest"), story.bootstrapper())
        await story.issued("honest")
        await story.ask(c.request("ghost", name="ghost"), story.bootstrapper())
        await story.ask(c.request("w1", name="second-key"), story.bootstrapper())
        assert await story.reason("ghost") == "NoMachine"
        assert await story.reason("second-key") == "AnotherKeyApproved"
        await story.quiet()
        for name in ("ghost", "second-key"):
            assert await story.conditions(name) == {}
            assert len(await story.told(name)) == 1


async def test_what_waits_goes_on_when_its_machine_node_or_setting_allows(tmp_path: pathlib.Path) -> None:
    async with f.told(tmp_path) as story, f.running(story):
        # The Machine comes after the request.
        await story.ask(c.request("w1", name="w1"), story.bootstrapper())
        assert await story.reason("w1") == "NoMachine"
        await story.machine("w1")
        await story.issued("w1")
        # The Node goes.
        await story.client.create(controlled.NODES, {"metadata": {"name": "w2"}})
        await story.machine("w2")
        await story.ask(c.request("w2", name="w2"), story.bootstrapper())
        assert await story.reason("w2") == "NodeExists"
        await story.client.delete(controlled.NODES, "w2")
        await story.issued("w2")
        # The setting changes.
        await story.settings("nodeClientCert: {disabled: true}")
        await story.machine("w3")
        await story.ask(c.request("w3", name="w3"), story.bootstrapper())
        assert await story.reason("w3") == "FlowDisabled"
        await story.settings("nodeClientCert: {disabled: false}")
        await story.issued("w3")
        # The address comes.
        await story.machine("w4", "elsewhere")
        await story.ask(c.request("w4", name="w4"), story.bootstrapper())
        assert await story.reason("w4") == "NoMachine"
        machine = await story.find(f.MACHINES, "w4", f.FLEET)
        machine["status"]["addresses"] = [{"type": "InternalDNS", "address": "W4."}]
        await story.client.update_status(f.MACHINES, machine)
        await story.issued("w4")


async def test_unreadable_settings_are_told_of_and_the_last_good_ones_stay(tmp_path: pathlib.Path) -> None:
    async with f.told(tmp_path) as story, f.running(story):
        await story.settings("nodeClientCert: {disabled: true}")
        await story.settings("joinWithin: soon")

        async def told() -> list[tuple[str, str]]:
            rows = await story.told_of("openshift-cluster-machine-approver", "machine-approver-config")
            return [row for row in rows if row[0] == "SettingsUnreadable"]

        ((_, message),) = await story.eventually(told, "the settings told of")
        assert 'joinWithin: "soon" is not allowed' in message
        await story.machine("w1")
        await story.ask(c.request("w1", name="w1"), story.bootstrapper())
        assert await story.reason("w1") == "FlowDisabled"


async def test_each_request_has_one_judge(tmp_path: pathlib.Path) -> None:
    """A binding that would have csrapproving approve goes round nothing here, and is named."""
    async with f.told(tmp_path) as story, f.running(story):
        role = f"{c.ROLE}:nodeclient"
        await granting.made(
            story.world,
            granting.CLUSTER_BINDINGS,
            granting.binding("round", "ClusterRole", role, granting.group("system:serviceaccounts")),
        )
        await story.bind("selfnodeclient", "system:nodes")
        await story.ask(c.request("ghost", name="ghost"), story.bootstrapper())
        assert await story.reason("ghost") == "NoMachine"

        async def named() -> list[tuple[str, str]]:
            return await story.told_of("default", "round")

        ((reason, message),) = await story.eventually(named, "the binding named")
        assert (reason, 'ClusterRoleBinding "round"' in message) == ("InventoryBypassed", True)
        # Renewals stay csrapproving's.
        await story.ask(c.request("w9", name="renewal"), story.node("w9"))
        await story.issued("renewal")
        assert (await story.conditions("renewal"))["Approved"][0] == ledger_entries.AUTO_APPROVED
        assert await story.conditions("ghost") == {}


async def test_a_machine_that_takes_too_long_is_told_the_window(tmp_path: pathlib.Path) -> None:
    window = datetime.timedelta(minutes=10)
    async with f.told(tmp_path) as story, f.running(story, join_within=window):
        await story.machine("w1")
        await story.clock.advance(601)
        await story.ask(c.request("w1", name="late"), story.bootstrapper())
        assert await story.reason("late") == "OutsideJoinWindow"
        await story.settings("joinWithin: 20m")
        await story.issued("late")


async def test_a_flood_parks_what_has_no_machine_and_the_others_go_on(tmp_path: pathlib.Path) -> None:
    async with f.told(tmp_path) as story, f.running(story):
        await story.machine("honest")
        context = story.bootstrapper()
        for number in range(130):
            await story.ask(c.request(f"ghost-{number}", name=f"ghost-{number}"), context)

        async def flooded() -> list[tuple[str, str]]:
            rows = await story.told_of("openshift-cluster-machine-approver", "machine-approver-config")
            return [row for row in rows if row[0] == "TooManyPending"]

        ((_, message),) = await story.eventually(flooded, "the flood told of")
        assert "requests without a Machine are parked" in message
        await story.ask(c.request("honest", name="honest"), context)
        await story.issued("honest")
        # A Machine for one of the parked lets it in.
        await story.machine("ghost-129")
        await story.issued("ghost-129")
        assert await story.conditions("ghost-128") == {}


async def test_the_approver_may_be_killed_between_its_two_writes(tmp_path: pathlib.Path) -> None:
    """What was reserved by one process is approved by the next, for the same key alone."""
    async with f.told(tmp_path) as story:
        machine = await story.machine("w1")
        key = keys.generate()
        # As a process leaves it that was killed between the two writes.
        machine["metadata"]["annotations"] = {inventory.APPROVED_KEY: key.public.fingerprint}
        await story.client.update(f.MACHINES, machine)
        await story.ask(c.request("w1", name="same", key=key), story.bootstrapper())
        await story.ask(c.request("w1", name="other"), story.bootstrapper())
        async with f.running(story):
            await story.issued("same")
            assert await story.reason("other") == "AnotherKeyApproved"

        # A new process says it again in the same Event, and approves nothing that the last one did not.
        async def twice() -> bool:
            events = await story.client.list(controlled.EVENTS, api.Scope(namespace="default"))
            rows = [(row["reason"], row["count"]) for row in events if row["involvedObject"].get("name") == "other"]
            return rows == [("AnotherKeyApproved", 2)]

        async with f.running(story):
            await story.eventually(twice, "the same Event again")
            await story.quiet()
            assert await story.conditions("other") == {}


async def test_the_rights_that_are_printed_are_enough(tmp_path: pathlib.Path) -> None:
    """The account of the manifest and its rights, and nothing else, as on another API server."""
    async with f.told(tmp_path) as story, f.running_as_printed(story, machine_approver.NAME):
        await story.machine("w1")
        await story.ask(c.request("w1", name="join"), story.bootstrapper())

        async def approved() -> bool:
            return "Approved" in await story.conditions("join")

        await story.eventually(approved, "approved")
        await story.settings("joinWithin: soon")
        await story.ask(c.request("ghost", name="ghost"), story.bootstrapper())
        assert await story.reason("ghost") == "NoMachine"

        async def told() -> list[tuple[str, str]]:
            return await story.told_of("openshift-cluster-machine-approver", "machine-approver-config")

        await story.eventually(told, "the settings told of")
        assert f.forbidden(story) == 0
