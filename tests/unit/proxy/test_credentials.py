# SPDX-License-Identifier: Apache-2.0
"""The certificate of a workload, from an identity service on real sockets, on a clock that tests move."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from handfast import errors
from handfast.pki import certificates, keys, names, pairs, requests
from handfast.proxy import credentials, start_up, store_directory
from handfast.proxy import trust as trust_module
from handfast.proxy.credentials import State
from handfast.rules.mesh import anchor_rotation, issuer, proxy_environment
from handfast.runtime import addresses, tasks
from handfast.wire import certifying
from tests.unit.wire import identity_service
from tests.world.clock import START

OWN = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
HOUR = 3600.0


class World(identity_service.IdentityService):
    """The identity service, and a workload whose start-up is done."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__()
        self.token = directory / "token"
        self.token.write_text("first\n")
        store = directory / "store"
        store.mkdir()
        environment = proxy_environment.ProxyEnvironment(
            name=OWN, anchors=self.anchors, token_file=str(self.token), store=str(store)
        )
        variables = store_directory.write(environment).variables()
        self.files = proxy_environment.ProxyFiles(
            name=OWN,
            key_file=variables[proxy_environment.KEY_FILE],
            csr_file=variables[proxy_environment.CSR_FILE],
            anchors_file=variables[proxy_environment.ANCHORS_FILE],
            token_file=str(self.token),
        )
        self.seen: list[State] = []

    @contextlib.asynccontextmanager
    async def running(
        self, address: addresses.Address, name: str | None = None, **more: Any
    ) -> AsyncIterator[credentials.Credentials]:
        """The credentials, kept; `seen` has the state at each change."""
        service = certifying.Service(str(address), name)
        material = start_up.load(self.files)
        self.trust = trust_module.of_start(material.anchors, self.files.anchors_file)
        own = credentials.Credentials(material, service, self.trust, clock=self.clock, **more)
        async with tasks.Group("own") as group:
            group.start(own.run(), name="own")
            group.start(self._follow(own), name="follow")
            yield own

    async def _follow(self, own: credentials.Credentials) -> None:
        async for standing in own.follow():
            self.seen.append(standing.state)
            assert (standing.pair is not None) == (standing.state is State.CERTIFIED)

    async def until(self, reached: Callable[[], bool], each: float = 0) -> None:
        """Wait, and let so many seconds pass at each look."""
        async with asyncio.timeout(20):
            while not reached():
                await self.clock.advance(each)
                await asyncio.sleep(0.01)

    async def certified(self, own: credentials.Credentials, renewals: int = 1, each: float = 0) -> pairs.Pair:
        await self.until(lambda: own.renewals == renewals, each)
        pair = own.standing().pair
        assert pair is not None
        return pair


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)


async def test_it_is_certified_at_once_with_the_key_and_the_request_of_the_start_up(world):
    async with world.serving() as address, world.running(address) as own:
        assert own.standing() == credentials.Standing(State.NOT_CERTIFIED)
        pair = await world.certified(own)
        assert pair.leaf.sans.dns == (OWN,)
        assert own.standing().until == pair.leaf.not_after
        assert own.last_error is None
        assert own.next_renewal is not None
        assert pair.leaf.not_before < own.next_renewal < pair.leaf.not_after
        assert pair.key.to_der() == pathlib.Path(world.files.key_file).read_bytes()
    assert world.csrs == [pathlib.Path(world.files.csr_file).read_bytes()]
    assert world.tokens == [b"first"]
    assert world.seen == [State.NOT_CERTIFIED, State.CERTIFIED]


async def test_it_is_renewed_with_the_token_of_the_moment_and_the_same_request(world):
    async with world.serving(identity_service.NAME) as address, world.running(address, identity_service.NAME) as own:
        first = await world.certified(own)
        world.token.write_text("second")
        pathlib.Path(world.files.csr_file).unlink()
        await world.clock.advance(12 * HOUR)
        assert own.standing().pair is first
        await world.clock.advance(10 * HOUR)
        second = await world.certified(own, 2)
    assert second.leaf.serial != first.leaf.serial
    assert second.key is first.key
    assert world.tokens == [b"first", b"second"]
    assert world.csrs[0] == world.csrs[1]
    # The first time it has nothing to show, then it shows what it holds.
    assert world.peers == ["", OWN]
    assert world.seen == [State.NOT_CERTIFIED, State.CERTIFIED, State.CERTIFIED]


