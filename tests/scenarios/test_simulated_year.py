# SPDX-License-Identifier: Apache-2.0
"""A year of a thousand nodes with certificates of 24 hours, on a virtual clock, with trouble on the way.

Proves: through outages of up to a tenth of the lifetime no node is ever without a certificate in force, renewals spread
out by themselves although all nodes joined in one hour, and after longer outages every node comes back without help.
The keepers that decide are the agent's own (`tests/world/fleet.py`), and the last test shows that the simulation keeps
their times when keys, requests, signer and disk are real, too.

The control plane answers nobody while it is down, and so the renewals that it missed come in the minute after that: an
outage of h hours puts h + 1 hours' worth into one, which no schedule can spread, since some of them have minutes left.
There are two years for that: in one the control plane fails in the first month only, and every later hour is judged by
the one measure for all; in the other it fails all the year, and only the hour in which it comes back and the next are
judged by a measure of their own. They are `Year(1, 2, SETTLED, 10)` and `Year(2, 2, DAYS, 12)`: the seed, the days between
which the control plane fails, and how often. The seeds are the first numbers there are. With `-s` both print their figures,
which docs/node.md has; all that is by chance hangs on the seed, the nodes' names and the serial numbers 1, 2, 3, ….

Of the first year CI has the first four months: nothing happens after its trouble but what every cycle of 19.2 hours has, a hundred
times over. `HANDFAST_WHOLE_YEARS=1` has all of it.
"""

from __future__ import annotations

import asyncio
import base64
import bisect
import collections
import contextlib
import datetime
import gc
import heapq
import itertools
import os
import pathlib
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import pytest
import structlog

from handfast import errors
from handfast.api import resources
from handfast.client import api, keeping
from handfast.node import certificate_store, certificates
from handfast.pki import authority, keys, names, pairs, profiles, renewal
from handfast.pki import requests as signing_requests
from handfast.rules import user_names
from handfast.rules.certificates import wishes
from tests.world import fleet
from tests.world.clock import MovableClock, settle
from tests.world.fleet import DAY, HOUR, LIFETIME, LONGEST_PAUSE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("silent", "unmeasured")]

NODES, DAYS, SETTLED = 1000, 365, 30
AFTER_TROUBLE = DAYS if os.environ.get("HANDFAST_WHOLE_YEARS") else 120
TENTH = LIFETIME.total_seconds() / 10
SEED = 20260101


