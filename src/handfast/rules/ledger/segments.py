# SPDX-License-Identifier: Apache-2.0
"""The issuance ledger: entries in segments, chained so that a changed past shows.

It writes nothing (`controllers.certificates.ledger` does). `ledger.entries` says what an entry holds, and
`ledger.admission` what may be written. `ledger.verification` finds what was changed all the same.

A segment is one object of the API, and each of its entries one line, `LINK NUMBER JSON`: NUMBER counts from 1 within its
segment, and LINK is the SHA-256 of the link before it, a newline, NUMBER, a blank and JSON. The first entry has no link
before it. In its place stands the SHA-256 of the segment's `previous`, a newline and its sequence number. `previous` is
the hash of the segment before, which is the link of the last entry there.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath
from handfast.rules.ledger import entries as ledger_entries

GENESIS: Final = "0" * 64
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

    @property
    def name(self) -> str:
        return segment_name(self.sequence)

    @property
    def last_link(self) -> str:
        """The link of its last entry, which the next segment is chained to. Without an entry: that of the segment before."""
        return self.entries[-1].partition(" ")[0] if self.entries else self.previous

    @property
    def start(self) -> str:
        """What its first entry is chained to: a segment cannot be given another number either."""
        return chained(self.previous, (str(self.sequence),))


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
    grown = Segment(sequence=segment.sequence, previous=segment.previous, entries=entries)
    return sealed(grown) if room(grown) == 0 else grown


def sealed(segment: Segment) -> Segment:
    """The segment, closed."""
    return Segment(
        sequence=segment.sequence,
        previous=segment.previous,
        entries=segment.entries,
        sealed=True,
        hash=segment.last_link,
    )


def following(segment: Segment | None) -> Segment:
    """The empty segment after a sealed one, or the first of all."""
    if segment is None:
        return Segment(sequence=1, previous=GENESIS)
    return Segment(sequence=segment.sequence + 1, previous=segment.hash)


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


def segment_name(sequence: int) -> str:
    return f"segment-{sequence:010d}"


def read(document: Mapping[str, Any]) -> Segment:
    """A segment from its object, whose shape the schema has checked."""
    spec = jsonpath.mapping(document, "spec")
    return Segment(
        sequence=jsonpath.number(spec, "sequence"),
        previous=jsonpath.text(spec, "previous"),
        entries=tuple(jsonpath.texts(spec, "entries")),
        sealed=spec.get("sealed") is True,
        hash=jsonpath.text(spec, "hash"),
    )


def spec_of(segment: Segment) -> dict[str, Any]:
    """The spec of its object."""
    closed = {"hash": segment.hash} if segment.sealed else {}
    return {
        "sequence": segment.sequence,
        "previous": segment.previous,
        "entries": list(segment.entries),
        "sealed": segment.sealed,
        **closed,
    }
