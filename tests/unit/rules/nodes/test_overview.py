# SPDX-License-Identifier: Apache-2.0
"""Every node in one line: its state, in the order in which nodes need somebody, and what could not be read."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest

from handfast.api import signer_names
from handfast.pki import keys, names, requests
from handfast.rules import revocation, user_names
from handfast.rules.ledger import entries
from handfast.rules.nodes import listing, overview

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
State = overview.State


def entry(node: str = "w1", *, age: float = 1, lasts: float = 24, **more: Any) -> entries.Entry:
    """A client certificate of a node that was issued so many hours ago."""
    issued = NOW - age * HOUR
    values: dict[str, Any] = {
        "issued_at": issued,
        "not_after": issued + lasts * HOUR,
        "signer": signer_names.KUBELET_CLIENT,
        "requester": "system:bootstrap:abcdef",
        "authenticated_by": "bootstrap-token",
        "token_id": "abcdef",
        "key_fingerprint": "ff" * 32,
        "serial": "1a",
        "names": entries.names_of(user_names.node_subject(node), names.Sans()),
        "rule": entries.JOIN,
        "request": "csr-1",
        "certificate": "00" * 32,
    }
    return entries.Entry(**{**values, **more})


def node(name: str = "w1") -> dict[str, Any]:
    return {"metadata": {"name": name}}


def lease(name: str = "w1", *, seconds_ago: float = 5) -> dict[str, Any]:
    renewed = (NOW - datetime.timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"name": name}, "spec": {"renewTime": renewed, "leaseDurationSeconds": 40}}


def request(name: str = "csr-2", of: str = "w1", conditions: Any = (), **spec: Any) -> dict[str, Any]:
    pem = requests.build(user_names.node_subject(of), names.Sans(), keys.generate())
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-11-18T11:00:00Z"},
        "spec": {
            "signerName": signer_names.KUBELET_CLIENT,
            "username": "system:bootstrap:abcdef",
            "usages": ["digital signature", "client auth"],
            "request": base64.b64encode(pem).decode(),
            **spec,
        },
        "status": {"conditions": list(conditions)},
    }


def revoked(name: str) -> revocation.Index:
    index = revocation.Index()
    index.add(revocation.Revocation(name="node-w1", node=name, reason="stolen"))
    return index


def read(**given: Any) -> overview.Objects:
    nothing: dict[str, Any] = {
        "nodes": [],
        "leases": [],
        "issued": [],
        "serving": [],
        "requests": [],
        "revocations": revocation.Index(),
    }
    return overview.Objects(**{**nothing, **given})


def one(**given: Any) -> overview.Row:
    (row,) = overview.rows(read(**given), NOW)
    return row


def test_a_node_with_a_good_certificate_that_is_seen_is_good():
    row = one(nodes=[node()], leases=[lease()], issued=[entry()])
    assert (row.state, row.problem, row.next_step, row.came_by) == (State.GOOD, "", "", "token abcdef")
    assert row.renewal is not None
    assert row.renewal[0] == NOW - HOUR + 24 * HOUR * 0.7


@pytest.mark.parametrize(
    ("age", "state", "problem"),
    [
        (21, State.GOOD, ""),
        (22, State.LATE, "its renewal is"),
        (24, State.EXPIRED, "its certificate ended 0s ago"),
        (27, State.EXPIRED, "its certificate ended 3h ago"),
    ],
)
def test_a_certificate_is_late_after_its_window_and_expired_after_its_end(age, state, problem):
    row = one(nodes=[node()], leases=[lease()], issued=[entry(age=age)])
    assert row.state is state
    assert row.problem.startswith(problem)
    assert bool(row.next_step) == (state is not State.GOOD)


def test_the_newest_certificate_counts():
    row = one(nodes=[node()], leases=[lease()], issued=[entry(age=1, rule=entries.RENEWAL), entry(age=30)])
    assert (row.state, row.came_by) == (State.GOOD, "token abcdef")


@pytest.mark.parametrize(
    ("leases", "problem"),
    [([], "it has never renewed its Lease"), ([lease(seconds_ago=90)], "its Lease was renewed 1m30s ago")],
)
def test_a_node_that_renews_no_lease_is_silent(leases, problem):
    row = one(nodes=[node()], leases=leases, issued=[entry()])
    assert (row.state, row.problem) == (State.SILENT, problem)


def test_a_request_that_nobody_has_decided_waits_with_what_it_waits_for():
    row = one(requests=[request()])
    assert (row.state, row.next_step) == (State.WAITING, "handfast csr explain csr-2")
    assert row.problem == "system:bootstrap:abcdef asks for its certificate, and nobody has decided (csr-2)"
    waits = {"type": "Waiting", "reason": "NodeIsAlive", "message": "w1 is alive"}
    row = one(requests=[request("csr-3", conditions=[waits]), request("csr-4")])
    assert row.problem == "w1 is alive (csr-3, and 1 more)"


def test_a_node_that_asks_with_its_expired_certificate_is_recovering():
    row = one(nodes=[node()], issued=[entry(age=25)], requests=[request(username="system:node-recovery:w1")])
    assert (row.state, row.next_step) == (State.RECOVERING, "handfast csr explain csr-2")


@pytest.mark.parametrize(
    "document",
    [
        request(conditions=[{"type": "Approved"}]),
        request(conditions=[{"type": "Denied"}]),
        request(conditions=[{"type": "Failed"}]),
        request(signerName=signer_names.KUBELET_SERVING),
        request(request="bm90aGluZw=="),
        {**request(), "status": {"certificate": "bm90aGluZw=="}},
    ],
)
def test_other_requests_are_no_nodes(document):
    assert overview.rows(read(requests=[document]), NOW) == []


def test_a_request_for_somebody_who_is_no_node_is_no_nodes():
    pem = requests.build(names.Subject(common_name="jane"), names.Sans(), keys.generate())
    document = request(request=base64.b64encode(pem).decode())
    assert overview.rows(read(requests=[document]), NOW) == []


def test_a_revocation_stands_before_all_else():
    row = one(nodes=[node()], issued=[entry(age=30)], requests=[request()], revocations=revoked("w1"))
    assert (row.state, row.revoked_by, row.problem) == (State.REVOKED, "node-w1", "Revocation node-w1: stolen")


def test_a_node_that_the_ledger_does_not_know_is_unrecorded():
    assert one(nodes=[node()], leases=[lease()]).state is State.UNRECORDED


def test_what_could_not_be_read_is_no_trouble_of_a_node():
    assert one(nodes=[node()], leases=[lease()], issued=None).state is State.GOOD
    assert one(nodes=[node()], leases=None, issued=[entry()]).state is State.GOOD


def test_certificates_of_others_and_of_machines_that_are_gone_are_no_nodes():
    over = entry("gone", age=30)
    serving = entry("w9", signer=signer_names.KUBELET_SERVING)
    person = entry(names=("CN=jane",))
    nobody = entry(names=())
    assert overview.rows(read(issued=[over, serving, person, nobody], leases=[lease("left-over")]), NOW) == []


def test_a_machine_that_is_certified_and_has_not_registered_is_silent():
    row = one(issued=[entry("new")])
    assert (row.name, row.state) == ("new", State.SILENT)
    assert row.problem == "it has a certificate, and has not registered"
    assert row.next_step == "on the machine: handfast node run; if it is gone for good: handfast node revoke new"


@pytest.mark.parametrize("by", ["key", "serial"])
def test_a_machine_that_was_reset_and_whose_certificate_was_revoked_is_waited_for_by_nobody(by: str):
    issued = entry("w1")
    index = revocation.Index()
    key, serial = (issued.key_fingerprint, "") if by == "key" else ("", issued.serial)
    index.add(revocation.Revocation(name="key-1;x", reason="reset of node w1", key_fingerprint=key, serial=serial))
    row = one(issued=[issued], revocations=index)
    assert (row.state, row.revoked_by) == (State.REVOKED, "key-1;x")
    assert row.next_step == "if that was a mistake: kubectl delete revocation 'key-1;x'"
    # It joins again with another key, and is a node like any other.
    again = entry("w1", age=0.5, key_fingerprint="0" * 64, serial="77")
    assert one(issued=[issued, again], revocations=index).state is State.SILENT


def test_those_who_need_somebody_come_first_and_then_by_the_end():
    given = read(
        nodes=[node(name) for name in ("calm", "sooner", "dead", "late")],
        leases=[lease(name) for name in ("calm", "sooner", "late")],
        issued=[entry("calm"), entry("sooner", age=2), entry("dead", age=25), entry("late", age=23)],
        requests=[request(of="new")],
    )
    assert [row.name for row in overview.rows(given, NOW)] == ["dead", "late", "new", "sooner", "calm"]


@pytest.mark.parametrize(
    ("more", "came_by"),
    [
        ({"rule": "MachineJoin: openshift-machine-api/w1"}, "Machine openshift-machine-api/w1"),
        ({"rule": "MachineJoin"}, "machine-approver"),
        ({"rule": "ByHand: HandfastApprove"}, "by hand"),
        ({"rule": entries.RECOVERY, "authenticated_by": "node-recovery"}, "recovery"),
        ({"authenticated_by": "x509"}, "x509"),
        ({"rule": entries.RENEWAL}, ""),
    ],
)
def test_how_a_node_came_is_told_by_its_newest_entry_that_is_no_renewal(more, came_by):
    assert overview.came_by([entry(**more), entry(rule=entries.SERVING)]) == came_by


def test_a_row_for_people_has_a_dash_where_nothing_is_known():
    row = one(nodes=[node()], leases=[lease()], issued=[entry()])
    assert listing.cells(row, NOW) == ("w1", "good", "60m", "in 23h", "in 20h", "5s ago", "token abcdef", "-")
    assert listing.cells(row, NOW, wide=True)[8:] == ("1a", "ff" * 32, "-")
    assert listing.cells(one(requests=[request()]), NOW)[2:7] == ("-",) * 5
    assert listing.cells(one(requests=[request()]), NOW, wide=True)[8:] == ("-", "-", "handfast csr explain csr-2")


def test_a_row_for_machines_has_null_where_nothing_is_known():
    shown = listing.document(one(nodes=[node()], leases=[lease()], issued=[entry()]))
    assert shown["certificate"]["until"] == "2026-11-19T11:00:00Z"
    assert (shown["lastSeen"], shown["problem"]) == ("2026-11-18T11:59:55Z", None)
    waiting = listing.document(one(requests=[request()]))
    assert (waiting["certificate"], waiting["renewalWindow"], waiting["lastSeen"]) == (None, None, None)