class Silent(structlog.BoundLoggerBase):
    """A log that takes no time."""

    def debug(self, event: str, **values: object) -> None: ...

    def info(self, event: str, **values: object) -> None: ...

    def warning(self, event: str, **values: object) -> None: ...


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody reads a million lines of log; and nothing here makes cycles worth collecting."""
    monkeypatch.setattr(keeping, "_log", structlog.wrap_logger(None, wrapper_class=Silent).bind())
    gc.disable()
    yield
    gc.enable()


def outages(chance: random.Random, begin: float, end: float, count: int) -> list[fleet.Outage]:
    """Outages of the control plane, spread over these days, not the first two; every third takes the whole tenth."""
    share = (end - begin) / count
    days = [begin + (number + 0.8 * chance.random()) * share for number in range(count)]
    lengths = [TENTH if number % 3 == 0 else TENTH * chance.random() for number in range(count)]
    return [(day * DAY, day * DAY + length) for day, length in zip(days, lengths, strict=True)]


def histogram(hours: list[int]) -> str:
    """For messages: how many hours had how many renewals."""
    counted = collections.Counter(count // 10 * 10 for count in hours)
    rows = ", ".join(f"{low}-{low + 9}: {counted[low]}" for low in sorted(counted))
    return f"mean {sum(hours) / len(hours):.1f}, most {max(hours)}; hours by renewals {rows}"


class Year:
    """What a year did to a fleet, and what is asked of every year."""

    def __init__(self, seed: int, begin: float, end: float, count: int, days: int = DAYS) -> None:
        chance = random.Random(seed)
        self.outages = outages(chance, begin, end, count)
        nodes = fleet.Fleet(self.outages)
        for number in range(NODES):
            own = fleet.own_outages(chance, days, every=80 * DAY, longest=TENTH, beside=self.outages)
            nodes.add(HOUR * chance.random(), random.Random(f"{seed}-{number}"), own, f"node-{seed}-{number}")
        with contextlib.closing(nodes):
            self.seen = nodes.run(days * DAY)
            self.expired = nodes.expired()
        self.hours = dict(enumerate(self.seen.hours(SETTLED * DAY, days * DAY), SETTLED * 24))
        self.mean = sum(self.hours.values()) / len(self.hours)

    def shares(self, hours: Iterable[int]) -> list[float]:
        """The renewals of these hours, as multiples of the mean; nothing for those before the fleet has settled."""
        return [self.hours[hour] / self.mean for hour in hours if hour in self.hours]

    def never_without(self) -> None:
        seen = self.seen
        assert self.expired == []
        assert seen.without == [], f"{len(seen.without)} times without a certificate; the first: {seen.without[:5]}"
        assert 0 < seen.least_left < TENTH, f"the least time left at a renewal was {seen.least_left:.0f} s"
        assert seen.failures > 10_000, f"only {seen.failures} attempts failed: the outages were none"
        # 80 % of a lifetime is the cycle of them all.
        assert self.mean == pytest.approx(NODES / (0.8 * 24), rel=0.01)

    def first_wave(self) -> float:
        first = self.seen.hours(0, 2 * DAY)
        assert max(first) <= 5 * self.mean, f"{max(first) / self.mean:.2f} times the mean; by hour {first}"
        return max(first) / self.mean


def test_a_year_with_trouble_in_its_first_month() -> None:
    """No hour is left out."""
    year = Year(1, 2, SETTLED, 10, AFTER_TROUBLE)
    assert SETTLED - 4 < year.outages[-1][1] / DAY <= SETTLED
    year.never_without()
    first, busiest = year.first_wave(), max(year.shares(year.hours))
    assert busiest <= 1.6, f"the busiest hour has {busiest:.2f} times the mean; {histogram(list(year.hours.values()))}"
    print(f"busiest hour {busiest:.2f} times the mean, first wave {first:.2f}")


def test_a_year_with_trouble_every_month() -> None:
    year = Year(2, 2, DAYS, 12)
    year.never_without()
    first = year.first_wave()
    back = {int(end // HOUR): end - begin for begin, end in year.outages}
    rush = {hour + more for hour in back for more in (0, 1)}
    calm = max(year.shares(year.hours.keys() - rush))
    assert calm <= 1.6, (
        f"{calm:.2f} times the mean; {histogram([year.hours[hour] for hour in year.hours.keys() - rush])}"
    )
    # Who came back together renews together one lifetime later: the hours in which 70 to 90 % of it are over.
    echoes = [max(year.shares(range(hour + 16, hour + 24)), default=0.0) for hour in back]
    assert max(echoes) <= 1.6, f"an echo of {max(echoes):.2f} times the mean"
    found = []
    for hour, seconds in back.items():
        worst = max(year.shares((hour, hour + 1)), default=0.0)
        assert worst <= 1.6 * (1 + seconds / HOUR), f"{worst:.2f} times the mean after an outage of {seconds:.0f} s"
        found.append(f"{worst:.2f} after {seconds / HOUR:.1f} h")
    print(f"calm hours {calm:.2f} times the mean, echoes {max(echoes):.2f}, first wave {first:.2f}; {', '.join(found)}")


def test_the_hour_of_a_fleet_in_which_most_have_their_instant() -> None:
    """In a cycle of 19.2 hours, over every hour that begins at one of its 96 parts; docs/node.md has the figures."""
    hour = 1 / 19.2
    busiest: list[float] = []
    for number in range(1, 301):
        own = sorted(
            renewal.place_in_cycle(f"kubelet-client system:node:node-{number}-{node}") for node in range(NODES)
        )
        own += [phase + 1 for phase in own]
        begins = [part / 96 for part in range(96)]
        most = max(bisect.bisect_left(own, begin + hour) - bisect.bisect_left(own, begin) for begin in begins)
        busiest.append(most * 19.2 / NODES)
    busiest.sort()
    assert (busiest[150] < 1.33, busiest[285] < 1.46, busiest[-1] < 1.6) == (True, True, True)


def test_longer_outages() -> None:
    """Every certificate expires, and the server lets nodes on record back in."""
    count, begin, end = 12, 3 * DAY, 5 * DAY
    nodes = fleet.Fleet([(begin, end)])
    for number in range(count):
        nodes.add(HOUR * number / count, random.Random(f"{SEED}-{number}"))
    with contextlib.closing(nodes):
        nodes.run(end)
        assert len(nodes.expired()) == count
        before = len(nodes.seen.renewals)
        nodes.run(end + LONGEST_PAUSE)
        assert nodes.expired() == [], "one pause after the outage"
        assert len(nodes.seen.renewals) == before + count
        seen = nodes.run(end + 10 * DAY)
        assert nodes.expired() == []
        assert len(seen.without) == count, "once each, and never again"


def test_outages_beyond_the_window() -> None:
    """Whoever is away for longer than recovery allows goes on asking, and stays out."""
    nodes = fleet.Fleet([(DAY, 3 * DAY)], recovery_window=datetime.timedelta(hours=1))
    nodes.add(0.0, random.Random(SEED))
    with contextlib.closing(nodes):
        seen = nodes.run(3 * DAY + HOUR)
        assert nodes.expired() == ["n0"]
        failed = seen.failures
        assert nodes.run(3 * DAY + 2 * HOUR).failures > failed
    last = nodes.nodes[0].last_error
    assert last is not None
    assert last.reason == "Unauthorized"


def test_the_worst_instant() -> None:
    """The latest of all deadlines, and an outage of a tenth of the lifetime that begins with it.

    The latest is a little before nine tenths of the lifetime are over, so that one more attempt fits in behind it.
    """
    latest = LIFETIME.total_seconds() * (0.7 + 0.2 * renewal.LATEST) - profiles.BACKDATE.total_seconds()
    # A node whose own instants are far ahead of its certificate, so that chance decides, and chance at its worst.
    name = next(name for name in map(str, itertools.count()) if 0.2 < _phase(name) < 0.4)
    worst = max(map(str, range(20_000)), key=lambda serial: renewal.place_in_cycle(f"{_holder(name)} {serial}"))
    for offset in range(-40, 41, 4):
        nodes = fleet.Fleet()
        node = nodes.add(0.0, random.Random(SEED), name=name)
        node.serials = iter([worst, "1"])
        nodes.run(0.0)
        assert node.next_renewal is not None
        deadline = (node.next_renewal - fleet.START).total_seconds()
        assert deadline == pytest.approx(latest, abs=2)
        begin = deadline + offset
        nodes.outages = fleet.Outages([(begin, begin + TENTH)])
        with contextlib.closing(nodes):
            seen = nodes.run(begin + TENTH + 2 * LONGEST_PAUSE)
            assert nodes.expired() == []
        assert [seconds for _, seconds in seen.without] == [], f"{offset} s"


def _phase(name: str) -> float:
    """How far ahead of `fleet.START` the node's first instant is, as a share of the cycle."""
    cycle = 0.8 * LIFETIME.total_seconds()
    return (renewal.place_in_cycle(_holder(name)) - fleet.START.timestamp() / cycle) % 1


