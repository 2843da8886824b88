# SPDX-License-Identifier: Apache-2.0
"""The issuance ledger: what is written down of every certificate issued, chained so that a changed past shows.

It writes nothing (`controllers.issuance` does) and says nothing of whether a certificate should have been issued.

Entries stand in segments. Each is one line, `LINK NUMBER JSON`: NUMBER counts from 1 within its segment, and LINK is the
SHA-256 of the link before it, a newline, NUMBER, a blank and JSON. What stands for the link before the first entry is the
SHA-256 of the segment's `previous` (the hash of the segment before, which is the link of its last entry), a newline and its
sequence number. JSON has 2 KiB at most: of an entry with more, the texts that are too long are stored as their SHA-256.
Whoever writes a segment must keep to this:

1. A new segment is the first of all, or the next after one that is sealed, and names that one's hash.
2. Entries are only ever added at the end, numbered on, each with its link, each in its one encoding.
3. Sequence and previous never change.
4. A sealed segment has at least one entry and the link of its last as its hash, and never changes again.
5. Only the oldest segment may be deleted, if it is sealed, not the only one, and all its certificates have expired. The
   next one still names its hash: that is where the chain then begins.

`verify` finds what went round these rules, by the store's file. Where somebody computed every link anew, up to the
newest, only a hash noted elsewhere shows it: `verify` takes one, too. Without one that fits, a ledger that does not begin
with segment 1 is a finding: it may have been shortened by 5, or by somebody.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_ledger.py |
|---|---|---|---|---|
| an administrator | update on issuancelogs | take an entry out, or change one | 2, 4 | test_entries_are_only_added |
| an administrator | create on issuancelogs | put a segment beside the chain | 1 | test_a_new_segment_continues_the_chain |
| an administrator | delete on issuancelogs | have the newest forgotten | 5 | test_only_the_oldest_may_be_deleted |
| who writes the store's file | the file | change, remove or move an entry | `verify` | test_what_was_done_is_named |
| who writes the store's file | the file | remove the oldest segments | `verify` with a noted hash | test_a_later_beginning |
| … | … | … and number the others anew | `verify` | test_a_later_beginning |
| a requester | a very long name | fill the ledger with few requests | the bound of an entry | test_an_entry_has_a_bound |
| a holder of a certificate | CN=system:bootstrap:… | have a token blamed | `authenticated_by` | test_how_somebody_authenticated |
| who writes the store's file | the file | write the past anew, links and all | `verify` with a noted hash | test_a_noted_hash |
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.pki import names
from handfast.rules import decision, user_names

GENESIS: Final = "0" * 64
# What `verify` says of a ledger that begins later, with nothing noted to compare it with.
SHORTENED: Final = "Shortened"
# Every append rewrites the open segment, so it closes early.
MAX_ENTRIES: Final = 64
MAX_BYTES: Final = 64 << 10
MAX_AGE: Final = datetime.timedelta(hours=1)
MAX_LINE: Final = 2 << 10
# What each text and all names may take of a line that would be longer. The longest name of a node fits.
_MAX_NAMES: Final = 512
_MAX_TEXT: Final = 96
_LONGER: Final = {"requester": 280, "request": 256}
_RULE: Final = "issuance-ledger"
_DIGEST: Final = "sha256:"
_FINE: Final = decision.Approve("Continues", "the ledger is continued", _RULE)
_INSTANTS: Final = ("issued_at", "not_after")
_BOOTSTRAP: Final = "system:bootstrap:"
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One certificate. `names` are those of `names_of`; key and certificate are SHA-256 in hex, instants whole seconds.

    One that is too long is stored as `bounded`.
    """

    issued_at: datetime.datetime
    signer: str
    requester: str
    authenticated_by: str
    token_id: str
    key_fingerprint: str
    serial: str
    names: tuple[str, ...]
    not_after: datetime.datetime
    rule: str
    request: str
    certificate: str


