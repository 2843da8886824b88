# SPDX-License-Identifier: Apache-2.0
"""The judge of histories is judged itself: what a store can have done passes, what it cannot have done does not.

Histories of a store that does everything at one instant pass. Each kind of mistake is found, by its name. For any small history at all, right
or wrong, the verdict on linearizability is that of trying every order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.world import linearizability
from tests.world.histories import NEVER, Batch, Held, History, Operation, Outcome, Reading, Seen, Watch

# A store that is right


class Instant:
    """A store whose operations happen at one instant each, in the order in which they are drawn."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._now = 100
        self.revision = 0
        self.held: dict[str, Held] = {}
        self.operations: list[Operation] = []
        self.readings: list[Reading] = []
        self.events: list[tuple[int, Seen]] = []

    def step(self) -> None:
        self._now += 10
        key = self._draw(st.sampled_from(["a", "b"]))
        span = self._span()
        what = self._draw(st.sampled_from(["read", "write", "write", "write", "reading"]))
        if what == "reading":
            self.readings.append(Reading(*span, self.revision))
        elif what == "read":
            self.operations.append(Operation(key, *span, is_write=False, found=self.held.get(key)))
        else:
            self._write(key, span)

    def _span(self) -> tuple[float, float]:
        lengths = st.integers(0, 40)
        return self._now - self._draw(lengths), self._now + self._draw(lengths)

    def _write(self, key: str, span: tuple[float, float]) -> None:
        held = self.held.get(key)
        now = held.revision if held else 0
        expected = self._draw(st.sampled_from([now, now, now, 0, max(now - 1, 0)]))
        is_delete = bool(expected) and self._draw(st.booleans())
        value = None if is_delete else b"%d" % self._now
        write = Operation(key, *span, is_write=True, expected=expected, value=value)
        told = self._draw(st.sampled_from([Outcome.DONE, Outcome.DONE, Outcome.FAILED, Outcome.UNCERTAIN]))
        if told is Outcome.FAILED:
            self.operations.append(replace(write, outcome=told))
        elif told is Outcome.UNCERTAIN:
            if expected == now and self._draw(st.booleans()):
                self._apply(write)
            self.operations.append(replace(write, outcome=told, ended=NEVER))
        elif expected != now:
            self.operations.append(replace(write, outcome=Outcome.REFUSED, found=held))
        else:
            self.operations.append(replace(write, revision=self._apply(write)))

    def _apply(self, write: Operation) -> int:
        self.revision += self._draw(st.integers(1, 3))
        self.held.pop(write.key, None)
        if write.value is not None:
            self.held[write.key] = Held(self.revision, write.value)
        self.events.append((self._now, Seen(self.revision, write.key, write.value)))
        return self.revision

    def watch(self, prefix: str, after: int) -> Watch:
        """What it shows comes in pieces, none before it happened."""
        mine = [one for one in self.events if one[1].key.startswith(prefix) and one[1].revision > after]
        batches: list[Batch] = []
        while mine:
            size = self._draw(st.integers(1, len(mine)))
            part, mine = mine[:size], mine[size:]
            late = part[-1][0] + self._draw(st.integers(0, 500))
            batches.append(Batch(late, [event for _, event in part], part[-1][1].revision))
        return Watch(prefix, after, [*batches, Batch(10_000, [], max(self.revision, after))])


@st.composite
def rights(draw: st.DrawFn) -> History:
    store = Instant(draw)
    for _ in range(draw(st.integers(1, 20))):
        store.step()
    watches = [store.watch("", 0), store.watch("a", draw(st.integers(0, store.revision)))]
    return History(draw(st.permutations(store.operations)), watches, store.readings)


@hypothesis.settings(max_examples=60)
@hypothesis.given(rights())
def test_what_a_store_can_have_done_passes(history: History) -> None:
    assert linearizability.check(history) == []
    assert linearizability.check(replace(history, watches=())) == []


