# SPDX-License-Identifier: Apache-2.0
"""What the agent says of itself while no Envoy is there. What Envoy does by it is in tests/scenarios/test_mesh_proxy_run.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from handfast.pki import bundles
from handfast.proxy import agent as agent_module
from handfast.proxy import inbound
from handfast.proxy import trust as trust_module
from handfast.proxy.credentials import Standing, State
from handfast.rules.envoy import ports, resources
from handfast.rules.mesh import issuer
from handfast.runtime import tasks
from handfast.wire import ads
from tests.unit.wire import greeting
from tests.world.clock import START, MovableClock, settle

NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
PORT = ports.Port(number=1, application=2)
LISTENER = (resources.Kind.LISTENER, PORT.listener)


class Own:
    """Credentials whose standing is what the test says."""

    last_error = None

    def __init__(self, *standings: Standing) -> None:
        self.standings = standings

    def standing(self) -> Standing:
        return self.standings[-1]

    async def follow(self) -> AsyncIterator[Standing]:
        for standing in self.standings:
            yield standing


class Staying(Own):
    """Of which the last standing stays."""

    async def follow(self) -> AsyncIterator[Standing]:
        async for standing in super().follow():
            yield standing
        await asyncio.Event().wait()


class Recorded(ads.Ads):
    """What is put, in its order."""

    def __init__(self) -> None:
        super().__init__(MovableClock())
        self.names: list[str] = []

    def put(self, kind: resources.Kind, name: str, document: Any) -> None:
        super().put(kind, name, document)
        self.names.append(f"{kind.name} {name}")


def trusting() -> trust_module.Trust:
    return trust_module.Trust(bundles.TrustBundle.from_pem(greeting.Anchor().ca.pem), None)


def agent(sent: ads.Ads, own: Any, trust: trust_module.Trust | None = None) -> agent_module.Agent:
    part = inbound.Inbound(sent, "127.0.0.1", [PORT], identity=NAME if own else "", tcp=lambda _: True)
    believed = trust or (trusting() if own else None)
    return agent_module.Agent(sent, [part], own, believed, MovableClock())


@contextlib.asynccontextmanager
async def begun(agent: agent_module.Agent) -> AsyncIterator[None]:
    async with tasks.Group("test") as group:
        group.start(agent.run(), name="agent")
        await settle()
        yield


async def test_a_plain_proxy_is_live_and_waits_for_envoy():
    sent = Recorded()
    made = agent(sent, None)
    async with begun(made):
        assert made.why_not_ready() == "Envoy is not connected"
        assert made.why_not_live() is None
    assert not sent.holds([LISTENER])
    assert sent.names[-1] == "LISTENER inbound-1"


async def test_the_secret_is_put_before_who_names_it_and_the_next_one_alone():
    anchor, sent = greeting.Anchor(), Recorded()
    standings = [Standing(State.CERTIFIED, anchor.pair(NAME), START) for _ in range(2)]
    made = agent(sent, Own(Standing(State.NOT_CERTIFIED), *standings, Standing(State.EXPIRED, until=START)))
    async with begun(made):
        assert sent.names[-5:] == [
            "LISTENER inbound-1",
            "SECRET identity",
            "LISTENER inbound-1",
            "SECRET identity",
            "LISTENER inbound-1",
        ]


async def test_a_certificate_that_is_over_is_neither_ready_nor_live():
    made = agent(Recorded(), Own(Standing(State.EXPIRED, until=START)))
    assert made.why_not_ready() == "there is no certificate that may be shown"
    assert made.why_not_live() == f"the certificate is over since {START:%Y-%m-%dT%H:%M:%SZ}"


async def test_a_certificate_that_envoy_was_not_sent_is_not_ready():
    standing = Standing(State.CERTIFIED, greeting.Anchor().pair(NAME), START)
    own = Own(standing)
    assert agent(Recorded(), own).why_not_ready() == "the certificate is not with Envoy"
    made = agent(Recorded(), own)
    async with begun(made):
        assert made.why_not_ready() == "Envoy is not connected"
        assert made.why_not_live() is None


async def test_other_anchors_change_their_secret_alone():
    sent, trust = Recorded(), trusting()
    made = agent(sent, Staying(Standing(State.NOT_CERTIFIED)), trust)
    async with begun(made):
        before = len(sent.names)
        trust.learn(issuer.generate(START).anchors)
        await settle()
        assert sent.names[before:] == ["SECRET anchors"]
