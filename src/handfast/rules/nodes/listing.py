# SPDX-License-Identifier: Apache-2.0
"""Nodes as a list shows them, for people and for machines. How each stands is `overview`'s matter."""

from __future__ import annotations

import datetime
from typing import Any, Final

from handfast.api import objects
from handfast.api.printing import ages
from handfast.rules.nodes import overview

COLUMNS: Final = ("NODE", "STATE", "CERTIFICATE", "ENDS", "RENEWS BY", "LAST SEEN", "CAME BY", "PROBLEM")
WIDE_COLUMNS: Final = (*COLUMNS, "SERIAL", "KEY", "NEXT STEP")
# Those that may be shortened, the least important first.
MINOR: Final = ("KEY", "SERIAL", "NEXT STEP", "CERTIFICATE", "CAME BY", "RENEWS BY", "PROBLEM")
# The one of them that holds sentences.
SENTENCES: Final = "PROBLEM"


def cells(row: overview.Row, now: datetime.datetime, *, wide: bool = False) -> tuple[str, ...]:
    """One node, for people to read."""
    entry = row.certificate
    shown = (
        row.name,
        row.state.value,
        "" if entry is None else ages.human_duration(max(now - entry.issued_at, datetime.timedelta())),
        "" if entry is None else relative(entry.not_after, now),
        "" if row.renewal is None else relative(row.renewal[1], now),
        "" if row.seen is None else relative(min(row.seen, now), now),
        row.came_by,
        row.problem,
    )
    more = ("", "") if entry is None else (entry.serial, entry.key_fingerprint)
    return tuple(text or "-" for text in ((*shown, *more, row.next_step) if wide else shown))


def relative(instant: datetime.datetime, now: datetime.datetime) -> str:
    """`in 3h` or `5m ago`."""
    if instant > now:
        return f"in {ages.human_duration(instant - now)}"
    return f"{ages.human_duration(now - instant)} ago"


def document(row: overview.Row) -> dict[str, Any]:
    """One node, for machines to read; what is not known is null."""
    entry = row.certificate
    certificate = None
    if entry is not None:
        certificate = {
            "issued": objects.timestamp(entry.issued_at),
            "until": objects.timestamp(entry.not_after),
            "serial": entry.serial,
            "key": entry.key_fingerprint,
            "rule": entry.rule,
            "request": entry.request,
        }
    window = None if row.renewal is None else [objects.timestamp(instant) for instant in row.renewal]
    return {
        "node": row.name,
        "state": row.state.value,
        "certificate": certificate,
        "renewalWindow": window,
        "lastSeen": None if row.seen is None else objects.timestamp(row.seen),
        "cameBy": row.came_by or None,
        "revokedBy": row.revoked_by or None,
        "problem": row.problem or None,
        "nextStep": row.next_step or None,
    }
