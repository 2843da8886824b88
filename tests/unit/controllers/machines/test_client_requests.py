# SPDX-License-Identifier: Apache-2.0
"""What is asked of the server as late as can be, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import status
from handfast.client import machines
from handfast.controllers.certificates import living_nodes
from handfast.controllers.machines import client_requests
from handfast.pki import keys
from handfast.rules.machines import approval, inventory, proofs, readmission, rivals, source_address, standing
from tests.unit.controllers.csr_world import PLURAL
from tests.unit.controllers.machines.machine_world import MACHINES, World


async def judged(world: World, name: str = "x") -> approval.Verdict:
    item = world.requests.get(name)
    settings = world.settings.current
    assert item is not None
    assert settings is not None
    facts = world.requests.facts(item)
    verdict = await world.judge.judge(item, facts, settings)
    return verdict if verdict.failed is not None else await world.judge.confirm(item, facts, verdict)


def reason(verdict: approval.Verdict) -> str:
    return "" if verdict.failed is None else verdict.failed.reason


async def test_the_key_is_reserved_before_anything_is_approved() -> None:
    world = World()
    key = keys.generate()
    world.machine()
    world.ask(key=key)
    assert await world.handler.reconcile("x") is None
    assert world.updates() == [("patch", "machines", "w1"), ("update approval", PLURAL, "x")]
    assert world.stored_machine()["metadata"]["annotations"] == {inventory.APPROVED_KEY: key.public.fingerprint}


async def test_of_two_keys_at_once_one_is_approved() -> None:
    world = World()
    world.machine()
    world.ask("one", key=keys.generate())
    world.ask("two", key=keys.generate())
    assert reason(await judged(world, "one")) == ""
    # Another process, whose watches have told neither of the first one nor of its key yet.
    world.others.gone("one")
    with pytest.raises(status.StatusError) as caught:
        await judged(world, "two")
    assert caught.value.reason == "Conflict"
    world.watched(world.stored_machine())
    assert reason(await judged(world, "two")) == "AnotherKeyApproved"


@pytest.mark.parametrize("after", [0, 1])
async def test_of_many_keys_that_wait_the_first_one_is_approved(after: float) -> None:
    """An intruder sees the machine's request, and files many more, within the same second or the next."""
    world, honest = World(), keys.generate()
    world.ask("honest", key=honest)
    evil = [f"{letter}-evil" for letter in "abcdefghijxyz"]
    for name in evil:
        world.ask(name, key=keys.generate(), after=after)
    for name in ("honest", *evil):
        await world.handler.reconcile(name)
    world.machine()
    # Whoever is looked at first.
    for name in (*evil, "honest"):
        await world.handler.reconcile(name)
    assert [name for name in ("honest", *evil) if world.conditions(name)] == ["honest"]
    assert world.stored_machine()["metadata"]["annotations"] == {inventory.APPROVED_KEY: honest.public.fingerprint}
    rows = [message for why, message in world.events() if why == rivals.ANOTHER_ASKS]
    assert len(rows) == len(evil)
    assert 'the request "honest" of 2030-01-01T00:00:00Z' in rows[0]
    assert "`handfast csr deny honest`" in rows[0]


async def test_who_waits_for_an_older_request_is_judged_again_when_that_is_denied() -> None:
    world = World()
    world.machine()
    world.renew("w1")
    world.ask("older", key=keys.generate())
    world.ask("younger", key=keys.generate(), after=1)
    for name in ("older", "younger"):
        await world.handler.reconcile(name)
    assert [why for why, _ in world.events()] == ["NodeIsAlive", rivals.ANOTHER_ASKS]
    world.looked.clear()
    world.add("older", "Denied")
    assert world.looked == ["younger"]
    assert reason(await judged(world, "younger")) == "NodeIsAlive"


async def test_who_would_not_be_approved_keeps_nobody_waiting() -> None:
    world = World()
    world.ask("early", key=keys.generate(), after=-60)
    world.ask("own", key=keys.generate())
    world.machine()
    assert reason(await judged(world, "own")) == ""


async def test_a_proof_that_a_rival_lacks_is_no_reason_to_wait() -> None:
    world = World()
    world.configure("sourceAddress: true")
    rows = [{"type": "InternalDNS", "address": "w1"}, {"type": "InternalIP", "address": "10.0.0.5"}]
    world.machine(addresses=rows)
    world.ask("elsewhere", key=keys.generate(), extra={source_address.KEY: ["10.0.0.66"]})
    world.ask("own", key=keys.generate(), after=1, **FROM)
    assert reason(await judged(world, "own")) == ""