@hypothesis.settings(max_examples=40)
@hypothesis.given(rights(), st.data())
def test_a_watch_that_leaves_out_or_repeats_something_is_found(history: History, data: st.DataObject) -> None:
    whole, other = history.watches
    hypothesis.assume(any(batch.events for batch in whole.batches))
    at = data.draw(st.sampled_from([n for n, batch in enumerate(whole.batches) if batch.events]))
    batch = whole.batches[at]
    chosen = data.draw(st.integers(0, len(batch.events) - 1))
    event = batch.events[chosen]
    twice = replace(batch, events=[*batch.events[: chosen + 1], event, *batch.events[chosen + 1 :]])
    broken = replace(history, watches=[_with_batch(whole, at, twice), other])
    assert "duplicated" in kinds(broken)
    # One that nobody was told of may be missing, as far as anybody knows.
    hypothesis.assume(event.revision in {one.revision for one in history.operations})
    without = replace(batch, events=[one for one in batch.events if one is not event])
    assert "missing" in kinds(replace(history, watches=[_with_batch(whole, at, without), other]))


def _with_batch(watch: Watch, at: int, batch: Batch) -> Watch:
    return replace(watch, batches=[*watch.batches[:at], batch, *watch.batches[at + 1 :]])


def kinds(history: History) -> set[str]:
    return {found.kind for found in linearizability.check(history)}


# Every kind of mistake


def write(
    began: float,
    ended: float,
    expected: int,
    value: bytes | None,
    revision: int = 0,
    *,
    outcome: Outcome = Outcome.DONE,
    found: Held | None = None,
) -> Operation:
    return Operation("k", began, ended, True, outcome, expected, value, revision, found)


def read(began: float, ended: float, found: Held | None) -> Operation:
    return Operation("k", began, ended, is_write=False, found=found)


def watch(*events: Seen, after: int = 0) -> Watch:
    return Watch("", after, [Batch(1000, events, max(event.revision for event in events))])


ONE, TWO = Held(1, b"one"), Held(2, b"two")
FIRST, SECOND = write(0, 1, 0, b"one", 1), write(2, 3, 1, b"two", 2)
SEEN = (Seen(1, "k", b"one"), Seen(2, "k", b"two"))
UNCERTAIN = write(2, NEVER, 1, b"two", outcome=Outcome.UNCERTAIN)

