# SPDX-License-Identifier: Apache-2.0
"""The ledger is only continued, whoever writes. The names of the table in `ledger_admission.py` are here."""

from __future__ import annotations

import copy
import dataclasses
import datetime
from typing import Any

import pytest

from handfast.api import handfast_kinds, status
from handfast.apiserver import identity
from handfast.apiserver.admission import ledger as ledger_admission
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import envelope, items, replica
from handfast.rules import access, decision
from handfast.rules.ledger import segments
from handfast.store.sqlite import engine
from tests.unit.rules.ledger_cases import NOW, chain, lines, mesh, opened

LOGS = handfast_kinds.ISSUANCE_LOG
ADMIN = identity.User("kubernetes-admin", ("system:masters",))
PATCHER = identity.User("eve", ("patchers",))
SIGNER = identity.User("system:kube-controller-manager", ())
LATER = NOW + datetime.timedelta(days=30)


def document(segment: segments.Segment, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "handfast.dev/v1alpha1",
        "kind": "IssuanceLog",
        "metadata": {"name": segment.name, **metadata},
        "spec": segments.spec_of(segment),
    }


def decide(attributes: access.Attributes) -> decision.Decision:
    signs = attributes.user == SIGNER.name and (attributes.verb, attributes.plural, attributes.name) == (
        "sign",
        "signers",
        "kubernetes.io/*",
    )
    if signs or "system:masters" in attributes.groups:
        return decision.Approve("Yes", "", "test")
    return decision.NotMine("No", "", "test")


def admit(
    new: dict[str, Any] | None,
    old: dict[str, Any] | None,
    *present: segments.Segment,
    user: identity.User = ADMIN,
    now: datetime.datetime = NOW,
) -> None:
    """One write, with these segments in the store."""
    given = new or old or {}
    write = plugin.Write(
        operation=plugin.CREATE if old is None else plugin.DELETE if new is None else plugin.UPDATE,
        kind=LOGS,
        subresource="",
        namespace="",
        name=given["metadata"]["name"],
        document=copy.deepcopy(new),
        old=copy.deepcopy(old),
        user=user,
        dry_run=False,
    )
    known = replica.Replica(engine.SqliteStore.__new__(engine.SqliteStore), envelope.Envelopes(None, ()))
    for segment in present:
        body = envelope.encode_document(document(segment))
        known.collection("handfast.dev/issuancelogs/").load(items.Item("", segment.name, 1, body))
    ledger_admission.ROW.plugin(write, plugin.Context(known, decide, lambda: now))


def refused(*given: Any, **more: Any) -> str:
    with pytest.raises(plugin.Refusal) as error:
        admit(*given, **more)
    assert error.value.code == 403
    return error.value.why


@pytest.mark.parametrize("user", [ADMIN, SIGNER])
def test_what_continues_it_is_let_through(user: identity.User):
    first, second, _ = chain()
    admit(document(opened(1)), None, user=user)
    admit(document(second), None, first, user=user)
    admit(document(opened(1, 2)), document(opened(1)), opened(1), user=user)


def test_labels_may_change():
    segment = segments.sealed(opened(1))
    admit(document(segment, labels={"a": "b"}), document(segment), segment, user=PATCHER)


def test_nobody_changes_an_entry():
    first, second, third = chain()
    assert refused(document(opened(1)), document(opened(1, 2))) == "EntriesChanged"
    assert refused(document(dataclasses.replace(first, entries=second.entries)), document(first)) == "Sealed"
    assert refused(document(second), None, third) == "NotNext"
    assert refused(document(opened(1)), None, third) == "NotNext"


def test_what_is_in_force_stays():
    first, second, third = chain()
    assert refused(None, document(first), first, second, third) == "StillInForce"
    assert refused(None, document(second), first, second, third, now=LATER) == "NotOldest"
    assert refused(None, document(third), third, now=LATER) == "Newest"
    admit(None, document(first), first, second, third, now=LATER)


def test_who_may_not_sign_adds_nothing():
    assert refused(document(opened(1)), None, user=PATCHER) == "SignerNotPermitted"
    assert refused(document(opened(1, 2)), document(opened(1)), user=PATCHER) == "SignerNotPermitted"
    other = segments.extended(opened(1), lines(2, signer="example.com/other"))
    assert refused(document(other), document(opened(1)), user=SIGNER) == "SignerNotPermitted"


def test_nobody_owns_a_segment():
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}
    owned = document(opened(1), ownerReferences=[owner])
    assert refused(owned, document(opened(1))) == "SegmentOwned"
    assert refused(owned, None) == "SegmentOwned"


def test_nothing_holds_a_segment():
    held = document(opened(1), finalizers=["example.com/mine"])
    assert refused(held, document(opened(1))) == "SegmentHeld"
    assert refused(held, None) == "SegmentHeld"
    admit(document(opened(1)), held, user=PATCHER)


def test_who_may_not_sign_seals_nothing():
    mixed = segments.extended(opened(1), lines(2, signer="example.com/other"))
    for segment in (opened(1), mixed):
        assert refused(document(segments.sealed(segment)), document(segment), user=PATCHER) == "SignerNotPermitted"
        # One of its signers is enough: another's entry keeps nobody from going on.
        admit(document(segments.sealed(segment)), document(segment), user=SIGNER)
    others = segments.extended(segments.following(None), lines(1, signer="example.com/other"))
    assert refused(document(segments.sealed(others)), document(others), user=SIGNER) == "SignerNotPermitted"


def test_a_segment_begins_with_an_entry():
    first, *_ = chain()
    for user in (PATCHER, SIGNER, ADMIN):
        assert refused(document(segments.following(first)), None, first, user=user) == "SignerNotPermitted"


def test_the_refusal_in_words():
    with pytest.raises(status.StatusError) as error:
        admit(document(opened(1)), document(opened(1, 2)))
    assert error.value.message == (
        'issuancelogs.handfast.dev "segment-0000000001" is forbidden: entries are only ever added at the end'
    )


def test_each_chain_begins_once():
    own = mesh(1)
    admit(document(own), None, opened(1))
    admit(document(opened(1)), None, own)
    closed = segments.sealed(own)
    assert refused(document(own), None, mesh(2, before=closed)) == "NotNext"
    admit(document(mesh(2, before=closed)), None, closed, opened(1))


@pytest.mark.parametrize("present", [opened(1), segments.sealed(opened(1))])
def test_a_segment_that_is_there_already_is_answered_as_such(present: segments.Segment):
    with pytest.raises(status.StatusError) as error:
        admit(document(opened(1)), None, present)
    assert error.value.reason == "AlreadyExists"


def test_only_the_identity_service_writes_in_the_chain_of_the_mesh():
    assert refused(document(mesh(1)), None, user=SIGNER) == "SignerNotPermitted"
    assert refused(document(mesh(1)), None, user=PATCHER) == "SignerNotPermitted"
