# SPDX-License-Identifier: Apache-2.0
"""A machine that comes back as the node it was: known, silent, proven, and not too often."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from handfast.api import objects
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper, inventory, linking, readmission, settings
from tests.unit.rules.csr_cases import KEY, csr

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
MONTH = datetime.timedelta(days=30)
GROUPS = [*bootstrapper.GROUPS, "system:authenticated"]
ON = settings.Settings(readmission=True, source_address=True)


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


def verdict_of(
    there: inventory.Machine,
    *others: inventory.Machine,
    chosen: settings.Settings = ON,
    node_exists: bool = True,
) -> approval.Verdict:
    index = inventory.Index()
    for each in (there, *others):
        index.put(each)
    verdict = approval.judge(FACTS, NOW, settings=chosen, machines=index, node_exists=node_exists)
    linked = index.by_node("panda")
    return readmission.judge(verdict, FACTS, settings=chosen, node_exists=node_exists, linked=linked, now=NOW)


def judge(there: inventory.Machine, *others: inventory.Machine, **more: Any) -> str:
    """The reason of the first check that fails; `approve` where none does."""
    failed = verdict_of(there, *others, **more).failed
    return "approve" if failed is None else failed.reason


def test_a_known_machine_comes_back_with_another_key():
    assert judge(machine()) == "approve"
    assert readmission.is_readmission(verdict_of(machine()))
    assert judge(machine(), chosen=settings.Settings(readmission=True, credential=settings.PER_MACHINE)) == "approve"


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(settings.Settings(readmission=True), id="no proof is asked for"),
        pytest.param(settings.Settings(source_address=True), id="it is off"),
    ],
)
def test_without_a_proof_nobody_is_readmitted(chosen: settings.Settings):
    assert judge(machine(), chosen=chosen) == approval.NODE_EXISTS
    assert not readmission.is_readmission(verdict_of(machine(), chosen=chosen))


@pytest.mark.parametrize("node", ["", "tiger"])
def test_a_node_that_is_linked_to_another_machine_is_not_taken(node: str):
    assert judge(machine(node=node)) == approval.NODE_EXISTS


def test_of_two_machines_that_are_linked_to_the_node_neither_comes_back():
    other = dataclasses.replace(machine(addresses=()), name="twin")
    assert judge(machine(), other) == linking.AMBIGUOUS_LINK


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
    assert readmission.next_at(machine(annotations={readmission.READMITTED: text})) is None


def test_a_request_that_matches_no_machine_is_left_as_it_is():
    verdict = approval.Verdict(())
    same = readmission.judge(verdict, FACTS, settings=ON, node_exists=True, linked=(), now=NOW)
    assert same is verdict


def test_who_comes_too_soon_is_judged_again_when_the_hour_is_over():
    annotations = {readmission.READMITTED: objects.timestamp(NOW - datetime.timedelta(minutes=50))}
    assert verdict_of(machine(annotations=annotations)).again == 600.0


def test_what_is_written_on_the_machine_is_the_key_and_the_instant_of_a_change():
    key = approval.key_of(FACTS)
    changed = readmission.marks(machine(), key, NOW)
    assert changed == {inventory.APPROVED_KEY: key, readmission.READMITTED: objects.timestamp(NOW)}
    assert readmission.marks(machine(approved_key=key), key, NOW) == {inventory.APPROVED_KEY: key}


def test_a_node_that_goes_meanwhile_is_waited_for():
    step = readmission.node_gone(FACTS)
    assert (step.reason, step.waits_for) == (readmission.NODE_GONE, frozenset({approval.NODE}))
