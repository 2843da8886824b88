# SPDX-License-Identifier: Apache-2.0
"""Small budgets on a clock that stands still, over real TLS: who gets 429, who does not, and when it is over.

Proves: strangers and bad credentials share the budget of their source, users have their own, joins have a ceiling that
takes nothing from a node's renewal, and a 429 says when to come back.
"""

from __future__ import annotations

import base64
import contextlib
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from handfast.apiserver import limits
from handfast.pki import keys, names, requests
from tests.scenarios import callers, wire
from tests.scenarios.granting import grant, rule
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT_KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
# One comes back every two seconds.
RATE = 0.5
SMALL = limits.Limits(
    anonymous_per_second=RATE, anonymous_burst=3,
    user_per_second=RATE, user_burst=3,
    node_per_second=RATE, node_burst=3,
    renewal_per_second=RATE, renewal_burst=2,
    service_account_per_second=RATE, service_account_burst=2,
    join_per_second=RATE, join_burst=3,
    joins_per_second=RATE, joins_burst=4,
)  # fmt: skip


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "d", limits=SMALL) as made:
        yield made


@contextlib.asynccontextmanager
async def line(world: worlds.World, context: ssl.SSLContext, source: str = "127.0.0.1") -> AsyncIterator[wire.Line]:
    """A connection from one of this machine's own addresses."""
    async with wire.line(world.server.address[1], context, local_addr=(source, 0)) as opened:
        yield opened


async def codes(opened: wire.Line, count: int, path: str = CONFIG_MAPS, **headers: str) -> list[int]:
    return [(await opened.ask("GET", path, b"", **headers)).status for _ in range(count)]


async def test_the_answer_says_when_to_come_back(world: worlds.World) -> None:
    async with line(world, world.anonymous_context()) as stranger:
        assert await codes(stranger, 3) == [403] * 3
        before = await callers.refusals(world, "TooManyRequests", "ratelimit")
        reply = await stranger.ask("GET", CONFIG_MAPS)
        assert (reply.status, reply.headers["retry-after"]) == (429, "2")
        document = reply.json()
        assert (document["kind"], document["reason"], document["code"]) == ("Status", "TooManyRequests", 429)
        assert document["details"]["retryAfterSeconds"] == 2
        assert document["message"] == (
            "too many requests without a good credential from this address, please try again later"
        )
        assert await callers.refusals(world, "TooManyRequests", "ratelimit") == before + 1
        # Half the time brings half of it; what was refused cost nothing.
        await world.movable().advance(1.0)
        reply = await stranger.ask("GET", CONFIG_MAPS)
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        await world.movable().advance(1.0)
        assert await codes(stranger, 2) == [403, 429]
        # A long rest fills the budget, and no more than that.
        await world.movable().advance(10.0)
        assert await codes(stranger, 4) == [403, 403, 403, 429]


async def test_a_source_is_not_another(world: worlds.World) -> None:
    context = world.anonymous_context()
    async with line(world, context) as one, line(world, context) as same, line(world, context, "127.0.0.2") as other:
        assert await codes(one, 2) + await codes(same, 2) == [403, 403, 403, 429]
        assert await codes(other, 3) == [403] * 3
        # Whoever has logged in is none of this, from the same address.
        async with line(world, world.context_for("jane")) as jane:
            assert (await jane.ask("GET", CONFIG_MAPS)).status == 403
        # Probes go on; a flood of those ends too, without touching the rest.
        assert await codes(one, 4, "/healthz") == [200, 200, 200, 429]


async def test_bad_credentials_have_a_budget(world: worlds.World) -> None:
    bad = callers.bearer("abcdef.0123456789abcdef")
    known = callers.bearer(await callers.account_token(world, "known"))
    async with line(world, world.anonymous_context()) as opened:
        assert await codes(opened, 1, **known) == [403]
        assert await codes(opened, 4, **bad) == [401, 401, 401, 429]
        # Asking without a credential is another budget.
        assert await codes(opened, 1) == [403]
        # A token that was good before, or that this server has just made, passes, whatever others at this address have
        # tried; another one has to wait, or every guess would have to be looked at.
        made = callers.bearer(await callers.account_token(world, "new"))
        assert await codes(opened, 1, **known) + await codes(opened, 1, **made) == [403, 403]
        other = callers.bearer(await callers.bootstrap_token(world))
        assert await codes(opened, 1, **other) == [429]
        # A certificate that was never seen is no guess.
        async with line(world, world.context_for("jane")) as jane:
            assert await codes(jane, 1) == [403]
        await world.movable().advance(60)
        assert await codes(opened, 1, **other) == [403]
    async with line(world, world.anonymous_context(), "127.0.0.2") as elsewhere:
        assert await codes(elsewhere, 1, **bad) == [401]