async def test_who_waited_when_its_machine_was_readmitted_is_not_approved() -> None:
    world = World()
    world.machine()
    world.ask("first", key=keys.generate())
    await world.handler.reconcile("first")
    world.watched(world.stored_machine())
    world.ask("evil", key=keys.generate(), after=5)
    assert reason(await judged(world, "evil")) == "AnotherKeyApproved"
    known = machines.Machines(world.known.index, {inventory.OPENSHIFT: MACHINES})
    readmission_ = await machines.readmit(world.client, known, known.one("w1"))
    assert readmission_.waited == ("evil",)
    world.watched(world.stored_machine())
    assert reason(await judged(world, "evil")) == approval.BEFORE_READMISSION
    # The machine, set up anew, asks after it.
    world.ask("own", key=keys.generate(), after=6)
    assert reason(await judged(world, "own")) == ""


async def test_who_was_killed_after_the_reservation_goes_on_with_the_same_key() -> None:
    world = World()
    key = keys.generate()
    world.machine()
    world.ask(key=key)
    await judged(world)
    # Killed here: the request is not approved. The next process knows the Machine as it is now.
    world.watched(world.stored_machine())
    await world.handler.reconcile("x")
    assert world.conditions()[0][:2] == ("Approved", "NodeCSRApprove")


async def test_a_node_that_the_watch_has_not_told_of_counts() -> None:
    world = World()
    world.machine()
    world.node("w1", watched=False)
    world.ask()
    assert reason(await judged(world)) == "NodeExists"
    world.watched(world.stored_machine())
    await world.handler.reconcile("x")
    assert world.conditions() == []


async def test_a_machine_that_has_changed_is_judged_again() -> None:
    world = World()
    world.machine()
    world.ask()
    # Somebody has it deleted, and the watch has not told of it.
    world.client.put("machines", "w1", "fleet", metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"})
    with pytest.raises(status.StatusError) as caught:
        await world.handler.reconcile("x")
    assert caught.value.reason == "Conflict"
    assert world.conditions() == []


async def test_a_living_node_keeps_its_name() -> None:
    world = World()
    world.machine()
    world.renew("w1")
    world.ask()
    again = await world.handler.reconcile("x")
    assert again is not None
    assert 0 < again <= 41
    ((kind, why, message),) = world.conditions()
    assert (kind, why, "is alive" in message) == ("Waiting", "NodeIsAlive", True)
    assert [row[0] for row in world.said_of("CertificateSigningRequest")] == ["NodeIsAlive"]
    assert "patch" not in [call[0] for call in world.updates()]
    # Its Lease ends, and nobody renews it for a while longer: nothing is said of that.
    while again is not None:
        await world.clock.advance(again)
        again = await world.handler.reconcile("x")
    assert [row[0] for row in world.conditions()] == ["Approved", "MatchedMachine"]
    assert len(world.said_of("CertificateSigningRequest")) == 1


@pytest.mark.parametrize("plural", ["machines", "leases"])
async def test_a_missing_right_is_named(plural: str) -> None:
    world = World()
    world.machine()
    world.node("w1", watched=False)
    world.ask()

    def refuse(verb: str, what: str, _: str) -> None:
        if what == plural:
            raise status.StatusError("Forbidden", f"cannot {verb} {what}")

    world.client.before = refuse
    again = await world.handler.reconcile("x")
    ((why, message),) = world.said_of("CertificateSigningRequest")
    expected = {"machines": "MachinesForbidden", "leases": "LeasesForbidden"}[plural]
    assert (again, why, "--print-manifest" in message) == (30.0, expected, True)
    assert world.conditions() == []


async def test_machines_that_may_not_be_read_let_nobody_in() -> None:
    world = World()
    world.machine()
    world.ask()
    world.known.refused = ("machines is forbidden",)
    assert await world.handler.reconcile("x") == 30.0
    ((why, message),) = world.said_of("CertificateSigningRequest")
    assert (why, "machines is forbidden" in message) == ("MachinesForbidden", True)
    world.known.refused = ()
    assert await world.handler.reconcile("x") is None
    assert world.conditions()[0][0] == "Approved"


async def test_a_request_that_is_gone_waits_for_no_lease() -> None:
    world = World()
    world.machine()
    world.renew("w1")
    world.ask()
    await world.handler.reconcile("x")
    assert world.living.waiting_for("w1") == ("x",)
    world.handler.gone("x")
    assert world.living.waiting_for("w1") == ()


CERTIFICATE: dict[str, Any] = {"extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=ab"]}}


