# SPDX-License-Identifier: Apache-2.0
"""A machine that comes back as the node it was: known, silent, proven, and not too often."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from handfast.api import objects
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper, inventory, readmission, settings
from handfast.rules.nodes import claim
from tests.unit.rules.csr_cases import KEY, csr

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
MONTH = datetime.timedelta(days=30)
GROUPS = [*bootstrapper.GROUPS, "system:authenticated"]
SILENT = kubelet.Check(claim.CHECK, True, "nobody renews the Lease")
ALIVE = kubelet.Check(claim.CHECK, False, "it was renewed just now")
PROVEN = approval.Step(kubelet.Check("proof", True, "proven"))
UNPROVEN = approval.Step(kubelet.Check("proof", False, "not proven"), "NotProven")


def machine(**more: Any) -> inventory.Machine:
    facts = {
        "addresses": (inventory.Address("InternalDNS", "panda"),),
        "node": "panda",
        "approved_key": "old",
        "created": NOW - MONTH,
        **more,
    }
    return inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="panda", **facts)


FACTS = kubelet.read(csr(cn="system:node:panda", user=bootstrapper.USER, groups=GROUPS))


def judge(
    there: inventory.Machine,
    *others: inventory.Machine,
    proof: approval.Step | None = PROVEN,
    alive: kubelet.Check = SILENT,
    node_exists: bool = True,
) -> str:
    """The reason of the first check that fails; `approve` where none does."""
    index = inventory.Index()
    for each in (there, *others):
        index.put(each)
    further = () if proof is None else (lambda *_: proof,)
    verdict = approval.judge(
        FACTS, NOW, settings=settings.DEFAULT, machines=index, node_exists=node_exists, further=further
    )
    if readmission.concerns(verdict, FACTS, node_exists=node_exists):
        linked = index.by_node("panda")
        verdict = readmission.judge(verdict, FACTS, proofs=len(further), linked=linked, alive=alive, now=NOW)
    return "approve" if verdict.failed is None else verdict.failed.reason


def test_a_known_silent_machine_with_a_proof_comes_back_with_another_key():
    assert judge(machine()) == "approve"


def test_without_a_proof_nobody_is_readmitted():
    assert judge(machine(), proof=None) == approval.NODE_EXISTS


def test_a_failed_proof_stays_failed():
    assert judge(machine(), proof=UNPROVEN) == "NotProven"


def test_a_living_node_keeps_its_name():
    assert judge(machine(), alive=ALIVE) == claim.NODE_IS_ALIVE


@pytest.mark.parametrize("node", ["", "tiger"])
def test_a_node_that_is_linked_to_another_machine_is_not_taken(node: str):
    assert judge(machine(node=node)) == approval.NODE_EXISTS


def test_of_two_machines_that_are_linked_to_the_node_neither_comes_back():
    other = dataclasses.replace(machine(addresses=()), name="twin")
    assert judge(machine(), other) == readmission.LINKED_TWICE


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"deleting": True}, approval.DELETING), ({"phase": "Failed"}, approval.FAILED)],
)
def test_a_machine_that_is_going_stays_away(change: dict[str, Any], reason: str):
    assert judge(machine(**change)) == reason


def test_without_its_node_it_joins_as_everybody_does():
    assert judge(machine(), node_exists=False) == approval.LINKED


@pytest.mark.parametrize(
    ("ago", "key", "reason"),
    [
        pytest.param(datetime.timedelta(minutes=59), "another", readmission.TOO_SOON, id="within the hour"),
        pytest.param(datetime.timedelta(minutes=60), "another", "approve", id="an hour later"),
        pytest.param(datetime.timedelta(minutes=1), KEY.public.fingerprint, "approve", id="the same key again"),
        pytest.param(datetime.timedelta(minutes=1), "", "approve", id="forgotten by an operator"),
    ],
)
def test_one_key_an_hour(ago: datetime.timedelta, key: str, reason: str):
    annotations = {readmission.READMITTED: objects.timestamp(NOW - ago)}
    assert judge(machine(approved_key=key, annotations=annotations)) == reason


@pytest.mark.parametrize("text", ["", "soon", "9999-12-31T23:59:59Z"])
def test_an_instant_that_cannot_be_read_holds_nobody_up(text: str):
    assert readmission.is_due(machine(annotations={readmission.READMITTED: text})) is None


def test_a_request_that_matches_no_machine_is_left_as_it_is():
    verdict = approval.Verdict(())
    assert not readmission.concerns(verdict, FACTS, node_exists=True)
    same = readmission.judge(verdict, FACTS, proofs=1, linked=(), alive=SILENT, now=NOW)
    assert same is verdict
