# SPDX-License-Identifier: Apache-2.0
"""What is kept of one node, and what can be told from it without looking into the ledger. `node_table` keeps and judges them.

1. It is a handful of values, half a kilobyte with its name and labels: no object, and no entry of the ledger.
2. Nodes write Leases themselves, with any instant from year 1 to year 9999: one beyond what can be reckoned with is the last there is.
"""

from __future__ import annotations

import datetime
import math
from typing import Final

from handfast.api import signer_names
from handfast.rules.ledger import entries
from handfast.rules.nodes import liveness, overview

# 2. the last whole second: the last microsecond is no float, and the next one up is in the year 10000.
_LAST: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC).timestamp()


class Record:
    """What is kept of one node (1). Instants are seconds since 1970; what is not known is 0, or empty."""

    __slots__ = (
        "came_by",
        "ends",
        "issued",
        "joined",
        "joined_in",
        "key",
        "labels",
        "listed",
        "name",
        "number",
        "registered",
        "renewed",
        "requests",
        "rule",
        "seconds",
        "segment",
        "serial",
        "served",
        "served_in",
        "served_until",
        "state",
        "token_maker",
        "wakes",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.registered = False
        self.labels: tuple[str, ...] = ()
        # Its Lease: when it was renewed, and for how long it counts.
        self.renewed = 0.0
        self.seconds = 0
        # Its newest certificate, and where the ledger has it.
        self.issued = 0
        self.ends = 0
        self.serial = ""
        self.key = b""
        self.rule = ""
        self.segment = ""
        self.number = 0
        # How it came in, when, and where the ledger says so.
        self.came_by = ""
        self.token_maker = ""
        self.joined = 0
        self.joined_in = ""
        # The newest certificate that it serves with: when it was issued, when it ends, and where the ledger says so.
        self.served = 0
        self.served_until = 0
        self.served_in = ""
        self.requests: tuple[overview.Request, ...] = ()
        # As it was judged last; whether it is in the order; and when it is to be judged again.
        self.state = overview.State.GOOD
        self.listed = False
        self.wakes = math.inf

    @property
    def place(self) -> str:
        """Where the ledger has its certificate; empty: nowhere."""
        return f"{self.segment}/{self.number}" if self.segment else ""

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left of it."""
        return not (self.registered or self.renewed or self.issued or self.joined or self.served or self.requests)


def instant(seconds: float) -> datetime.datetime:
    """Of so many seconds since 1970."""
    # 2. within the years that there are
    return datetime.datetime.fromtimestamp(min(seconds, _LAST), datetime.UTC)


def packed(fingerprint: str) -> bytes:
    """A fingerprint as it is kept."""
    try:
        return bytes.fromhex(fingerprint)
    except ValueError:
        # Not of our making; it is shown as it is.
        return fingerprint.encode()


def key_text(record: Record) -> str:
    """The fingerprint of its key, as the ledger has it."""
    return record.key.hex() if len(record.key) == 32 else record.key.decode()


def pulse(record: Record) -> liveness.Pulse | None:
    """Its Lease; None: it has none."""
    if not record.renewed:
        return None
    return liveness.Pulse(renewed=instant(record.renewed), seconds=record.seconds, at=0.0, beat=False)


def certificate(record: Record) -> entries.Entry | None:
    """What is known of its certificate without looking into the ledger; the rest is empty."""
    if not record.issued:
        return None
    return entries.Entry(
        issued_at=instant(record.issued),
        not_after=instant(record.ends),
        signer=signer_names.KUBELET_CLIENT,
        requester="",
        authenticated_by="",
        token_id="",
        key_fingerprint=key_text(record),
        serial=record.serial,
        names=(),
        rule=record.rule,
        request="",
        certificate="",
    )
