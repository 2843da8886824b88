# SPDX-License-Identifier: Apache-2.0
"""Who is no longer good when a request has its body, or its webhooks' answers, stores nothing with it.

Every request here is good when its head arrives. The server says so by asking for the body (100 Continue); then something
is taken from the caller, and only then the rest is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from handfast.apiserver.access import standing
from tests.scenarios import callers, hooked, wire
from tests.scenarios.callers import administrator
from tests.scenarios.test_client_ca_rotation import choose, new_ca
from tests.unit.apiserver import hooking
from tests.world import world as worlds

MASTERS = "system:masters"
NEW = {"metadata": {"name": "late"}, "data": {"a": "b"}}


@contextlib.asynccontextmanager
async def begun(
    world: worlds.World,
    context: ssl.SSLContext,
    document: Any = NEW,
    path: str = callers.CONFIG_MAPS,
    method: str = "POST",
    **headers: str,
) -> AsyncIterator[Begun]:
    """A request that was judged by its head; its body is not sent yet."""
    body = msgspec.json.encode(document)
    async with wire.line(world.server.address[1], context) as line:
        headers = {"Content_Type": "application/json", **headers}
        head = wire.request(method, path, b"", Expect="100-continue", Content_Length=str(len(body)), **headers)
        await line.send(head)
        assert (await line.reply()).status == 100
        yield Begun(line, body)


class Begun:
    def __init__(self, line: wire.Line, body: bytes) -> None:
        self._line = line
        self._body = body

    async def trickle(self) -> None:
        """A part of the body."""
        await self._line.send(self._body[:1])
        self._body = self._body[1:]

    async def end(self) -> wire.Reply:
        """The rest of the body, and the answer."""
        await self._line.send(self._body)
        return await self._line.reply()


async def absent(world: worlds.World, name: str = "late") -> bool:
    return (await world.get(f"{callers.CONFIG_MAPS}/{name}")).status == 404


class TestBody:
    async def test_a_user_revoked_while_the_body_is_on_the_way(self, world: worlds.World) -> None:
        async with begun(world, world.context_for("mallory", MASTERS)) as request:
            await request.trickle()
            await callers.revoke(world, "out", user="mallory")
            reply = await request.end()
        assert reply.status == 401
        assert reply.json() == callers.BARE
        assert await absent(world)
        assert await callers.refusals(world, "Revoked") == 1

    async def test_who_is_not_concerned_is_not_stopped(self, world: worlds.World) -> None:
        async with begun(world, world.context_for("alice", MASTERS)) as request:
            await request.trickle()
            await callers.revoke(world, "out", user="mallory")
            assert (await request.end()).status == 201

    async def test_a_bootstrap_token_deleted_while_the_body_is_on_the_way(self, world: worlds.World) -> None:
        token = await callers.bootstrap_token(world)
        await callers.bind(world, "cluster-admin", "User", "system:bootstrap:foobar")
        async with begun(world, world.anonymous_context(), **callers.bearer(token)) as request:
            await request.trickle()
            assert (await world.request("DELETE", f"{callers.SECRETS}/bootstrap-token-foobar")).status == 200
            assert (await request.end()).status == 401
        assert await absent(world)

    @pytest.mark.parametrize("deleted", ["account", "pod"])
    async def test_what_a_token_rests_on_is_deleted(self, world: worlds.World, deleted: str) -> None:
        await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        await callers.bind(world, "cluster-admin", "ServiceAccount", "robot", namespace="default")
        pod = {"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot", **hooked.POD["spec"]}}  # type: ignore[dict-item]
        bound = await callers.make(world, hooked.PODS, pod)
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": bound["metadata"]["uid"]}
        token = await callers.account_token(world, exists=True, boundObjectRef=reference)
        path = f"{callers.ACCOUNTS}/robot" if deleted == "account" else f"{hooked.PODS}/p"
        async with begun(world, world.anonymous_context(), **callers.bearer(token)) as request:
            assert (await world.request("DELETE", path)).status == 200
            assert (await request.end()).status == 401
        assert await absent(world)

    async def test_a_token_that_expires_on_the_way(self, world: worlds.World) -> None:
        await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        await callers.bind(world, "cluster-admin", "ServiceAccount", "robot", namespace="default")
        token = await callers.account_token(world, exists=True, expirationSeconds=600)
        async with begun(world, world.anonymous_context(), **callers.bearer(token)) as request:
            await world.movable().advance(700)
            assert (await request.end()).status == 401
        assert await absent(world)

    async def test_rights_taken_away_while_the_body_is_on_the_way(self, world: worlds.World) -> None:
        await callers.bind(world, "cluster-admin", "User", "bob")
        async with begun(world, world.context_for("bob")) as request:
            path = f"{callers.RBAC}/clusterrolebindings/cluster-admin-bob"
            assert (await world.request("DELETE", path)).status == 200
            assert (await request.end()).status == 403
        assert await absent(world)

    async def test_whom_somebody_acts_as(self, world: worlds.World) -> None:
        headers = {"Impersonate_User": "mallory", "Impersonate_Group": MASTERS}
        async with begun(world, world.admin_context(), **headers) as request:
            await callers.revoke(world, "out", user="mallory")
            assert (await request.end()).status == 401
        async with begun(world, world.admin_context(), Impersonate_User="alice", Impersonate_Group=MASTERS) as request:
            await callers.revoke(world, "more", user="somebody")
            assert (await request.end()).status == 201

    async def test_who_becomes_somebody_else(self, world: worlds.World) -> None:
        # A certificate and a good token: the certificate wins, until its CA is removed.
        token = await callers.account_token(world)
        await callers.bind(world, "cluster-admin", "ServiceAccount", "robot", namespace="default")
        ca = new_ca(world)
        first = world.place.ca_certificate.read_text()
        assert (await choose(world, first + ca.pem.decode())).status == 200
        async with begun(world, administrator(world, ca), **callers.bearer(token)) as request:
            assert (await choose(world, first)).status == 200
            assert (await request.end()).status == 401
        assert await absent(world)
        assert await callers.refusals(world, "IdentityChanged") == 1

    async def test_a_question_is_not_answered(self, world: worlds.World) -> None:
        async with begun(world, world.context_for("mallory", MASTERS), {}, callers.WHO_AM_I) as request:
            await callers.revoke(world, "out", user="mallory")
            assert (await request.end()).status == 401

    @pytest.mark.parametrize(
        ("method", "media", "path"),
        [
            ("PUT", "application/json", f"{callers.CONFIG_MAPS}/there"),
            ("PATCH", "application/merge-patch+json", f"{callers.CONFIG_MAPS}/there"),
            ("PATCH", "application/apply-patch+yaml", f"{callers.CONFIG_MAPS}/there?fieldManager=m&force=1"),
            ("DELETE", "application/json", f"{callers.CONFIG_MAPS}/there"),
            ("DELETE", "application/json", callers.CONFIG_MAPS),
            ("POST", "application/json", f"{callers.ACCOUNTS}/default/token"),
        ],
    )
    async def test_every_verb(self, world: worlds.World, method: str, media: str, path: str) -> None:
        made = await world.create_config_map("there", a="b")
        body: Any = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}, "data": {"a": "c"}}
        if method == "DELETE":
            body = {"kind": "DeleteOptions", "apiVersion": "v1"}
        elif path.endswith("/token"):
            body = {"spec": {}}
        context = world.context_for("mallory", MASTERS)
        async with begun(world, context, body, path, method, Content_Type=media) as request:
            await callers.revoke(world, "out", user="mallory")
            assert (await request.end()).status == 401
        assert (await world.get(f"{callers.CONFIG_MAPS}/there")).json() == made


class Thinking:
    """A webhook that answers when it is told to."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def __call__(self, _: web.BaseRequest, review: hooking.Review) -> web.StreamResponse:
        await self.done.wait()
        return web.json_response(hooking.reviewed(review))


