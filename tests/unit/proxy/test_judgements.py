# SPDX-License-Identifier: Apache-2.0
"""Who may call, by what is known; and when a version is acknowledged. What Envoy does by it is in tests/scenarios/test_proxy_policy.py."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from handfast.pki import bundles
from handfast.proxy import judgements, trust
from handfast.rules.envoy import judging, ports, resources, tls
from handfast.rules.mesh import announced, issuer, policy
from handfast.runtime import tasks
from handfast.wire import ads
from tests.unit.wire import greeting
from tests.world.clock import START, MovableClock

WEB = ports.Port(number=80, application=8080)
MAIL = ports.Port(number=25, application=2525, opaque=True)
EVERY = ports.Port(number=0, application=1)
PERMITTED = judging.PortJudgement(port=80, permits=judging.Permits(identified=True), open_paths=("/healthz",))
ANCHORS = greeting.Anchor().ca.pem


class Recorded(ads.Ads):
    """What is put, in its order; `taken` is what Envoy would have taken."""

    def __init__(self) -> None:
        super().__init__(MovableClock())
        self.names: list[str] = []
        self.settling: list[set[str]] = []
        self.taken = asyncio.Event()

    def place(self, kind: resources.Kind, name: str, octets: bytes) -> None:
        super().place(kind, name, octets)
        self.names.append(f"{kind.name} {name}")

    async def settled(self, keys: Any) -> None:
        self.settling.append({f"{kind.name} {name}" for kind, name in keys})
        await self.taken.wait()


class Control:
    """Announcements without a channel."""

    def __init__(self) -> None:
        self.latest: announced.Announced | None = None
        self.why_not: str | None = "nothing was said of who is denied"
        self.acknowledged = 0
        self._news = asyncio.Event()

    def tell(self, version: int, *, anchors: bytes = ANCHORS, **more: Any) -> None:
        self.latest, self.why_not = announced.Announced(version=version, anchors_pem=anchors, **more), None
        self._news.set()

    async def follow(self) -> AsyncIterator[announced.Announced]:
        while True:
            self._news.clear()
            if self.latest is not None:
                yield self.latest
            await self._news.wait()

    async def run(self) -> None:
        await asyncio.Event().wait()

    def acknowledge(self, version: int) -> None:
        self.acknowledged = version


class Answers:
    """The policy service without a channel."""

    def __init__(self) -> None:
        self.rows: dict[int, judging.PortJudgement] = {}
        self.why_not: str | None = "nothing was said of port 80"
        self._notify: Callable[[], None] = lambda: None

    def subscribe(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def answer(self, row: judging.PortJudgement) -> None:
        self.rows[row.port], self.why_not = row, None
        self._notify()

    async def run(self) -> None:
        await asyncio.Event().wait()


class World:
    def __init__(self, *served: ports.Port, default: str = "deny", alone: bool = False) -> None:
        self.sent, self.told, self.answers = Recorded(), Control(), Answers()
        self.trust = trust.Trust(bundles.TrustBundle.from_pem(ANCHORS), None)
        told: Any = self.told
        answers: Any = self.answers
        self.part = judgements.Judgements(
            self.sent,
            served or [WEB],
            default=default,
            identity_headers=True,
            announcing=None if alone else told,
            answers=None if alone else answers,
            trust=None if alone else self.trust,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        self.part.begin()
        async with tasks.Group("test") as group:
            group.start(self.part.run(), name="run")
            await asyncio.sleep(0)
            yield self


async def until(reached: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0.005)


def compiled(**rules: Any) -> policy.Compiled:
    return policy.Compiled(ports=(policy.PortRules(port=0, enforced=policy.Rules(**rules)),), needs_outbound=True)


@pytest.mark.parametrize(
    ("default", "tcp"), [("deny", False), ("all-authenticated", False), ("all-unauthenticated", True)]
)
async def test_from_the_first_moment_the_default_counts_and_alone_for_ever(default, tcp):
    world = World(default=default, alone=True)
    async with world.running():
        assert world.sent.names == ["ROUTES inbound-80", "ROUTES inbound-plaintext-80"]
        assert world.part.tcp(80) is tcp
        assert world.part.rows(WEB)[0].reason == judging.NOT_KNOWN
        assert not world.part.needs_outbound


async def test_the_policy_service_counts_before_the_control_plane_and_its_probes_after_too():
    async with World().running() as world:
        # Before it is known who is denied, nobody is let in by a name.
        world.answers.answer(PERMITTED)
        unknown = dataclasses.replace(PERMITTED, permits=judging.Permits(), reason=judging.NOT_KNOWN)
        await until(lambda: world.part.rows(WEB) == (unknown,))
        world.told.tell(1, compiled=compiled(restricted=True))
        closed = judging.PortJudgement(port=80, permits=judging.Permits(), open_paths=("/healthz",))
        await until(lambda: world.part.rows(WEB) == (closed,))
        assert world.part.needs_outbound
        # Where nothing is said of policy, the policy service is asked as before.
        world.told.tell(2, denied_names=frozenset({"a.b"}))
        await until(lambda: world.part.rows(WEB) == (PERMITTED,))


@pytest.mark.parametrize("alone", [True, False])
async def test_the_application_is_told_who_calls_once_it_is_known_who_is_denied(alone):
    def is_told() -> bool:
        return b"DOWNSTREAM_PEER_DNS_SAN" in world.sent._resources[resources.Kind.ROUTES, WEB.routes].octets

    async with World(default="all-unauthenticated", alone=alone).running() as world:
        # Everybody may call, and a denied one might be let in by the application, by name.
        assert is_told() is alone
        if not alone:
            everybody = dataclasses.replace(PERMITTED, permits=judging.EVERYBODY)
            world.answers.answer(everybody)
            await until(lambda: world.part.rows(WEB) == (everybody,))
            assert not is_told()
            world.told.tell(1)
            await until(is_told)


async def test_it_is_ready_when_everybody_has_spoken_and_envoy_was_told():
    async with World(alone=True).running() as world:
        assert world.part.why_not() is None
    listening: list[str | None] = []
    world = World()
    world.part.subscribe(lambda: listening.append(world.part.why_not()))
    async with world.running():
        assert world.part.why_not() == "nothing was said of who is denied"
        world.answers.answer(dataclasses.replace(PERMITTED, permits=judging.EVERYBODY))
        await until(lambda: listening)
        # Everybody may call, and would come without a name.
        assert world.part.why_not() == "nothing was said of who is denied"
        world.told.tell(1)
        # Known here, and not to Envoy.
        assert world.part.why_not() == "who may call is not with Envoy"
        await until(lambda: world.part.why_not() is None)
        assert listening[-1] == "who may call is not with Envoy", "listeners are put before"
    async with World().running() as world:
        world.told.tell(1)
        await until(lambda: world.sent.settling)
        assert world.part.why_not() == "nothing was said of port 80"


async def test_a_version_is_acknowledged_when_envoy_has_taken_all_of_it():
    async with World().running() as world:
        world.told.tell(7, compiled=compiled())
        await until(lambda: world.sent.settling)
        assert world.sent.settling[-1] == {
            "ROUTES inbound-80",
            "ROUTES inbound-plaintext-80",
            "SECRET anchors",
            # Whether bytes without a name are passed on, and whom the workload may call.
            "LISTENER inbound-80",
            "LISTENER outbound",
            "ROUTES outbound",
        }
        assert world.told.acknowledged == 0
        # The next one takes its place.
        world.told.tell(8, compiled=compiled())
        await until(lambda: len(world.sent.settling) == 2)
        world.sent.taken.set()
        await until(lambda: world.told.acknowledged == 8)


async def test_other_anchors_are_believed_and_sent_and_bad_ones_are_not_acknowledged():
    async with World().running() as world:
        world.sent.taken.set()
        other = issuer.generate(START).anchors
        world.told.tell(1, anchors=ANCHORS + other)
        await until(lambda: world.told.acknowledged == 1)
        assert len(world.trust.current.ders) == 2
        assert world.sent.names.count(f"SECRET {tls.ANCHORS}") == 1
        world.told.tell(2, anchors=b"nonsense", denied_names=frozenset({"a.b"}))
        await until(lambda: world.sent.names.count("ROUTES inbound-80") == 2)
        await asyncio.sleep(0.05)
        # What else it says is followed.
        assert world.told.acknowledged == 1


async def test_routes_are_sent_where_they_change_and_who_listens_is_told():
    calls: list[bool] = []
    world = World()
    world.part.subscribe(lambda: calls.append(world.part.tcp(80)))
    async with world.running():
        world.told.tell(1, compiled=compiled())
        await until(lambda: calls == [True])
        before = list(world.sent.names)
        world.told.tell(2, compiled=compiled())
        await until(lambda: calls == [True, True])
        assert world.sent.names == before
        world.told.tell(3, compiled=compiled(needs_identity=True))
        await until(lambda: calls == [True, True, False])
        assert world.sent.names[len(before) :] == ["ROUTES inbound-80", "ROUTES inbound-plaintext-80"]


async def test_when_the_own_certificate_ends_the_routes_of_tls_say_so_until_the_next():
    async with World().running() as world:
        world.part.show(certified=False, longest=60)
        world.part.show(certified=True, longest=60)
        await asyncio.sleep(0.02)
        assert len(world.sent.names) == 2
        world.part.show(certified=False, longest=60)
        await until(lambda: len(world.sent.names) == 4)
        world.part.show(certified=False, longest=60)
        world.part.show(certified=True, longest=60)
        await until(lambda: len(world.sent.names) == 6)


async def test_what_has_to_be_acknowledged_is_what_the_state_needs():
    world = World(WEB, MAIL)
    assert _keys(world) == {"inbound-plaintext-80"}
    world.part.show(certified=True, longest=60)
    assert _keys(world) == {"inbound-plaintext-80", "inbound-80"}


def _keys(world: World) -> set[str]:
    return {name for _, name in world.part.keys()}  # noqa: SIM118  not a mapping


async def test_one_table_for_all_ports_has_a_row_for_each_that_is_known():
    async with World(EVERY).running() as world:
        assert [row.port for row in world.part.rows(EVERY)] == [0]
        world.answers.answer(PERMITTED)
        await until(lambda: [row.port for row in world.part.rows(EVERY)] == [0, 80])
        assert world.part.rows(EVERY)[0].reason == judging.NOT_KNOWN
        rules = policy.PortRules(port=90, enforced=policy.Rules(restricted=True))
        world.told.tell(1, compiled=policy.Compiled(ports=(*compiled().ports, rules)))
        await until(lambda: [row.port for row in world.part.rows(EVERY)] == [0, 80, 90])
        assert [row.tcp for row in world.part.rows(EVERY)] == [True, True, False]
