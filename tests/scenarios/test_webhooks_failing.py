# SPDX-License-Identifier: Apache-2.0
"""Webhooks that hang, fail or lie: the write is refused or goes on as their failure policy says, never half.

Proves: nothing is stored, changed or deleted by a write that was refused; one line in the log tells why, not one for
each request; and a webhook that is dead can be removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from aiohttp import web

from handfast.apiserver.admission import webhook_client
from tests.scenarios.granting import made
from tests.scenarios.hooked import (
    CONFIG_MAPS,
    CONFIGURATIONS,
    FAILS,
    MUTATING,
    VALIDATING,
    add,
    install,
    refused,
    rules,
    serving,
    uninstall,
)
from tests.unit.apiserver import hooking
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")


async def endless(request: web.BaseRequest, _: hooking.Review) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


Config = Callable[[hooking.Server], dict[str, Any]]
Failure = tuple[str, hooking.Answer, Config, str]
# What the webhook does, how it is called, and what is said about it.
FAILURES: tuple[Failure, ...] = (
    ("hangs", hooking.hangs, hooking.Server.config, "context deadline exceeded"),
    ("500", hooking.sends(b"boom", 500), hooking.Server.config, "status code 500"),
    ("no JSON", hooking.sends(b"<html>"), hooking.Server.config, "not the JSON of an AdmissionReview"),
    ("endless", endless, hooking.Server.config, f"larger than {webhook_client.MAX_ANSWER} bytes"),
    ("wrong CA", hooking.says(), lambda hook: hook.config(caBundle=hooking.bundle("evil")),
        "tls: failed to verify certificate"),
    ("not there", hooking.says(), lambda hook: hook.config(url="https://127.0.0.1:1/"), "dial tcp 127.0.0.1:1"),
)  # fmt: skip
UNDECODABLE: Failure = (
    "no patch", hooking.says(patchType="JSONPatch", patch="bm8="), hooking.Server.config, "undecodable patch"
)  # fmt: skip
# The webhook answered, and wants what cannot be done.
BAD_PATCHES: tuple[Failure, ...] = (
    ("no such path", hooking.patches({"op": "remove", "path": "/data/x"}), hooking.Server.config, "does not apply"),
    ("wrong type", hooking.patches(add("/data", "text")), hooking.Server.config, "does not leave a valid object"),
)


async def impatient(
    world: worlds.World, hook: hooking.Server, method: str, path: str, body: Any = None
) -> worlds.Answer:
    """A request during which, if the webhook hangs, a second passes on the server's clock."""
    hook.asked.clear()
    task = asyncio.ensure_future(world.request(method, path, body))
    if hook.answer is hooking.hangs:
        await hook.asked.wait()
        await world.movable().advance(1.0)
    return await task


@pytest.mark.parametrize(
    ("kind", "policy", "rows"),
    [
        pytest.param(MUTATING, "Fail", (*FAILURES, UNDECODABLE, *BAD_PATCHES), id="mutating"),
        pytest.param(VALIDATING, "Fail", FAILURES, id="validating"),
        # As in Kubernetes: no policy excuses a patch that cannot be applied.
        pytest.param(MUTATING, "Ignore", BAD_PATCHES, id="patches"),
    ],
)
async def test_a_failure_refuses_the_write(
    world: worlds.World, kind: str, policy: str, rows: tuple[Failure, ...]
) -> None:
    await world.create_config_map("old", k="before")
    for row in rows:
        await _refuses(world, kind, policy, row)


