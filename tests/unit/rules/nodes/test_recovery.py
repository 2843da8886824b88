# SPDX-License-Identifier: Apache-2.0
"""Who may come back with an expired certificate, and what they may do. The table of `node_recovery.py` is here."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from typing import Any

import pytest

from handfast.api import signer_names
from handfast.pki import keys, names, requests
from handfast.rules import access, decision
from handfast.rules.ledger import entries
from handfast.rules.nodes import liveness, recovery
from tests.unit.rules.ledger_cases import entry
from tests.unit.rules.nodes import test_liveness as leases

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
MINUTE = datetime.timedelta(minutes=1)
WINDOW = 24 * HOUR
KEY = "ab" * 32
CERTIFICATE = "cd" * 32
NODE_SUBJECT = names.Subject(common_name="system:node:a", organizations=("system:nodes",))
USER = "system:node-recovery:a"
GROUPS = ("system:node-recovery", "system:authenticated")


class Records:
    """A cluster in which everything is as it should be, unless told otherwise."""

    def __init__(
        self,
        *,
        made: datetime.datetime | None = NOW - 48 * HOUR,
        running: bool = False,
        issued: Sequence[entries.Entry] | None = None,
    ) -> None:
        self._made, self._running = made, running
        self._issued = [entry(key_fingerprint=KEY)] if issued is None else issued

    def registered_at(self, node: str) -> datetime.datetime | None:
        return self._made if node == "a" else None

    def is_running(self, node: str, now: datetime.datetime) -> bool:
        return self._running and (node, now) == ("a", NOW)

    def issued(self, node: str) -> Sequence[entries.Entry]:
        return self._issued if node == "a" else ()


def shown(ago: datetime.timedelta = HOUR, subject: names.Subject = NODE_SUBJECT) -> recovery.Shown:
    return recovery.Shown(subject=subject, fingerprint=CERTIFICATE, key_fingerprint=KEY, not_after=NOW - ago)


def judged(given: recovery.Shown, window: datetime.timedelta = WINDOW, **records: Any) -> str:
    return recovery.judge(given, NOW, window, Records(**records)).reason


@pytest.mark.parametrize(
    ("ago", "reason"),
    [
        (datetime.timedelta(seconds=1), "NodeRecovery"),
        (WINDOW, "NodeRecovery"),
        (WINDOW + datetime.timedelta(seconds=1), "Expired"),
        (datetime.timedelta(), "Expired"),
        (-HOUR, "Expired"),
    ],
)
def test_the_window(ago: datetime.timedelta, reason: str):
    assert judged(shown(ago)) == reason


@pytest.mark.parametrize(
    "subject",
    [
        names.Subject(common_name="kubernetes-admin", organizations=("system:masters",)),
        names.Subject(common_name="system:node:a", organizations=("system:nodes", "system:masters")),
        names.Subject(common_name="system:node:a"),
        names.Subject(common_name="system:node:", organizations=("system:nodes",)),
        names.Subject(common_name="a", organizations=("system:nodes",)),
        names.Subject(common_name="system:node:a", organizations=("system:nodes",), others=(("2.5.4.6", "DE"),)),
    ],
)
def test_who_may_recover(subject: names.Subject):
    assert judged(shown()) == "NodeRecovery"
    assert judged(shown(subject=subject)) == "Expired"
    assert judged(shown(WINDOW + HOUR)) == "Expired"
    assert judged(shown(), made=None) == "NodeGone"
    assert judged(shown(), issued=()) == "KeyNotOnRecord"
    assert judged(shown(), issued=[entry(1), entry(2)]) == "KeyNotOnRecord"


def test_who_is_no_node_is_named():
    subject = names.Subject(common_name="kubernetes-admin", organizations=("system:masters",))
    verdict = recovery.judge(shown(subject=subject), NOW, WINDOW, Records())
    assert verdict.sentence == f"the certificate expired, and {subject} is not the subject of a node"


def test_a_node_that_was_made_anew():
    # A kubelet makes its Node after it has got its first certificate, so that younger than that is no sign.
    assert judged(shown(HOUR), made=NOW - HOUR) == "NodeRecovery"
    assert judged(shown(HOUR), made=NOW - HOUR + datetime.timedelta(seconds=1)) == "NodeReplaced"


OLD = entry(key_fingerprint=KEY, issued_at=NOW - 25 * HOUR)


def test_a_successor_ends_it():
    renewed = entry(2, issued_at=NOW - MINUTE, requester="system:node:a", token_id=CERTIFICATE)
    assert judged(shown(), issued=[renewed, OLD]) == "NodeRecovery"
    assert judged(shown(), issued=[OLD, renewed]) == "KeySuperseded"
    assert judged(shown(), issued=[OLD, renewed, OLD]) == "NodeRecovery"
    # Also where the successor has expired, too: its holder comes back by that.
    ended = entry(2, issued_at=NOW - 24 * HOUR, not_after=NOW - MINUTE, requester="system:node:a")
    assert judged(shown(), issued=[OLD, ended]) == "KeySuperseded"
    joined = entry(2, issued_at=NOW - MINUTE)
    assert judged(shown(), issued=[OLD, joined]) == "KeySuperseded"


def test_an_answer_that_was_lost():
    def asked(ago: datetime.timedelta, **more: Any) -> entries.Entry:
        return entry(2, **{"issued_at": NOW - ago, "requester": USER, "token_id": CERTIFICATE, **more})

    second = datetime.timedelta(seconds=1)
    assert judged(shown(), issued=[OLD, asked(10 * MINUTE)]) == "NodeRecovery"
    assert judged(shown(), issued=[OLD, asked(MINUTE), asked(-second)]) == "NodeRecovery"
    assert judged(shown(), issued=[OLD, asked(10 * MINUTE + second)]) == "KeySuperseded"
    assert judged(shown(), issued=[OLD, asked(10 * MINUTE + second), asked(MINUTE)]) == "KeySuperseded"
    # By another certificate than the one that is shown.
    assert judged(shown(), issued=[OLD, asked(MINUTE, token_id="ef" * 32)]) == "KeySuperseded"
    assert judged(shown(), issued=[OLD, asked(MINUTE, requester="system:node-recovery:b")]) == "KeySuperseded"


def test_a_node_that_runs_needs_no_recovery():
    assert judged(shown(), running=True) == "NodeRunning"
    # One runs whose clock is ahead, however far, and one whose Lease says zero seconds. The rest is in `test_liveness`.
    for ago, seconds in ((-1, 40), (-86400, 40), (39, 0)):
        assert liveness.is_fresh(leases.lease(ago, seconds), leases.NOW)


def test_which_entries_are_of_a_node():
    good: dict[str, Any] = {"names": ("CN=system:node:a", "O=system:nodes")}
    assert recovery.is_of(entry(**good), "a")
    for wrong in (
        {"signer": "kubernetes.io/kubelet-serving"},
        {"names": ("CN=system:node:b", "O=system:nodes")},
        {"names": ("CN=system:node:a",)},
        {"names": ("CN=system:node:a", "O=system:nodes", "DNS:x.example")},
    ):
        assert not recovery.is_of(entry(**{**good, **wrong}), "a")


def test_a_recovering_node_is_known_by_name_and_group():
    assert recovery.user("a") == USER
    assert recovery.node_of(USER, GROUPS) == "a"
    assert recovery.node_of(USER, ("system:authenticated",)) == ""
    assert recovery.node_of("jane", GROUPS) == ""


OWNERS = {"mine": USER, "theirs": "system:node-recovery:b"}


@pytest.mark.parametrize(
    ("verb", "more", "expected"),
    [
        ("create", {}, decision.Approve),
        ("create", {"subresource": "nodeclient"}, decision.NotMine),
        ("create", {"subresource": "selfnodeclient"}, decision.Deny),
        ("get", {"name": "mine"}, decision.Approve),
        ("list", {"name": "mine"}, decision.Approve),
        ("watch", {"name": "mine"}, decision.Approve),
        ("get", {"name": "nobodys"}, decision.Approve),
        ("watch", {"name": "nobodys"}, decision.Deny),
        ("get", {"name": "theirs"}, decision.Deny),
        ("list", {}, decision.Deny),
        ("watch", {}, decision.Deny),
        ("delete", {"name": "mine"}, decision.Deny),
        ("update", {"name": "mine", "subresource": "approval"}, decision.Deny),
        ("get", {"name": "mine", "subresource": "status"}, decision.Deny),
        ("get", {"plural": "pods", "group": "", "name": "mine"}, decision.Deny),
        ("get", {"plural": "secrets", "group": "", "name": "mine"}, decision.Deny),
        ("create", {"group": "example.com"}, decision.Deny),
        ("get", {"is_resource": False, "path": "/api"}, decision.Deny),
    ],
)
def test_what_it_may_do(verb: str, more: dict[str, Any], expected: type):
    authorizer = recovery.Authorizer(OWNERS.get)
    given = {"group": "certificates.k8s.io", "plural": "certificatesigningrequests", "is_resource": True, **more}
    asked = access.Attributes(user=USER, groups=GROUPS, verb=verb, **given)
    assert type(authorizer.decide(asked)) is expected
    # Of others nothing is said.
    other = access.Attributes(user="jane", groups=("system:authenticated",), verb=verb, **given)
    assert type(authorizer.decide(other)) is decision.NotMine


def request(subject: names.Subject = NODE_SUBJECT, sans: names.Sans | None = None, **spec: Any) -> dict[str, Any]:
    body = requests.build(subject, sans or names.Sans(), keys.generate())
    given = {"request": base64.b64encode(body).decode(), "signerName": signer_names.KUBELET_CLIENT}
    return {"spec": {**given, **spec}}


def test_what_may_be_asked_for():
    def asked(document: dict[str, Any], node: str = "a") -> str:
        return recovery.judge_request(node, document, None).reason

    assert asked(request()) == "RecoveringNode"
    assert asked(request(), "b") == "WrongSubject"
    assert asked(request(), "") == "WrongSubject"
    assert asked(request(signerName="kubernetes.io/kubelet-serving")) == "WrongSigner"
    assert asked(request(signerName=signer_names.KUBE_APISERVER_CLIENT)) == "WrongSigner"
    masters = names.Subject(common_name="system:node:a", organizations=("system:nodes", "system:masters"))
    assert asked(request(masters)) == "WrongSubject"
    assert asked(request(sans=names.make_sans(dns=["a.example"]))) == "WrongSubject"
    assert asked(request(request="!")) == "MalformedRequest"


def test_one_at_a_time():
    verdict = recovery.judge_request("a", request(), "other")
    assert verdict.reason == "RequestWaiting"
    assert '"other"' in verdict.sentence


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        (None, True),
        ({"conditions": [{"type": "Approved"}]}, True),
        ({"conditions": [{"type": "Approved"}], "certificate": "x"}, False),
        ({"conditions": [{"type": "Denied"}]}, False),
        ({"conditions": [{"type": "Approved"}, {"type": "Failed"}]}, False),
    ],
)
def test_what_waits(status: Any, waiting: bool):
    assert recovery.is_waiting({"status": status}) is waiting
