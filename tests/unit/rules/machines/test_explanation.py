# SPDX-License-Identifier: Apache-2.0
"""A machine's way to being a node: where it stands still, and what is said to do about it."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from handfast.api import signing_requests
from handfast.rules.certificates import kubelet
from handfast.rules.ledger import entries
from handfast.rules.machines import approval, explanation, inventory

NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
MACHINE = inventory.Machine(
    group=inventory.OPENSHIFT,
    namespace="fleet",
    name="m1",
    addresses=(inventory.Address("InternalDNS", "Panda."),),
)
ENTRY = entries.Entry(
    issued_at=NOW,
    signer="s",
    requester="r",
    authenticated_by="x509",
    token_id="",
    key_fingerprint="",
    serial="ab12",
    names=("CN=system:node:panda",),
    not_after=NOW,
    rule="r",
    request="csr",
    certificate="",
)


def request(*conditions: tuple[str, str], certificate: str | None = None) -> signing_requests.Request:
    rows = [signing_requests.condition(kind, reason, "said", "") for kind, reason in conditions]
    return signing_requests.Request(
        metadata=signing_requests.Meta(name="csr-1", creation_timestamp="2026-01-31T12:00:00Z"),
        status=signing_requests.Status(conditions=rows, certificate=certificate),
    )


def verdict(*, passed: bool, change: str = "do this") -> approval.Verdict:
    return approval.Verdict((approval.Step(kubelet.Check("Machine", passed, "what"), "NoMachine", change=change),))


def facts(**changes: Any) -> explanation.Facts:
    return explanation.Facts(**{"machine": MACHINE, "credentials": ("workers' token",), **changes})


def waiting(**changes: Any) -> explanation.Stage:
    (stage,) = [stage for stage in explanation.walk(facts(**changes)) if stage.state == explanation.WAITS]
    return stage


def machine(**changes: Any) -> inventory.Machine:
    return dataclasses.replace(MACHINE, **changes)


def test_the_node_has_the_machines_internal_name_in_lower_case_without_a_last_dot():
    assert explanation.node_name(MACHINE) == "panda"


@pytest.mark.parametrize(
    ("changes", "stage", "seen", "to_do"),
    [
        ({"machine": machine(addresses=())}, "known", "no InternalDNS name", "an address of type InternalDNS"),
        ({"rivals": [machine(name="m2")]}, "known", "Machine fleet/m2: none of them counts", "leave the InternalDNS"),
        ({"machine": machine(deleting=True)}, "known", "is being deleted", "make another"),
        ({"machine": machine(phase="Failed")}, "known", "has failed", "make another"),
        ({"credentials": ()}, "credential", "no bootstrap credential counts", "up --machines"),
        ({}, "asked", "no request for its node name", 'is called "panda"'),
        ({"requests": [request()], "verdict": verdict(passed=False)}, "judged", "waits: Machine: what", "do this"),
        ({"requests": [request()], "verdict": verdict(passed=False, change="")}, "judged", "waits", "by hand"),
        ({"requests": [request()], "verdict": verdict(passed=True)}, "judged", "not judged", "machine-approver runs"),
        ({"requests": [request()]}, "judged", "not judged", "machine-approver runs"),
        ({"requests": [request(("Denied", "No"))]}, "judged", "denied (No): said", "ask again"),
        ({"requests": [request(("Approved", "Y"))]}, "issued", "no certificate", "signing controller"),
        ({"requests": [request(("Approved", "Y"), certificate="x")]}, "registered", 'no Node "panda"', "its kubelet"),
        ({"issued": ENTRY}, "registered", 'no Node "panda"', "its kubelet"),
        ({"issued": ENTRY, "node_exists": True}, "linked", "linked to no Node", "node-link controller"),
    ],
)
def test_the_first_stage_that_is_not_done_says_what_to_do(changes, stage, seen, to_do):
    standing = waiting(**changes)
    assert standing.name == stage
    assert seen in standing.sentence
    assert to_do in standing.change


def test_stages_after_the_one_that_waits_come_later_and_ask_for_nothing():
    stages = explanation.walk(facts())
    assert [stage.state for stage in stages] == ["done", "done", "waits", "later", "later", "later", "later"]
    assert [stage.change for stage in stages if stage.state != explanation.WAITS] == [""] * 6


def test_a_machine_that_is_linked_has_gone_all_the_way_whatever_traces_are_left():
    stages = explanation.walk(facts(machine=machine(node="panda"), credentials=()))
    assert {stage.state for stage in stages} == {"done"}
    assert stages[-1].sentence == 'linked to the Node "panda"'


def test_the_way_of_a_machine_is_told_with_what_was_seen():
    several = [request(("Approved", "NodeCSRApprove")), request(("Denied", "No"))]
    stages = explanation.walk(facts(requests=several, issued=ENTRY, node_exists=True, node_created="2026-01-31"))
    told = {stage.name: stage.sentence for stage in stages}
    assert told["asked"] == "request csr-1 of 2026-01-31T12:00:00Z, the newest of 2"
    assert told["judged"] == "approved (NodeCSRApprove): said"
    assert told["issued"] == "serial ab12, until 2026-01-31T12:00:00Z"
    assert told["registered"] == 'there is a Node "panda", since 2026-01-31'


def test_another_who_asks_in_the_name_of_a_machine_is_seen():
    joined = request(("Approved", "NodeCSRApprove"), certificate="x")
    asked = explanation.walk(facts(requests=[joined, request()]))[2]
    assert asked.sentence == "request csr-1 of 2026-01-31T12:00:00Z, the newest of 2; these wait, too: csr-1"
    many = explanation.walk(facts(requests=[joined, *[request()] * 11]))[2]
    assert many.sentence.endswith(", csr-1, …")


def test_a_request_that_was_cleaned_up_is_no_reason_to_ask_again():
    told = {stage.name: stage.sentence for stage in explanation.walk(facts(issued=ENTRY))}
    assert told["asked"] == "its request was cleaned up"
    assert told["judged"] == "approved, as the ledger shows"
