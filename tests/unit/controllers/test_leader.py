# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.controllers import leader
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.world.clock import MovableClock, settle


class Candidate:
    """A lock, and whether its work runs."""

    def __init__(self, client: FakeClient, clock: MovableClock, identity: str) -> None:
        self.lock = leader.Lock(client, clock, name="lease", identity=identity)
        self.working = False
        self.terms = 0
        self.ending = asyncio.Event()

    def states(self) -> tuple[bool, bool, int]:
        return self.working, self.lock.leading, self.terms

    async def work(self) -> None:
        self.working = True
        self.terms += 1
        try:
            await self.ending.wait()
        finally:
            self.working = False


@contextlib.asynccontextmanager
async def running(*candidates: Candidate) -> AsyncIterator[list[asyncio.Task[None]]]:
    with capture_logs():
        found = []
        for candidate in candidates:
            found.append(asyncio.create_task(candidate.lock.run(candidate.work)))
            await settle(20)
        try:
            yield found
        finally:
            for task in found:
                task.cancel()
            await asyncio.gather(*found, return_exceptions=True)


async def passes(clock: MovableClock, seconds: int) -> None:
    for _ in range(seconds):
        await clock.advance(1)
        await settle(10)


def spec(client: FakeClient) -> dict[str, Any]:
    found: dict[str, Any] = client.objects["leases", "kube-system", "lease"]["spec"]
    return found


async def test_one_leads_and_renews():
    client, clock = FakeClient(), MovableClock()
    first, second = Candidate(client, clock, "first"), Candidate(client, clock, "second")
    async with running(first, second):
        assert (first.states(), second.states()) == ((True, True, 1), (False, False, 0))
        began = spec(client)["renewTime"]
        await passes(clock, 60)
        assert (first.states(), second.states()) == ((True, True, 1), (False, False, 0))
        assert spec(client)["holderIdentity"] == "first"
        assert spec(client)["leaseDurationSeconds"] == 11
        assert spec(client)["renewTime"] > began
        assert spec(client)["leaseTransitions"] == 0
        assert spec(client)["acquireTime"] == began


async def test_a_silent_holder_is_succeeded_after_the_lease_has_run_out():
    client, clock = FakeClient(), MovableClock()
    first, second = Candidate(client, clock, "first"), Candidate(client, clock, "second")
    async with running(first, second) as found:
        await passes(clock, 5)
        found[0].cancel()
        await passes(clock, 9)
        assert not second.states()[0]
        # It is well within the 15 seconds that are promised.
        await passes(clock, 5)
        assert second.states()[0]
        assert spec(client)["holderIdentity"] == "second"
        assert spec(client)["leaseTransitions"] == 1


async def test_who_waits_looks_again_when_the_lease_ends_and_not_only_at_the_next_try():
    client, clock = FakeClient(), MovableClock()
    first, second = Candidate(client, clock, "first"), Candidate(client, clock, "second")
    async with running(first) as found:
        await passes(clock, 1)
        # It looks at odd seconds. The last renewal is of the fourth, is seen at the fifth, and ends at the sixteenth.
        async with running(second):
            await passes(clock, 3)
            found[0].cancel()
            await passes(clock, 11)
            assert not second.states()[0]
            await passes(clock, 1)
            assert second.states()[0]


@pytest.mark.parametrize("jump", [86400.0, -86400.0])
async def test_a_clock_that_is_set_changes_no_leader_and_saves_none(jump: float):
    client, clock = FakeClient(), MovableClock()
    first, second = Candidate(client, clock, "first"), Candidate(client, clock, "second")
    async with running(first, second) as found:
        await passes(clock, 5)
        clock.set_wall(jump)
        await passes(clock, 60)
        assert (first.states(), second.states()) == ((True, True, 1), (False, False, 0))
        found[0].cancel()
        await passes(clock, 8)
        clock.set_wall(-jump)
        assert not second.states()[0]
        await passes(clock, 8)
        assert second.states()[0]


