# SPDX-License-Identifier: Apache-2.0
"""Many nodes for a long time: the agent's own certificate keepers on one virtual clock, with a signer that answers at once.

Each node is the real `CertificateKeeper` and its real `run`: when a renewal is due, when it is tried again and what ends
a certificate are its decisions. Replaced are only the two places where it meets the world: waiting (`_rest`), which hands
the seconds to the loop below instead of to asyncio, and the exchange with key, request and disk (`_renewed`), which makes
no cryptography. The signer's times are those of `profiles`, back-dating included, and a node whose certificate has
expired gets another one where `node_recovery` says so. That all this keeps the times of keepers with everything real is
shown in `tests/scenarios/test_simulated_year.py`.
"""

from __future__ import annotations

import bisect
import collections
import datetime
import heapq
import itertools
import random
import types
from collections.abc import Coroutine, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from handfast import errors
from handfast.api import status
from handfast.client import timetable
from handfast.node import certificate_store, certificates
from handfast.pki import names, pairs, profiles
from handfast.rules import decision
from handfast.rules.certificates import wishes
from handfast.rules.ledger import entries
from handfast.rules.nodes import recovery

HOUR = 3600.0
DAY = 24 * HOUR
LIFETIME = datetime.timedelta(hours=24)
# The server's default.
RECOVERY_WINDOW = datetime.timedelta(hours=720)
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
# The longest pause between two attempts of a node that nobody answers.
LONGEST_PAUSE = timetable.RETRY.delay(64, 1.0)

Outage = tuple[float, float]


class VirtualClock:
    """Seconds since the fleet began; only the fleet moves it."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self._now = START

    def move(self, elapsed: float) -> None:
        self.elapsed = elapsed
        self._now = START + datetime.timedelta(seconds=elapsed)

    def now(self) -> datetime.datetime:
        return self._now

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> NoReturn:
        raise errors.Misuse("in a fleet only the fleet waits")


class Outages:
    """When something cannot be reached: (begin, end) in seconds, one after the other."""

    def __init__(self, rows: Iterable[Outage] = ()) -> None:
        self.rows = sorted(rows)
        self._begins = [begin for begin, _ in self.rows]

    def at(self, elapsed: float) -> bool:
        number = bisect.bisect_right(self._begins, elapsed)
        return number > 0 and elapsed < self.rows[number - 1][1]

    def near(self, begin: float, end: float, seconds: float) -> bool:
        """Whether one of them comes so close that the two would count as one long outage."""
        return any(begin - seconds < there and here < end + seconds for here, there in self.rows)


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a keeper reads of a certificate."""

    subject: names.Subject
    sans: names.Sans
    serial: str
    not_before: datetime.datetime
    not_after: datetime.datetime


@dataclass(frozen=True, slots=True)
class Paper:
    """A pair without key and chain."""

    leaf: Leaf


