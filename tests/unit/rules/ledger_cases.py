# SPDX-License-Identifier: Apache-2.0
"""Makes entries, segments and a chain of them, for the tests of whatever reads a ledger. It tests nothing."""

from __future__ import annotations

import datetime
from typing import Any

from handfast.api import signer_names
from handfast.rules.ledger import entries, segments

NOW = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def entry(number: int = 1, **more: Any) -> entries.Entry:
    given: dict[str, Any] = {
        "issued_at": NOW,
        "signer": "kubernetes.io/kube-apiserver-client-kubelet",
        "requester": "system:bootstrap:abcdef",
        "authenticated_by": "bootstrap-token",
        "token_id": "abcdef",
        "key_fingerprint": f"{number:064x}",
        "serial": f"{number:032x}",
        "names": (f"CN=system:node:node-{number}", "O=system:nodes"),
        "not_after": NOW + 24 * HOUR,
        "rule": "nodeclient",
        "request": f"node-csr-{number}",
        "certificate": f"{number + 1000:064x}",
    }
    return entries.Entry(**{**given, **more})


def lines(*numbers: int, **more: Any) -> list[str]:
    return [entries.encode(entry(number, **more)) for number in numbers]


def opened(*numbers: int) -> segments.Segment:
    return segments.extended(segments.following(None), lines(*numbers))


def chain() -> list[segments.Segment]:
    """Three segments of four entries; the last is open."""
    found: list[segments.Segment] = []
    before: segments.Segment | None = None
    for first in (1, 5, 9):
        segment = segments.extended(segments.following(before), lines(*range(first, first + 4)))
        before = segments.sealed(segment)
        found.append(before if first < 9 else segment)
    return found


def mesh(*numbers: int, before: segments.Segment | None = None) -> segments.Segment:
    """An open segment of the chain of the mesh."""
    own = lines(*numbers, signer=signer_names.MESH_IDENTITY, names=("CN=", "DNS:web.shop.test"))
    return segments.extended(segments.following(before, segments.MESH), own)