async def test_a_released_lease_is_taken_at_the_next_try():
    client, clock = FakeClient(), MovableClock()
    first, second = Candidate(client, clock, "first"), Candidate(client, clock, "second")
    async with running(first, second) as found:
        found[0].cancel()
        await settle(10)
        await first.lock.release()
        await passes(clock, 3)
        assert second.states()[0]
        # Not its own any more: released again, nothing changes.
        await first.lock.release()
        assert spec(client)["holderIdentity"] == "second"


async def test_who_cannot_renew_stops_working_before_another_starts_and_comes_back():
    client, clock = FakeClient(), MovableClock()
    only = Candidate(client, clock, "only")

    def down(*_: str) -> None:
        raise errors.Unavailable("no server")

    async with running(only):
        await passes(clock, 4)
        client.before = down
        await passes(clock, 7)
        assert only.states() == (True, True, 1)
        await passes(clock, 4)
        assert only.states() == (False, False, 1)
        await only.lock.release()
        client.before = lambda *_: None
        await passes(clock, 3)
        assert only.states() == (True, True, 2)


async def test_a_stolen_lease_stops_the_work_at_the_next_try():
    client, clock = FakeClient(), MovableClock()
    only = Candidate(client, clock, "only")
    async with running(only):
        spec(client)["holderIdentity"] = "thief"
        await passes(clock, 3)
        assert not only.states()[0]


async def test_a_lost_race_for_the_lease():
    client, clock = FakeClient(), MovableClock()
    raced = False

    def race(verb: str, *_: str) -> None:
        nonlocal raced
        if verb == "create" and not raced:
            raced = True
            client.put("leases", "lease", "kube-system", spec={"holderIdentity": "other", "leaseDurationSeconds": 15})

    client.before = race
    late = Candidate(client, clock, "late")
    async with running(late):
        assert not late.states()[0]
        await passes(clock, 10)
        assert not late.states()[0]
        await passes(clock, 8)
        assert late.states()[0]


async def test_the_end_of_the_work_is_the_end():
    client, clock = FakeClient(), MovableClock()
    only = Candidate(client, clock, "only")
    async with running(only) as (task,):
        only.ending.set()
        await asyncio.wait_for(task, 1)


async def test_what_the_work_raises_is_raised():
    async def broken() -> None:
        raise RuntimeError("broken")

    lock = leader.Lock(FakeClient(), MovableClock(), name="lease", identity="x")
    with capture_logs(), pytest.raises(RuntimeError, match="broken"):
        await asyncio.wait_for(lock.run(broken), 1)


async def test_who_cannot_ask_is_told_of_once():
    """Without a right or a credential nobody else leads, and nobody would say why."""
    client, clock = FakeClient(), MovableClock()
    reasons = iter(["Unauthorized"] * 3 + ["Forbidden"] * 2)

    def refuse(*_: str) -> None:
        if (reason := next(reasons, None)) is not None:
            raise errors.Refused(f"no: {reason}", reason=reason)

    client.before = refuse
    candidate = Candidate(client, clock, "a")
    with capture_logs() as logs:
        task = asyncio.create_task(candidate.lock.run(candidate.work))
        await settle(20)
        assert str(candidate.lock.trouble) == "no: Unauthorized"
        await passes(clock, 12)
        assert (candidate.lock.leading, str(candidate.lock.trouble)) == (True, "None")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    told = [(log["reason"], log["error"]) for log in logs if log["log_level"] == "warning"]
    assert told == [("Unauthorized", "no: Unauthorized"), ("Forbidden", "no: Forbidden")]


async def test_a_lost_race_is_no_trouble():
    client, clock = FakeClient(), MovableClock()
    client.before = failing(errors.Refused("another was faster", reason="AlreadyExists"), verb="create")
    candidate = Candidate(client, clock, "a")
    with capture_logs() as logs:
        assert not await candidate.lock._try()
    assert candidate.lock.trouble is None
    assert [log["log_level"] for log in logs] == ["debug"]