BROKEN: dict[str, tuple[History, str]] = {
    "a lost write": (History([FIRST, SECOND, read(4, 5, ONE)]), "not linearizable"),
    "a write that is lost with its key": (History([FIRST, read(4, 5, None)]), "not linearizable"),
    "a stale read": (History([FIRST, SECOND, read(4, 5, TWO), read(6, 7, ONE)]), "not linearizable"),
    "a read of the future": (History([FIRST, read(1.5, 1.6, TWO), SECOND]), "not linearizable"),
    "a read of what nobody wrote": (History([FIRST, read(4, 5, Held(1, b"else"))]), "not linearizable"),
    "two writes over one": (History([FIRST, SECOND, write(2, 3, 1, b"three", 3)]), "not linearizable"),
    "two creates of one key": (History([FIRST, write(0, 1, 0, b"two", 2)]), "not linearizable"),
    "refused, and nothing was in the way": (
        History([FIRST, write(2, 3, 1, b"two", outcome=Outcome.REFUSED, found=ONE)]),
        "not linearizable",
    ),
    "refused by what was not there yet": (
        History([FIRST, write(1.5, 1.6, 1, b"three", outcome=Outcome.REFUSED, found=TWO), SECOND]),
        "not linearizable",
    ),
    "an uncertain write that happened before it was asked for": (
        History([FIRST, read(1.2, 1.4, TWO), UNCERTAIN]),
        "not linearizable",
    ),
    "an uncertain write that happened, and then had not": (
        History([FIRST, UNCERTAIN, read(4, 5, TWO), read(6, 7, ONE)]),
        "not linearizable",
    ),
    "an uncertain write that happened twice": (
        History([FIRST, UNCERTAIN, read(4, 5, TWO), write(6, 7, 2, b"three", 3), read(8, 9, Held(4, b"two"))]),
        "not linearizable",
    ),
    "an uncertain write taken for done": (History([FIRST, SECOND, read(4, 5, ONE)]), "not linearizable"),
    "an uncertain write taken for failed": (
        History([FIRST, replace(UNCERTAIN, outcome=Outcome.FAILED), read(4, 5, TWO)]),
        "not linearizable",
    ),
    "a failed write that a watch shows": (
        History([FIRST, replace(UNCERTAIN, outcome=Outcome.FAILED)], [watch(*SEEN)]),
        "happened",
    ),
    "a refused write that a watch shows": (
        History([FIRST, replace(UNCERTAIN, outcome=Outcome.REFUSED, found=None)], [watch(*SEEN)]),
        "happened",
    ),
    "an uncertain write that a watch shows, and a read does not": (
        History([FIRST, UNCERTAIN, read(2000, 2001, ONE)], [watch(*SEEN)]),
        "not linearizable",
    ),
    "an event twice": (History([FIRST, SECOND], [watch(SEEN[0], *SEEN)]), "duplicated"),
    "an event twice, in two batches": (
        History([FIRST, SECOND], [Watch("", 0, [Batch(4, SEEN, 2), Batch(5, SEEN[1:], 2)])]),
        "duplicated",
    ),
    "a gap": (History([FIRST, SECOND], [watch(SEEN[1])]), "missing"),
    "a gap at the end": (History([FIRST, SECOND], [Watch("", 0, [Batch(4, SEEN[:1], 2)])]), "missing"),
    "events in another order": (History([FIRST, SECOND], [watch(*reversed(SEEN))]), "reordered"),
    "an event from before the watch": (History([FIRST, SECOND], [watch(*SEEN, after=1)]), "reordered"),
    "a batch that says less than it shows": (
        History([FIRST, SECOND], [Watch("", 0, [Batch(4, SEEN, 1)])]),
        "went back",
    ),
    "an event that nobody wrote": (History([FIRST], [watch(*SEEN)]), "invented"),
    "a delete that nobody asked for": (History([FIRST], [watch(SEEN[0], Seen(2, "k", None))]), "invented"),
    "an event seen before it was asked for": (
        History([FIRST, SECOND], [Watch("", 0, [Batch(1, SEEN, 2)])]),
        "invented",
    ),
    "an event with another value": (History([FIRST], [watch(Seen(1, "k", b"else"))]), "altered"),
    "an event at another revision": (History([FIRST, SECOND], [watch(SEEN[0], Seen(3, "k", b"two"))]), "altered"),
    "two watches that disagree": (History([FIRST], [watch(SEEN[0]), watch(Seen(1, "j", b"one"))]), "altered"),
    "a revision given out twice": (History([FIRST, replace(SECOND, key="j", expected=0, revision=1)]), "reused"),
    "a revision that goes back": (
        History([replace(FIRST, revision=7), replace(SECOND, key="j", expected=0)]),
        "went back",
    ),
    "a write below what it replaced": (History([write(0, 1, 5, b"one", 4)], initial={"k": Held(5, b"")}), "went back"),
    "a reading behind a write": (History([FIRST, SECOND], readings=[Reading(4, 5, 1)]), "went back"),
    "a reading behind a reading": (History([], readings=[Reading(0, 1, 9), Reading(2, 3, 8)]), "went back"),
    "a write behind a reading": (History([SECOND], readings=[Reading(0, 1, 2)], initial={"k": ONE}), "went back"),
    "a value that says nothing": (History([FIRST, replace(SECOND, value=b"one")]), "unusable"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_history_that_cannot_have_been_is_found(name: str) -> None:
    history, kind = BROKEN[name]
    assert kind in kinds(history)


RIGHT: dict[str, History] = {
    "reads on both sides of a write that goes on": History(
        [FIRST, write(2, 9, 1, b"two", 2), read(3, 8, ONE), read(4, 5, TWO)]
    ),
    "an uncertain write that nobody sees": History([FIRST, UNCERTAIN, read(4, 5, ONE)]),
    "an uncertain write that happens late": History([FIRST, UNCERTAIN, read(4, 5, ONE), read(6, 7, TWO)]),
    "an uncertain write that the next one names": History([FIRST, UNCERTAIN, write(4, 5, 7, b"three", 8)]),
    "an uncertain write in whose place another came": History(
        [FIRST, UNCERTAIN, write(2, 3, 1, b"three", 3), read(4, 5, Held(3, b"three"))]
    ),
    "an uncertain delete before a create": History(
        [FIRST, replace(UNCERTAIN, value=None), write(4, 5, 0, b"three", 9)]
    ),
    "an uncertain delete that a watch shows": History(
        [FIRST, replace(UNCERTAIN, value=None), read(2000, 2001, None)], [watch(SEEN[0], Seen(2, "k", None))]
    ),
    "two uncertain deletes, of which one happened": History(
        [FIRST, replace(UNCERTAIN, value=None), replace(UNCERTAIN, value=None)], [watch(SEEN[0], Seen(2, "k", None))]
    ),
    "revisions with holes": History(
        [replace(FIRST, revision=5), write(2, 3, 5, b"two", 90)], readings=[Reading(4, 5, 100)]
    ),
    "refused by a write that nobody was told of": History(
        [FIRST, UNCERTAIN, write(4, 5, 1, b"three", outcome=Outcome.REFUSED, found=TWO)]
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_history_that_can_have_been_passes(name: str) -> None:
    assert linearizability.check(RIGHT[name]) == []


def test_a_search_that_is_too_long_is_no_verdict() -> None:
    many = [write(0, NEVER, 0, b"%d" % n, outcome=Outcome.UNCERTAIN) for n in range(40)]
    many += [write(0, NEVER, n + 1, None, outcome=Outcome.UNCERTAIN) for n in range(40)]
    with pytest.raises(linearizability.Undecided):
        linearizability.check(History([*many, read(1, 2, Held(9, b"nobody's"))]), budget=1000)


# Any history at all, against every order there is


def in_every_order(operations: Sequence[Operation], highest: int) -> Iterator[bool]:
    """One verdict for each order, each choice of uncertain writes that happened, and each revision they may have had."""
    told = [one for one in operations if one.outcome in {Outcome.DONE, Outcome.REFUSED}]
    uncertain = [one for one in operations if one.outcome is Outcome.UNCERTAIN]
    for count in range(len(uncertain) + 1):
        for happened in itertools.combinations(uncertain, count):
            for revisions in itertools.permutations(range(1, highest + 1), count):
                done = [
                    replace(one, outcome=Outcome.DONE, revision=at) for one, at in zip(happened, revisions, strict=True)
                ]
                for order in itertools.permutations([*told, *done]):
                    yield in_time(order) and fits(order)


def in_time(order: Sequence[Operation]) -> bool:
    return not any(later.ended < earlier.began for earlier, later in itertools.combinations(order, 2))


def fits(order: Sequence[Operation]) -> bool:
    held: Held | None = None
    last = 0
    for one in order:
        now = held.revision if held else 0
        if one.is_write and one.outcome is Outcome.DONE:
            if one.expected != now or one.revision <= last:
                return False
            last = one.revision
            held = None if one.value is None else Held(one.revision, one.value)
        elif held != one.found or (one.is_write and now == one.expected):
            return False
    return True


@st.composite
def anything(draw: st.DrawFn) -> list[Operation]:
    operations = []
    for n in range(draw(st.integers(1, 5))):
        began = draw(st.integers(0, 6))
        ended = began + draw(st.integers(0, 4))
        found = draw(st.none() | st.builds(Held, st.integers(1, 4), st.sampled_from([b"%d" % at for at in range(5)])))
        outcome = draw(st.sampled_from([Outcome.DONE, Outcome.DONE, Outcome.REFUSED, Outcome.UNCERTAIN]))
        is_write = outcome is not Outcome.DONE or draw(st.integers(0, 2)) > 0
        operations.append(
            Operation(
                "k",
                began,
                NEVER if outcome is Outcome.UNCERTAIN else ended,
                is_write=is_write,
                outcome=outcome,
                expected=draw(st.integers(0, 3)) if is_write else 0,
                value=b"%d" % n if is_write and draw(st.integers(0, 3)) else None,
                revision=draw(st.integers(1, 5)) if is_write and outcome is Outcome.DONE else 0,
                found=found if not is_write or outcome is Outcome.REFUSED else None,
            )
        )
    # A delete of an absent key is no write.
    return [one for one in operations if not (one.is_write and one.value is None and not one.expected)]


@pytest.mark.slow
@hypothesis.settings(max_examples=300)
@hypothesis.given(anything())
def test_the_verdict_is_that_of_trying_every_order(operations: list[Operation]) -> None:
    found = "not linearizable" in kinds(History(operations))
    assert found != any(in_every_order(operations, 5))
