# SPDX-License-Identifier: Apache-2.0
"""The Ledger page: every certificate that was issued, the newest first, searched, and its chains verified. It reads nothing.

1. Segments come, grow and go one by one, as a watch tells of them. Each is verified when it comes; between neighbours it is looked
   when somebody asks, and remembered until a segment has changed.
2. Rows are the newest first. A chain is in order by itself; the entries of several are merged by when each was issued.
3. A search is for words, all of which must be in an entry, and for dates. Whole words are found by the index of each segment. Where no
   entry has them as whole words, entries are looked through for those that contain them.
4. One search unpacks a bounded number of segments and finds a bounded number of entries. Where older ones are left it says so, and
   where to go on.
5. What is not written as a date or is too long is told, and nothing is searched.
"""

from __future__ import annotations

import array
import bisect
import datetime
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from handfast.rules import revocation
from handfast.rules.console import ledger_index
from handfast.rules.ledger import segments, verification

# 4. a tenth of a millisecond each; a screenful of screenfuls
_MOST_SEGMENTS: Final = 150
_MOST_FOUND: Final = 500
# 5. what somebody may type
_MOST_TEXT: Final = 200
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_HEX: Final = re.compile(r"(0x)?[0-9a-fA-F]{2}(:?[0-9a-fA-F]{2})+", re.ASCII)
_DAY: Final = datetime.timedelta(days=1)
_EVER: Final = datetime.datetime.max.replace(tzinfo=datetime.UTC)
_NEVER: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Search:
    """Words in lower case, and the instants between which a certificate was issued. `problem` is what cannot be searched for (5)."""

    words: tuple[str, ...] = ()
    since: datetime.datetime = _NEVER
    before: datetime.datetime = _EVER
    problem: str = ""

    @property
    def all(self) -> bool:
        """Whether nothing is asked for: every entry is an answer."""
        return self == Search()


_Matches = Callable[[ledger_index.Line, Search], bool]


@dataclass(frozen=True, slots=True)
class Found:
    """Where the entries are that a search found: segment and number. `older` is the segment from which on nobody has looked (4)."""

    places: tuple[tuple[str, int], ...] = ()
    whole: bool = True
    older: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the rows, and how many there are."""

    rows: tuple[ledger_index.Line, ...]
    total: int
    whole: bool = True
    older: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One chain as a whole: what it has, what is wrong with it, and the head to note."""

    name: str
    segments: int
    entries: int
    unreadable: int
    begins: int
    head: str
    findings: tuple[verification.Finding, ...]

    @property
    def shortened(self) -> bool:
        """Whether nothing is wrong but that it begins later, which is normal after a while."""
        return {each.reason for each in self.findings} == {verification.SHORTENED}


def search(text: str, since: str = "", until: str = "") -> Search:
    """What somebody typed; a date is a day in UTC, and `until` is the last day."""
    if len(text) > _MOST_TEXT:
        return Search(problem=f"the words are longer than {_MOST_TEXT} characters")
    first, last = _day(since), _day(until)
    if since and first is None:
        return Search(problem=f'"{since[:_MOST_TEXT]}" is no date: write it as 2026-11-18')
    if until and last is None:
        return Search(problem=f'"{until[:_MOST_TEXT]}" is no date: write it as 2026-11-18')
    words = tuple(_word(word) for word in text.split())
    return Search(words, first or _NEVER, _EVER if last is None else last + _DAY)