async def test_users_are_counted_by_name(world: worlds.World) -> None:
    await grant(world, "jane", rule("list", "configmaps"))
    jane, joe = world.context_for("jane"), world.context_for("joe")
    async with line(world, jane) as one, line(world, world.context_for("jane"), "127.0.0.2") as two:
        # By name, wherever from and with whichever certificate; refused requests count like any.
        assert await codes(one, 2) + await codes(two, 1, "/api/v1/secrets") == [200, 200, 403]
        reply = await two.ask("GET", CONFIG_MAPS)
        assert (reply.status, reply.message) == (429, "too many requests of this user, please try again later")
        async with line(world, joe) as other:
            assert await codes(other, 4) == [403, 403, 403, 429]
        # Being asked how one is costs nothing.
        assert await codes(one, 5, "/livez") == [200] * 5
    # Nobody can lock the administrator out.
    for _ in range(20):
        assert (await world.get(CONFIG_MAPS)).status == 200


async def test_whoever_acts_as_others_pays(world: worlds.World) -> None:
    await grant(world, "proxy", {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}, space="")
    async with line(world, world.context_for("proxy")) as opened:
        found = [(await opened.ask("GET", CONFIG_MAPS, Impersonate_User=f"u{number}")).status for number in range(4)]
        assert found == [403, 403, 403, 429]


async def test_service_accounts_are_counted_by_source(world: worlds.World) -> None:
    headers = callers.bearer(await callers.account_token(world))
    context = world.anonymous_context()
    async with line(world, context) as one, line(world, context, "127.0.0.2") as other:
        assert await codes(one, 3, **headers) == [403, 403, 429]
        assert await codes(other, 3, **headers) == [403, 403, 429]


def certificate_request(node: str) -> bytes:
    subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
    body = requests.build(subject, names.Sans(), keys.generate())
    spec: dict[str, Any] = {
        "request": base64.b64encode(body).decode(),
        "signerName": CLIENT_KUBELET,
        "usages": ["digital signature", "client auth"],
    }
    return msgspec.json.encode({"metadata": {"generateName": "csr-"}, "spec": spec})


async def test_a_flood_of_joins_leaves_renewals_alone(world: worlds.World) -> None:
    await callers.bind(world, "system:node-bootstrapper", "Group", "system:bootstrappers")
    first = callers.bearer(await callers.bootstrap_token(world))
    second = callers.bearer(await callers.bootstrap_token(world, "second.circumnavigation"))
    stranger = world.anonymous_context()

    async def join(opened: wire.Line, headers: dict[str, str]) -> int:
        body = certificate_request("new")
        return (await opened.ask("POST", CSRS, body, Content_Type="application/json", **headers)).status

    async with line(world, stranger) as one, line(world, stranger, "127.0.0.2") as two:
        # One token at one address has its own budget, and all joins together a ceiling.
        assert [await join(one, first) for _ in range(4)] == [201, 201, 201, 429]
        assert [await join(two, second) for _ in range(2)] == [201, 429]
        assert [await join(one, second)] == [429]
    async with line(world, world.context_for("system:node:n1", "system:nodes")) as node:
        # The node's other work may be used up as well: its renewal has a budget of its own.
        assert (await codes(node, 4, "/api/v1/services"))[-1] == 429
        renewals = [
            await node.ask("POST", CSRS, certificate_request("n1"), Content_Type="application/json") for _ in range(3)
        ]
        assert [reply.status for reply in renewals] == [201, 201, 429]
    await world.movable().advance(2.0)
    async with line(world, stranger) as one:
        assert [await join(one, first) for _ in range(2)] == [201, 429]


@pytest.mark.parametrize("lifted", [False, True])
async def test_limits_count_unless_they_are_lifted(tmp_path: pathlib.Path, lifted: bool) -> None:
    few = limits.Limits(lifted=lifted, anonymous_burst=1, user_burst=1, anonymous_per_second=RATE, user_per_second=RATE)
    async with worlds.world(tmp_path / "d", limits=few) as world:
        after = 403 if lifted else 429
        for context in (world.anonymous_context(), world.context_for("jane")):
            async with line(world, context) as opened:
                assert await codes(opened, 3) == [403, after, after]
        async with line(world, world.anonymous_context(), "127.0.0.2") as opened:
            expected = [401] * 3 if lifted else [401, 429, 429]
            assert await codes(opened, 3, Authorization="Bearer abcdef.0123456789abcdef") == expected
