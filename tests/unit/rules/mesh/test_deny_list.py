# SPDX-License-Identifier: Apache-2.0
"""The deny list of the mesh. The names of the table in `rules/mesh/deny_list.py` are here."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.rules import revocation
from handfast.rules.mesh import deny_list, issued
from handfast.rules.mesh.names import Account, Mesh, Scheme
from tests.unit.rules.mesh.issued_cases import HOUR, MESH, NOW, entry, index, sha

WEB = "system:serviceaccount:shop:web"
NAME = MESH.name(Account(namespace="shop", name="web"))


def revoked(name: str = "r", **spec: Any) -> revocation.Revocation:
    return revocation.read({"metadata": {"name": name}, "spec": spec})


def listed(
    known: issued.Issued, *rows: revocation.Revocation, mesh: Mesh | None = MESH, now: datetime.datetime = NOW
) -> deny_list.DenyList:
    return deny_list.compute(rows, known, mesh, now)


def test_without_revocations_nobody_is_denied():
    assert listed(index(entry())) == deny_list.EMPTY
    assert deny_list.EMPTY.denied(issued.read(entry())) == ""


def test_a_revoked_account_is_denied_by_name_and_by_certificate():
    denied = listed(index(entry(), entry("db", number=2)), revoked(user=WEB))
    assert denied == deny_list.DenyList(frozenset({NAME}), frozenset({sha("web 1")}))
    assert denied.denied(issued.read(entry())) == "this certificate is revoked"
    assert denied.denied(issued.read(entry(number=7))) == "this identity is revoked"
    assert denied.denied(issued.read(entry("db", number=2))) == ""


def test_an_account_without_certificates_is_denied_all_the_same():
    assert listed(index(), revoked(user=WEB)).names == {NAME}


def test_a_certificate_that_came_after_the_revocation_is_denied_too():
    known = index()
    known.add(issued.read(entry()), NOW)
    assert listed(known, revoked(user=WEB)).certificates == {sha("web 1")}


def test_names_with_a_uid_come_from_the_ledger():
    with_uid = f"u-7.{NAME}"
    known = index(entry(name=with_uid))
    assert listed(known, revoked(user=WEB), mesh=Mesh("cluster.local", scheme=Scheme.UID)).names == {with_uid}
    assert listed(known, revoked(user=WEB), mesh=None).names == {with_uid}


@pytest.mark.parametrize("user", ["jane", "system:node:n1", "system:serviceaccount:shop:a.b"])
def test_who_has_no_name_in_the_mesh_is_not_on_the_list(user):
    assert listed(index(entry()), revoked(user=user)) == deny_list.EMPTY


def test_a_revoked_pod_is_denied_alone():
    known = index(entry(), entry(number=2, pod="shop/web-2/u-2/n1"))
    pod = {"namespace": "shop", "name": "web-1", "uid": "u-1"}
    denied = listed(known, revoked(pod=pod))
    assert denied == deny_list.DenyList(frozenset(), frozenset({sha("web 1")}))
    assert denied.denied(issued.read(entry(number=2))) == ""


@pytest.mark.parametrize(
    "spec", [{"node": "n1"}, {"serialNumber": "0x1"}, {"keyFingerprint": "sha256:" + sha("key web 1").upper()}]
)
def test_certificates_are_denied_by_node_serial_number_and_key(spec):
    known = index(entry(), entry(number=2, pod="shop/web-2/u-2/n2"))
    assert listed(known, revoked(**spec)) == deny_list.DenyList(frozenset(), frozenset({sha("web 1")}))


def test_what_has_ended_is_not_on_the_list():
    assert listed(index(entry()), revoked(node="n1"), now=NOW + HOUR) == deny_list.EMPTY
    ended = revoked(user=WEB, expires="2026-11-17T12:00:00Z")
    assert listed(index(entry()), ended) == deny_list.EMPTY
    assert listed(index(entry()), ended, now=NOW - HOUR).names == {NAME}


def test_the_list_changes_when_the_first_revocation_ends():
    rows = [revoked(user=WEB), revoked(node="n1", expires="2026-11-17T13:00:00Z")]
    assert deny_list.next_end(rows, NOW) == NOW + HOUR
    assert deny_list.next_end(rows, NOW + HOUR) is None
    assert deny_list.next_end(rows[:1], NOW) is None


def test_a_crowd_pushes_nobody_off_the_list(monkeypatch):
    monkeypatch.setattr(deny_list, "MOST_COVERED", 3)
    crowd = [entry(number=number, pod="", lives=number * HOUR) for number in range(1, 6)]
    known = index(*crowd, entry("db", number=1))
    denied = listed(known, revoked(user=WEB), revoked("s", keyFingerprint="sha256:" + sha("key db 1")))
    assert denied.certificates == {sha("db 1"), *(sha(f"web {number}") for number in (3, 4, 5))}
    assert denied.denied(issued.read(crowd[0])) == "this identity is revoked"
