# SPDX-License-Identifier: Apache-2.0
"""A pair kept fresh without Kubernetes: a workload of a mesh, its keys in memory, and a CA that answers at once or not at all.

What a node adds, and the same loop with certificates on disk, is in tests/unit/node/test_certificates.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.client import issuance, keeping
from handfast.pki import authority, certificates, keys, names, pairs, profiles, renewal, usages
from tests.world.clock import START, MovableClock, settle

HOUR = datetime.timedelta(hours=1)
DAY = 24 * HOUR
DOWN = errors.Unavailable("the identity service is down", reason="Unreachable", hint="start it")
PROFILE = profiles.Profile(
    name="workload",
    usages=frozenset({usages.DIGITAL_SIGNATURE, usages.SERVER_AUTH, usages.CLIENT_AUTH}),
    lifetime=DAY,
    backdate=datetime.timedelta(),
)


WEB = names.Subject(common_name="web.default.serviceaccount.identity.mesh.example")
WEB_URI = names.Sans(uri=("spiffe://mesh.example/ns/default/sa/web",))


@dataclass(frozen=True)
class Workload:
    """What the certificate of a workload is to say."""

    subject: names.Subject = WEB
    sans: names.Sans = WEB_URI


class MemoryStore:
    """A store that lasts as long as the test does: a keeper that begins anew with it is a process that starts again."""

    def __init__(self) -> None:
        self.pair: pairs.Pair | None = None
        self.pending: keys.PrivateKey | None = None
        self.full = False

    def load(self) -> pairs.Pair | None:
        return self.pair

    def save(self, pair: pairs.Pair) -> None:
        if self.full:
            raise errors.Unavailable("no space left", reason="NoSpace")
        self.pair, self.pending = pair, None

    def pending_key(self) -> keys.PrivateKey:
        self.pending = self.pending or keys.generate()
        return self.pending

    def has_pending_key(self) -> bool:
        return self.pending is not None

    def discard_pending(self) -> None:
        self.pending = None

    def remove_leftovers(self) -> None:
        """A crash of memory leaves nothing."""


class Mesh:
    """The identity service of a mesh, one workload, and its clock."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.store = MemoryStore()
        self.wanted: Workload | None = Workload()
        self.ca = authority.self_signed_ca(names.Subject(common_name="mesh"), keys.generate(), START - 365 * DAY)
        # What the service answers before it issues certificates.
        self.script: list[errors.HandfastError] = []
        self.calls: list[tuple[float, keys.PublicKey]] = []

    async def certify(self, key: keys.PrivateKey, wanted: Workload, seconds: float) -> bytes:
        """A call of the identity service."""
        assert 0 < seconds <= keeping.ATTEMPT_SECONDS
        self.calls.append((self.clock.monotonic(), key.public))
        if self.script:
            raise self.script.pop(0)
        return self.issued(key, wanted)

    def issued(self, key: keys.PrivateKey, wanted: Workload) -> bytes:
        leaf = self.ca.issue(key.public, wanted.subject, wanted.sans, PROFILE, self.clock.now().replace(microsecond=0))
        return leaf.pem + self.ca.pem

    def pair(self, wanted: Workload | None = None) -> pairs.Pair:
        key = keys.generate()
        return pairs.join(self.issued(key, wanted or Workload()), key)

    def keeper(self) -> keeping.Keeper[Workload]:
        return keeping.Keeper(
            "mesh",
            self.store,
            self.certify,
            lambda: self.wanted,
            clock=self.clock,
            deadline=at_seventy_percent,
            chance=lambda: 0.0,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[keeping.Keeper[Workload]]:
        keeper = self.keeper()
        keeper.load()
        task = asyncio.create_task(keeper.run())
        await settle(20)
        try:
            yield keeper
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def gaps(self) -> list[int]:
        return [round(later - earlier) for (earlier, _), (later, _) in itertools.pairwise(self.calls)]

    def keys_used(self) -> int:
        return len({key.spki for _, key in self.calls})


def at_seventy_percent(leaf: certificates.Certificate) -> datetime.datetime:
    return renewal.deadline(leaf.not_before, leaf.not_after, 0.0)


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


async def test_the_first_certificate_is_obtained_at_once_and_stored(mesh: Mesh):
    async with mesh.running() as keeper:
        pair = keeper.current()
        assert pair is not None
        assert (keeper.usable(), keeper.due(), keeper.last_error) == (True, None, None)
        assert (pair.leaf.subject, pair.leaf.sans) == (WEB, WEB_URI)
        assert len(pair.chain) == 2
        assert (mesh.store.pair, mesh.store.pending) == (pair, None)
        assert keeper.next_renewal == START + 0.7 * DAY


async def test_it_is_renewed_at_its_deadline_with_a_fresh_key_and_listeners_are_told(mesh: Mesh):
    heard: list[pairs.Pair | None] = []

    async def listen(pair: pairs.Pair) -> None:
        assert pair is keeper.current()
        heard.append(pair)

    async with mesh.running() as keeper:
        keeper.subscribe(listen)
        first = keeper.current()
        await mesh.clock.passes(0.7 * DAY.total_seconds() - 1)
        assert keeper.current() is first
        await mesh.clock.passes(2)
        assert keeper.current() is not first
        assert heard == [keeper.current()]
        await mesh.clock.passes(3 * DAY.total_seconds())
        assert mesh.gaps() == [round(0.7 * DAY.total_seconds())] * len(mesh.gaps())
        assert mesh.keys_used() == len(mesh.calls)
        assert (keeper.renew_errors, keeper.last_error) == (0, None)


async def test_without_a_deadline_of_its_own_it_is_spread_over_the_window(mesh: Mesh):
    due = set()
    for number in range(8):
        keeper = keeping.Keeper(f"mesh-{number}", mesh.store, mesh.certify, lambda: mesh.wanted, clock=mesh.clock)
        mesh.store.pair = mesh.pair()
        keeper.load()
        assert keeper.next_renewal is not None
        assert START + 0.7 * DAY <= keeper.next_renewal < START + 0.9 * DAY
        due.add(keeper.next_renewal)
    assert len(due) > 2


async def test_a_failure_is_tried_again_with_the_same_key_ever_less_often(mesh: Mesh):
    mesh.script = [DOWN] * 7
    async with mesh.running() as keeper:
        assert keeper.last_error == keeping.Failure(START, "Unreachable", DOWN.message, "start it")
        assert not keeper.server_healthy
        await mesh.clock.passes(2 + 4 + 8 + 16 + 32 + 32 + 32)
        assert mesh.gaps() == [2, 4, 8, 16, 32, 32, 32]
        assert mesh.keys_used() == 1
        assert (keeper.usable(), keeper.renew_errors, keeper.server_healthy) == (True, 7, True)


async def test_the_old_pair_is_used_while_its_renewal_fails(mesh: Mesh):
    async with mesh.running() as keeper:
        first = keeper.current()
        mesh.script = [DOWN] * 5
        await mesh.clock.passes(0.7 * DAY.total_seconds() + 10)
        assert keeper.renew_errors > 0
        assert (keeper.current(), keeper.usable()) == (first, True)
        await mesh.clock.passes(60)
        assert keeper.current() is not first


async def test_a_denial_gives_its_key_up_and_grows_to_ten_minutes(mesh: Mesh):
    mesh.script = [issuance.Denied("not this workload") for _ in range(11)]
    async with mesh.running() as keeper:
        assert not mesh.store.has_pending_key()
        assert keeper.server_healthy
        await mesh.clock.passes(2300)
        assert mesh.gaps() == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
        assert mesh.keys_used() == len(mesh.calls)
        assert keeper.usable()


@pytest.mark.parametrize("stored", [False, True])
async def test_a_restart_goes_on_with_the_key_of_the_request_under_way(mesh: Mesh, stored: bool):
    if stored:
        mesh.store.save(mesh.pair())
    key = mesh.store.pending_key()
    async with mesh.running() as keeper:
        pair = keeper.current()
        assert pair is not None
        assert [public for _, public in mesh.calls] == [key.public] == [pair.key.public]
        assert not mesh.store.has_pending_key()


async def test_a_restart_with_a_fresh_pair_asks_for_nothing(mesh: Mesh):
    mesh.store.save(pair := mesh.pair())
    async with mesh.running() as keeper:
        await mesh.clock.passes(600)
        assert (keeper.current(), mesh.calls) == (pair, [])


async def test_a_forced_rotation_comes_at_once(mesh: Mesh):
    async with mesh.running() as keeper:
        first = keeper.current()
        keeper.renew_now()
        assert keeper.due() == "asked for"
        await settle(20)
        assert keeper.current() is not first
        assert (keeper.due(), mesh.keys_used(), mesh.gaps()) == (None, 2, [0])


async def test_a_forced_rotation_that_fails_is_not_forgotten(mesh: Mesh):
    async with mesh.running() as keeper:
        first = keeper.current()
        mesh.script = [DOWN]
        keeper.renew_now()
        await settle(20)
        assert (keeper.current(), keeper.due()) == (first, "asked for")
        await mesh.clock.passes(2)
        assert keeper.current() is not first


async def test_an_expired_pair_is_shown_and_not_usable(mesh: Mesh):
    async with mesh.running() as keeper:
        first = keeper.current()
        mesh.script = [DOWN] * 1000
        await mesh.clock.passes(DAY.total_seconds() + 1)
        assert (keeper.current(), keeper.usable()) == (first, False)
        assert keeper.due() == f"the certificate expired at {START + DAY:%Y-%m-%dT%H:%M:%SZ}"
        mesh.script = []
        await mesh.clock.passes(33)
        assert keeper.usable()
        assert mesh.keys_used() == 2


async def test_names_that_are_wanted_now_count(mesh: Mesh):
    async with mesh.running() as keeper:
        await mesh.clock.passes(60)
        mesh.wanted = Workload(sans=names.Sans(uri=("spiffe://mesh.example/ns/default/sa/api",)))
        assert not keeper.usable()
        await mesh.clock.passes(61)
        assert keeper.usable()
        mesh.wanted = None
        assert keeper.due() is None


async def test_anothers_stored_pair_is_left_alone(mesh: Mesh):
    mesh.store.save(mesh.pair(Workload(subject=names.Subject(common_name="db"))))
    with capture_logs() as logs:
        assert mesh.keeper().load() is None
    assert [line["event"] for line in logs] == ["the stored certificate is another's"]


@pytest.mark.parametrize("full", [False, True])
async def test_a_pair_from_elsewhere_is_used_stored_and_renewed_at_once(mesh: Mesh, full: bool):
    keeper, pair = mesh.keeper(), mesh.pair()
    mesh.store.full = full
    keeper.take_over(pair, "the certificate is the installer's")
    assert (keeper.current(), keeper.due()) == (pair, "the certificate is the installer's")
    assert mesh.store.pair == (None if full else pair)
    assert (keeper.last_error and keeper.last_error.reason) == ("NoSpace" if full else None)


async def test_a_pair_that_cannot_be_stored_is_not_used(mesh: Mesh):
    """After a crash its request would be one without a key."""
    mesh.store.full = True
    async with mesh.running() as keeper:
        assert keeper.current() is None
        assert keeper.last_error is not None
        assert keeper.last_error.reason == "NoSpace"
        mesh.store.full = False
        await mesh.clock.passes(3)
        assert keeper.usable()
        assert mesh.keys_used() == 1


class TestHold:
    async def test_it_returns_a_pair_that_can_be_used(self, mesh: Mesh):
        keeper = mesh.keeper()
        assert await keeper.ensure(60) is keeper.current()
        assert await keeper.ensure(60) is keeper.current()
        assert len(mesh.calls) == 1

    async def test_it_ends_when_the_time_is_over(self, mesh: Mesh):
        mesh.script = [DOWN] * 100
        ensuring = asyncio.create_task(mesh.keeper().ensure(60))
        await settle(20)
        await mesh.clock.passes(61)
        with pytest.raises(errors.Unavailable, match="within 60 seconds; the last error: the identity service is down"):
            await ensuring

    async def test_a_denial_ends_it_for_who_is_not_patient(self, mesh: Mesh):
        mesh.script = [issuance.Denied("not this workload")]
        with pytest.raises(issuance.Denied, match="not this workload"):
            await mesh.keeper().ensure(60, patient=False)

    async def test_who_does_not_want_to_wait_gets_the_error_itself(self, mesh: Mesh):
        mesh.script = [error := errors.Refused("never mind")]
        keeper = keeping.Keeper(
            "mesh",
            mesh.store,
            mesh.certify,
            lambda: mesh.wanted,
            clock=mesh.clock,
            judge=lambda _: issuance.Outlook(ends=True),
        )
        with pytest.raises(errors.Refused) as raised:
            await keeper.ensure(60)
        assert raised.value is error
        assert (keeper.renew_errors, mesh.store.has_pending_key()) == (0, True)
