# SPDX-License-Identifier: Apache-2.0
"""How far a node has come: the first step that fails says why, and those behind it are unknown."""

import pytest

from handfast import errors
from handfast.rules import check
from handfast.rules.diagnoses import facts, one_node
from handfast.rules.nodes import overview
from tests.unit.rules.diagnoses import known
from tests.unit.rules.diagnoses.test_members import explained
from tests.unit.rules.nodes import test_overview

APPROVED = {"type": "Approved", "status": "True", "message": "allowed"}
DENIED = {"type": "Denied", "status": "True", "reason": "No"}
FAILED = {"type": "Failed", "status": "True", "message": "bad key"}
NOBODY = {"nodes": test_overview.read(), "requests": facts.Requests()}
UNREADABLE = known.request(request="broken")


def asked(*conditions, explanations=None, der=None):
    return facts.Requests([UNREADABLE, known.request(der=der, conditions=conditions)], explanations or {})


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, "ok ok ok ok"),
        # Requests are deleted in time; certificates stay in the ledger.
        ({"requests": facts.Requests()}, "ok ok ok ok"),
        ({"requests": facts.Requests(), "nodes": known.nodes(issued=[])}, "ok ok ok ok"),
        (NOBODY, "NoRequest"),
        ({"requests": asked(), "nodes": test_overview.read()}, "ok NotApproved"),
        ({"requests": asked(explanations={"csr-1": explained("Pending", passed=False)})}, "ok NotApproved"),
        ({"requests": asked(DENIED)}, "ok Denied"),
        ({"requests": asked(APPROVED)}, "ok ok NotSigned"),
        ({"requests": asked(APPROVED, FAILED)}, "ok ok SigningFailed"),
        ({"requests": asked(APPROVED, der=known.leaf()), "nodes": test_overview.read()}, "ok ok ok NodeSilent"),
        ({"nodes": known.nodes(leases=[])}, "ok ok ok NodeSilent"),
        ({"nodes": known.nodes(issued=[test_overview.entry(age=25)])}, "ok ok ok CertificateExpired"),
        ({"nodes": known.nodes(issued=[test_overview.entry(age=22)])}, "ok ok ok RenewalLate"),
        ({"nodes": known.nodes(revocations=test_overview.revoked("w1"))}, "ok ok ok Revoked"),
    ],
)
def test_the_first_step_that_fails_is_named(changes, wanted):
    rows = one_node.checks("w1", known.good(**changes))
    reasons = [row.reason or "ok" for row in rows]
    assert [row.name for row in rows] == list(one_node.NAMES)
    assert reasons == [*wanted.split(), *["Unknown"] * (4 - len(wanted.split()))]
    # Whatever comes behind says the same.
    assert len({row.sentence for row in rows[len(wanted.split()) :]}) <= 1


@pytest.mark.parametrize("part", ["nodes", "requests"])
def test_what_may_not_be_read_is_unknown(part):
    rows = one_node.checks("w1", known.good(**{part: check.Unread("no")}))
    assert [(row.verdict.value, row.sentence) for row in rows] == [("unknown", "no")] * 4


def test_a_request_for_another_signer_or_node_is_not_its_own():
    others = [known.request(signerName="kubernetes.io/kubelet-serving"), known.request(of="w2")]
    rows = one_node.checks("w1", known.good(requests=facts.Requests(others), nodes=test_overview.read()))
    assert rows[0].reason == "NoRequest"


def test_one_node_is_not_judged_by_how_all_of_them_stand():
    standing = overview.standing(known.nodes(), known.NOW)
    with pytest.raises(errors.Misuse):
        one_node.checks("w1", known.good(nodes=standing))
