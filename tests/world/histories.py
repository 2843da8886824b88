# SPDX-License-Identifier: Apache-2.0
"""What clients of a store did and saw, and a judge of it: pure, so that it can be tried on histories that are wrong.

A history is a list of operations, each with the interval in which it must have happened, of watches, and of readings of the current
revision. Every value is written once. These must hold:

1. A revision is given to one write only, and never goes back: a write that began after another was acknowledged, or after a reading,
   has a higher one; a reading shows at least every write that was acknowledged before it.
2. A watch shows every write in its span, once, in order of revision, as it was written; nothing that nobody wrote, nothing that was said
   not to have happened, and nothing before it was asked for. All watches agree.
3. Of an uncertain write nothing is assumed. If a watch or a read shows it, it happened; else either may be so.
4. Each key is a register with compare-and-swap, and its operations are linearizable (`tests.world.linearizability`).

It judges what was seen, and does not know what a store promises beyond that.
"""

from __future__ import annotations

import collections
import enum
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

NEVER = math.inf


class Outcome(enum.Enum):
    """What a client was told of an operation."""

    DONE = "done"
    # The precondition failed, and this is what the key holds.
    REFUSED = "refused"
    # It did not happen: the store could not take it.
    FAILED = "failed"
    # It may have happened, or may still.
    UNCERTAIN = "uncertain"


@dataclass(frozen=True, slots=True)
class Held:
    """What a key holds."""

    revision: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. A write replaces what was written at `expected` (0: the key is absent) by `value` (None: it is deleted)."""

    key: str
    began: float
    ended: float
    is_write: bool
    outcome: Outcome = Outcome.DONE
    expected: int = 0
    value: bytes | None = None
    # Of a write that is done.
    revision: int = 0
    # Of a read, and of a write that was refused.
    found: Held | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A write as a watch shows it; None is a delete."""

    revision: int
    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What a watch delivered at one moment, and how far it has come with that."""

    at: float
    events: Sequence[Seen]
    reached: int


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch from its beginning, over every restart of it that went on where it was."""

    prefix: str
    after: int
    batches: Sequence[Batch]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the current revision was said to be."""

    began: float
    ended: float
    revision: int


@dataclass(frozen=True, slots=True)
class History:
    """All of it. `initial` is what keys held before; absent ones held nothing."""

    operations: Sequence[Operation]
    watches: Sequence[Watch] = ()
    readings: Sequence[Reading] = ()
    initial: Mapping[str, Held] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that cannot have been: a short name of it, and what exactly."""

    kind: str
    text: str


def violations(history: History) -> Iterator[Violation]:
    """Everything but linearizability (1 to 3)."""
    yield from _values_written_twice(history)
    for watch in history.watches:
        yield from _in_a_watch(watch, history)
    yield from _disagreements(history.watches)
    operations = resolved(history)
    yield from _revisions(operations, history.readings)


def resolved(history: History) -> list[Operation]:
    """The operations with what watches tell: uncertain writes that were seen are done, and a write was done when it was seen (3)."""
    first_seen: dict[int, tuple[float, Seen]] = {}
    for watch in history.watches:
        for batch in watch.batches:
            for event in batch.events:
                at = min(batch.at, first_seen.get(event.revision, (NEVER, event))[0])
                first_seen[event.revision] = (at, event)
    by_value: dict[tuple[str, bytes], int] = {}
    by_replaced: dict[tuple[str, int], int] = {}
    last = {key: held.revision for key, held in history.initial.items()}
    for revision, (_, event) in sorted(first_seen.items()):
        if event.value is not None:
            by_value[event.key, event.value] = revision
        elif event.key in last:
            by_replaced[event.key, last[event.key]] = revision
        last[event.key] = revision
    # A delete that somebody was told of, or that several may have done, tells nothing about one that is uncertain.
    told = {operation.revision for operation in history.operations if _is_done_write(operation)}
    asked = collections.Counter((one.key, one.expected) for one in history.operations if _is_uncertain_delete(one))
    by_replaced = {at: revision for at, revision in by_replaced.items() if revision not in told and asked[at] == 1}
    return [_with_what_was_seen(one, first_seen, by_value, by_replaced) for one in history.operations]


def _with_what_was_seen(
    operation: Operation,
    first_seen: Mapping[int, tuple[float, Seen]],
    by_value: Mapping[tuple[str, bytes], int],
    by_replaced: Mapping[tuple[str, int], int],
) -> Operation:
    if operation.is_write and operation.outcome is Outcome.UNCERTAIN:
        if operation.value is not None:
            revision = by_value.get((operation.key, operation.value))
        else:
            revision = by_replaced.get((operation.key, operation.expected))
        if revision is None:
            return operation
        operation = replace(operation, outcome=Outcome.DONE, revision=revision)
    if _is_done_write(operation) and operation.revision in first_seen:
        return replace(operation, ended=min(operation.ended, first_seen[operation.revision][0]))
    return operation


