# SPDX-License-Identifier: Apache-2.0
"""No request without a decision reaches the store: every route of every kind, tried by everyone who may do nothing.

The routes are those of the server's own table, with custom resources in it, and not a list kept here; a kind that is
added is tried too. What is allowed to whom is tested elsewhere.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import pathlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import structlog

from handfast.api import kinds
from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.scenarios import callers, wire
from tests.world import world as worlds

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# What everyone may do until an operator says otherwise; here nobody may.
GRANTS = (
    "system:basic-user",
    "system:discovery",
    "system:public-info-viewer",
    "system:service-account-issuer-discovery",
)
# These ask nothing, whoever sends them.
NO_VERBS = ("OPTIONS", "PROPFIND")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", *NO_VERBS)
ASKED = (*((method, "") for method in METHODS), ("GET", "?watch=1"), ("POST", "?dryRun=All"))
# Not health, which is open to all by rule.
PATHS = (
    *("/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/metrics", "/frob", "/api/"),
    *("/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/.well-known/openid-configuration", "/openid/v1/jwks"),
    *("/healthzz", "//healthz", "/healthz/../metrics", "/metrics/", "/api/v1/namespaces/default/frobs/x"),
)
Route = tuple[str, str]


# What the server does by itself, now and then: no caller waits for it, and none is answered by it.
_BY_ITSELF = frozenset({"apiserver/announcement", "apiserver/join-failures"})


def _is_own() -> bool:
    task = asyncio.current_task()
    return task is not None and task.get_name() in _BY_ITSELF


class RecordingStore:
    """A store that counts what is asked of it for callers. Following it is not asking: the server's copy does so all the time."""

    def __init__(self, inner: protocol.Store) -> None:
        self._inner = inner
        self.asked: Counter[str] = Counter()
        self.own_writes = 0

    def _count(self, question: str) -> None:
        if not _is_own():
            self.asked[question] += 1

    async def _written(self, write: Awaitable[int]) -> int:
        """Own writes count when they are done, as revisions do."""
        revision = await write
        self.own_writes += _is_own()
        return revision

    @property
    def identity(self) -> str:
        return self._inner.identity

    @property
    def epoch_offset(self) -> int:
        return self._inner.epoch_offset

    async def floor(self) -> int:
        return await self._inner.floor()

    async def raise_epoch(self, by: int = protocol.EPOCH, *, above: int = 0) -> int:
        return await self._inner.raise_epoch(by, above=above)

    async def take_identity(self, identity: str) -> None:
        await self._inner.take_identity(identity)

    async def stats(self) -> protocol.Stats:
        return await self._inner.stats()

    async def note(self, name: str) -> str | None:
        return await self._inner.note(name)

    async def set_note(self, name: str, text: str | None) -> None:
        await self._inner.set_note(name, text)

    async def swap_note(self, name: str, expected: str | None, text: str | None) -> str | None:
        return await self._inner.swap_note(name, expected, text)

    async def current_revision(self) -> int:
        self._count("current_revision")
        return await self._inner.current_revision()

    async def get(self, key: str) -> protocol.Entry | None:
        self._count("get")
        return await self._inner.get(key)

    async def list_at(self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0) -> protocol.Page:
        self._count("list_at")
        return await self._inner.list_at(prefix, revision=revision, after=after, limit=limit)

    async def create(self, key: str, value: bytes) -> int:
        self._count("create")
        return await self._written(self._inner.create(key, value))

    async def update(self, key: str, value: bytes, *, expected: int, removing: bool = False) -> int:
        self._count("update")
        return await self._written(self._inner.update(key, value, expected=expected, removing=removing))

    async def delete(self, key: str, *, expected: int) -> int:
        self._count("delete")
        return await self._written(self._inner.delete(key, expected=expected))

    def watch(self, prefix: str, *, after: int) -> protocol.Watch:
        return self._inner.watch(prefix, after=after)

    async def compact(self, revision: int) -> int:
        return await self._inner.compact(revision)

    def room(self) -> protocol.Room:
        return self._inner.room()

    async def close(self) -> None:
        await self._inner.close()