async def test_two_workloads_of_one_account_renew_at_instants_of_their_own(tmp_path):
    instants = set()
    for word in ("one", "two"):
        (tmp_path / word).mkdir()
        world = World(tmp_path / word)
        async with world.serving() as address, world.running(address) as own:
            await world.certified(own)
            instants.add(own.next_renewal)
    assert len(instants) == 2


async def test_at_its_end_it_is_shown_no_more_and_it_recovers_by_itself(world):
    async with world.serving(identity_service.NAME) as address, world.running(address, identity_service.NAME) as own:
        first = await world.certified(own)
        world.is_down = True
        await world.until(lambda: own.standing().state is State.EXPIRED, each=HOUR)
        await world.until(lambda: world.seen[-1] is State.EXPIRED)
        assert own.standing() == credentials.Standing(State.EXPIRED, until=first.leaf.not_after)
        # The attempts are calls to a real server, which the clock of the test does not wait for.
        await world.until(lambda: own.failures > 1)
        assert own.last_error is not None
        expired = len(world.peers)
        await world.until(lambda: len(world.peers) > expired + 1, each=10)
        world.is_down = False
        second = await world.certified(own, 2, each=10)
        assert second.leaf.serial != first.leaf.serial
        await world.until(lambda: world.seen[-1] is State.CERTIFIED)
        assert own.last_error is None
    # One that is over is not shown to the identity service, either: it comes as nobody.
    assert set(world.peers[expired + 1 :]) == {""}
    assert world.seen == [State.NOT_CERTIFIED, State.CERTIFIED, State.EXPIRED, State.CERTIFIED]


async def test_it_is_over_when_the_answer_says_so_and_asked_for_anew(world):
    world.says = int(START.timestamp()) + 600
    async with world.serving() as address, world.running(address) as own:
        await world.certified(own)
        await world.clock.advance(599)
        assert own.standing().state is State.CERTIFIED
        world.says = None
        await world.clock.advance(1)
        assert own.standing().state is State.EXPIRED
        await world.certified(own, 2, each=1)
    assert world.seen[-2:] == [State.EXPIRED, State.CERTIFIED]


async def test_a_clock_that_is_set_back_does_not_prolong_it(world):
    async with world.serving() as address, world.running(address) as own:
        await world.certified(own)
        world.is_down = True
        world.clock.set_wall(-12 * HOUR)
        await world.clock.advance(23.9 * HOUR)
        assert own.standing().state is State.CERTIFIED
        await world.clock.advance(0.1 * HOUR)
        assert own.standing().state is State.EXPIRED


async def test_a_clock_that_jumps_ahead_is_noticed(world):
    async with world.serving() as address, world.running(address) as own:
        await world.certified(own)
        world.is_down = True
        world.clock.set_wall(25 * HOUR)
        await world.clock.advance(5)
        await world.until(lambda: world.seen[-1] is State.EXPIRED)


@pytest.mark.parametrize("shown", [OWN, "*.cluster.local"])
async def test_a_false_identity_service_is_told_no_token(world, shown):
    async with world.serving(shown) as address, world.running(address, identity_service.NAME) as own:
        await world.until(lambda: own.failures > 2, each=10)
        assert own.last_error is not None
        assert "not believed" in own.last_error.message
    assert world.tokens == []
    assert world.seen == [State.NOT_CERTIFIED]


async def test_a_certificate_for_another_key_is_not_used(world):
    world.key = keys.generate().public
    async with world.serving() as address, world.running(address) as own:
        await world.until(lambda: own.failures > 0)
        assert own.last_error is not None
        assert own.last_error.reason == "KeyMismatch"
        assert own.standing().state is State.NOT_CERTIFIED
        # What was wrong may pass, and the key of the start-up is asked for again.
        world.key = None
        await world.certified(own, each=1)


async def test_a_bad_answer_leaves_what_is_held(world):
    async with world.serving() as address, world.running(address) as own:
        first = await world.certified(own)
        world.signing = issuer.generate(START)
        await world.clock.advance(22 * HOUR)
        await world.until(lambda: own.failures > 0)
        assert own.standing().pair is first
        assert own.last_error is not None
        assert own.last_error.reason == "UnknownAuthority"