async def _refuses(world: worlds.World, kind: str, policy: str, row: Failure) -> None:
    _, answer, config, why = row
    async with serving(answer) as hook:
        webhook = hooking.webhook(
            "one", config(hook), timeoutSeconds=1, failurePolicy=policy, rules=rules(operations="*")
        )
        await install(world, kind, webhook)
        before = world.server.replica.version
        writes: list[tuple[str, str, Any]] = [
            ("POST", CONFIG_MAPS, {"metadata": {"name": "new"}}),
            ("PUT", f"{CONFIG_MAPS}/old", {"metadata": {"name": "old"}, "data": {"k": "after"}}),
        ]
        if row in FAILURES:
            # A patch of what is deleted is refused in other words: see test_deleting.
            writes.append(("DELETE", f"{CONFIG_MAPS}/old", None))
        with structlog.testing.capture_logs() as logs:
            for write in writes:
                refusal = await impatient(world, hook, *write)
                assert (refusal.status, refusal.reason) == (500, "InternalError"), refusal.body
                assert refusal.message.startswith('Internal error occurred: failed calling webhook "one.example.com": ')
                assert why in refusal.message
        await world.server.replica.fresh()
        assert world.server.replica.version == before
        assert (await world.get(f"{CONFIG_MAPS}/new")).status == 404
        assert (await world.get(f"{CONFIG_MAPS}/old")).json()["data"] == {"k": "before"}
        # Once, not for every request, and with its reason.
        noted = [entry for entry in logs if entry["log_level"] in {"warning", "error"}]
        assert [(entry["event"], entry["webhook"], entry["passed_over"]) for entry in noted] == [
            (FAILS, "one.example.com", False)
        ]
        assert why in noted[0]["error"]
        await uninstall(world, kind)


@pytest.mark.parametrize(
    ("kind", "rows"), [(MUTATING, (*FAILURES, UNDECODABLE)), (VALIDATING, FAILURES)], ids=["mutating", "validating"]
)
async def test_a_failure_is_passed_over_where_that_is_the_policy(
    world: worlds.World, kind: str, rows: tuple[Failure, ...]
) -> None:
    for row in rows:
        await _passes(world, kind, row)
    counted = f'handfast_admission_webhook_total{{name="one.example.com",outcome="FailedOpen"}} {len(rows) * 2:.1f}'
    assert counted in (await world.get("/metrics")).body.decode()


async def _passes(world: worlds.World, kind: str, row: Failure) -> None:
    _, answer, config, why = row
    async with serving(answer) as hook:
        await install(world, kind, hooking.webhook("one", config(hook), timeoutSeconds=1, failurePolicy="Ignore"))
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                body = {"metadata": {"generateName": "a-"}, "data": {"k": "v"}}
                stored = await impatient(world, hook, "POST", CONFIG_MAPS, body)
                assert stored.status == 201, stored.body
                assert stored.json()["data"] == {"k": "v"}
        noted = [entry for entry in logs if entry["log_level"] == "warning"]
        assert [(entry["event"], entry["passed_over"]) for entry in noted] == [(FAILS, True)]
        assert why in noted[0]["error"]
        await uninstall(world, kind)


async def test_a_webhook_that_answers_again(world: worlds.World) -> None:
    async with serving(hooking.sends(b"", 500)) as hook:
        await install(world, VALIDATING, hooking.webhook("one", hook.config()))
        body = {"metadata": {"name": "a"}}
        with structlog.testing.capture_logs() as logs:
            await refused(world, "POST", CONFIG_MAPS, body, 500, "status code 500")
            hook.answer = hooking.says()
            await made(world, CONFIG_MAPS, body)
        assert [entry["event"] for entry in logs] == [FAILS, "an admission webhook answers again"]


async def test_a_dead_webhook_can_always_be_removed(world: worlds.World) -> None:
    dead = hooking.webhook("dead", {"url": "https://127.0.0.1:1/", "caBundle": hooking.bundle()})
    everything = [{**rules("*/*", operations="*")[0], "apiGroups": ["*"]}]
    path = f"{CONFIGURATIONS}/validatingwebhookconfigurations"
    await made(world, path, hooking.configuration(VALIDATING, {**dead, "rules": everything}))
    await refused(world, "POST", CONFIG_MAPS, {"metadata": {"name": "a"}}, 500, "failed calling webhook")
    # Reads, and questions, are not writes.
    assert (await world.get(CONFIG_MAPS)).status == 200
    await uninstall(world, VALIDATING)
    await world.create_config_map("a")
