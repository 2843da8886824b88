# SPDX-License-Identifier: Apache-2.0
"""What a proxy answers about itself, with an agent and an Envoy that say what the test says."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from handfast import errors
from handfast.client import keeping
from handfast.proxy import admin
from handfast.proxy.credentials import Standing, State
from handfast.rules.envoy import resources
from handfast.wire import ads
from tests.unit.wire import greeting
from tests.world.clock import START, MovableClock

NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"


class Child:
    """An Envoy that answers, or does not."""

    answers = True
    ends = 4

    def __init__(self, clock: MovableClock) -> None:
        self.clock = clock
        self.asked = 0
        self.seconds = 0.0

    async def ask(self, path: str) -> tuple[int, bytes]:
        self.asked += 1
        self.clock.hold(self.seconds)
        await asyncio.sleep(0)
        if not self.answers:
            raise errors.Unavailable("Envoy does not answer")
        return 200, f'envoy_{path}\nenvoy_tcp_downstream_cx_no_route{{envoy_tcp_prefix="in_refused_tcp"}} 7\n'.encode()


class World:
    def __init__(self, own: Any = None) -> None:
        self.agent = SimpleNamespace(why_not_ready=lambda: None, why_not_live=lambda: None)
        self.clock = MovableClock()
        self.child = Child(self.clock)
        agent: Any = self.agent
        child: Any = self.child
        self.ads = ads.Ads(MovableClock())
        self._admin = admin.Admin(NAME if own else "", own, agent, self.ads, child, self.clock)

    async def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        http: Any = SimpleNamespace(path=path, method=method)
        answer = await self._admin._answer(http)
        return answer.status, answer.body.decode()


def own(standing: Standing, failure: keeping.Failure | None = None) -> Any:
    return SimpleNamespace(standing=lambda: standing, last_error=failure, next_renewal=START, renewals=2, failures=3)


@pytest.mark.parametrize("word", ["ready", "live"])
async def test_it_says_why_not(word):
    world = World()
    assert await world.get(f"/{word}") == (200, f"{word}\n")
    setattr(world.agent, f"why_not_{word}", lambda: "a cause")
    assert await world.get(f"/{word}") == (503, f"not {word}: a cause\n")


async def test_the_identity_is_told_and_no_key():
    pair = greeting.Anchor().pair(NAME)
    instant = f"{START:%Y-%m-%dT%H:%M:%SZ}"
    _, text = await World(own(Standing(State.CERTIFIED, pair, START))).get("/identity")
    assert json.loads(text) == {
        "name": NAME,
        "state": "Certified",
        "serial": pair.leaf.serial,
        "until": instant,
        "nextRenewal": instant,
        "lastError": None,
    }
    assert "PRIVATE" not in text
    failure = keeping.Failure(START, "CallFailed", "nobody answers")
    _, text = await World(own(Standing(State.EXPIRED, until=START), failure)).get("/identity")
    seen = json.loads(text)
    assert (seen["state"], seen["serial"]) == ("Expired", None)
    assert seen["lastError"] == {"at": instant, "reason": "CallFailed", "message": "nobody answers"}
    assert json.loads((await World().get("/identity"))[1]) == {"name": None, "state": "Plain"}


async def test_metrics_are_told_with_envoy_or_without():
    world = World(own(Standing(State.NOT_CERTIFIED)))
    world.ads.rejections[resources.Kind.LISTENER] += 2
    _, text = await world.get("/metrics")
    assert "control_identity_cert_expiration_timestamp_seconds 0.0" in text
    assert 'control_identity_cert_refreshes_total{result="ok"} 2.0' in text
    assert 'control_identity_cert_refreshes_total{result="error"} 3.0' in text
    assert "envoy_/stats/prometheus" in text
    assert 'handfast_proxy_envoy_rejected_total{kind="listener"} 2.0' in text
    assert "handfast_proxy_envoy_ends_total 4.0" in text
    assert 'handfast_proxy_refused_total{reason="tcp-without-identity"} 7.0' in text
    world.child.answers = False
    _, text = await world.get("/metrics")
    assert "envoy_/stats" not in text
    assert "control_identity_cert_expiration_timestamp_seconds 0.0" in text
    assert "tcp-without-identity" not in text
    assert "control_identity" not in (await World().get("/metrics"))[1]


async def test_however_many_ask_for_metrics_they_cost_a_tenth_of_the_time():
    world = World()
    world.child.seconds = 0.2
    told = await asyncio.gather(*(world.get("/metrics") for _ in range(50)))
    assert (len({*told}), world.child.asked) == (1, 1)
    world.clock.hold(1.9)
    await world.get("/metrics")
    assert world.child.asked == 1
    world.clock.hold(0.2)
    await world.get("/metrics")
    assert world.child.asked == 2


async def test_nothing_else_is_answered():
    assert (await World().get("/quit"))[0] == 404
    assert (await World().get("/ready", "POST"))[0] == 405