@contextlib.asynccontextmanager
async def thinking(world: worlds.World, kind: str, **rules: str) -> AsyncIterator[tuple[hooking.Server, Thinking]]:
    mind = Thinking()
    async with hooked.serving(mind) as server:
        hook = hooking.webhook("slow", server.config(), rules=hooked.rules("configmaps", **rules))
        await hooked.install(world, kind, hook)
        try:
            yield server, mind
        finally:
            mind.done.set()


@pytest.mark.parametrize("kind", [hooking.MUTATING, hooking.VALIDATING])
class TestWebhook:
    async def test_a_user_revoked_while_a_webhook_thinks(self, world: worlds.World, kind: str) -> None:
        context = world.context_for("mallory", MASTERS)
        async with thinking(world, kind) as (server, mind):
            asking = asyncio.ensure_future(world.request("POST", callers.CONFIG_MAPS, NEW, context=context))
            await server.asked.wait()
            await callers.revoke(world, "out", user="mallory")
            mind.done.set()
            assert (await asking).status == 401
            assert await absent(world)

    async def test_a_client_ca_removed_while_a_webhook_thinks(self, world: worlds.World, kind: str) -> None:
        ca, first = new_ca(world), world.place.ca_certificate.read_text()
        assert (await choose(world, first + ca.pem.decode())).status == 200
        async with thinking(world, kind, operations="CREATE") as (server, mind):
            context = administrator(world, ca)
            asking = asyncio.ensure_future(world.request("POST", callers.CONFIG_MAPS, NEW, context=context))
            await server.asked.wait()
            assert (await choose(world, first)).status == 200
            mind.done.set()
            assert (await asking).status == 401
            assert await absent(world)

    async def test_rights_taken_away_while_a_webhook_thinks(self, world: worlds.World, kind: str) -> None:
        # The right to create is asked for an apply that makes a new object, too, and again.
        await callers.bind(world, "admin", "User", "bob")
        context = world.context_for("bob")
        async with thinking(world, kind) as (server, mind):
            path = f"{callers.CONFIG_MAPS}/late?fieldManager=m"
            document = {"apiVersion": "v1", "kind": "ConfigMap", **NEW}
            headers = {"Content-Type": "application/apply-patch+yaml"}
            asking = asyncio.ensure_future(world.request("PATCH", path, document, context=context, headers=headers))
            await server.asked.wait()
            role = {
                "metadata": {"name": "only-patch"},
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}],
            }
            await callers.make(world, f"{callers.RBAC}/clusterroles", role)
            await callers.bind(world, "only-patch", "User", "bob")
            path = f"{callers.RBAC}/clusterrolebindings/admin-bob"
            assert (await world.request("DELETE", path)).status == 200
            mind.done.set()
            answer = await asking
            assert answer.status == 403
            assert 'cannot create resource "configmaps"' in answer.message
            assert await absent(world)

    async def test_a_delete(self, world: worlds.World, kind: str) -> None:
        await world.create_config_map("there")
        context = world.context_for("mallory", MASTERS)
        async with thinking(world, kind, operations="DELETE") as (server, mind):
            path = f"{callers.CONFIG_MAPS}/there"
            asking = asyncio.ensure_future(world.request("DELETE", path, context=context))
            await server.asked.wait()
            await callers.revoke(world, "out", user="mallory")
            mind.done.set()
            assert (await asking).status == 401
            assert not await absent(world, "there")


async def test_a_quick_request_is_judged_once(world: worlds.World, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(standing.Standing, "_judge", judge)
    # What is new takes nothing away; nor does an update of something that no credential rests on.
    for name in ("a", "b"):
        await world.create_config_map(name)
    answer = await world.request("PATCH", f"{callers.CONFIG_MAPS}/a", {"data": {"k": "v"}}, headers=dict(callers.MERGE))
    assert answer.status == 200