class Entered:
    """A station that counts who comes through its door: reads are answered from memory, which no store sees."""

    def __init__(self, station: Any, asked: Counter[str], name: str) -> None:
        self._station, self._asked, self._name = station, asked, name

    def answer(self, call: Any) -> Any:
        self._asked[self._name] += 1
        return self._station.answer(call)


@dataclasses.dataclass
class Place:
    """A served world, its store, and how often something was asked of the stations behind the decision."""

    world: worlds.World
    store: RecordingStore

    async def revision(self) -> int:
        return await self.store._inner.current_revision()


def definition(plural: str, scope: str) -> Any:
    kind = plural.removesuffix("s").capitalize()
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.count"},
        },
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": "example.com", "scope": scope, "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.example.com"}, "spec": spec}


@pytest.fixture
async def place(tmp_path: pathlib.Path) -> AsyncIterator[Place]:
    store = RecordingStore(await engine.open_store(str(tmp_path / "store.db")))
    async with worlds.world(tmp_path / "d", store=store) as world:
        for plural, scope in (("widgets", "Namespaced"), ("gadgets", "Cluster")):
            await callers.make(world, DEFINITIONS, definition(plural, scope))
        pipeline = world.server.pipeline
        for name in ("_resources", "_nonresources"):
            setattr(pipeline, name, Entered(getattr(pipeline, name), store.asked, name))
        yield Place(world, store)


