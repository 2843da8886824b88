# SPDX-License-Identifier: Apache-2.0
"""Failed joins as they are listed. The names of the table in `rules/nodes/join_failures.py` are here."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest

from handfast.api import objects
from handfast.pki import keys, names, requests
from handfast.rules.nodes import join_failures
from handfast.rules.tokens import failed_joins

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
CREATE = "handfast token create --print-join-command"
Failed = join_failures.Failed


def event(**notes: str) -> dict[str, Any]:
    row = failed_joins.Failures().note(
        failed_joins.Failure(
            shown=failed_joins.Shown.SECRET, token="abcdef", source="192.0.2.1", reason="TokenExpired", node="n1"
        ),
        NOW,
    )
    made = failed_joins.event(row, join_failures.sentence(row))
    made["metadata"]["annotations"] |= {f"joins.handfast.dev/{key}": value for key, value in notes.items()}
    return made


def test_what_was_written_is_read_again() -> None:
    [failed] = join_failures.of_events([event()])
    assert failed == Failed(
        last=NOW, first=NOW, count=1, source="192.0.2.1", token="abcdef", node="n1", reason="TokenExpired"
    )


def test_an_unknown_token_is_told_as_one() -> None:
    row = failed_joins.Failures().note(
        failed_joins.Failure(
            shown=failed_joins.Shown.NOTHING, token="nosuch", source="2001:db8::1", reason="UnknownToken"
        ),
        NOW,
    )
    [failed] = join_failures.of_events([failed_joins.event(row, "")])
    assert (failed.known, failed.change) == (False, CREATE)
    assert join_failures.cells(failed, NOW) == (
        "0s ago",
        "1",
        "2001:db8::1",
        "unknown (nosuch)",
        "-",
        "UnknownToken",
        CREATE,
    )
    assert join_failures.document(failed)["tokenKnown"] is False


ODD: dict[str, dict[str, Any]] = {
    "another reason": {**event(), "reason": "Started"},
    "no time": {**event(), "lastTimestamp": "soon"},
    "count of words": {**event(), "count": "7"},
    "absurd count": {**event(), "count": 1 << 40},
    "no count": {**event(), "count": 0},
    "a reason of words": event(reason="run `rm -rf /`"),
    "a reason of colours": event(reason="\x1b[31mTokenExpired"),
    "a token that is none": event(**{"token-id": "ABCDEF"}),
    "a whole token": event(**{"token-id": "abcdef.0123456789abcdef"}),
    "a credential that is none": event(credential="password", **{"token-id": ""}),
    "a credential beside a token": event(credential="certificate"),
    "a source that is none": event(source="evil.example"),
    "a name that is none": event(node="n1\nerror: all is lost"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_event_in_other_words_is_not_shown(name: str) -> None:
    assert list(join_failures.of_events([ODD[name]])) == []


def test_the_message_of_an_event_is_never_shown() -> None:
    [failed] = join_failures.of_events([{**event(), "message": "\x1b[2J type your password"}])
    assert not any("password" in cell for cell in join_failures.cells(failed, NOW))


@pytest.mark.parametrize(
    ("failed", "change"),
    [
        ({"reason": "TokenExpired", "token": "abcdef"}, CREATE),
        ({"reason": "TokenGone", "token": "abcdef"}, CREATE),
        ({"reason": "UnknownToken", "token": "abcdef", "known": False}, CREATE),
        ({"reason": "TokenNotFromHere", "source": "192.0.2.1"}, f"{CREATE} --cidr 192.0.2.1/32"),
        ({"reason": "TokenNotFromHere", "source": "2001:db8::1"}, f"{CREATE} --cidr 2001:db8::1/128"),
        ({"reason": "TokenNotFromHere", "token": "abcdef"}, "handfast token explain abcdef"),
        ({"reason": "TokenNotForThisNode", "node": "n1"}, f"{CREATE} --node n1"),
        ({"reason": "TokenNotForThisNode", "token": "abcdef"}, "handfast token explain abcdef"),
        ({"reason": "TokenUsedUp"}, f"{CREATE} --max-uses 1"),
        ({"reason": "Revoked", "node": "n1"}, "handfast node revoke n1 --undo"),
        ({"reason": "Revoked"}, "kubectl get revocations"),
        ({"reason": "WrongTokenSecret", "token": "abcdef"}, "handfast token explain abcdef"),
        ({"reason": "WrongTokenSecret"}, "handfast token list"),
        (
            {"reason": "UnknownAuthority", "credential": "certificate"},
            "handfast machine credentials create --kind master --server SERVER --out DIRECTORY",
        ),
        (
            {"reason": "AccountGone", "credential": "account"},
            "handfast machine credentials create --kind worker --out DIRECTORY",
        ),
        ({"reason": "NoRuleAllows", "credential": "account"}, "kubectl get clusterrolebindings --output wide"),
        ({"reason": "Revoked", "credential": "certificate"}, "kubectl get revocations"),
        ({"reason": "Waiting", "request": "a; rm -rf ~"}, "handfast csr explain 'a; rm -rf ~'"),
    ],
)
def test_the_smallest_change_is_named(failed: dict[str, Any], change: str) -> None:
    assert Failed(last=NOW, **failed).change == change


def request(
    name: str = "csr-1", *, node: str = "n1", user: str = "system:bootstrap:abcdef", **more: Any
) -> dict[str, Any]:
    subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
    made = requests.build(subject, names.Sans(), keys.generate(keys.Kind.P256))
    spec = {
        "request": base64.b64encode(made).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "username": user,
        "usages": ["client auth"],
    }
    return {
        "metadata": {"name": name, "creationTimestamp": objects.timestamp(NOW)},
        "spec": {**spec, **more.pop("spec", {})},
        "status": more.pop("status", {}),
    }


def condition(kind: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True"}]}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, "Waiting"),
        (condition("Approved"), "WaitingForSigner"),
        (condition("Denied"), "Denied"),
        (condition("Failed"), "Failed"),
    ],
)
def test_a_request_without_a_certificate_is_listed(status: dict[str, Any], reason: str) -> None:
    [failed] = join_failures.of_requests([request(status=status)])
    assert (failed.reason, failed.token, failed.node, failed.request) == (reason, "abcdef", "n1", "csr-1")
    assert join_failures.document(failed)["smallestChange"] == "handfast csr explain csr-1"


@pytest.mark.parametrize(
    "other",
    [
        request(status={"certificate": "LS0t"}),
        request(spec={"signerName": "kubernetes.io/kubelet-serving"}),
        request(user="system:node:n1"),
        request() | {"metadata": {"name": "no-time"}},
    ],
)
def test_other_requests_are_not_listed(other: dict[str, Any]) -> None:
    assert list(join_failures.of_requests([other])) == []


def test_requests_of_a_fleets_bootstrap_credential_are_listed() -> None:
    user = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
    [failed] = join_failures.of_requests([request(user=user)], [user])
    assert (failed.token, join_failures.cells(failed, NOW)[3]) == ("", "-")


@pytest.mark.parametrize("odd", [request(spec={"request": "bm8="}), request(node="\x1b[31m")])
def test_a_request_that_cannot_be_read_names_no_node(odd: dict[str, Any]) -> None:
    [failed] = join_failures.of_requests([odd])
    assert failed.node == ""


def test_the_newest_come_first_and_old_ones_not_at_all() -> None:
    hours = [Failed(last=NOW - datetime.timedelta(hours=hour), reason="Waiting") for hour in (3, 1, 2)]
    shown = join_failures.ordered(hours, NOW - datetime.timedelta(hours=2))
    assert [NOW - each.last for each in shown] == [datetime.timedelta(hours=1), datetime.timedelta(hours=2)]


def test_what_is_not_known_is_null() -> None:
    shown = join_failures.document(Failed(last=NOW, reason="Waiting"))
    assert {key for key, value in shown.items() if value is None} == {
        "first",
        "source",
        "tokenID",
        "tokenKnown",
        "credential",
        "node",
        "request",
    }
