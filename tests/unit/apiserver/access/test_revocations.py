# SPDX-License-Identifier: Apache-2.0
"""Following Revocations on a copy in memory. The names of the table in `apiserver/access/revocations.py` are here."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from handfast.apiserver import identity
from handfast.apiserver.access import revocations
from handfast.apiserver.state import envelope, items, replica
from handfast.rules import revocation
from handfast.store import protocol
from handfast.store.sqlite import engine

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
NODE = identity.User("system:node:a", ("system:nodes",), method="x509", serial="0a1b", key_fingerprint="ab" * 32)
POD = identity.User(
    "system:serviceaccount:default:builder",
    ("system:serviceaccounts",),
    extra={"authentication.kubernetes.io/node-name": ("a",)},
)
ADMIN = identity.User("kubernetes-admin", ("system:masters",), method="x509", serial="77")


class Copied:
    """A copy of a store that is told what happened, and what follows it."""

    def __init__(self, *first: dict[str, Any]) -> None:
        # Nothing here reads the store behind the copy.
        store: protocol.Store = engine.SqliteStore.__new__(engine.SqliteStore)
        self.copy = replica.Replica(store, envelope.Envelopes(None, ()))
        self.version = 0
        for document in first:
            self.copy.collection(revocations.PREFIX).load(self._item(document))
        self.followed = revocations.Revocations(self.copy)
        self.told = 0
        self.followed.changed.append(self._hear)
        self.followed.load()

    def _hear(self) -> None:
        self.told += 1

    def _item(self, document: dict[str, Any]) -> items.Item:
        self.version += 1
        payload = envelope.encode_document(document)
        return items.Item("", document["metadata"]["name"], self.version, payload)

    def put(self, document: dict[str, Any]) -> None:
        item = self._item(document)
        self.copy.collection(revocations.PREFIX).apply("", item.name, item, item.version)

    def drop(self, name: str) -> None:
        self.version += 1
        self.copy.collection(revocations.PREFIX).apply("", name, None, self.version)

    def why(self, user: identity.User, now: datetime.datetime = NOW) -> str:
        """Why a user is refused; empty if not."""
        try:
            self.followed.check(user, now)
        except identity.Unauthorized as refused:
            return refused.detail
        return ""


def revoked(name: str = "x", metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "handfast.dev/v1alpha1", "kind": "Revocation"}
    return {**head, "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def test_nobody_is_refused_without_any():
    copied = Copied()
    assert len(copied.followed) == 0
    assert [copied.why(user) for user in (NODE, POD, ADMIN, identity.ANONYMOUS)] == [""] * 4


def test_what_was_there_at_the_start_counts():
    copied = Copied(revoked(node="a", reason="stolen"))
    assert len(copied.followed) == 1
    assert copied.told == 0
    assert copied.why(NODE) == 'user "system:node:a" is refused by Revocation "x": stolen'
    assert copied.why(ADMIN) == ""


def test_the_next_request_is_refused():
    copied = Copied()
    copied.put(revoked(node="a"))
    assert copied.why(NODE).endswith('Revocation "x": unspecified')
    copied.drop("x")
    assert copied.why(NODE) == ""


def test_tokens_of_pods_of_the_node():
    copied = Copied(revoked(node="a"))
    assert copied.why(POD).startswith('node "a" is refused')
    elsewhere = identity.User(POD.name, POD.groups, extra={"authentication.kubernetes.io/node-name": ("b",)})
    assert copied.why(elsewhere) == ""
    assert copied.why(identity.User(POD.name, POD.groups, extra={"authentication.kubernetes.io/node-name": ()})) == ""


def test_tokens_of_a_pod():
    copied = Copied(revoked(pod={"namespace": "default", "name": "web-1", "uid": "u-1"}))
    head = "authentication.kubernetes.io/"

    def bound(name: str, *uid: str, user: str = POD.name) -> identity.User:
        return identity.User(user, POD.groups, extra={f"{head}pod-name": (name,), f"{head}pod-uid": uid})

    assert copied.why(bound("web-1", "u-1")).startswith('pod "default/web-1/u-1" is refused')
    for other in (
        bound("web-1", "u-2"),
        bound("web-2", "u-1"),
        bound("web-1"),
        bound("web-1", "u-1", user="jane"),
        POD,
    ):
        assert copied.why(other) == ""


@pytest.mark.parametrize(
    "spec",
    [
        {"user": "system:node:a"},
        {"serialNumber": "0A:1B"},
        {"serialNumber": "0xa1b"},
        {"keyFingerprint": "sha256:" + "AB" * 32},
    ],
)
def test_by_each_target(spec):
    copied = Copied(revoked(**spec))
    assert copied.why(NODE)
    assert copied.why(ADMIN) == ""


def test_administrators_too():
    assert Copied(revoked(serialNumber="77")).why(ADMIN)


def test_the_answer_says_nothing():
    copied = Copied(revoked(node="a", reason="stolen"))
    with pytest.raises(identity.Unauthorized) as caught:
        copied.followed.check(NODE, NOW)
    shown = msgspec.json.encode(caught.value.document()).decode()
    assert (caught.value.code, caught.value.why) == (401, "Revoked")
    assert "stolen" not in shown
    assert "Revocation" not in shown


def test_what_is_added_is_told():
    copied = Copied()
    copied.put(revoked(node="a"))
    assert copied.told == 1
    copied.put(revoked("y", user="jane"))
    assert copied.told == 2


def test_what_is_no_different_is_not_told():
    copied = Copied(revoked(node="a"))
    copied.put(revoked(node="a", metadata={"labels": {"a": "b"}}))
    copied.put(revoked(node="a", reason="stolen"))
    assert copied.told == 0
    assert "stolen" in copied.why(NODE)
    copied.put(revoked(node="a", user="jane"))
    assert copied.told == 1
    copied.put(revoked(node="a", user="jane", expires="2030-01-01T00:00:00Z"))
    assert copied.told == 2
    copied.drop("x")
    assert copied.told == 2


def test_it_expires():
    copied = Copied(revoked(node="a", expires="2026-06-01T14:00:01+02:00"))
    assert copied.why(NODE)
    assert copied.why(NODE, NOW + datetime.timedelta(seconds=1)) == ""


@pytest.mark.parametrize("text", ["soon", "2030-01-01", "2030-01-01T00:00:60Z", "9999-12-31T23:59:59-14:00"])
def test_an_odd_expiry_never_comes(text):
    # The schema refuses these today; what was stored before must not let anybody in.
    copied = Copied(revoked(node="a", expires=text))
    assert copied.why(NODE, NOW.replace(year=9990))


@pytest.mark.parametrize("spec", [{}, {"node": 7, "user": None}, {"serialNumber": ["1"]}])
def test_an_odd_one_refuses_nobody_and_stops_nothing(spec):
    copied = Copied(revoked(**spec))
    assert copied.why(NODE) == ""
    copied.put(revoked(node="a"))
    assert copied.why(NODE)


def test_without_a_spec_the_reason_is_unspecified():
    assert revocation.read({"metadata": {"name": "x"}}) == revocation.Revocation(name="x", reason="unspecified")
