# SPDX-License-Identifier: Apache-2.0
"""Who believes which root, and by whom each certificate is signed."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from handfast.rules.mesh import anchor_rotation, believers
from handfast.rules.mesh.believers import Kind
from tests.unit.rules.mesh.issued_cases import sha
from tests.unit.rules.mesh.rotation_cases import (
    BOTH,
    HOUR,
    NEW_ROOT,
    NEW_SIGNER,
    NOW,
    OLD,
    OLD_ROOT,
    OLD_SIGNER,
    entry,
    pod,
    workload,
)

SECOND = datetime.timedelta(seconds=1)


def read(pods=(), workloads=(), ledger=()):
    return believers.read(believers.Facts(pods=pods, workloads=workloads, ledger=ledger), NOW)


def one(*arguments):
    (row,) = read(*arguments).believers
    return row


def tags(*signers: str) -> frozenset[str]:
    return frozenset(map(anchor_rotation.tag_of, signers))


def test_an_agent_believes_what_it_has_acknowledged():
    row = one([pod(anchors=OLD.anchors)], [workload("web-1", OLD_ROOT, NEW_ROOT)])
    assert (row.pod, row.kind, row.roots) == ("shop/web-1", Kind.AGENT, {OLD_ROOT, NEW_ROOT})
    assert (row.variables, row.signers, row.until) == ({OLD_ROOT}, frozenset(), None)


def test_a_pod_without_an_agent_believes_its_variables():
    for blob, roots in ((OLD.anchors, {OLD_ROOT}), (BOTH.to_pem(), {OLD_ROOT, NEW_ROOT})):
        row = one([pod(anchors=blob)])
        assert (row.kind, row.roots, row.variables) == (Kind.STOCK, roots, roots)


def test_a_report_in_another_namespace_is_nobodys():
    forged = workload("web-1", OLD_ROOT, NEW_ROOT)
    forged["metadata"]["namespace"] = "intruder"
    assert one([pod(anchors=OLD.anchors)], [forged]).kind is Kind.STOCK
    own = workload("web-1", OLD_ROOT)
    assert one([pod(anchors=OLD.anchors)], [own, forged]).roots == {OLD_ROOT}


def test_the_report_of_an_earlier_pod_of_the_name_is_not_its_own():
    assert one([pod(anchors=OLD.anchors)], [workload("web-1", NEW_ROOT, uid="earlier")]).kind is Kind.STOCK
    assert one([pod(anchors=OLD.anchors)], [{"metadata": {"name": "web-1"}}]).kind is Kind.STOCK


def test_of_one_whose_variables_cannot_be_read_nothing_is_known():
    row = one([pod(anchors=b"nonsense")])
    assert (row.kind, row.roots) == (Kind.UNKNOWN, frozenset())
    # Nor of one that only has a certificate.
    assert one([pod()], (), [entry()]).kind is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("there", "ledger"),
    [
        (pod(), ()),
        (pod(anchors=OLD.anchors, phase="Succeeded"), ()),
        (pod(anchors=OLD.anchors, plane="another"), ()),
        (pod(), (entry(lives=-HOUR / 2),)),
        (pod("another"), (entry(),)),
    ],
    ids=["no identity", "ended", "another mesh", "only an expired certificate", "gone"],
)
def test_who_has_no_identity_here_does_not_count(there, ledger):
    assert read([there], (), ledger).believers == ()


def test_the_certificate_of_an_agent_is_the_one_that_it_reports():
    ledger = [entry(), entry(number=2, ago=SECOND, signer=NEW_SIGNER)]
    # It may not have received the newer one.
    for digest, signer in ((ledger[0].certificate, OLD_SIGNER), (ledger[1].certificate, NEW_SIGNER)):
        row = one([pod()], [workload(certificate=digest)], ledger)
        assert (row.signers, row.until) == (tags(signer), ledger[0].not_after)


def test_an_older_key_is_that_of_an_earlier_start_and_a_younger_one_counts():
    before = entry(number=1, ago=3 * HOUR, lives=24 * HOUR, key="earlier start")
    first = entry(number=2, ago=2 * HOUR, lives=-HOUR / 2, key="own")
    now = entry(number=3, ago=HOUR, signer=NEW_SIGNER, key="own")
    beside = entry(number=4, ago=HOUR, lives=2 * HOUR, key="beside")
    row = one([pod()], [workload(certificate=now.certificate)], [beside, before, first, now])
    assert (row.signers, row.until) == (tags(NEW_SIGNER, OLD_SIGNER), beside.not_after)
    later = dataclasses.replace(
        beside, issued_at=NOW, rule=now.rule, certificate=sha("later"), key_fingerprint=sha("another")
    )
    assert one([pod()], [workload(certificate=now.certificate)], [before, now, beside, later]).signers == tags(
        NEW_SIGNER
    )


def test_an_agent_that_reports_what_the_ledger_lacks_is_taken_by_its_newest():
    assert one([pod()], [workload(certificate="x")], [entry()]).signers == tags(OLD_SIGNER)


def test_without_an_agent_the_newest_counts_once_it_has_arrived():
    ledger = [entry(), entry(number=2, ago=SECOND, signer=NEW_SIGNER)]
    assert one([pod()], (), ledger).signers == tags(OLD_SIGNER)
    assert one([pod()], (), ledger[1:]).signers == tags(NEW_SIGNER)
    old_enough = [entry(), entry(number=2, ago=believers.RECEIPT_TIME, signer=NEW_SIGNER)]
    assert one([pod()], (), old_enough).signers == tags(NEW_SIGNER)


def test_entries_from_before_uids_are_found_by_name_and_those_without_an_issuer_are_nobodys():
    row = one([pod()], (), [entry(request="shop/web-1", signer="")])
    assert row.signers == {""}


def test_a_certificate_of_no_pod_counts_but_for_the_control_plane_s_own():
    ledger = [entry(request=""), entry(request="", lives=-HOUR / 2)]
    own = dataclasses.replace(ledger[0], requester="system:serviceaccount:linkerd:linkerd-controller")
    (loose,) = read((), (), [*ledger, own]).loose
    assert loose == believers.Loose("system:serviceaccount:shop:web", anchor_rotation.tag_of(OLD_SIGNER), NOW + HOUR)


def test_holders_are_counted_by_issuer():
    known = read([pod(), pod("web-2")], (), [entry(), entry("web-2", signer=NEW_SIGNER), entry(request="")])
    assert believers.counted(known) == {
        anchor_rotation.tag_of(OLD_SIGNER): 2,
        anchor_rotation.tag_of(NEW_SIGNER): 1,
    }
