# SPDX-License-Identifier: Apache-2.0
"""How long the event loop is held: by the steps of one coroutine (`timed`), and by anybody at all (`lateness`).

While a coroutine runs from one wait to the next, a step, nobody else on its loop does. `timed` measures each step, so that
it is known who held the loop. `lateness` measures how late a short sleep ends, whoever is to blame: a request, a callback
of a library, the garbage collector, or a machine with too much to do. It keeps and tells nothing: whoever asks does.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from handfast.runtime import clock as clocks

T = TypeVar("T")
W = TypeVar("W")

# Often enough that no hold of a tenth of a second goes unmeasured; an idle process has ten things to do a second for it.
BEAT_SECONDS: Final = 0.1


@types.coroutine
def timed(
    work: Coroutine[Any, Any, T],
    monotonic: Callable[[], float],
    bound: float,
    held: Callable[[W, float], None],
    whom: W,
) -> Generator[Any, Any, T]:
    """Await `work`; each of its steps that took longer than `bound` seconds is told: `held(whom, seconds)`.

    It costs 0.6 µs for each request with one step: two readings of a clock, and the end of `work` as an exception.
    """
    waits_for: Any = None
    begun = monotonic()
    try:
        waits_for = work.send(None)
        while True:
            if (seconds := monotonic() - begun) > bound:
                held(whom, seconds)
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001  a cancellation, or whatever else it is, is for `work`
                begun = monotonic()
                # Thrown here and not below: kept in a variable, the error and this frame would hold one another.
                waits_for = work.throw(error)
            else:
                begun = monotonic()
                waits_for = work.send(value)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        # The traceback of a wait that failed has this frame, and what was waited for has the error: together they would
        # keep all that the request holds until the collector looks (47 unread lists of 1 MiB, where it was left out).
        waits_for = None
        if (seconds := monotonic() - begun) > bound:
            held(whom, seconds)


async def lateness(clock: clocks.Clock, late: Callable[[float], None], every: float = BEAT_SECONDS) -> None:
    """Never returns: tells again and again by how many seconds a sleep of `every` seconds was too long."""
    while True:
        begun = clock.monotonic()
        await clock.sleep(every)
        late(max(0.0, clock.monotonic() - begun - every))