def resource_paths(world: worlds.World, kind: kinds.Kind) -> Iterator[str]:
    """Every path at which a kind is served, and some below it at which it is not."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    # An object that is there, so that a reader would have something to give away.
    item = next(iter(world.server.replica.collection(kind.prefix).snapshot()), None)
    namespace, name = (item.namespace, item.name) if item is not None else ("default", "x")
    yield f"{root}/{kind.plural}"
    if kind.namespaced:
        root = f"{root}/namespaces/{namespace or 'default'}"
        yield f"{root}/{kind.plural}"
    yield f"{root}/{kind.plural}/{name}"
    for subresource in (*(row.name for row in kind.subresources), "frob"):
        yield f"{root}/{kind.plural}/{name}/{subresource}"


def routes(world: worlds.World) -> list[Route]:
    every = [path for kind in world.server.table for path in resource_paths(world, kind)]
    found = [(method, path + query) for path in every for method, query in ASKED]
    return [*found, *((method, path) for path in PATHS for method in METHODS)]


async def ask(
    world: worlds.World, context: ssl.SSLContext, wanted: Sequence[Route], headers: Mapping[str, Any]
) -> Iterator[tuple[Route, wire.Reply]]:
    """Put all of them on one connection, a few at a time."""
    found: list[tuple[Route, wire.Reply]] = []
    async with wire.line(world.server.address[1], context) as line:
        for at in range(0, len(wanted), 24):
            batch = wanted[at : at + 24]
            await line.send(*(_bytes(method, path, headers) for method, path in batch))
            found += [(route, await line.reply(head_only=route[0] == "HEAD")) for route in batch]
    return iter(found)


def _bytes(method: str, path: str, headers: Mapping[str, Any]) -> bytes:
    if method not in {"POST", "PUT", "PATCH"}:
        return wire.request(method, path, **headers)
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return wire.request(method, path, b'{"metadata":{"name":"x"}}', Content_Type=media, **headers)


async def of_callers(place: Place) -> int:
    """How far the revision has come by writes of callers, once what the server writes by itself is done."""
    last, same = -1, 0
    while same < 5:
        now = await place.revision() - place.store.own_writes
        same = same + 1 if now == last else 0
        last = now
        await asyncio.sleep(0.02)
    return last


async def require_refused(
    place: Place, who: str, context: ssl.SSLContext, headers: Mapping[str, Any], code: int
) -> None:
    wanted = routes(place.world)
    before = await of_callers(place)
    place.store.asked.clear()
    refused = (code, "Forbidden" if code == 403 else "Unauthorized")
    with structlog.testing.capture_logs() as logs:
        for route, reply in await ask(place.world, context, wanted, headers):
            expected, why = (405, "MethodNotAllowed") if route[0] in NO_VERBS else refused
            assert reply.status == expected, (who, route, reply)
            if route[0] != "HEAD":
                assert reply.json()["reason"] == why, (who, route, reply)
    assert place.store.asked == Counter(), who
    assert await of_callers(place) == before, who
    # Each is told to the operator once.
    decided = [route for route in wanted if route[0] not in NO_VERBS]
    assert len(callers.reasons(logs)) == len(decided), who


async def take_every_grant_away(world: worlds.World) -> None:
    for name in GRANTS:
        answer = await world.request("DELETE", f"{callers.RBAC}/clusterrolebindings/{name}")
        assert answer.status == 200, name


async def test_the_routes_are_all_there(place: Place) -> None:
    """Without them, everything below would hold."""
    found = routes(place.world)
    paths = {path for _, path in found}
    assert len(found) > 1500
    for path in (
        *("/api/v1/secrets", "/api/v1/namespaces/default/serviceaccounts/default/token", callers.REVOCATIONS),
        *("/apis/example.com/v1/namespaces/default/widgets/x/scale", "/apis/example.com/v1/gadgets/x/status"),
        *("/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval", "/api/v1/namespaces?watch=1"),
    ):
        assert path in paths


async def test_who_may_does_reach_the_store(place: Place) -> None:
    """That the counting counts."""
    world, asked = place.world, place.store.asked
    asked.clear()
    assert (await world.get(callers.CONFIG_MAPS)).status == 200
    assert asked["_resources"] == 1
    await world.create_config_map("a")
    assert (asked["_resources"], asked["create"]) == (2, 1)
    assert (await world.get("/version")).status == 200
    assert asked["_nonresources"] == 1


@pytest.mark.slow
class TestNobodyGetsThrough:
    async def test_a_certificate_without_permission(self, place: Place) -> None:
        await take_every_grant_away(place.world)
        await require_refused(place, "jane", place.world.context_for("jane", "developers"), {}, 403)

    async def test_a_service_account(self, place: Place) -> None:
        await take_every_grant_away(place.world)
        token = await callers.account_token(place.world)
        await require_refused(place, "robot", place.world.anonymous_context(), callers.bearer(token), 403)

    async def test_a_bootstrap_token(self, place: Place) -> None:
        await take_every_grant_away(place.world)
        token = await callers.bootstrap_token(place.world)
        await require_refused(place, "token", place.world.anonymous_context(), callers.bearer(token), 403)

    async def test_who_has_not_logged_in_and_has_no_grant(self, place: Place) -> None:
        await take_every_grant_away(place.world)
        await require_refused(place, "anonymous", place.world.anonymous_context(), {}, 403)

    async def test_somebody_who_may_not_act_as_another(self, place: Place) -> None:
        headers = {"Impersonate_User": "kubernetes-admin", "Impersonate_Group": "system:masters"}
        await require_refused(place, "impersonator", place.world.context_for("jane"), headers, 403)

    async def test_an_administrator_who_acts_as_somebody_without_permission(self, place: Place) -> None:
        await take_every_grant_away(place.world)
        headers = {"Impersonate_User": "jane"}
        await require_refused(place, "impersonated", place.world.admin_context(), headers, 403)


@pytest.mark.slow
class TestNobodyIsTakenFor:
    """… anonymous, or for who they were, on any route."""

    async def test_a_bad_token(self, place: Place) -> None:
        headers = callers.bearer("foobar.circumnavigation")
        await require_refused(place, "bad token", place.world.anonymous_context(), headers, 401)

    async def test_an_administrator_who_is_revoked(self, place: Place) -> None:
        await callers.revoke(place.world, "m", user="mallory")
        await require_refused(place, "revoked", place.world.context_for("mallory", "system:masters"), {}, 401)

    async def test_an_administrator_whose_certificate_ran_out(self, place: Place) -> None:
        context = place.world.context_for("mallory", "system:masters", ttl=datetime.timedelta(minutes=10))
        await place.world.movable().advance(601)
        await require_refused(place, "expired", context, {}, 401)


async def test_another_clusters_administrator_does_not_connect(place: Place, tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "other") as other:
        theirs = other.admin_context()
    theirs.load_verify_locations(str(place.world.place.ca_certificate))
    place.store.asked.clear()
    with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
        await ask(place.world, theirs, [("GET", "/healthz")], {})
    assert place.store.asked == Counter()
