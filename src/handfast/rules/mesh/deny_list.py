# SPDX-License-Identifier: Apache-2.0
"""The deny list of the mesh: which names and which certificates peers refuse from now on. It follows nothing, and sends nothing.

1. A Revocation of an account denies its name, as the mesh composes it, and every name that a certificate in force of it has: with another
   name scheme, or with a UID in it.
2. A Revocation of an account, a Pod, a node, a key or a serial number denies the certificates in force that the ledger has of it, by their
   SHA-256. Those of a Pod or a node share their name with others: the name stays good.
3. A certificate that no denied name covers is always on the list. Of the others, which their name refuses already, the `MOST_COVERED` that
   live longest are. So an account with very many workloads makes no list that cannot be sent.
4. What has expired is not on the list: nobody believes it.
5. A Revocation counts until its end, and the list changes then: `next_end`.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_deny_list.py |
|---|---|---|---|---|
| who took over a workload | its key and certificate | go on until the certificate ends | 1, 2 | test_a_revoked_account_is_denied_by_name_and_by_certificate |
| … | a certificate that was signed as the Revocation came | slip through | 2 | test_a_certificate_that_came_after_the_revocation_is_denied_too |
| … | an account made anew, in the scheme `uid` | be missed, since no name is known | 1 | test_names_with_a_uid_come_from_the_ledger |
| who took over one Pod | its certificate | hide among its neighbours, or take them down | 2 | test_a_revoked_pod_is_denied_alone |
| a tenant | ten thousand certificates of one account | have others drop off the list | 3 | test_a_crowd_pushes_nobody_off_the_list |
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from handfast import errors
from handfast.rules import revocation, user_names
from handfast.rules.mesh import issued as issued_module
from handfast.rules.mesh import names

MOST_COVERED: Final = 4096


class DenyList(msgspec.Struct, frozen=True):
    """Names, and certificates by the hex of their SHA-256."""

    names: frozenset[str] = frozenset()
    certificates: frozenset[str] = frozenset()

    def denied(self, certificate: issued_module.Certificate) -> str:
        """What of a certificate is denied, in words; empty where nothing is."""
        if certificate.fingerprint in self.certificates:
            return "this certificate is revoked"
        return "this identity is revoked" if self.names.intersection(certificate.names) else ""


EMPTY: Final = DenyList()


def compute(
    revocations: Iterable[revocation.Revocation],
    issued: issued_module.Issued,
    mesh: names.Mesh | None,
    now: datetime.datetime,
) -> DenyList:
    """The list at this instant; `mesh` is None where the settings are not known, and only the ledger tells names."""
    denied: set[str] = set()
    concerned: dict[str, issued_module.Certificate] = {}
    for each in revocations:
        # 5. until its end
        if each.expires is not None and each.expires <= now:
            continue
        # 1. the names of an account
        denied.update(_names(each.user, issued, mesh, now))
        # 2. the certificates of what it names; 4. that are in force
        concerned.update((row.fingerprint, row) for row in issued.of(each.targets(), now))
    return DenyList(frozenset(denied), frozenset(_bounded(concerned.values(), denied)))


def _names(user: str, issued: issued_module.Issued, mesh: names.Mesh | None, now: datetime.datetime) -> Iterator[str]:
    account = user_names.service_account(user)
    if account is None:
        return
    try:
        if mesh is not None:
            yield mesh.name(names.Account(namespace=account[0], name=account[1]))
    except errors.Refused:
        # It has no name in this mesh, or none without its UID.
        pass
    for row in issued.of([("user", user)], now):
        yield from row.names


def _bounded(rows: Iterable[issued_module.Certificate], denied: set[str]) -> Iterator[str]:
    covered = []
    for row in rows:
        # 3. what no name covers is always there
        if denied.isdisjoint(row.names):
            yield row.fingerprint
        else:
            covered.append(row)
    covered.sort(key=lambda row: (row.not_after, row.fingerprint), reverse=True)
    yield from (row.fingerprint for row in covered[:MOST_COVERED])


def next_end(revocations: Iterable[revocation.Revocation], now: datetime.datetime) -> datetime.datetime | None:
    """When the first of them ends by itself; None: none does (5)."""
    ends = (each.expires for each in revocations)
    return min((end for end in ends if end is not None and end > now), default=None)