async def test_it_tries_for_ever_while_there_is_no_token(world):
    world.token.unlink()
    async with world.serving() as address, world.running(address) as own:
        for reason, text in (("FileNotFound", None), ("EmptyToken", " \n")):
            if text is not None:
                world.token.write_text(text)
            failures = own.failures
            await world.until(lambda before=failures: own.failures > before + 1, each=10)
            assert own.last_error is not None
            assert own.last_error.reason == reason
        assert world.tokens == []
        world.token.write_text("late")
        await world.certified(own, each=10)
    assert world.tokens == [b"late"]


async def test_it_tries_for_ever_where_no_socket_can_be_made(world, monkeypatch):
    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    door = identity_service.NAME
    async with world.serving(door) as address:
        monkeypatch.setattr("handfast.wire.channel.tempfile.mkdtemp", full)
        async with world.running(address, door) as own:
            await world.until(lambda: own.failures > 1, each=10)
            assert own.last_error is not None
            assert "no space left" in own.last_error.message
            monkeypatch.undo()
            await world.certified(own, each=10)


async def test_whoever_follows_late_is_told_what_there_is(world):
    async with world.serving() as address, world.running(address) as own:
        await world.certified(own)
        following = own.follow()
        assert (await anext(following)).state is State.CERTIFIED
        await following.aclose()


async def test_a_second_certificate_has_a_new_key_each_time(world):
    async with world.serving() as address, world.running(address, anew=True) as own:
        first = await world.certified(own)
        assert first.key.to_der() != pathlib.Path(world.files.key_file).read_bytes()
        await world.clock.advance(22 * HOUR)
        second = await world.certified(own, 2)
    assert second.key.public.fingerprint != first.key.public.fingerprint
    for csr, pair in zip(world.csrs, (first, second), strict=True):
        request = requests.parse_der(csr)
        assert request.sans.texts() == [f"DNS:{OWN}"]
        assert request.public_key.spki == pair.key.public.spki
    assert sorted(path.name for path in pathlib.Path(world.files.key_file).parent.iterdir()) == sorted(
        ["csr.der", "csr.p8", "key.der", "key.p8", "trust-anchors.pem"]
    )


async def test_an_answer_without_what_else_is_wanted_is_not_used(world):
    def require(sans: names.Sans) -> None:
        if not wanted.issubset(sans.uri):
            raise errors.Refused("no URI", reason="NoUri")

    wanted = {"spiffe://a/b"}
    async with world.serving() as address, world.running(address, anew=True, require=require) as own:
        await world.until(lambda: own.failures > 0)
        assert own.last_error is not None
        assert own.last_error.reason == "NoUri"
        wanted.clear()
        await world.certified(own, each=1)


async def test_while_the_root_is_replaced_it_is_renewed_for_who_is_to_sign(world):
    async with world.serving(identity_service.NAME) as address, world.running(address, identity_service.NAME) as own:
        first = await world.certified(own)
        world.signing = issuer.generate(START)
        world.trust.learn(world.anchors.to_pem() + world.signing.anchors)
        signer = anchor_rotation.tag_of(anchor_rotation.signer_of(world.signing))
        own.prefer(signer)
        # Within ten minutes of its day, and not at once.
        second = await world.certified(own, 2, each=5)
        assert (world.clock.now() - START).total_seconds() <= 630
        assert certificates.fingerprint(second.chain[1]).startswith(signer)
        assert not certificates.fingerprint(first.chain[1]).startswith(signer)
        # That is all: nothing is asked for again.
        await world.clock.advance(HOUR)
        assert own.renewals == 2
        own.prefer("")
        await world.clock.advance(60)
        assert own.renewals == 2


async def test_while_another_goes_on_signing_it_is_asked_for_ever_more_rarely(world):
    async with world.serving() as address, world.running(address) as own:
        await world.certified(own)
        own.prefer("00ff")
        await world.until(lambda: own.renewals >= 4, each=2)
        before, asked = own.renewals, world.clock.now()
        await world.until(lambda: own.renewals > before + 1, each=10)
        assert (world.clock.now() - asked).total_seconds() > 20


async def test_one_that_the_anchors_believe_no_more_is_renewed_at_once(world):
    async with world.serving() as address, world.running(address) as own:
        first = await world.certified(own)
        world.signing = issuer.generate(START)
        # As when somebody did not wait for it: the old root is gone.
        world.trust.learn(world.signing.anchors)
        second = await world.certified(own, 2, each=1)
        assert (world.clock.now() - START).total_seconds() < 30
        assert second.chain[1] != first.chain[1]
        await world.clock.advance(60)
        assert own.renewals == 2
