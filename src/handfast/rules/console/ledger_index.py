# SPDX-License-Identifier: Apache-2.0
"""One segment of the issuance ledger as the console keeps it: packed, verified once, with an index of its words.

A hundred thousand entries are 80 MB of text. Packed they are a fifth of that, and a segment is unpacked in a tenth of a millisecond.

1. A sealed segment never changes, and is packed and indexed. The open one of a chain is kept as it is: entries come to it one by one.
2. The index is a Bloom filter of whole words: names, serial number, key, certificate, token and who made it, rule, request, requester, signer, link.
   It may say that a word is here that is not; it never misses one. Whoever finds a segment by it looks.
3. A line that no rule can read is kept, counted and shown as such. It has no words but its link.
"""

from __future__ import annotations

import array
import datetime
import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast import errors
from handfast.rules import revocation, user_names
from handfast.rules.ledger import entries, segments, verification
from handfast.rules.nodes import overview

# 2. A thousand words in 2^13 bits, by four of them each: one question in a hundred finds a segment for nothing.
_BITS: Final = 13
_HASHES: Final = 4
_MASK: Final = (1 << _BITS) - 1
_LEVEL: Final = 1
_lines: Final = msgspec.json.Decoder(tuple[str, ...])
_JOINS: Final = (entries.JOIN, entries.MACHINE_JOIN)
_NAME_PREFIXES: Final = ("CN=", "O=", "DNS:", "IP:", "URI:", user_names.NODE_PREFIX)


@dataclass(frozen=True, slots=True)
class Issued:
    """Client certificates of nodes: how many, and how many of them let a machine in."""

    count: int = 0
    joins: int = 0

    def __add__(self, other: Issued) -> Issued:
        return Issued(self.count + other.count, self.joins + other.joins)


@dataclass(frozen=True, slots=True)
class Line:
    """One entry: its number in its segment, its link, and what it says; `problem` is why nobody can read it (3)."""

    segment: str
    number: int
    link: str
    entry: entries.Entry | None
    problem: str = ""

    @property
    def place(self) -> str:
        return f"{self.segment}/{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One segment. `head` is the segment without its entries."""

    head: segments.Segment
    count: int
    unreadable: int
    last_link: str
    findings: tuple[verification.Finding, ...]
    # When its first and its last certificate were issued; None: no entry can be read.
    oldest: datetime.datetime | None
    newest: datetime.datetime | None
    to_nodes: Issued
    # When each was issued, in seconds; never before the one in front of it, so that the order of the chain stands.
    times: array.array[float]
    # 2. empty: not indexed
    words: bytes
    packed: bytes | tuple[str, ...]

    @property
    def name(self) -> str:
        return self.head.name

    def lines(self) -> tuple[str, ...]:
        """Its entries as they are stored."""
        if isinstance(self.packed, tuple):
            return self.packed
        return _lines.decode(zlib.decompress(self.packed))

    def issued_since(self, begin: datetime.datetime) -> Issued:
        """What it has from this instant on. Only a segment on both sides of it is unpacked."""
        if self.oldest is None or self.newest is None or self.newest < begin:
            return Issued()
        if self.oldest >= begin:
            return self.to_nodes
        read = [line(self.name, number, stored).entry for number, stored in enumerate(self.lines(), 1)]
        return _to_nodes([entry for entry in read if entry is not None and entry.issued_at >= begin])

    def may_have(self, word: str) -> bool:
        """Whether a whole word, in lower case, may be in it (2)."""
        return not self.words or all(self.words[bit >> 3] & (1 << (bit & 7)) for bit in _places(word))


def line(segment: str, number: int, stored: str) -> Line:
    """A stored line as it is shown."""
    link = stored.partition(" ")[0]
    try:
        return Line(segment, number, link, entries.decode_stored(stored))
    except errors.Refused as refused:
        return Line(segment, number, link, None, refused.message)


def read(segment: segments.Segment) -> tuple[Line, ...]:
    """The entries of a segment, oldest first."""
    return tuple(line(segment.name, number, stored) for number, stored in enumerate(segment.entries, 1))


def keep(segment: segments.Segment, lines: Sequence[Line]) -> Kept:
    """A segment with the entries that were read from it: verified, indexed and packed."""
    readable = [each.entry for each in lines if each.entry is not None]
    issued = [entry.issued_at for entry in readable]
    packed: bytes | tuple[str, ...] = segment.entries
    # 1. what never changes is packed and indexed
    if segment.sealed:
        packed = zlib.compress(msgspec.json.encode(segment.entries), _LEVEL)
    return Kept(
        head=segments.Segment(
            sequence=segment.sequence,
            previous=segment.previous,
            sealed=segment.sealed,
            hash=segment.hash,
            chain=segment.chain,
        ),
        count=len(lines),
        unreadable=len(lines) - len(readable),
        last_link=segment.last_link,
        findings=tuple(verification.within(segment)),
        oldest=min(issued, default=None),
        newest=max(issued, default=None),
        to_nodes=_to_nodes(readable),
        times=array.array("d", itertools.accumulate(map(_issued, lines), max)),
        words=_index(lines) if segment.sealed else b"",
        packed=packed,
    )


def _to_nodes(read: Sequence[entries.Entry]) -> Issued:
    own = [entry for entry in read if overview.node_of(entry)]
    return Issued(len(own), sum(entry.rule.startswith(_JOINS) for entry in own))


def _issued(each: Line) -> float:
    return 0.0 if each.entry is None else each.entry.issued_at.timestamp()


def _index(lines: Sequence[Line]) -> bytes:
    bits = bytearray((1 << _BITS) // 8)
    words = {each.link for each in lines}
    for each in lines:
        words.update(() if each.entry is None else words_of(each.entry))
    for word in words:
        for bit in _places(word):
            bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def _places(word: str) -> tuple[int, ...]:
    # Python's own hash differs from process to process, and nobody outside can aim at it; it never leaves this one.
    value = hash(word)
    return tuple((value >> (_BITS * each)) & _MASK for each in range(_HASHES))


def words_of(entry: entries.Entry) -> frozenset[str]:
    """What an entry is found by, in lower case: each name with and without what stands before it, and a rule with and without its Machine."""
    rule, _, machine = entry.rule.partition(": ")
    texts = {
        revocation.normal_serial(entry.serial),
        entry.key_fingerprint,
        entry.certificate,
        entry.token_id,
        entry.token_maker,
        entry.requester,
        entry.request,
        entry.signer,
        entry.rule,
        rule,
        machine,
    }
    for name in (*entry.names, entry.requester):
        plain = name
        for prefix in _NAME_PREFIXES:
            texts.add(plain)
            plain = plain.removeprefix(prefix)
        texts.add(plain)
    return frozenset(text.lower() for text in texts if text)
