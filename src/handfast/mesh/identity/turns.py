# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is: so many calls at once, so many that wait, and renewals first. It knows nothing of what a call is.

1. At most `at_once` have their turn. Who comes then waits.
2. Renewals wait in a line of their own, and are next: a storm of new workloads ends nobody's certificate.
3. Each line has a bound. Who finds it full is told to come again, at once: waiting longer than a client does is of no use.
4. Who goes away while waiting leaves the line, and takes no turn along, whatever happens in the same moment.
5. Of one identity so many renewals are ahead of the others, under way or waiting. More of them stand where everybody does.

| who | holding | tries | stopped by | shown in tests/unit/mesh/identity/test_turns.py |
|---|---|---|---|---|
| a vandal | calls that are cancelled as others end | use up the turns, so that nobody has one again | 4 | test_who_goes_away_as_another_ends_takes_no_turn_along |
| who took over a workload | its certificate | renew without end, so that nobody else has a turn | 5 | test_one_identity_does_not_hold_the_line_of_renewals |
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

from handfast import errors

AT_ONCE: Final = 64
WAITING: Final = 4096
OF_ONE: Final = 8

_Line = collections.deque[asyncio.Future[None]]


class Full(errors.Unavailable):
    """The line is full (3)."""

    reason = "QueueFull"


class Turns:
    """The turns of one service."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, of_one: int = OF_ONE) -> None:
        self._free = at_once
        self._bound = waiting
        self._of_one = of_one
        self._renewals: _Line = collections.deque()
        self._others: _Line = collections.deque()
        # Identity -> its renewals that are ahead of the others.
        self._ahead: collections.Counter[str] = collections.Counter()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._renewals) + len(self._others)

    @contextlib.asynccontextmanager
    async def turn(self, renews: str = "") -> AsyncIterator[None]:
        """Wait for a turn, and have it while the block runs. `renews` is the identity that is renewed; empty is none."""
        with self._standing(renews) as line:
            await self._take(line)
            try:
                yield
            finally:
                self._pass_on()

    @contextlib.contextmanager
    def _standing(self, renews: str) -> Iterator[_Line]:
        """The line that a call stands in."""
        # 5. of one identity so many
        if not renews or self._ahead[renews] >= self._of_one:
            yield self._others
            return
        self._ahead[renews] += 1
        try:
            yield self._renewals
        finally:
            self._ahead[renews] -= 1
            if not self._ahead[renews]:
                del self._ahead[renews]

    async def _take(self, line: _Line) -> None:
        # 1. so many at once
        if self._free:
            self._free -= 1
            return
        # 3. so many that wait
        if len(line) >= self._bound:
            raise Full(f"{len(line)} calls are waiting, which is all that may")
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # 4. who goes away leaves the line, or passes on the turn that has just come
            if turn.done() and not turn.cancelled():
                self._pass_on()
            else:
                with contextlib.suppress(ValueError):
                    line.remove(turn)
            raise

    def _pass_on(self) -> None:
        # 2. renewals are next
        for line in (self._renewals, self._others):
            while line:
                turn = line.popleft()
                # 4. who was cancelled a moment ago may still stand there
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1