_FIELDS: Final = frozenset(field.name for field in fields(Entry))


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
        """The link of its last entry, which the next segment is chained to; of the segment before if it has none."""
        return self.entries[-1].partition(" ")[0] if self.entries else self.previous

    @property
    def start(self) -> str:
        """What its first entry is chained to: a segment cannot be given another number either."""
        return chained(self.previous, (str(self.sequence),))


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with the ledger: where (`entry` counts from 1; 0: the segment as a whole) and what was done."""

    segment: str
    entry: int
    reason: str
    sentence: str


# --- entries


def names_of(subject: names.Subject, sans: names.Sans) -> tuple[str, ...]:
    """The names in a certificate: `CN=`, then an `O=` for each group, then alternative names such as `DNS:`, `IP:`."""
    groups = (f"O={organization}" for organization in subject.organizations)
    return (f"CN={subject.common_name}", *groups, *sans.texts())


def authenticated_by(username: str, groups: Sequence[str], extra: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """How the author of a request had authenticated, and the id of the token or certificate; from the request itself.

    A name may be anybody's choice, of who signs certificates. So the credential that the server saw is asked first.
    """
    kind, _, found = next(iter(extra.get(_CREDENTIAL, ())), "").partition("=")
    if kind == "X509SHA256":
        recovers = username.startswith(user_names.NODE_RECOVERY_PREFIX) and user_names.NODE_RECOVERY in groups
        return "node-recovery" if recovers else "x509", found
    if kind == "JTI":
        return "service-account", found
    if username.startswith(_BOOTSTRAP):
        return "bootstrap-token", username.removeprefix(_BOOTSTRAP)
    return ("service-account" if user_names.service_account(username) is not None else "unknown"), ""


def bounded(entry: Entry) -> Entry:
    """An entry with MAX_LINE at most: texts that are too long are their SHA-256, and so is the rest of too many names."""
    found = {field: getattr(entry, field) for field in _FIELDS}
    for field in _FIELDS.difference(_INSTANTS, {"names"}):
        if _size(found[field]) > _LONGER.get(field, _MAX_TEXT):
            found[field] = _digest(found[field])
    if _size(entry.names) > _MAX_NAMES:
        kept, size = 0, _size([_digest("")])
        while (size := size + _size(entry.names[kept]) + 1) <= _MAX_NAMES:
            kept += 1
        found["names"] = (*entry.names[:kept], _digest(entry.names[kept:]))
    return Entry(**found)


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def _digest(value: object) -> str:
    return _DIGEST + hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


def encode(entry: Entry) -> str:
    """The one encoding of an entry: JSON on one line, keys in order, ASCII only, MAX_LINE at most."""
    line = _json(entry)
    return line if len(line) <= MAX_LINE else _json(bounded(entry))


def _json(entry: Entry) -> str:
    found: dict[str, Any] = {field: getattr(entry, field) for field in _FIELDS}
    for field in _INSTANTS:
        found[field] = objects.timestamp(found[field])
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def decode(line: str) -> Entry:
    """The inverse of `encode`, but for what was too long; Refused for anything that `encode` would not have written."""
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or found.keys() != _FIELDS:
            raise _malformed(f"an entry has exactly the fields {', '.join(sorted(_FIELDS))}")
        for field in _INSTANTS:
            found[field] = objects.parse_timestamp(found[field])
        entry = Entry(**{**found, "names": tuple(found["names"])})
        if encode(entry) != line or not all(isinstance(text, str) for text in _texts(entry)):
            raise _malformed("an entry is written in another way than the one there is")
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise _malformed("an entry is not JSON of the form that entries have") from None
    return entry


def _texts(entry: Entry) -> Iterable[object]:
    return (*entry.names, *(getattr(entry, field) for field in _FIELDS if field not in {*_INSTANTS, "names"}))


def signers_of(stored: Iterable[str]) -> list[str]:
    """The signers that stored lines name, each once; of those that can be read."""
    found = set()
    for line in stored:
        try:
            found.add(decode(line_of(line)).signer)
        except errors.Refused:
            continue
    return sorted(found)


def line_of(stored: str) -> str:
    """The JSON of a stored line."""
    return stored.partition(" ")[2].partition(" ")[2]


def _malformed(message: str) -> errors.Refused:
    return errors.Refused(message, reason="MalformedEntry")


# --- the chain


def chained(previous: str, lines: Iterable[str]) -> str:
    """The link after these (`NUMBER JSON` each), chained to `previous`."""
    for line in lines:
        previous = hashlib.sha256(f"{previous}\n{line}".encode()).hexdigest()
    return previous


def stored_lines(segment: Segment, lines: Iterable[str]) -> tuple[str, ...]:
    """Encoded entries as they are stored at the end of this segment."""
    found, link = [], segment.last_link if segment.entries else segment.start
    for number, line in enumerate(lines, len(segment.entries) + 1):
        link = chained(link, (f"{number} {line}",))
        found.append(f"{link} {number} {line}")
    return tuple(found)


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
    return bool(segment.entries) and now - decode(line_of(segment.entries[0])).issued_at >= MAX_AGE


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


# --- verdicts


def judge_create(
    name: str, new: Segment, before: Segment | None, *, is_first: bool
) -> decision.Approve | decision.Deny:
    """Whether a segment may be made; `before` is the one of the sequence before it, `is_first` that there is none at all."""
    if name != new.name:
        return _deny("WrongName", f'segment {new.sequence} is to be called "{new.name}"')
    # 1.
    if is_first and new.sequence == 1 and new.previous == GENESIS:
        return _judge_tail(Segment(sequence=1, previous=GENESIS), new)
    if before is None or not before.sealed:
        return _deny("NotNext", f"segment {new.sequence - 1} is not there, or is not sealed")
    if new.previous != before.hash:
        return _deny("NotNext", f"spec.previous is not the hash of segment {before.sequence}")
    return _judge_tail(following(before), new)


def judge_update(old: Segment, new: Segment) -> decision.Approve | decision.Deny:
    """Whether a segment may become this."""
    if new == old:
        return _FINE
    # 4.
    if old.sealed:
        return _deny("Sealed", f"segment {old.sequence} is sealed and never changes again")
    # 3.
    if (new.sequence, new.previous) != (old.sequence, old.previous):
        return _deny("SegmentMoved", "spec.sequence and spec.previous of a segment never change")
    # 2.
    if new.entries[: len(old.entries)] != old.entries:
        return _deny("EntriesChanged", "entries are only ever added at the end")
    return _judge_tail(old, new)


def _judge_tail(old: Segment, new: Segment) -> decision.Approve | decision.Deny:
    # 2.
    added = new.entries[len(old.entries) :]
    lines = [line_of(stored) for stored in added]
    for line in lines:
        try:
            decode(line)
        except errors.Refused as refused:
            return _deny(refused.reason, refused.message)
    if stored_lines(old, lines) != added:
        return _deny("BrokenChain", "an entry's number or link does not continue the chain")
    # 4.
    if new.sealed and (not new.entries or new.hash != new.last_link):
        return _deny("WrongHash", "a sealed segment has entries, and the link of the last as spec.hash")
    if not new.sealed and new.hash:
        return _deny("WrongHash", "spec.hash is only set together with spec.sealed")
    return _FINE


def judge_delete(
    gone: Segment, now: datetime.datetime, *, is_oldest: bool, is_newest: bool
) -> decision.Approve | decision.Deny:
    """Whether a segment may be deleted."""
    # 5.
    if not is_oldest:
        return _deny("NotOldest", "only the oldest segment of the ledger may be deleted")
    if is_newest or not gone.sealed:
        return _deny("Newest", "the newest segment of the ledger is never deleted")
    until = newest_expiry(gone)
    if until is None or until >= now:
        return _deny("StillInForce", f"segment {gone.sequence} has a certificate that is in force, or cannot be read")
    return _FINE


def newest_expiry(segment: Segment) -> datetime.datetime | None:
    """When the last certificate of a segment expires; None if an entry cannot be read or there is none."""
    try:
        return max((decode(line_of(stored)).not_after for stored in segment.entries), default=None)
    except errors.Refused:
        return None


def _deny(reason: str, sentence: str) -> decision.Deny:
    return decision.Deny(reason, sentence, _RULE)


# --- verification


def verify(segments: Iterable[Segment], noted: str = "") -> tuple[Finding, ...]:
    """Everything that is wrong with a ledger, oldest segment first; `noted` is a hash or link that must be in it."""
    found: list[Finding] = []
    known = not noted
    before: Segment | None = None
    ordered = sorted(segments, key=lambda segment: segment.sequence)
    for segment in ordered:
        if before is not None:
            found += _between(before, segment)
        found += _within(segment)
        known = known or noted == segment.previous or any(line.startswith(f"{noted} ") for line in segment.entries)
        before = segment
    if not known:
        text = (
            f"the hash {noted} that was noted before is not in the ledger: its end was cut off, or it was written anew"
        )
        found.append(Finding("" if before is None else before.name, 0, "Rewritten", text))
    return (*_beginning(ordered[:1], is_noted=bool(noted) and known), *found)


def _beginning(first: Sequence[Segment], *, is_noted: bool) -> Iterable[Finding]:
    for segment in first:
        if segment.sequence == 1 and segment.previous != GENESIS:
            text = f"{segment.name} continues another segment: those before it were removed, and it was numbered anew"
            yield Finding(segment.name, 0, "Removed", text)
        # Then what is left is what was written, and its numbers too.
        elif segment.sequence != 1 and not is_noted:
            text = (
                f"the ledger begins with {segment.name}: those before it were deleted because all in them had expired, or "
                "were removed, which only a hash that was noted before can tell"
            )
            yield Finding(segment.name, 0, SHORTENED, text)


def _between(before: Segment, segment: Segment) -> Iterable[Finding]:
    if segment.sequence != before.sequence + 1:
        gone = f"{before.sequence + 1} to {segment.sequence - 1}"
        text = f"segments {gone} are missing between {before.name} and {segment.name}"
        if segment.sequence == before.sequence:
            text = f"there are two segments with the sequence {segment.sequence}"
        yield Finding(segment.name, 0, "Removed" if segment.sequence > before.sequence else "OutOfOrder", text)
        return
    if not before.sealed:
        yield Finding(before.name, 0, "Unsealed", f"{before.name} is open although {segment.name} follows it")
    elif segment.previous != before.hash:
        text = f"{segment.name} continues another {before.name} than the one that is there: that one was written anew"
        yield Finding(before.name, 0, "Changed", text)


def _within(segment: Segment) -> Iterable[Finding]:
    link, expected = segment.start, 1
    for position, stored in enumerate(segment.entries, 1):
        said, _, rest = stored.partition(" ")
        text = rest.partition(" ")[0]
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if number != expected:
            yield _misplaced(segment, position, number, expected)
        elif chained(link, (rest,)) != said:
            sentence = f"entry {position} of {segment.name} is not what was written: its link does not fit"
            yield Finding(segment.name, position, "Changed", sentence)
        link, expected = said, max(number, expected - 1) + 1
    if segment.sealed and segment.hash != link:
        sentence = (
            f"{segment.name} was sealed with another last entry: entries after {len(segment.entries)} were removed"
        )
        yield Finding(segment.name, len(segment.entries), "Removed", sentence)


def _misplaced(segment: Segment, position: int, number: int, expected: int) -> Finding:
    if number > expected:
        one = number == expected + 1
        gone = (
            f"entry {expected} of {segment.name} was"
            if one
            else (f"entries {expected} to {number - 1} of {segment.name} were")
        )
        return Finding(segment.name, expected, "Removed", f"{gone} removed")
    sentence = f"entry {number} of {segment.name} stands in place {position}: it was moved or repeated"
    return Finding(segment.name, position, "OutOfOrder", sentence)
