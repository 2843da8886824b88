# SPDX-License-Identifier: Apache-2.0
"""The policy service, asked for ever, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from handfast.mesh.policy import answers
from handfast.proxy import port_answers
from handfast.rules.envoy import judging
from handfast.rules.mesh import policy
from handfast.wire import policy_messages, server
from tests.unit.proxy import controller
from tests.unit.proxy.controller import until
from tests.unit.wire import greeting


class Service:
    """Says what the test says; `known` is whether there is such a Pod."""

    def __init__(self) -> None:
        self.rules = policy.Rules()
        self.known = True
        self.asked: list[tuple[str, int]] = []
        self.news = asyncio.Event()

    async def watch(self, message: Any, _peer: Any) -> AsyncIterator[Any]:
        self.asked.append((message.workload, message.port))
        while True:
            self.news.clear()
            if not self.known:
                raise server.Refusal("NOT_FOUND", "there is no such Pod")
            rows = policy.PortRules(port=message.port, enforced=self.rules)
            yield answers.inbound(rows, is_opaque=False, probes=())
            await self.news.wait()


def serving(
    service: Service, anchor: greeting.Anchor, name: str = controller.SERVER
) -> contextlib.AbstractAsyncContextManager[str]:
    method = server.Stream("WatchPort", policy_messages.PortSpec, policy_messages.Server, service.watch)
    return controller.serving(policy_messages.INBOUND_SERVICE, method, anchor, name)


def asking(address: str, anchor: greeting.Anchor) -> contextlib.AbstractAsyncContextManager[port_answers.PortAnswers]:
    client, believed = controller.client(address), controller.believing(anchor)
    return controller.running(port_answers.PortAnswers(client, believed, "shop:web", [80, 81], greeting.CLOCK))


async def test_each_port_is_asked_for_and_changes_are_told():
    anchor, service = greeting.Anchor(), Service()
    calls: list[int] = []
    async with serving(service, anchor) as address, asking(address, anchor) as made:
        made.subscribe(lambda: calls.append(len(made.rows)))
        assert "who may call port 80" in str(made.why_not)
        await until(lambda: len(made.rows) == 2)
        assert made.why_not is None
        assert set(service.asked) == {("shop:web", 80), ("shop:web", 81)}
        assert made.rows[80] == judging.PortJudgement(port=80)
        service.rules = policy.Rules(restricted=True)
        service.news.set()
        await until(lambda: not made.rows[80].tcp and not made.rows[81].tcp)
        assert calls


async def test_what_was_answered_holds_while_nobody_answers_and_it_is_asked_again():
    anchor, service = greeting.Anchor(), Service()
    service.rules = policy.Rules(restricted=True)
    async with serving(service, anchor) as address, asking(address, anchor) as made:
        await until(lambda: len(made.rows) == 2)
        service.known = False
        service.rules = policy.Rules()
        before = len(service.asked)
        service.news.set()
        await until(lambda: len(service.asked) > before)
        assert not made.rows[80].tcp
        service.known = True
        await until(lambda: made.rows[80].tcp)


async def test_a_server_of_another_name_is_not_asked():
    anchor, service = greeting.Anchor(), Service()
    async with serving(service, anchor, "web.shop.example") as address, asking(address, anchor) as made:
        await asyncio.sleep(0.5)
        assert not service.asked
        assert not made.rows


async def test_where_nobody_listens_it_is_tried_for_ever():
    anchor = greeting.Anchor()
    async with asking("127.0.0.1:1", anchor) as made:
        await until(lambda: "who may call port 80: " in (made.why_not or ""))
        assert not made.rows