@pytest.mark.parametrize("more", [CERTIFICATE, {}])
async def test_a_revoked_credential_takes_its_requests_along(more: dict[str, Any]) -> None:
    """As the seed says it: somebody deletes the ConfigMap or the Secret, and no command denies the requests."""
    world = World()
    world.ask("stolen", key=keys.generate(), **more)
    await world.handler.reconcile("stolen")
    places = standing.TRUST if more else standing.TOKEN
    for place in places:
        world.places[place].remove(next(iter(world.places[place])))
    world.machine()
    await world.handler.reconcile("stolen")
    assert world.conditions("stolen") == []
    assert [why for why, _ in world.events()] == ["NoMachine", standing.REVOKED]
    # Made anew, it counts for what is asked from then on.
    world.credential(places[0], after=3)
    await world.handler.reconcile("stolen")
    assert world.conditions("stolen") == []
    world.ask("own", key=keys.generate(), after=4, **more)
    await world.handler.reconcile("own")
    assert world.conditions("own")[0][0] == "Approved"


async def test_who_waits_for_a_request_whose_credential_is_revoked_is_judged_again() -> None:
    world = World()
    world.machine()
    world.renew("w1")
    world.ask("stolen", key=keys.generate(), **CERTIFICATE)
    world.ask("own", key=keys.generate(), after=1)
    await world.handler.reconcile("own")
    assert [why for why, _ in world.events()] == [rivals.ANOTHER_ASKS]
    world.looked.clear()
    for place in standing.TRUST:
        world.places[place].remove(next(iter(world.places[place])))
    assert set(world.looked) == {"own"}
    assert reason(await judged(world, "own")) == "NodeIsAlive"


async def test_a_credential_that_may_not_be_looked_up_lets_nobody_in() -> None:
    world = World()
    world.machine()
    world.ask()
    for place in standing.TOKEN:
        world.places[place].refused("secrets is forbidden")
    assert await world.handler.reconcile("x") == 30.0
    ((why, message),) = world.said_of("CertificateSigningRequest")
    assert (why, "secrets is forbidden" in message) == (standing.FORBIDDEN, True)
    for place in standing.TOKEN:
        world.places[place].refused("")
    assert await world.handler.reconcile("x") is None
    assert world.conditions()[0][0] == "Approved"


BACK = "{sourceAddress: true, readmission: true}"
FROM: dict[str, Any] = {"extra": {source_address.KEY: ["10.0.0.5"]}}


def shut_down() -> World:
    """A machine that joined as w1 and is off: its Node and its Machine are there, its Lease is not."""
    world = World()
    world.configure(BACK)
    rows = [{"type": "InternalDNS", "address": "w1"}, {"type": "InternalIP", "address": "10.0.0.5"}]
    world.machine(addresses=rows, nodeRef={"name": "w1"})
    world.node("w1")
    return world


async def test_a_machine_that_comes_back_replaces_its_key() -> None:
    world, key = shut_down(), keys.generate()
    world.ask(key=key, **FROM)
    assert await world.handler.reconcile("x") is None
    marks = world.stored_machine()["metadata"]["annotations"]
    assert marks[inventory.APPROVED_KEY] == key.public.fingerprint
    assert marks[readmission.READMITTED] == "2030-01-01T00:00:00Z"
    assert ("Readmitted", "Machine fleet/w1, readmitted by its source address") in [
        (reason, message.partition(";")[0]) for reason, message in world.events()
    ]


async def test_a_node_that_goes_while_its_machine_comes_back_is_judged_anew() -> None:
    world = shut_down()
    world.ask(**FROM)
    del world.client.objects["nodes", "", "w1"]
    assert reason(await judged(world)) == readmission.NODE_GONE


async def test_where_no_leases_are_followed_nobody_comes_back() -> None:
    world = shut_down()
    unprotected = living_nodes.LivingNodes(world.client, world.clock, None)
    world.judge = client_requests.ClientRequests(
        world.client, world.known, world.nodes, unprotected, world.others, world.credentials
    )
    world.ask(**FROM)
    assert reason(await judged(world)) == approval.NODE_EXISTS


async def test_a_machine_whose_address_is_not_proven_does_not_come_back() -> None:
    world = shut_down()
    world.ask(extra={source_address.KEY: ["10.0.0.66"]})
    assert reason(await judged(world)) == proofs.WRONG_ADDRESS
    assert world.updates() == []


async def test_the_credential_is_read_when_all_else_is_well() -> None:
    world = World()
    world.configure("credential: per-machine")
    asked_for: list[str] = []
    world.client.before = lambda _verb, plural, _name: asked_for.append(plural)
    world.ask()
    assert reason(await judged(world)) == approval.NO_MACHINE
    assert "secrets" not in asked_for
    world.machine()
    assert reason(await judged(world)) == proofs.SHARED_CREDENTIAL
    assert "secrets" in asked_for