def _is_done_write(operation: Operation) -> bool:
    return operation.is_write and operation.outcome is Outcome.DONE


def _is_uncertain_delete(operation: Operation) -> bool:
    return operation.is_write and operation.outcome is Outcome.UNCERTAIN and operation.value is None


def _values_written_twice(history: History) -> Iterator[Violation]:
    written: set[tuple[str, bytes]] = set()
    for operation in history.operations:
        if operation.is_write and operation.value is not None:
            if (operation.key, operation.value) in written:
                yield Violation("unusable", f"{operation.key}: the value {operation.value!r} was written twice")
            written.add((operation.key, operation.value))


# 1. Revisions


def _revisions(operations: Sequence[Operation], readings: Sequence[Reading]) -> Iterator[Violation]:
    writes = [operation for operation in operations if _is_done_write(operation)]
    by_revision: dict[int, Operation] = {}
    for write in writes:
        other = by_revision.setdefault(write.revision, write)
        if other is not write:
            yield Violation("reused", f"revision {write.revision} was given to {other.key} and to {write.key}")
    # (when it began, when it ended, its revision, whether an equal one before it is too many)
    marks = [(write.began, write.ended, write.revision, True) for write in writes]
    marks += [(reading.began, reading.ended, reading.revision, False) for reading in readings]
    ended = sorted((end, revision) for _, end, revision, _ in marks)
    highest = list(itertools.accumulate((revision for _, revision in ended), max))
    position = 0
    for began, _, revision, strictly in sorted(marks):
        while position < len(ended) and ended[position][0] < began:
            position += 1
        before = highest[position - 1] if position else 0
        if revision < before or (strictly and revision == before):
            yield Violation("went back", f"{revision} was given at {began}, after {before} was known")
    for write in writes:
        if write.revision <= write.expected:
            yield Violation("went back", f"{write.key}: {write.expected} was replaced by {write.revision}")


# 2. Watches


def _in_a_watch(watch: Watch, history: History) -> Iterator[Violation]:
    reached, shown = watch.after, dict[int, Seen]()
    for batch in watch.batches:
        position = reached
        for event in batch.events:
            if event.revision in shown:
                yield Violation("duplicated", f"revision {event.revision} of {event.key} came twice")
            elif event.revision <= position:
                yield Violation("reordered", f"revision {event.revision} of {event.key} came after {position}")
            position = max(position, event.revision)
            shown[event.revision] = event
        if batch.reached < position:
            yield Violation("went back", f"a batch up to {position} says that it reaches {batch.reached}")
        reached = max(batch.reached, position)
    writes = {one.revision: one for one in history.operations if _is_done_write(one)}
    for revision, write in sorted(writes.items()):
        if watch.after < revision <= reached and write.key.startswith(watch.prefix) and revision not in shown:
            yield Violation("missing", f"revision {revision} of {write.key} was acknowledged, and never came")
    yield from _invented(watch, history, writes)


def _invented(watch: Watch, history: History, writes: Mapping[int, Operation]) -> Iterator[Violation]:
    asked: dict[tuple[str, bytes | None], Operation] = {
        (one.key, one.value): one for one in history.operations if one.is_write and one.value is not None
    }
    deletes: dict[str, list[Operation]] = {}
    for one in history.operations:
        if one.is_write and one.value is None:
            deletes.setdefault(one.key, []).append(one)
    for batch in watch.batches:
        for event in batch.events:
            write = writes.get(event.revision) or asked.get((event.key, event.value))
            if write is None and event.value is None:
                uncertain = (one for one in deletes.get(event.key, ()) if one.outcome is Outcome.UNCERTAIN)
                write = next((one for one in uncertain if one.began <= batch.at), None)
            if not event.key.startswith(watch.prefix) or write is None:
                yield Violation("invented", f"revision {event.revision} of {event.key}: nobody wrote it")
            elif (write.key, write.value) != (event.key, event.value):
                yield Violation("altered", f"revision {event.revision}: {write.key} was written, {event.key} came")
            elif write.outcome is Outcome.DONE and write.revision != event.revision:
                yield Violation("altered", f"{event.key} was written at {write.revision}, came as {event.revision}")
            elif write.outcome in {Outcome.REFUSED, Outcome.FAILED}:
                yield Violation("happened", f"{event.key} at {event.revision}: it was said that nothing was changed")
            elif batch.at < write.began:
                yield Violation("invented", f"{event.key} at {event.revision} was seen before it was asked for")


def _disagreements(watches: Sequence[Watch]) -> Iterator[Violation]:
    events: dict[int, Seen] = {}
    for watch in watches:
        for event in itertools.chain.from_iterable(batch.events for batch in watch.batches):
            other = events.setdefault(event.revision, event)
            if other != event:
                yield Violation(
                    "altered", f"revision {event.revision} is {other.key} in one watch, {event.key} in another"
                )
