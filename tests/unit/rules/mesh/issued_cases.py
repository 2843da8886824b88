# SPDX-License-Identifier: Apache-2.0
"""Certificates of the mesh as the ledger has them, made up."""

from __future__ import annotations

import datetime
import hashlib

from handfast.rules.ledger import entries
from handfast.rules.mesh import issued, names

NOW = datetime.datetime(2026, 11, 17, 12, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
MESH = names.Mesh("cluster.local")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def entry(
    account: str = "web",
    *,
    number: int = 1,
    pod: str = "shop/web-1/u-1/n1",
    lives: datetime.timedelta = HOUR,
    name: str = "",
    key: str = "",
) -> entries.Entry:
    called = name or MESH.name(names.Account(namespace="shop", name=account))
    return entries.Entry(
        issued_at=NOW,
        signer="handfast.dev/mesh-identity",
        requester=f"system:serviceaccount:shop:{account}",
        authenticated_by="service-account",
        token_id="t",
        key_fingerprint=key or sha(f"key {account} {number}"),
        serial=f"0{number:x}",
        names=(f"DNS:{called}", "URI:spiffe://cluster.local/ns/shop/sa/web"),
        not_after=NOW + lives,
        rule="MeshCertify",
        request=pod,
        certificate=sha(f"{account} {number}"),
    )


def index(*rows: entries.Entry) -> issued.Issued:
    known = issued.Issued()
    for row in rows:
        known.add(issued.read(row), NOW)
    return known
