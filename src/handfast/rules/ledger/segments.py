# SPDX-License-Identifier: Apache-2.0
"""The issuance ledger: entries in segments, chained so that a changed past shows.

It writes nothing (`client.ledger` does). `ledger.entries` says what an entry holds, and
`ledger.admission` what may be written. `ledger.verification` finds what was changed all the same.

A segment is one object of the API, and each of its entries one line, `LINK NUMBER JSON`: NUMBER counts from 1 within its
segment, and LINK is the SHA-256 of the link before it, a newline, NUMBER, a blank and JSON. The first entry has no link
before it. In its place stands the SHA-256 of the segment's `previous`, a newline and its sequence number. `previous` is
the hash of the segment before, which is the link of the last entry there.

There are two chains, each with numbers of its own: that of Kubernetes' signers, and `mesh`, of the identity service. Certificates of
the mesh live for a day. Beside those of nodes, which live for a year, their entries would be kept for a year. In the chain `mesh`,
the name of the chain stands before the sequence number, so that a segment of one chain is none of the other.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, signer_names
from handfast.rules.ledger import entries as ledger_entries

GENESIS: Final = "0" * 64
# The chain of Kubernetes' signers has no name; it was there first.
ORDINARY: Final = ""
MESH: Final = "mesh"
CHAINS: Final = (ORDINARY, MESH)
# Every append rewrites the open segment, so it closes early.
MAX_ENTRIES: Final = 64
MAX_BYTES: Final = 64 << 10
MAX_AGE: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One object of the ledger; `entries` are the lines as they are stored."""

    sequence: int
    previous: str
    entries: tuple[str, ...] = ()
    sealed: bool = False
    hash: str = ""
    chain: str = ORDINARY

    @property
    def name(self) -> str:
        return segment_name(self.sequence, self.chain)

    @property
    def last_link(self) -> str:
        """The link of its last entry, which the next segment is chained to. Without an entry: that of the segment before."""
        return self.entries[-1].partition(" ")[0] if self.entries else self.previous

    @property
    def start(self) -> str:
        """What its first entry is chained to: a segment cannot be given another number either."""
        return chained(self.previous, (f"{self.chain} {self.sequence}".lstrip(),))


# --- the chain


def chained(previous: str, lines: Iterable[str]) -> str:
    """The link after these (`NUMBER JSON` each), chained to `previous`."""
    for line in lines:
        previous = hashlib.sha256(f"{previous}\n{line}".encode()).hexdigest()
    return previous


def stored_lines(segment: Segment, lines: Iterable[str]) -> tuple[str, ...]:
    """Encoded entries as they are stored at the end of this segment."""
    stored, link = [], segment.last_link if segment.entries else segment.start
    for number, line in enumerate(lines, len(segment.entries) + 1):
        link = chained(link, (f"{number} {line}",))
        stored.append(f"{link} {number} {line}")
    return tuple(stored)


def extended(segment: Segment, lines: Iterable[str]) -> Segment:
    """The segment with these entries at its end, sealed if it is full then."""
    entries = (*segment.entries, *stored_lines(segment, lines))
    grown = dataclasses.replace(segment, entries=entries)
    return sealed(grown) if room(grown) == 0 else grown


def sealed(segment: Segment) -> Segment:
    """The segment, closed."""
    return dataclasses.replace(segment, sealed=True, hash=segment.last_link)


def following(segment: Segment | None, chain: str = ORDINARY) -> Segment:
    """The empty segment after a sealed one, or the first of a chain."""
    if segment is None:
        return Segment(sequence=1, previous=GENESIS, chain=chain)
    return Segment(sequence=segment.sequence + 1, previous=segment.hash, chain=segment.chain)


def chain_of(signer: str) -> str:
    """The chain in which a signer writes."""
    return MESH if signer == signer_names.MESH_IDENTITY else ORDINARY


# --- how long a segment grows, and lives


def room(segment: Segment) -> int:
    """How many more entries it takes; one at least, while there is room in bytes."""
    if segment.sealed or sum(map(len, segment.entries)) >= MAX_BYTES:
        return 0
    return max(0, MAX_ENTRIES - len(segment.entries))


def fitting(segment: Segment, lines: Sequence[str]) -> Sequence[str]:
    """As many of the first of these as the segment takes."""
    size, count = sum(map(len, segment.entries)), 0
    for line in lines[: room(segment)]:
        if size >= MAX_BYTES:
            break
        size, count = size + len(line), count + 1
    return lines[:count]


def is_over(segment: Segment, now: datetime.datetime) -> bool:
    """Whether an open segment is to be sealed before anything more is written: its first entry is an hour old."""
    return bool(segment.entries) and now - ledger_entries.decode_stored(segment.entries[0]).issued_at >= MAX_AGE


def newest_expiry(segment: Segment) -> datetime.datetime | None:
    """When the last certificate of a segment expires; None if an entry cannot be read or there is none."""
    try:
        return max((ledger_entries.decode_stored(stored).not_after for stored in segment.entries), default=None)
    except errors.Refused:
        return None


# --- documents


def segment_name(sequence: int, chain: str = ORDINARY) -> str:
    return f"{prefix(chain)}{sequence:010d}"


def prefix(chain: str) -> str:
    """What the names of the segments of a chain begin with, and no others."""
    return f"{chain or 'segment'}-"


def read(document: Mapping[str, Any]) -> Segment:
    """A segment from its object, whose shape the schema has checked."""
    spec = jsonpath.mapping(document, "spec")
    return Segment(
        sequence=jsonpath.number(spec, "sequence"),
        previous=jsonpath.text(spec, "previous"),
        entries=tuple(jsonpath.texts(spec, "entries")),
        sealed=spec.get("sealed") is True,
        hash=jsonpath.text(spec, "hash"),
        chain=jsonpath.text(spec, "chain"),
    )


def spec_of(segment: Segment) -> dict[str, Any]:
    """The spec of its object."""
    closed = {"hash": segment.hash} if segment.sealed else {}
    named = {"chain": segment.chain} if segment.chain else {}
    return {
        "sequence": segment.sequence,
        "previous": segment.previous,
        "entries": list(segment.entries),
        "sealed": segment.sealed,
        **closed,
        **named,
    }