def _holder(name: str) -> str:
    return f"{certificate_store.CLIENT} {user_names.node_subject(name).common_name}"


# --- the same with everything real ------------------------------------------------------------------------------------


class PatientClock(MovableClock):
    """Lets each sleeper finish what it woke up for: an attempt takes many turns of the loop, and no time."""

    async def advance(self, seconds: float) -> None:
        until = self._elapsed + seconds
        await settle(40)
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, due)
            if not future.done():
                future.set_result(None)
                await settle(40)
        self._elapsed = until


class ControlPlane:
    """A client whose server approves and signs with the creation of a request, unless it cannot be reached."""

    def __init__(self, clock: MovableClock, ca: authority.Authority, outages: fleet.Outages) -> None:
        self._clock = clock
        self._ca = ca
        self._outages = outages
        self.issued: list[float] = []

    async def create(self, resource: api.Addressable, document: Mapping[str, Any]) -> dict[str, Any]:
        assert resource is resources.SIGNING_REQUESTS
        if self._outages.at(self._clock.monotonic()):
            raise errors.Unavailable("connect: connection refused", reason="ConnectionFailed")
        wish = signing_requests.parse(base64.b64decode(document["spec"]["request"]))
        profile = profiles.KUBELET_CLIENT
        issued = self._ca.issue(wish.public_key, wish.subject, wish.sans, profile, self._clock.now(), LIFETIME)
        self.issued.append(self._clock.monotonic())
        status = {
            "conditions": [{"type": "Approved", "status": "True"}],
            "certificate": base64.b64encode(issued.pem).decode(),
        }
        meta = {**document["metadata"], "uid": f"u{len(self.issued)}", "resourceVersion": "1"}
        return {**document, "metadata": meta, "status": status}


