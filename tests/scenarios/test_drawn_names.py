# SPDX-License-Identifier: Apache-2.0
"""An object is stored under the name it was admitted with: the caller's own, or one that the server drew."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from aiohttp import web

from handfast.apiserver.strategy import strategies
from tests.scenarios import granting, hooked
from tests.unit.apiserver import hooking
from tests.world import world as worlds

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server draws a, a, b, c, …: the second object finds its first name taken."""
    letters = iter(["a", *"abcdefgh"])
    monkeypatch.setattr(strategies, "generated_name", lambda prefix: prefix + next(letters))


async def names(world: worlds.World, path: str, prefix: str) -> list[str]:
    found = (await world.get(path)).json()["items"]
    return [item["metadata"]["name"] for item in found if item["metadata"]["name"].startswith(prefix)]


async def test_a_name_that_was_given_is_never_replaced(world: worlds.World) -> None:
    node = world.context_for("system:node:own", "system:nodes")
    body = {"metadata": {"name": "own", "generateName": "victim-"}, "spec": {}}
    for path in (NODES, LEASES):
        codes = [(await world.request("POST", path, body, context=node)).status for _ in range(2)]
        assert codes == [201, 409], path
        assert await names(world, path, "victim-") == []


async def test_a_name_that_was_given_is_not_replaced_for_who_may_escalate_it(world: worlds.World) -> None:
    create = granting.rule("create", "clusterroles", group=granting.GROUP)
    escalate = granting.rule("escalate", "clusterroles", "mine", group=granting.GROUP)
    await granting.grant(world, "eve", create, escalate, space="")
    body = {"metadata": {"name": "mine", "generateName": "other-"}, "rules": [granting.rule("*", "*", group="*")]}
    eve = world.context_for("eve")
    answers = [await world.request("POST", granting.CLUSTER_ROLES, body, context=eve) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 409]
    assert await names(world, granting.CLUSTER_ROLES, "other-") == []


async def test_a_name_that_is_taken_is_drawn_again(world: worlds.World, drawn: None) -> None:
    for wanted in ("job-a", "job-b"):
        made = await granting.made(world, granting.CONFIG_MAPS, {"metadata": {"generateName": "job-"}})
        assert made["metadata"]["name"] == wanted


async def test_it_is_not_drawn_for_ever(world: worlds.World, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = itertools.count()
    monkeypatch.setattr(strategies, "generated_name", lambda prefix: f"{prefix}{min(next(tries), 0)}")
    await granting.made(world, granting.CONFIG_MAPS, {"metadata": {"generateName": "job-"}})
    answer = await world.request("POST", granting.CONFIG_MAPS, {"metadata": {"generateName": "job-"}})
    assert (answer.status, answer.message) == (409, 'configmaps "job-0" already exists')
    assert next(tries) == 9


async def test_built_in_plugins_see_every_name_that_is_drawn(world: worlds.World, drawn: None) -> None:
    create = granting.rule("create", "clusterroles", group=granting.GROUP)
    escalate = granting.rule("escalate", "clusterroles", "role-a", group=granting.GROUP)
    await granting.grant(world, "eve", create, escalate, space="")
    body = {"metadata": {"generateName": "role-"}, "rules": [granting.rule("*", "*", group="*")]}
    eve = world.context_for("eve")
    answers = [await world.request("POST", granting.CLUSTER_ROLES, body, context=eve) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 403]
    assert await names(world, granting.CLUSTER_ROLES, "role-") == ["role-a"]


@pytest.mark.parametrize("kind", [hooked.MUTATING, hooked.VALIDATING])
async def test_webhooks_see_every_name_that_is_drawn(world: worlds.World, drawn: None, kind: str) -> None:
    async def answer(_: web.BaseRequest, review: dict[str, Any]) -> web.StreamResponse:
        allowed = review["request"]["name"] != "job-b"
        return web.json_response(hooking.reviewed(review, allowed=allowed, warnings=["seen"]))

    async with hooked.serving(answer) as server:
        await hooked.install(world, kind, hooking.webhook("one", server.config()))
        first = await world.request("POST", granting.CONFIG_MAPS, {"metadata": {"generateName": "job-"}})
        second = await world.request("POST", granting.CONFIG_MAPS, {"metadata": {"generateName": "job-"}})
    assert (first.status, second.status, "denied the request" in second.message) == (201, 403, True), second.body
    # What was said about a name that came to nothing is not said.
    assert second.headers.getall("Warning") == ['299 - "seen"']
    asked = [review["request"] for review in server.reviews]
    assert [row["name"] for row in asked] == ["job-a", "job-a", "job-b"]
    assert [row["object"]["metadata"]["name"] for row in asked] == ["job-a", "job-a", "job-b"]
    assert await names(world, granting.CONFIG_MAPS, "job-") == ["job-a"]
