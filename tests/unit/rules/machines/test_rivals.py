# SPDX-License-Identifier: Apache-2.0
"""Of several keys for one Machine, which request stands first."""

from __future__ import annotations

import base64
import dataclasses
import datetime

from handfast.pki import keys, names, requests
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, inventory, rivals
from tests.unit.rules.csr_cases import csr

BASE = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
ADDRESSES = tuple(inventory.Address("InternalDNS", text) for text in ("w1", "w1.example"))
MACHINE = inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="w1", addresses=ADDRESSES)
OWN = keys.generate()


def asks(
    name: str, *, seconds: float = 0, version: int = 0, node: str = "w1", key: keys.PrivateKey | None = None
) -> rivals.Asking:
    subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
    content = requests.build(subject, names.Sans(), key or keys.generate())
    facts = kubelet.read(csr(request=base64.b64encode(content).decode()))
    return rivals.Asking(dataclasses.replace(facts, name=name), BASE + datetime.timedelta(seconds=seconds), version)


def first(mine: rivals.Asking, *others: rivals.Asking, failing: str = "") -> str:
    before = rivals.first(mine, others, MACHINE, lambda one: one.facts.name != failing)
    return "" if before is None else before.facts.name


def test_what_was_filed_in_answer_never_stands_first():
    own, *evil = asks("own"), asks("a", seconds=1), asks("b", seconds=2)
    assert first(own, *evil) == ""
    assert [first(each, own, *evil) for each in evil] == ["own", "own"]


def test_within_a_second_the_first_version_decides():
    own, evil = asks("own", version=9), asks("a", version=10)
    assert (first(own, evil), first(evil, own)) == ("", "own")


def test_of_two_that_cannot_be_told_apart_neither_stands_first():
    one, other = asks("one"), asks("other")
    assert (first(one, other), first(other, one)) == ("other", "one")


def test_another_name_of_the_machine_is_a_rival_too():
    evil = asks("evil", seconds=1, node="W1.example.")
    assert first(evil, asks("own")) == "own"
    assert first(evil, asks("theirs", node="w2")) == ""


def test_requests_with_one_key_are_one_machines():
    assert first(asks("again", seconds=1, key=OWN), asks("own", key=OWN)) == ""


def test_who_would_not_be_approved_keeps_nobody_waiting():
    own = asks("own", seconds=2)
    assert first(own, asks("early"), asks("second", seconds=1), failing="early") == "second"
    assert first(own, asks("early"), failing="early") == ""


def test_who_waits_is_told_for_whom_and_what_to_do():
    step = rivals.step(asks("it's mine"))
    assert step.reason == "AnotherKeyAsks"
    assert (
        'the request "it\'s mine" of 2030-01-01T00:00:00Z asks for this Machine with another key' in step.check.compared
    )
    assert "`handfast csr deny 'it'\"'\"'s mine'`" in step.change
    assert {approval.MACHINE, approval.NODE, approval.SETTINGS, approval.REQUEST} <= step.waits_for


def test_who_stands_first_waits_for_nobody():
    assert rivals.step(None).check.passed