class Machine:
    """A node with everything real but the wire."""

    def __init__(self, name: str, plane: ControlPlane, directory: pathlib.Path, clock: MovableClock) -> None:
        self.store = certificate_store.CertificateStore(directory, certificate_store.CLIENT, clock)
        self.plane = plane
        wanted = wishes.node_client(name)
        self.keeper = certificates.CertificateKeeper(
            self.store,
            lambda: wanted,
            lambda: cast(api.Client, plane),
            clock=clock,
            chance=random.Random(name).random,
            look_seconds=HOUR,
        )
        self.seen: list[pairs.Pair] = []
        self.keeper.subscribe(self._switched)

    async def _switched(self, pair: pairs.Pair) -> None:
        self.seen.append(pair)

    def gaps(self) -> list[float]:
        """How long each certificate ended before its successor was issued; less than nothing if all is well."""
        starts = [pair.leaf.not_before + profiles.BACKDATE for pair in self.seen]
        ends = [pair.leaf.not_after for pair in self.seen]
        return [(start - end).total_seconds() for start, end in zip(starts[1:], ends, strict=False)]


async def test_the_simulation_keeps_the_real_times(tmp_path: pathlib.Path) -> None:
    days, count = 8, 6
    clock = PatientClock(fleet.START)
    key = keys.generate()
    ca = authority.self_signed_ca(names.Subject(common_name="ca"), key, fleet.START)
    chance = random.Random(SEED)
    troubles = [fleet.own_outages(chance, days, every=2 * DAY, longest=TENTH, beside=[]) for _ in range(count)]
    machines = [
        Machine(f"n{number}", ControlPlane(clock, ca, trouble), tmp_path / f"n{number}", clock)
        for number, trouble in enumerate(troubles)
    ]
    running = [asyncio.create_task(machine.keeper.run()) for machine in machines]
    try:
        await clock.advance(days * DAY)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    assert sum(machine.keeper.renew_errors for machine in machines) > 100, "the outages were none"
    for machine, trouble in zip(machines, troubles, strict=True):
        assert all(gap < 0 for gap in machine.gaps()), machine.gaps()
        assert machine.store.load() == machine.keeper.current() == machine.seen[-1]
        alone = fleet.Fleet()
        with contextlib.closing(alone):
            alone_name = f"n{machines.index(machine)}"
            node = alone.add(0.0, random.Random(alone_name), trouble, alone_name)
            node.serials = iter([pair.leaf.serial for pair in machine.seen])
            simulated = alone.run(days * DAY)
        assert node.renew_errors == machine.keeper.renew_errors, alone_name
        assert simulated.renewals == pytest.approx(machine.plane.issued[1:], abs=0.1), alone_name
