# SPDX-License-Identifier: Apache-2.0
"""Whether the operations on each key can be put in one order that a register with compare-and-swap allows, within their intervals.

A search after Wing and Gong, for each key by itself: an order of the whole exists if there is one for every key. What may come next is
an operation that began before every other one that is left has ended.

1. Revisions do most of the work: what a write expects says which write it follows. A read that fits is taken at once, because it changes
   nothing, and a value is written only once. So there is a choice only between uncertain writes, each of which may also never happen.
2. What an uncertain write has for a revision is not known, only that it is above the one it replaced. Whoever reads it, or replaces it,
   tells.
3. A configuration that was tried is not tried again. More than `budget` of them for one key is no verdict, and raises `Undecided`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.world.histories import NEVER, Held, History, Operation, Outcome, Violation, resolved, violations

BUDGET = 200_000


class Undecided(Exception):
    """The search came to its bound. It says nothing about the history."""


class State(NamedTuple):
    """What a key holds (None: it is absent), and its revision; if that is not exact, it is somewhere above (2)."""

    value: bytes | None
    revision: int
    exact: bool = True

    def is_at(self, revision: int) -> bool:
        """Whether this can be what was written at a revision; 0 stands for an absent key."""
        if self.value is None or not revision:
            return self.value is None and not revision
        return self.revision == revision if self.exact else self.revision < revision

    def after(self, operation: Operation) -> State | None:
        """The state that follows, or None if the operation cannot happen here."""
        if operation.is_write and operation.outcome is Outcome.DONE:
            fits = self.is_at(operation.expected) and operation.revision > max(self.revision, operation.expected)
            return State(operation.value, operation.revision) if fits else None
        if operation.is_write and operation.outcome is Outcome.UNCERTAIN:
            above = max(self.revision, operation.expected)
            return State(operation.value, above, exact=False) if self.is_at(operation.expected) else None
        return self._as_found(operation)

    def _as_found(self, operation: Operation) -> State | None:
        """A read, or a write that was refused: it shows what there is, which is not what it expected."""
        found = operation.found
        revision = found.revision if found else 0
        if operation.is_write and revision == operation.expected:
            return None
        if found is None:
            return self if self.value is None else None
        fits = self.value == found.value and self.is_at(found.revision)
        return State(found.value, found.revision) if fits else None


class _Configuration(NamedTuple):
    """How far a search is: all that is known before `first` is in its place, and so are `beyond` it and the uncertain `used`."""

    first: int
    beyond: frozenset[int]
    used: frozenset[int]
    state: State


def check(history: History, *, budget: int = BUDGET) -> list[Violation]:
    """All that is wrong with a history; nothing if it can have been."""
    found = list(violations(history))
    by_key: dict[str, list[Operation]] = {}
    for operation in resolved(history):
        by_key.setdefault(operation.key, []).append(operation)
    for key, operations in sorted(by_key.items()):
        stuck = _Search(operations, history.initial.get(key), budget).run()
        if stuck:
            found.append(Violation("not linearizable", f"{key}: {stuck}"))
    return found


class _Search:
    """One key's operations: those whose end is known in the order of their beginnings, and the uncertain writes beside them."""

    def __init__(self, operations: Sequence[Operation], initial: Held | None, budget: int) -> None:
        told = [one for one in operations if one.outcome in {Outcome.DONE, Outcome.REFUSED}]
        self._told = sorted(told, key=lambda one: (one.began, one.ended))
        self._uncertain = [one for one in operations if one.is_write and one.outcome is Outcome.UNCERTAIN]
        self._start = State(initial.value, initial.revision) if initial else State(None, 0)
        self._budget = budget
        self._furthest = -1
        self._stuck = ""

    def run(self) -> str:
        """Nothing if there is an order, else where the best attempt ended."""
        stack = [self._settled(_Configuration(0, frozenset(), frozenset(), self._start))]
        tried = set(stack)
        while stack:
            here = stack.pop()
            if here.first == len(self._told):
                return ""
            following = {self._settled(after) for after in self._branches(here)} - tried
            tried |= following
            # 3. bounded
            if len(tried) > self._budget:
                raise Undecided(f"{self._told[0].key}: {self._budget} configurations tried, {self._stuck or 'no end'}")
            # What was acknowledged is tried before what may never have been.
            stack.extend(sorted(following, key=lambda one: (-len(one.used), one.first)))
            self._note(here, bool(following))
        return self._stuck

    def _settled(self, here: _Configuration) -> _Configuration:
        """With every read that fits now taken (1)."""
        while True:
            for index in self._open(here):
                operation = self._told[index]
                if not (operation.is_write and operation.outcome is Outcome.DONE):
                    state = here.state.after(operation)
                    if state is not None:
                        here = self._with(here, index, state)
                        break
            else:
                return here

    def _branches(self, here: _Configuration) -> Iterator[_Configuration]:
        """Each write that may be the next."""
        indexes = list(self._open(here))
        latest = min((self._told[index].ended for index in indexes), default=NEVER)
        for index in indexes:
            operation = self._told[index]
            state = here.state.after(operation)
            if operation.is_write and operation.outcome is Outcome.DONE and state is not None:
                yield self._with(here, index, state)
        for index, operation in enumerate(self._uncertain):
            if index not in here.used and operation.began <= latest:
                state = here.state.after(operation)
                if state is not None:
                    yield here._replace(used=here.used | {index}, state=state)

    def _open(self, here: _Configuration) -> Iterator[int]:
        """Those that may be next by their intervals: they began before every other one that is left has ended."""
        latest = NEVER
        for index in range(here.first, len(self._told)):
            operation = self._told[index]
            if operation.began > latest:
                return
            if index not in here.beyond:
                yield index
                latest = min(latest, operation.ended)

    def _with(self, here: _Configuration, index: int, state: State) -> _Configuration:
        beyond = here.beyond | {index}
        first = next(at for at in itertools.count(here.first) if at not in beyond)
        return _Configuration(first, frozenset(at for at in beyond if at > first), here.used, state)

    def _note(self, here: _Configuration, goes_on: bool) -> None:
        if not goes_on and here.first > self._furthest:
            self._furthest = here.first
            left = ", ".join(_words(self._told[index]) for index in itertools.islice(self._open(here), 5))
            at = f"at {here.state.revision}" if here.state.exact else f"above {here.state.revision}"
            what = "absent" if here.state.value is None else repr(here.state.value[:40])
            self._stuck = f"after {here.first} of {len(self._told)}, {what} {at}, none of these can come next: {left}"


def _words(operation: Operation) -> str:
    held = f"{operation.found.value[:40]!r} at {operation.found.revision}" if operation.found else "nothing"
    if not operation.is_write:
        return f"a read of {held}"
    what = "a delete" if operation.value is None else f"a write of {operation.value[:40]!r}"
    ending = f"refused with {held}" if operation.outcome is Outcome.REFUSED else f"done as {operation.revision}"
    return f"{what} over {operation.expected}, {ending}"
