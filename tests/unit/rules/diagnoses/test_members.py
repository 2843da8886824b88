# SPDX-License-Identifier: Apache-2.0
"""Those who come and stay: requests, nodes, what all of them may, machines."""

import datetime

import pytest

from handfast.rules import check, request_explanation
from handfast.rules.certificates import kubelet, request_age
from handfast.rules.diagnoses import facts, members
from handfast.rules.machines import listing
from handfast.rules.nodes import overview
from tests.unit.rules.diagnoses import known
from tests.unit.rules.nodes import test_overview

FORBIDDEN = check.Unread("no")
APPROVED = {"type": "Approved", "status": "True"}


def verdict(judge, **changes):
    row = judge(known.good(**changes))
    return row.verdict.value, row.reason


def explained(verdict: str, *, passed: bool) -> request_explanation.Explanation:
    due = request_age.Due(known.NOW, "", overdue=False)
    return request_explanation.Explanation(verdict, (kubelet.Check("name", passed, "seen"),), "remedy", due)


def waiting(verdict: str, *, passed: bool, hours: float = 1) -> facts.Requests:
    document = known.request("csr-2")
    created = known.NOW - datetime.timedelta(hours=hours)
    document["metadata"]["creationTimestamp"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    return facts.Requests([document], {"csr-2": explained(verdict, passed=passed)})


NO_AGE = known.request("csr-2")
del NO_AGE["metadata"]["creationTimestamp"]


@pytest.mark.parametrize(
    ("name", "typed"), [("worker: 7", "'worker: 7'"), ("csr-2", "csr-2"), (": ", "': '"), ("a;rm", "'a;rm'")]
)
def test_the_next_step_of_a_request_that_waits_has_its_whole_name(name: str, typed: str) -> None:
    told = members.requests(known.good(requests=facts.Requests([known.request(name), known.request("later")])))
    assert told.hint == f"handfast csr explain {typed}"
    assert f"2 wait for somebody: {name}: not explained" in told.sentence


@pytest.mark.parametrize(
    ("read", "wanted"),
    [
        (facts.Requests(), ("ok", "")),
        (waiting("Pending", passed=False), ("warning", "RequestsWait")),
        (waiting("WillBeApproved", passed=True), ("failed", "RequestsNotActedOn")),
        (waiting("WillBeApproved", passed=True, hours=0.01), ("ok", "")),
        (waiting("WaitingForSigner", passed=False), ("warning", "RequestsWait")),
        (facts.Requests([known.request("csr-2")]), ("warning", "RequestsWait")),
        (facts.Requests([NO_AGE], {"csr-2": explained("WillBeApproved", passed=True)}), ("ok", "")),
        (facts.Requests([known.request(conditions=[{"type": "Denied", "status": "True"}])]), ("ok", "")),
        (FORBIDDEN, ("unknown", "Unknown")),
    ],
)
def test_a_request_that_waits_warns_and_one_that_nobody_acts_on_fails(read, wanted):
    assert verdict(members.requests, requests=read) == wanted


def test_what_an_explanation_lacks_is_told_with_the_request_that_waits():
    read = facts.Requests([known.request("csr-2")], unread=["some checks are missing: no"])
    assert members.requests(known.good(requests=read)).sentence.endswith("; some checks are missing: no")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ("ok", "")),
        ({"nodes": test_overview.read()}, ("ok", "")),
        ({"nodes": test_overview.read(), "hidden": ["no"]}, ("unknown", "Unknown")),
        ({"hidden": ["the ledger could not be read"]}, ("unknown", "Unknown")),
        ({"nodes": known.nodes(issued=[test_overview.entry(age=25)])}, ("failed", "CertificateExpired")),
        ({"nodes": known.nodes(issued=[test_overview.entry(age=22)]), "hidden": ["no"]}, ("failed", "RenewalLate")),
        ({"nodes": known.nodes(leases=[])}, ("warning", "NodeSilent")),
        ({"nodes": test_overview.read(requests=[known.request()])}, ("warning", "NodeWaits")),
        ({"nodes": known.nodes(revocations=test_overview.revoked("w1"))}, ("ok", "")),
        ({"nodes": FORBIDDEN}, ("unknown", "Unknown")),
    ],
)
def test_nodes_fail_by_their_certificates_and_warn_by_silence(changes, wanted):
    assert verdict(members.nodes, **changes) == wanted


def test_where_there_is_no_ledger_the_next_step_is_to_have_one():
    row = members.nodes(known.good(hidden=[overview.NO_LEDGER]))
    assert (row.verdict.value, "--print-manifest" in row.hint) == ("unknown", True)


def test_of_very_many_nodes_a_few_are_named_and_all_are_counted():
    standing = overview.standing(known.nodes(issued=[test_overview.entry(age=25)]), known.NOW)
    many = overview.Standing(counts={**standing.counts, overview.State.EXPIRED: 500}, needing=[*standing.needing] * 20)
    check = members.nodes(known.good(nodes=many))
    assert check.sentence.startswith("500 expired; w1: ")
    assert check.sentence.endswith(" more")
    shown = check.sentence.count("w1: ")
    assert f" and {500 - shown} more" in check.sentence


def binding(role: str, group: str = "system:nodes", namespace: str = ""):
    return {
        "metadata": {"name": "b", "namespace": namespace},
        "roleRef": {"name": role},
        "subjects": [{"kind": "Group", "name": group}],
    }


@pytest.mark.parametrize(
    ("bindings", "wanted"),
    [
        ([binding("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient")], ("ok", "")),
        ([binding("kubeadm:kubelet-config", namespace="kube-system")], ("ok", "")),
        ([binding("cluster-admin", "system:masters")], ("ok", "")),
        ([binding("view")], ("warning", "NodesMayMore")),
        ([binding("view", namespace="default")], ("warning", "NodesMayMore")),
        (FORBIDDEN, ("unknown", "Unknown")),
    ],
)
def test_nodes_have_no_more_than_they_need(bindings, wanted):
    assert verdict(members.node_rights, bindings=bindings) == wanted


@pytest.mark.parametrize(
    ("machines", "wanted", "said"),
    [
        (None, ("ok", ""), "no kind of Machine"),
        ([], ("ok", ""), "none is declared"),
        (
            [facts.Machine("m1", listing.JOINED), facts.Machine("m2", listing.WAITING)],
            ("ok", ""),
            "1 joined, 1 waiting",
        ),
        ([facts.Machine("m1", listing.NODE_GONE)], ("warning", "MachineNeedsSomebody"), "m1: node gone"),
        (FORBIDDEN, ("unknown", "Unknown"), "no"),
    ],
)
def test_machines_are_counted_and_those_in_trouble_named(machines, wanted, said):
    assert verdict(members.machines, machines=machines) == wanted
    assert said in members.machines(known.good(machines=machines)).sentence