def _day(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(f"{text}T00:00:00+00:00") if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def _word(word: str) -> str:
    """A word as entries have it: serial numbers and keys are written in several ways."""
    plain = word.lower().removeprefix("sha256:")
    return revocation.normal_serial(plain) if _HEX.fullmatch(plain) and (":" in plain or plain[:2] == "0x") else plain


@dataclass(frozen=True, slots=True)
class _Merged:
    """The entries of all chains in one order, oldest first: each by its number, counted through the segments; `starts` is where each of these begins."""

    segments: list[ledger_index.Kept]
    starts: list[int]
    order: array.array[int]

    def places(self, start: int, count: int) -> list[tuple[str, int]]:
        """Segment and number of some rows, the newest first."""
        end = max(len(self.order) - start, 0)
        return [self._place(each) for each in reversed(self.order[max(end - count, 0) : end])]

    def _place(self, each: int) -> tuple[str, int]:
        at = bisect.bisect_right(self.starts, each) - 1
        return self.segments[at].name, each - self.starts[at] + 1


def _merged(kept: Iterable[ledger_index.Kept]) -> _Merged:
    """Eight octets an entry; quick to sort, since each chain is a run that is sorted already."""
    ordered = sorted(kept, key=lambda each: (each.head.chain, each.head.sequence))
    filled = [each for each in ordered if each.count]
    starts = [0, *itertools.accumulate(each.count for each in filled)]
    times = list(itertools.chain.from_iterable(each.times for each in filled))
    return _Merged(filled, starts[:-1], array.array("Q", sorted(range(len(times)), key=times.__getitem__)))


class Ledger:
    """All segments of all chains, as they come (1)."""

    def __init__(self) -> None:
        self._kept: dict[str, ledger_index.Kept] = {}
        # Counts the changes: what was computed of another number is old.
        self.version = 0
        self._ordered: tuple[int, list[ledger_index.Kept]] = (-1, [])
        self._merged: tuple[int, _Merged] = (-1, _Merged([], [], array.array("Q")))
        self._chains: tuple[int, tuple[Chain, ...]] = (-1, ())
        self._found: tuple[int, Search, str, Found] = (-1, Search(), "", Found())

    def __len__(self) -> int:
        return sum(kept.count for kept in self._kept.values())

    def names(self) -> Iterable[str]:
        """Of its segments."""
        return self._kept.keys()

    def kept(self) -> Iterable[ledger_index.Kept]:
        """Its segments, as they are kept."""
        return tuple(self._kept.values())

    @property
    def unreadable(self) -> int:
        """How many of its entries no rule can read."""
        return sum(kept.unreadable for kept in self._kept.values())

    def issued_since(self, begin: datetime.datetime) -> ledger_index.Issued:
        """The client certificates of nodes that were issued from this instant on."""
        return sum((kept.issued_since(begin) for kept in self._kept.values()), ledger_index.Issued())

    @property
    def segment_count(self) -> int:
        return len(self._kept)

    def put(self, segment: segments.Segment) -> tuple[ledger_index.Line, ...]:
        """A segment that has come, or has grown; the entries of it that are new."""
        before = self._kept.get(segment.name)
        lines = ledger_index.read(segment)
        self._kept[segment.name] = ledger_index.keep(segment, lines)
        self.version += 1
        known = 0 if before is None else before.count
        grown = before is not None and 0 < known <= len(lines) and lines[known - 1].link == before.last_link
        return lines[known:] if grown else lines

    def remove(self, name: str) -> None:
        """A segment that is gone; it may be unknown."""
        if self._kept.pop(name, None) is not None:
            self.version += 1

    def at(self, place: str) -> ledger_index.Line | None:
        """The entry at SEGMENT/NUMBER; None: there is none."""
        name, _, number = place.partition("/")
        kept = self._kept.get(name)
        if kept is None or not (number.isascii() and number.isdigit()) or not 1 <= int(number) <= kept.count:
            return None
        return ledger_index.line(name, int(number), kept.lines()[int(number) - 1])

    def chains(self) -> tuple[Chain, ...]:
        """Every chain that has segments, verified."""
        version, known = self._chains
        if version != self.version:
            known = tuple(
                _chain(name, own)
                for name in segments.CHAINS
                if (own := [kept for kept in self._kept.values() if kept.head.chain == name])
            )
            self._chains = (self.version, known)
        return known

    def has(self, noted: str) -> bool:
        """Whether a hash that was noted before is in one of the chains."""
        return any(
            kept.head.previous == noted
            or (kept.may_have(noted) and any(stored.startswith(f"{noted} ") for stored in kept.lines()))
            for kept in self._kept.values()
        )

    def page(self, wanted: Search, start: int, count: int, older: str = "") -> Page:
        """Rows `start` to `start + count` of what is asked for; from the segment `older` on, where one is named."""
        if wanted.problem:
            return Page((), 0)
        if wanted.all:
            return Page(tuple(self._range(start, count)), len(self))
        found = self._find(wanted, older)
        places = found.places[start : start + count]
        return Page(tuple(self._lines(places)), len(found.places), found.whole, found.older)

    def with_word(self, word: str, most: int) -> tuple[ledger_index.Line, ...]:
        """The newest entries that have this whole word."""
        found = self._find(Search((word.lower(),)), "")
        return tuple(self._lines(found.places[:most])) if found.whole else ()

    def _newest_first(self) -> list[ledger_index.Kept]:
        # 2. by the last certificate of each
        version, ordered = self._ordered
        if version != self.version:
            ordered = sorted(
                self._kept.values(), key=lambda kept: (kept.newest or _NEVER, kept.head.sequence), reverse=True
            )
            self._ordered = (self.version, ordered)
        return ordered

    def _range(self, start: int, count: int) -> Iterable[ledger_index.Line]:
        # 2. one chain is in order by itself
        if len({kept.head.chain for kept in self._kept.values()}) > 1:
            return self._lines(self._merge().places(start, count))
        return self._of_one_chain(start, count)

    def _merge(self) -> _Merged:
        version, merged = self._merged
        if version != self.version:
            merged = _merged(self._kept.values())
            self._merged = (self.version, merged)
        return merged

    def _of_one_chain(self, start: int, count: int) -> Iterable[ledger_index.Line]:
        for kept in self._newest_first():
            if count <= 0:
                return
            if start >= kept.count:
                start -= kept.count
                continue
            lines = kept.lines()
            end = kept.count - start
            first = max(end - count, 0)
            yield from (ledger_index.line(kept.name, at, lines[at - 1]) for at in range(end, first, -1))
            start, count = 0, count - (end - first)

    def _lines(self, places: Sequence[tuple[str, int]]) -> Iterable[ledger_index.Line]:
        unpacked: dict[str, tuple[str, ...]] = {}
        for segment, number in places:
            if segment not in unpacked:
                unpacked[segment] = self._kept[segment].lines()
            yield ledger_index.line(segment, number, unpacked[segment][number - 1])

    def _find(self, wanted: Search, older: str) -> Found:
        version, asked, at, found = self._found
        if (version, asked, at) != (self.version, wanted, older):
            # 3. whole words first
            found = self._look(wanted, older, lambda kept: all(map(kept.may_have, wanted.words)), _has_words)
            if not found.places and not found.older and wanted.words:
                found = self._look(wanted, older, lambda _: True, _contains)
                found = Found(found.places, False, found.older)
            self._found = (self.version, wanted, older, found)
        return found

    def _look(
        self, wanted: Search, older: str, promising: Callable[[ledger_index.Kept], bool], matches: _Matches
    ) -> Found:
        places: list[tuple[str, int]] = []
        texts = [json.dumps(word)[1:-1].lower() for word in wanted.words]
        left = _MOST_SEGMENTS
        begun = not older
        for kept in self._newest_first():
            begun = begun or kept.name == older
            if not begun or not _overlaps(kept, wanted) or not promising(kept):
                continue
            # 4. so many segments, and so many entries
            if left == 0 or len(places) >= _MOST_FOUND:
                return Found(self._in_order(places), True, kept.name)
            left -= 1
            places += [(kept.name, line.number) for line in _candidates(kept, texts) if matches(line, wanted)]
        return Found(self._in_order(places))

    def _in_order(self, places: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        return tuple(sorted(places, key=lambda place: self._kept[place[0]].times[place[1] - 1], reverse=True))


def _candidates(kept: ledger_index.Kept, texts: Sequence[str]) -> Iterable[ledger_index.Line]:
    """The lines that contain these texts at all, the last first: to read a line takes longer than to look whether it is worth it."""
    lines = kept.lines()
    for number in range(len(lines), 0, -1):
        text = lines[number - 1].lower()
        if all(each in text for each in texts):
            yield ledger_index.line(kept.name, number, lines[number - 1])


def _overlaps(kept: ledger_index.Kept, wanted: Search) -> bool:
    if kept.oldest is None or kept.newest is None:
        return (wanted.since, wanted.before) == (_NEVER, _EVER)
    return kept.oldest < wanted.before and wanted.since <= kept.newest


def _in_time(line: ledger_index.Line, wanted: Search) -> bool:
    issued = _NEVER if line.entry is None else line.entry.issued_at
    return wanted.since <= issued < wanted.before


def _has_words(line: ledger_index.Line, wanted: Search) -> bool:
    known = {line.link} if line.entry is None else {line.link, *ledger_index.words_of(line.entry)}
    return _in_time(line, wanted) and known.issuperset(wanted.words)


def _contains(line: ledger_index.Line, wanted: Search) -> bool:
    if line.entry is None or not _in_time(line, wanted):
        return False
    text = "\n".join(ledger_index.words_of(line.entry))
    return all(word in text for word in wanted.words)


def _chain(name: str, kept: Iterable[ledger_index.Kept]) -> Chain:
    ordered = sorted(kept, key=lambda each: each.head.sequence)
    findings = [*verification.beginning([ordered[0].head], is_noted=False)]
    before: ledger_index.Kept | None = None
    for each in ordered:
        # 1. between neighbours, and within each as it was found when it came
        if before is not None:
            findings += verification.between(before.head, each.head)
        findings += each.findings
        before = each
    return Chain(
        name=name,
        segments=len(ordered),
        entries=sum(each.count for each in ordered),
        unreadable=sum(each.unreadable for each in ordered),
        begins=ordered[0].head.sequence,
        head=ordered[-1].last_link,
        findings=tuple(findings),
    )
