# SPDX-License-Identifier: Apache-2.0
"""What API servers say of themselves in their Leases in `kube-system`: the words of the annotations, and how they are read. It renews none.

Whoever may write Leases can write anything there: what is no number is 0, and what is no instant is none.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

from handfast.api import jsonpath, objects

NAMESPACE: Final = "kube-system"
LABEL: Final = "apiserver.kubernetes.io/identity"
FORMS: Final = "handfast.dev/stored-forms"
APPLIED: Final = "handfast.dev/applied-version"
LAG: Final = "handfast.dev/store-lag"
UNCERTAIN: Final = "handfast.dev/uncertain-writes"
COMPACTED: Final = "handfast.dev/last-compaction"
VERSION: Final = "handfast.dev/version"
_DIGITS: Final = 20
# A Lease of centuries is no Lease, and an instant after them none that can be written.
_LONGEST: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One API server, by its Lease. `forms` is empty for one that is not Handfast's; `until` is None where the Lease does not say when it ends."""

    name: str
    holder: str
    version: str
    forms: str
    applied: int
    lag: int
    uncertain: int
    compacted: str
    renewed: str
    until: datetime.datetime | None

    def is_alive(self, now: datetime.datetime) -> bool:
        return self.until is not None and self.until > now


def read(lease: objects.Document) -> Server | None:
    """Which server a Lease is of; None where it is none's."""
    if not isinstance(jsonpath.at(lease, "metadata", "labels", LABEL), str):
        return None
    notes = jsonpath.mapping(lease, "metadata", "annotations")
    renewed = jsonpath.text(lease, "spec", "renewTime")
    return Server(
        name=jsonpath.text(lease, "metadata", "name"),
        holder=jsonpath.text(lease, "spec", "holderIdentity"),
        version=jsonpath.text(notes, VERSION),
        forms=jsonpath.text(notes, FORMS),
        applied=number(notes.get(APPLIED)),
        lag=number(notes.get(LAG)),
        uncertain=number(notes.get(UNCERTAIN)),
        compacted=jsonpath.text(notes, COMPACTED),
        renewed=renewed,
        until=_until(renewed, jsonpath.number(lease, "spec", "leaseDurationSeconds")),
    )


def number(said: object) -> int:
    """A number of an annotation; 0 where it is none."""
    is_one = isinstance(said, str) and said.isascii() and said.isdecimal() and len(said) < _DIGITS
    return int(str(said)) if is_one else 0


def _until(renewed: str, seconds: int) -> datetime.datetime | None:
    try:
        return objects.parse_timestamp(renewed) + datetime.timedelta(seconds=min(max(seconds, 0), _LONGEST))
    except (ValueError, OverflowError):
        return None
