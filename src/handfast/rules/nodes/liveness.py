# SPDX-License-Identifier: Apache-2.0
"""Is a node alive: does somebody renew its Lease?

It reads no store and knows no clock: whoever follows Leases says when it saw what. What follows from the answer is decided
elsewhere: who may have the node's name (`nodes.claim`), what its Node says (`nodes.lifecycle`), who may recover
(`nodes.recovery`).

1. A Lease counts for as long as its holder wrote, from 40 seconds to five minutes: nodes write it themselves.
2. A renewal that was seen to happen counts from when it was seen, by the monotonic clock. What the node's clock or ours
   says is then no matter, nor that one of them is set.
3. A renewal from before anybody looked counts from the instant that is written in it.
4. One that is written ahead of our time counts from when it was seen: a clock that is ahead keeps no dead node alive.
5. A Lease without a renewal, or none at all, is nobody's.
6. Before a node's name is given away, its Lease must have been found ended for 20 seconds, at every look, without a
   gap. Where the API server was away, nobody could renew: every living node has done so by then.
7. Before a node is called silent, writes must have been seen to be taken for 20 seconds, whoever wrote. A server that
   answers and takes none, on a full disk or overloaded, makes every node silent.

| who | holding | tries | stopped by | shown in tests/unit/rules/nodes/test_liveness.py |
|---|---|---|---|---|
| a node that is dead | a Lease that says a year, or was renewed tomorrow | count as alive for ever | 1, 4 | test_how_long_a_lease_counts |
| who wants a living node's name | that node's clock, which is behind | find it dead | 2 | test_a_renewal_that_was_seen |
| … | our clock, set ahead | find every node dead | 2 | test_a_renewal_that_was_seen |
| nobody | an API server that took no writes for an hour | have every node called silent | 7 | test_writes_are_proven_when_they_were_seen_for_a_while |
| who wants a living node's name | an API server that was away for a minute, or controllers that start | be judged before the nodes are back | 6 | test_a_lease_has_ended_when_it_was_found_so_for_a_while |
"""

from __future__ import annotations

import datetime
from typing import Any, Final

import msgspec

from handfast.api import jsonpath, objects

NAMESPACE: Final = "kube-node-lease"
# 1. 40 is what a kubelet writes.
SECONDS: Final = (40, 300)
# 6. Nodes renew every 10 seconds, and come back within that when they can.
SILENT_SECONDS: Final = 20.0
LOOK_AGAIN_SECONDS: Final = 4.0
_GAP_SECONDS: Final = 8.0
# 7. One node's renewals alone are seen without such a gap.
_WRITES_GAP_SECONDS: Final = 15.0


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease as somebody saw it: `at` on the monotonic clock; `beat`: the renewal happened while it was followed."""

    renewed: datetime.datetime
    seconds: int
    at: float
    beat: bool

    def left(self, now: datetime.datetime, monotonic: float) -> float:
        """For how many seconds it still counts; none or less: nobody renews it."""
        written = (now - self.renewed).total_seconds()
        # 2. 3. 4. by when it was seen, or by what is written
        age = monotonic - self.at if self.beat or written < 0 else written
        return self.seconds - age


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease that was found ended (6): its last renewal; since when, and last when, it was found so (monotonic clock)."""

    renewed: datetime.datetime
    since: float
    last: float

    def left(self) -> float:
        """For how many seconds more it has to be found so; none or less: it is believed."""
        return SILENT_SECONDS - (self.last - self.since)


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """Writes that the API server was seen to take (7): since when without a gap, and the last; on the monotonic clock."""

    since: float
    last: float

    def prove(self, monotonic: float) -> bool:
        """Whether every living node could have renewed its Lease in this time, and could still."""
        return self.last - self.since >= SILENT_SECONDS and monotonic - self.last <= _WRITES_GAP_SECONDS


def saw_write(before: Writes | None, monotonic: float) -> Writes:
    """One more write that was taken, `before` being what was seen of them."""
    if before is None or monotonic - before.last > _WRITES_GAP_SECONDS:
        return Writes(since=monotonic, last=monotonic)
    return Writes(since=before.since, last=monotonic)


def found_silent(pulse: Pulse, before: Silence | None, monotonic: float) -> Silence:
    """One more look at a Lease that has ended; `before` is the result of the looks before it."""
    # 6. without a gap
    if before is None or before.renewed != pulse.renewed or monotonic - before.last > _GAP_SECONDS:
        return Silence(renewed=pulse.renewed, since=monotonic, last=monotonic)
    return Silence(renewed=pulse.renewed, since=before.since, last=monotonic)


def seen(lease: Any, before: Pulse | None, monotonic: float, *, beat: bool) -> Pulse | None:
    """What a Lease says now, `before` being what it said; None where it says nothing (5)."""
    renewed = _renewed(lease)
    if renewed is None:
        return None
    if before is not None and before.renewed == renewed:
        return before
    least, most = SECONDS
    seconds = min(max(jsonpath.number(lease, "spec", "leaseDurationSeconds"), least), most)
    return Pulse(renewed=renewed, seconds=seconds, at=monotonic, beat=beat or before is not None)


def is_fresh(lease: Any, now: datetime.datetime) -> bool:
    """Whether a Lease that was looked at just now says that its node runs."""
    pulse = seen(lease, None, 0.0, beat=False)
    return pulse is not None and pulse.left(now, 0.0) > 0


def _renewed(lease: Any) -> datetime.datetime | None:
    try:
        return objects.parse_timestamp(jsonpath.text(lease, "spec", "renewTime"))
    except ValueError:
        return None
