# SPDX-License-Identifier: Apache-2.0
"""What is said about a request; that the rules decide so is tested with the rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast.api import signing_requests
from handfast.rules import decision, request_explanation
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper, inventory, settings
from tests.unit.rules.csr_cases import HOUR, NOW, SERVING, certificate, condition, csr, serving

ADDRESSES = ("a.example", "192.0.2.1", "another.example")
RESERVED = frozenset({"another.example"})
YES = decision.Approve("RBAC", "allowed by ClusterRoleBinding b", "rbac")
NO = decision.NotMine("NoRuleAllows", "", "rbac")
ALL = {"selfnodeclient": True, "nodeclient": True, "selfnodeserver": True}


def typed(document: dict[str, Any]) -> signing_requests.Request:
    return msgspec.convert(document, signing_requests.Request)


def explain(
    document: dict[str, Any], answers: dict[str, Any] | None = None, addresses: tuple[str, ...] | None = ADDRESSES
) -> request_explanation.Explanation:
    answers = ALL if answers is None else answers
    return request_explanation.explain(
        typed(document), NOW, answers=answers, node_addresses=addresses, reserved=RESERVED
    )


def failed(explanation: request_explanation.Explanation) -> list[str]:
    return [check.name for check in explanation.checks if not check.passed]


LIVING = kubelet.Check("living node", False, 'the Node "a" is alive')
REVOKED = kubelet.Check("revocation", False, 'user "system:node:a" is refused by Revocation "x"')


def test_what_other_rules_say():
    def said(document: dict[str, Any], *other_checks: kubelet.Check) -> request_explanation.Explanation:
        return request_explanation.explain(
            typed(document), NOW, answers=ALL, node_addresses=None, other_checks=other_checks
        )

    joining = csr(user="system:bootstrap:abcdef")
    waiting = said(joining, LIVING)
    assert waiting.sentence == 'Pending: living node: the Node "a" is alive'
    assert waiting.remedy.endswith("approve it all the same: handfast csr approve csr-1")
    passing = kubelet.Check("living node", True, "nobody")
    assert (said(joining, passing).verdict, said(joining, passing).checks[-1]) == ("WillBeApproved", passing)
    refused = said(joining, passing, REVOKED)
    assert (refused.verdict, refused.remedy) == ("Pending", "delete the Revocation, and create a new request")
    # Whoever approved it: a living node is no matter any more, a revocation is.
    approved = {**joining, "status": APPROVED}
    assert said(approved, LIVING).verdict == "WaitingForSigner"
    assert said(approved, LIVING, REVOKED).sentence.startswith("WillFail: revocation: ")
    assert said(approved, LIVING, REVOKED).remedy == "delete the Revocation, and create a new request"


SETTLED = [
    pytest.param(
        {"certificate": certificate(NOW + HOUR), "conditions": [condition("Approved")]},
        "Issued",
        "revoke it",
        id="issued",
    ),
    pytest.param({"conditions": [condition("Denied", message="not ours")]}, "Denied", "final", id="denied"),
    pytest.param({"conditions": [condition("Failed", reason="Bad")]}, "Failed", "new request", id="failed"),
    pytest.param(
        {"conditions": [condition("Approved"), condition("Failed")]}, "Failed", "new request", id="approved, failed"
    ),
]


ISSUED = {"certificate": certificate(NOW + HOUR), "conditions": [condition("Approved")]}


def test_an_issued_one_has_the_checks_of_a_pending_one():
    pending = explain(csr())
    issued = explain({**csr(), "status": ISSUED})
    assert issued.checks == pending.checks != ()
    # As they come out now: what was approved by hand, or lost its permission since, is issued all the same.
    lost = explain({**csr(), "status": ISSUED}, answers={})
    assert failed(lost) == ["permission"]
    assert (lost.verdict, lost.sentence) == ("Issued", "Issued")
    # Of what other rules say, all but that a node of this name lives: it may be the one whose certificate this is.
    other_checks = (LIVING, REVOKED)
    known = request_explanation.explain(
        typed({**csr(), "status": ISSUED}),
        NOW,
        answers=ALL,
        node_addresses=ADDRESSES,
        reserved=RESERVED,
        other_checks=other_checks,
    )
    assert known.checks == (*pending.checks, REVOKED)


@pytest.mark.parametrize("spec", [{"request": "x"}, {"signerName": "example.com/x"}])
def test_an_issued_one_that_no_approver_decides_has_none(spec: dict[str, Any]):
    document = csr()
    assert explain({**document, "spec": {**document["spec"], **spec}, "status": ISSUED}).checks == ()


@pytest.mark.parametrize(("status", "verdict", "remedy"), SETTLED)
def test_a_settled_request_says_how_it_ended_and_what_is_left_to_do(status: dict[str, Any], verdict: str, remedy: str):
    explanation = explain({**csr(), "status": status})
    assert explanation.verdict == verdict
    assert remedy in explanation.remedy


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        ({"message": "not ours", "reason": "Foreign"}, "Denied: denied: not ours"),
        ({"reason": "Foreign"}, "Denied: denied: Foreign"),
        ({}, "Denied: denied: no reason was given"),
    ],
)
def test_the_words_of_a_denial(rest: dict[str, Any], sentence: str):
    assert explain({**csr(), "status": {"conditions": [condition("Denied", **rest)]}}).sentence == sentence


APPROVED = {"conditions": [condition("Approved")]}


@pytest.mark.parametrize(
    ("change", "verdict", "remedy"),
    [
        pytest.param({}, "WaitingForSigner", "nothing is missing", id="good"),
        pytest.param({"o": ()}, "WillFail", "without this fault", id="bad"),
        pytest.param({"signer": "example.com/own"}, "WaitingForSigner", "run the signer example.com/own", id="foreign"),
    ],
)
def test_an_approved_request_is_explained_by_its_signer(change: dict[str, Any], verdict: str, remedy: str):
    explanation = explain({**csr(**change), "status": APPROVED})
    assert (explanation.verdict, remedy in explanation.remedy) == (verdict, True)


def test_a_signer_of_others_is_named():
    explanation = explain({**csr(signer="example.com/own"), "status": APPROVED})
    assert explanation.checks[0].compared == "example.com/own is no signer of this control plane"


def test_the_signers_words_are_shown():
    explanation = explain({**csr(o=()), "status": APPROVED})
    assert explanation.sentence == "WillFail: signer: subject organization is not system:nodes"


@pytest.mark.parametrize("document", [csr(), csr(user="joe"), serving("DNS:a.example")])
def test_will_be_approved(document: dict[str, Any]):
    explanation = explain(document)
    assert (explanation.verdict, failed(explanation)) == ("WillBeApproved", [])
    assert explanation.sentence == "WillBeApproved"
    assert "lost the permission create certificatesigningrequests/" in explanation.remedy


PENDING = [
    pytest.param(csr(cn="mike"), ["common name"], "the common name system:node:<name", id="name"),
    pytest.param(csr(o=("x",)), ["organization"], "system:nodes as its only organization", id="organization"),
    pytest.param(csr(sans=("DNS:a",)), ["no alternative names"], "without the alternative names DNS:a", id="names"),
    pytest.param(csr(usages=SERVING), ["usages"], "exactly the usages client auth, digital", id="usages"),
    pytest.param(
        serving("DNS:a.example", usages=()), ["usages"], "digital signature, server auth", id="serving usages"
    ),
    pytest.param(serving(), ["alternative names"], "at least one DNS name or address", id="no names"),
    pytest.param(serving("DNS:a.example", user="joe"), ["requester"], "as system:node:a, not as joe", id="requester"),
    pytest.param(serving("DNS:b.example"), ["node addresses"], "have the Node a report every", id="addresses"),
    pytest.param(serving("DNS:another.example"), ["reserved names"], "have the other Node deleted", id="another's"),
    pytest.param(
        csr(o=(), sans=("DNS:a",)), ["organization", "no alternative names"], "; and create a new", id="two faults"
    ),
    pytest.param(csr(signer="example.com/own"), ["signer"], "handfast csr approve csr-1", id="foreign signer"),
    pytest.param(
        {**csr(signer="example.com/own"), "metadata": {"name": "a; reboot"}},
        ["signer"],
        "handfast csr approve 'a; reboot'",
        id="a name that is a command",
    ),
    pytest.param(csr(request="%"), ["readable"], "that can be read", id="unreadable"),
    pytest.param({"metadata": {}}, ["readable"], "that can be read", id="nothing"),
]


@pytest.mark.parametrize(("document", "checks", "remedy"), PENDING)
def test_a_pending_request_names_its_failed_checks_and_the_change(
    document: dict[str, Any], checks: list[str], remedy: str
):
    explanation = explain(document)
    assert explanation.verdict == "Pending"
    assert failed(explanation) == checks
    assert remedy in explanation.remedy
    assert explanation.sentence.startswith(f"Pending: {checks[0]}: ")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param({}, "not asked", id="not asked"),
        pytest.param({"nodeclient": False}, "not allowed", id="no"),
        pytest.param({"nodeclient": NO}, "NoRuleAllows", id="no, without a sentence"),
        pytest.param(
            {"nodeclient": decision.Deny("D", "denied by b", "rbac")}, "denied by b", id="no, with a sentence"
        ),
    ],
)
def test_not_permitted(asked: dict[str, Any], said: str):
    explanation = explain(csr(user="joe", groups=[]), asked)
    assert failed(explanation) == ["permission"]
    assert explanation.checks[-1].compared == f"create certificatesigningrequests/nodeclient: {said}"
    assert explanation.remedy == (
        "let joe (groups: none) create certificatesigningrequests/nodeclient, for instance by the ClusterRole "
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
    )


@pytest.mark.parametrize("answer", [True, YES])
def test_the_kind_with_the_fewest_faults_is_explained(answer: decision.Decision | bool):
    # As a renewal it lacks the permission, as a node's request nothing.
    assert explain(csr(), {"selfnodeclient": NO, "nodeclient": answer}).verdict == "WillBeApproved"
    # As a renewal only the requester is wrong, as a node's request only the permission: the first is explained.
    assert failed(explain(csr(user="joe"), {"selfnodeclient": answer, "nodeclient": NO})) == ["requester"]


def test_a_permission_nobody_asked_for_is_not_called_missing_beside_other_faults():
    explanation = explain(csr(o=()), {})
    assert failed(explanation) == ["organization", "permission"]
    assert explanation.remedy == (
        "create a new request with system:nodes as its only organization, and no other attribute but the common name"
    )
    refused = explain(csr(o=()), {"selfnodeclient": NO, "nodeclient": NO})
    assert refused.remedy.startswith(f"{explanation.remedy}; and let system:node:a (groups: ")


def test_braces_in_names_are_only_text():
    explanation = explain(csr(cn="{user}", user="{node.__class__}"), {"nodeclient": NO})
    assert "let {node.__class__} (groups: system:nodes, system:authenticated)" in explanation.remedy


def test_when_it_is_deleted():
    explanation = explain(csr())
    assert explanation.due.rule == "pending"
    assert explanation.due.at is not None
    assert NOW + 24 * HOUR < explanation.due.at < NOW + 25 * HOUR


GROUPS = [*bootstrapper.GROUPS, "system:authenticated"]


def machines_verdict(document: dict[str, Any], *machines: inventory.Machine) -> approval.Verdict:
    index = inventory.Index()
    for machine in machines:
        index.put(machine)
    return approval.judge(kubelet.read(document), NOW, settings=settings.DEFAULT, machines=index, node_exists=False)


KNOWN = inventory.Machine(
    group=inventory.OPENSHIFT,
    namespace="fleet",
    name="m1",
    created=NOW,
    addresses=(inventory.Address(inventory.INTERNAL_DNS, "a"),),
)


def of_machine(
    document: dict[str, Any], *machines: inventory.Machine, other_checks: tuple[kubelet.Check, ...] = ()
) -> request_explanation.Explanation:
    return request_explanation.explain(
        typed(document),
        NOW,
        answers={},
        node_addresses=None,
        other_checks=other_checks,
        machine=machines_verdict(document, *machines),
    )


def test_a_machines_request_is_explained_by_the_machine_approver():
    joining = csr(user=bootstrapper.USER, groups=GROUPS)
    waiting = of_machine(joining)
    assert (waiting.verdict, waiting.judge) == ("Pending", "machine-approver")
    assert waiting.sentence == 'Pending: Machine: no Machine has the InternalDNS name "a"'
    assert 'make a Machine with the InternalDNS name "a"' in waiting.remedy
    assert "permission" not in [check.name for check in waiting.checks]
    approving = of_machine(joining, KNOWN)
    assert (approving.verdict, "see whether the machine-approver runs" in approving.remedy) == ("WillBeApproved", True)
    # What other rules say counts, too.
    refused = of_machine(joining, KNOWN, other_checks=(REVOKED,))
    assert (refused.verdict, refused.remedy) == ("Pending", "delete the Revocation, and create a new request")
    both = of_machine(joining, other_checks=(LIVING,))
    assert both.remedy.startswith("make a Machine")
    assert both.remedy.endswith("handfast csr approve csr-1")
    # Once somebody has decided, that stands.
    assert of_machine({**joining, "status": APPROVED}).verdict == "WaitingForSigner"
    issued = of_machine({**joining, "status": {**APPROVED, "certificate": certificate(NOW + HOUR)}}, KNOWN)
    assert (issued.verdict, issued.checks[-1].name) == ("Issued", approval.IS_AFTER)


@pytest.mark.parametrize("answers", [{}, {"nodeclient": NO}, {"nodeclient": False}])
def test_nobody_is_told_to_grant_nodeclient_to_a_bootstrap_identity(answers):
    waiting = explain(csr(user=bootstrapper.USER, groups=GROUPS), answers)
    assert (waiting.verdict, waiting.judge) == ("Pending", "csrapproving")
    assert "nodeclient" not in waiting.remedy
    assert "ClusterRole" not in waiting.remedy
    assert "run the machine-approver (the controller machineapprover)" in waiting.remedy
    assert "make a Machine with the InternalDNS name a; or approve it by hand" in waiting.remedy


def test_a_signer_that_nobody_approves_for_has_no_judge():
    assert explain(csr(signer="example.com/own")).judge == ""
