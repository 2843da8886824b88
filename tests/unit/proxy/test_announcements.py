# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the channel to agents, on real sockets: what it says, what it believes, and what it goes on with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast.mesh.agents import encoding
from handfast.pki import pairs
from handfast.proxy import announcements, credentials
from handfast.rules.mesh import policy, reports
from handfast.runtime import tasks
from handfast.wire import agent_messages, server
from tests.unit.proxy import controller
from tests.unit.proxy.controller import until
from tests.unit.wire import greeting

NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
CLOSED = encoding.encode_policy(policy.CLOSED)


class Own:
    """Credentials whose pair is what the test says."""

    def __init__(self, pair: pairs.Pair | None) -> None:
        self.pair = pair
        self._changed = asyncio.Event()
        self.preferred = ""

    def prefer(self, signer: str) -> None:
        self.preferred = signer

    def renew(self, pair: pairs.Pair | None) -> None:
        self.pair = pair
        self._changed.set()

    async def follow(self) -> AsyncIterator[credentials.Standing]:
        while True:
            self._changed.clear()
            state = credentials.State.CERTIFIED if self.pair else credentials.State.EXPIRED
            yield credentials.Standing(state, self.pair)
            await self._changed.wait()


class Control:
    """The control plane: it sends what the test says, and keeps what is reported, by who reported it."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, Any]] = []
        self.updates: list[bytes] = []
        self.streams = 0
        self.refuses = False
        self._news = asyncio.Event()

    def send(self, update: bytes) -> None:
        self.updates.append(update)
        self._news.set()

    async def watch(self, messages: AsyncIterator[Any], peer: Any) -> AsyncIterator[Any]:
        self.streams += 1
        if self.refuses:
            raise server.Refusal("UNAVAILABLE", "not everything is known here")

        async def take() -> None:
            async for message in messages:
                self.reports.append((peer.identity(greeting.CLOCK.now()), message))

        sent = 0
        async with tasks.Group("reports") as group:
            group.start(take(), name="take")
            while True:
                self._news.clear()
                for update in self.updates[sent:]:
                    sent += 1
                    yield agent_messages.Parts([update])
                await self._news.wait()


def serving(
    control: Control, anchor: greeting.Anchor, name: str = controller.SERVER
) -> contextlib.AbstractAsyncContextManager[str]:
    method = server.Duplex("Watch", agent_messages.Report, agent_messages.Parts, control.watch)
    return controller.serving(agent_messages.SERVICE, method, anchor, name)


def update(anchor: greeting.Anchor, version: int = 1, own: bytes = CLOSED, **deny: Any) -> bytes:
    message = agent_messages.Update(version=version, anchors=anchor.ca.pem.decode(), deny=deny)
    return bytes(message.SerializeToString()) + own


def following(
    address: str, anchor: greeting.Anchor, own: Own
) -> contextlib.AbstractAsyncContextManager[announcements.Announcements]:
    credentials_of: Any = own
    client, believed = controller.client(address), controller.believing(anchor)
    pod = ("shop", "web-1")
    return controller.running(announcements.Announcements(client, credentials_of, believed, pod, greeting.CLOCK))


@pytest.fixture
def anchor() -> greeting.Anchor:
    return greeting.Anchor()


async def test_it_says_who_it_is_and_follows_what_it_is_told(anchor):
    control, pair = Control(), anchor.pair(NAME)
    own = Own(pair)
    async with serving(control, anchor) as address, following(address, anchor, own) as made:
        edge = reports.Edge("inbound", NAME, 80, True, 7)
        made.edges = lambda: (edge,)
        assert "has not said who is denied" in str(made.why_not)
        control.send(update(anchor, names=[NAME], certificates=[b"\x0a" * 32]))
        await until(lambda: made.latest and control.reports)
        assert made.why_not is None
        assert made.latest is not None
        assert (made.latest.version, set(made.latest.denied_names)) == (1, {NAME})
        assert made.latest.denied_digests == {"0a" * 32}
        assert made.latest.compiled == policy.CLOSED
        assert own.preferred == ""
        control.send(update(anchor, 2) + agent_messages.Update(signer="00ff").SerializeToString())
        await until(lambda: own.preferred == "00ff")
        assert made.connected
        who, first = control.reports[0]
        report = encoding.read_report(first)
        assert (who, report.acknowledged, report.pod) == (NAME, 0, ("shop", "web-1"))
        assert report.certificate == pair.leaf.fingerprint
        assert first.certificate.serial == pair.leaf.serial
        assert first.certificate.not_after.seconds == int(pair.leaf.not_after.timestamp())
        assert report.edges in {(), (edge,)}


async def test_a_version_is_acknowledged_when_it_is_said_so(anchor):
    control = Control()
    async with serving(control, anchor) as address, following(address, anchor, Own(anchor.pair(NAME))) as made:
        control.send(update(anchor, 5))
        versions = [each.version async for each in _first(made, 1)]
        assert versions == [5]
        assert {report.acknowledged for _, report in control.reports} <= {0}
        made.acknowledge(5)
        made.acknowledge(4)
        await until(lambda: control.reports[-1][1].acknowledged == 5)
        assert made.acknowledged == 5


async def _first(announcing: announcements.Announcements, count: int) -> AsyncIterator[Any]:
    follow = announcing.follow()
    for _ in range(count):
        yield await anext(follow)
    await follow.aclose()  # type: ignore[attr-defined]


async def test_nonsense_is_refused_by_name_and_changes_nothing(anchor):
    control = Control()
    async with serving(control, anchor) as address, following(address, anchor, Own(anchor.pair(NAME))) as made:
        control.send(update(anchor, 5, names=[NAME]))
        await until(lambda: made.latest)
        before = made.latest
        nobody = bytes(agent_messages.Update(version=7).SerializeToString())
        open_rules = policy.Compiled(ports=(policy.PortRules(port=80, enforced=policy.Rules()),))
        for row in (
            update(anchor, 5),
            update(anchor, 6, names=["*"]),
            update(anchor, 6, certificates=[b"x"]),
            update(anchor, 6, encoding.encode_policy(open_rules)),
            nobody,
        ):
            control.send(row)
        await until(lambda: made.refusals.total() == 5)
        assert made.latest is before
        assert dict(made.refusals) == {"OldVersion": 1, "BadDenyList": 2, "BadPolicy": 1, "NoTrustAnchors": 1}
        assert control.streams == 1


async def test_a_server_of_another_name_or_authority_is_not_listened_to(anchor):
    for ca, name in ((anchor, NAME), (greeting.Anchor(), controller.SERVER)):
        control = Control()
        control.send(update(anchor))
        async with serving(control, ca, name) as address, following(address, anchor, Own(anchor.pair(NAME))) as made:
            await until(lambda: made.last_error)
            assert made.last_error is not None
            assert "not believed" in made.last_error or "cannot be reached" in made.last_error
            assert made.latest is None
            assert not control.reports


async def test_what_came_last_holds_while_nobody_answers(anchor):
    control = Control()
    control.send(update(anchor, 3))
    async with contextlib.AsyncExitStack() as stack:
        server_stack = await stack.enter_async_context(contextlib.AsyncExitStack())
        address = await server_stack.enter_async_context(serving(control, anchor))
        made = await stack.enter_async_context(following(address, anchor, Own(anchor.pair(NAME))))
        await until(lambda: made.latest)
        before = made.latest
        await server_stack.aclose()
        await until(lambda: made.last_error)
        assert not made.connected
        assert made.latest is before


async def test_it_connects_again_with_each_certificate_and_never_with_one_that_is_over(anchor):
    control = Control()
    control.send(update(anchor))
    own = Own(anchor.pair(NAME))
    async with serving(control, anchor) as address, following(address, anchor, own) as made:
        await until(lambda: control.reports)
        second = anchor.pair(NAME)
        own.renew(second)
        await until(lambda: control.reports[-1][1].certificate.serial == second.leaf.serial)
        assert control.streams == 2
        own.renew(None)
        await until(lambda: not made.connected)
        await asyncio.sleep(0.3)
        assert control.streams == 2


async def test_another_replica_counts_from_the_version_that_was_acknowledged(anchor):
    control = Control()
    own = Own(anchor.pair(NAME))
    async with serving(control, anchor) as address, following(address, anchor, own) as made:
        control.send(update(anchor, 5))
        await until(lambda: made.latest)
        made.acknowledge(5)
        control.send(update(anchor, 9))
        await until(lambda: made.latest and made.latest.version == 9)
        # Its clock is behind, and what it says is newer all the same.
        control.updates[:] = [update(anchor, 6, names=[NAME])]
        own.renew(anchor.pair(NAME))
        await until(lambda: made.latest and made.latest.version == 6)
        assert not made.refusals


async def test_a_refusal_is_tried_again(anchor):
    control = Control()
    control.refuses = True
    async with serving(control, anchor) as address, following(address, anchor, Own(anchor.pair(NAME))) as made:
        await until(lambda: control.streams >= 2)
        assert made.last_error == "not everything is known here"
        control.refuses = False
        control.send(update(anchor))
        await until(lambda: made.latest)
        assert made.last_error is None


async def test_without_a_policy_nothing_is_said_of_it(anchor):
    message = agent_messages.Update.FromString(update(anchor, own=b""))
    assert announcements.read(message, 0).compiled is None
