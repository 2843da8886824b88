# SPDX-License-Identifier: Apache-2.0
"""Entries and segments of a ledger, for the tests of the console's pages."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from typing import Any

from handfast.api import signer_names
from handfast.pki import names
from handfast.rules import user_names
from handfast.rules.ledger import entries, segments

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def entry(node: str = "w1", *, age: float = 1, lasts: float = 24, **more: Any) -> entries.Entry:
    """A client certificate of a node that was issued so many hours ago."""
    issued = (NOW - age * HOUR).replace(microsecond=0)
    values: dict[str, Any] = {
        "issued_at": issued,
        "not_after": issued + lasts * HOUR,
        "signer": signer_names.KUBELET_CLIENT,
        "requester": "system:bootstrap:abcdef",
        "authenticated_by": "bootstrap-token",
        "token_id": "abcdef",
        "key_fingerprint": digest(f"key of {node}"),
        "serial": digest(f"{node} {age}")[:32],
        "names": entries.names_of(user_names.node_subject(node), names.Sans()),
        "rule": entries.JOIN,
        "request": f"csr-{node}",
        "certificate": digest(f"certificate of {node}"),
        "token_maker": "alice",
    }
    return entries.Entry(**{**values, **more})


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def chain(*groups: Sequence[entries.Entry], open_end: bool = True, name: str = "") -> list[segments.Segment]:
    """A chain of segments with these entries, sealed but for the last."""
    made: list[segments.Segment] = []
    for group in groups:
        before = made[-1] if made else None
        segment = segments.extended(segments.following(before, name), [entries.encode(each) for each in group])
        made.append(segments.sealed(segment))
    if made and open_end:
        last = made[-1]
        made[-1] = segments.Segment(
            sequence=last.sequence, previous=last.previous, entries=last.entries, chain=last.chain
        )
    return made