@dataclass(slots=True)
class Seen:
    """What happened: renewals in seconds since the start, failed attempts, and who was without a certificate how long."""

    renewals: list[float] = field(default_factory=list)
    by_hour: collections.Counter[int] = field(default_factory=collections.Counter)
    failures: int = 0
    without: list[tuple[str, float]] = field(default_factory=list)
    # The least time that a certificate had left when its successor came.
    least_left: float = LIFETIME.total_seconds()

    def hours(self, begin: float, end: float) -> list[int]:
        """Renewals in each hour of this time."""
        return [self.by_hour[hour] for hour in range(int(begin // HOUR), int(end // HOUR))]

    def renewed(self, elapsed: float) -> None:
        self.renewals.append(elapsed)
        self.by_hour[int(elapsed // HOUR)] += 1


class _Directory:
    """The store of a node that is only simulated."""

    prefix = certificate_store.CLIENT


class _OnRecord:
    """A cluster in which every node is registered, its key in the ledger, and its Lease not renewed while it is away."""

    _ENTRY = entries.Entry(
        issued_at=START,
        signer="",
        requester="",
        authenticated_by="",
        token_id="",
        key_fingerprint="",
        serial="",
        names=(),
        not_after=START,
        rule="",
        request="",
        certificate="",
    )

    def registered_at(self, node: str) -> datetime.datetime:
        return START

    def is_running(self, node: str, now: datetime.datetime) -> bool:
        return False

    def issued(self, node: str) -> Sequence[entries.Entry]:
        return (self._ENTRY,)


@types.coroutine
def _pause(seconds: float) -> Generator[float, None, None]:
    yield seconds


class Node(certificates.CertificateKeeper):
    """One keeper of the fleet."""

    def __init__(self, name: str, fleet: Fleet, chance: random.Random, outages: Outages) -> None:
        self.name = name
        self.outages = outages
        # Those of its certificates, one after the other.
        self.serials: Iterator[str] = map(str, itertools.count(1))
        self._fleet = fleet
        self.wanted = wanted = wishes.node_client(name)
        super().__init__(
            cast(certificate_store.CertificateStore, _Directory()),
            lambda: wanted,
            lambda: cast(Any, None),
            clock=fleet.clock,
            chance=chance.random,
            # The looks between are for a wall clock that jumps, and this one does not.
            look_seconds=LIFETIME.total_seconds(),
        )

    async def _rest(self, seconds: float) -> None:
        await _pause(seconds)

    async def _renewed(self, wanted: wishes.Wanted, seconds: float) -> pairs.Pair:
        return cast(pairs.Pair, self._fleet.answer(self))


class Fleet:
    """Nodes, the control plane that they ask, and the loop that lets time pass for all."""

    def __init__(self, outages: Iterable[Outage] = (), recovery_window: datetime.timedelta = RECOVERY_WINDOW) -> None:
        self.clock = VirtualClock()
        self.nodes: list[Node] = []
        self.outages = Outages(outages)
        self.seen = Seen()
        self._waiting: list[tuple[float, int]] = []
        self._running: list[Coroutine[float, None, None]] = []
        self._records = _OnRecord()
        self._recovery_window = recovery_window

    def add(self, at: float, chance: random.Random, outages: Outages | None = None, name: str = "") -> Node:
        """A node that starts, without a certificate, at this time."""
        node = Node(name or f"n{len(self.nodes)}", self, chance, outages or Outages())
        heapq.heappush(self._waiting, (at, len(self.nodes)))
        self.nodes.append(node)
        self._running.append(cast("Coroutine[float, None, None]", node.run()))
        return node

    def run(self, until: float) -> Seen:
        """Let time pass; each node goes on when its own pause is over."""
        while self._waiting[0][0] <= until:
            at, number = heapq.heappop(self._waiting)
            self.clock.move(at)
            heapq.heappush(self._waiting, (at + self._running[number].send(None), number))
        self.clock.move(until)
        return self.seen

    def close(self) -> None:
        for running in self._running:
            running.close()

    def expired(self) -> list[str]:
        """Who has no certificate in force now."""
        return [node.name for node in self.nodes if not node.usable()]

    def answer(self, node: Node) -> Paper:
        """A new certificate at once, or what a node hears when nobody is there or nobody knows it."""
        now, elapsed = self.clock.now(), self.clock.elapsed
        if self.outages.at(elapsed) or node.outages.at(elapsed):
            self.seen.failures += 1
            raise errors.Unavailable("connect: connection refused", reason="ConnectionFailed")
        current = node.current()
        if current is not None:
            left = (current.leaf.not_after - now).total_seconds()
            if left <= 0:
                self._recover(current, now)
                self.seen.without.append((node.name, -left))
            self.seen.least_left = min(self.seen.least_left, left)
            self.seen.renewed(elapsed)
        not_before, not_after = profiles.KUBELET_CLIENT.window(now, LIFETIME)
        return Paper(Leaf(node.wanted.subject, node.wanted.sans, next(node.serials), not_before, not_after))

    def _recover(self, current: pairs.Pair, now: datetime.datetime) -> None:
        leaf = current.leaf
        shown = recovery.Shown(subject=leaf.subject, fingerprint="", key_fingerprint="", not_after=leaf.not_after)
        judged = recovery.judge(shown, now, self._recovery_window, self._records)
        if isinstance(judged, decision.Deny):
            self.seen.failures += 1
            raise status.StatusError("Unauthorized", "Unauthorized")


def own_outages(chance: random.Random, days: int, *, every: float, longest: float, beside: Sequence[Outage]) -> Outages:
    """A node's own trouble: at random, about so often, up to so long, and never next to another outage."""
    taken = Outages(beside)
    rows: list[Outage] = []
    begin = chance.expovariate(1 / every)
    while begin < days * DAY:
        end = begin + longest * min(1.0, 1.25 * chance.random())
        if not taken.near(begin, end, HOUR) and not (rows and begin < rows[-1][1] + HOUR):
            rows.append((begin, end))
        begin += chance.expovariate(1 / every)
    return Outages(rows)
