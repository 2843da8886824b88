# SPDX-License-Identifier: Apache-2.0
"""Two API servers on one store: a write on one is seen by the very next read on the other.

The store here holds the second server's events back, as a slow network would, so that the promise rests on
`current_revision` and not on luck.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from handfast.apiserver import announcement, peers
from handfast.apiserver import limits as limits_module
from handfast.apiserver.state import envelope
from handfast.pki import authority, keys, names
from handfast.rules import stored_forms
from handfast.store import protocol
from handfast.store.etcd import engine as etcd
from handfast.store.sqlite import engine as sqlite
from handfast.wire import etcd_access
from tests.scenarios import callers, test_judged_again, wire
from tests.world import etcds
from tests.world import world as worlds


class HeldWatch:
    """A watch that delivers nothing while it is held."""

    def __init__(self, inner: protocol.Watch, gate: asyncio.Event) -> None:
        self._inner = inner
        self._gate = gate

    async def next(self) -> tuple[Sequence[protocol.Event], int]:
        found = await self._inner.next()
        await self._gate.wait()
        return found

    def close(self) -> None:
        self._inner.close()


class SharedStore:
    """One engine seen by one of several servers, whose events can be held back."""

    def __init__(self, engine: protocol.Store, *, closes: bool = False) -> None:
        self._engine = engine
        self._closes = closes
        self.gate = asyncio.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def watch(self, prefix: str, *, after: int) -> HeldWatch:
        return HeldWatch(self._engine.watch(prefix, after=after), self.gate)

    async def close(self) -> None:
        if self._closes:
            await self._engine.close()


Opening = Callable[[], Awaitable[SharedStore]]
Pair = tuple[worlds.World, worlds.World, SharedStore]


@pytest.fixture(params=["sqlite", "etcd"])
async def opening(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> AsyncIterator[Opening]:
    """Opens the same store again and again: a connection of its own to an etcd, or one file that several look at."""
    if request.param == "etcd":
        place = etcds.shared().place()

        async def on_etcd() -> SharedStore:
            return SharedStore(await etcd.open_store(place, etcd_access.Access()), closes=True)

        yield on_etcd
        return
    engine = await sqlite.open_store(str(tmp_path / "store.db"))

    async def on_sqlite() -> SharedStore:
        return SharedStore(engine, closes=False)

    yield on_sqlite
    await engine.close()


@pytest.fixture
async def pair(tmp_path: pathlib.Path, opening: Opening) -> AsyncIterator[Pair]:
    first, second = await opening(), await opening()
    async with (
        worlds.world(tmp_path / "d", store=first, shared=True) as one,
        worlds.world(tmp_path / "d", store=second, shared=True) as other,
    ):
        yield one, other, second
        second.gate.set()


async def test_a_read_waits_for_a_write_acknowledged_elsewhere(pair: Pair) -> None:
    one, other, held = pair
    held.gate.clear()
    await one.create_config_map("new", k="v")
    reading = asyncio.ensure_future(other.get("/api/v1/namespaces/default/configmaps/new"))
    # The copy behind `other` has not seen the write: the answer must wait for it, not say 404.
    done, _ = await asyncio.wait([reading], timeout=0.2)
    assert not done
    held.gate.set()
    assert (await reading).status == 200


async def test_a_list_waits_too_and_shows_the_write(pair: Pair) -> None:
    one, other, held = pair
    held.gate.clear()
    await one.create_config_map("new")
    listing = asyncio.ensure_future(other.get("/api/v1/namespaces/default/configmaps"))
    done, _ = await asyncio.wait([listing], timeout=0.1)
    assert not done
    held.gate.set()
    names = [item["metadata"]["name"] for item in (await listing).json()["items"]]
    assert "new" in names


async def test_resource_version_zero_waits_too_since_its_caller_has_to_be_judged(pair: Pair) -> None:
    one, other, held = pair
    held.gate.clear()
    await one.create_config_map("new")
    path = "/api/v1/namespaces/default/configmaps/new?resourceVersion=0"
    reading = asyncio.ensure_future(other.get(path))
    done, _ = await asyncio.wait([reading], timeout=0.1)
    assert not done
    held.gate.set()
    assert (await reading).status == 200


async def test_two_writers_of_one_object_one_wins(pair: Pair) -> None:
    one, other, _ = pair
    made = await one.create_config_map("shared", n="0")
    path = "/api/v1/namespaces/default/configmaps/shared"
    answers = await asyncio.gather(
        one.request("PUT", path, {**made, "data": {"n": "1"}}),
        other.request("PUT", path, {**made, "data": {"n": "2"}}),
    )
    assert sorted(answer.status for answer in answers) == [200, 409]


async def test_a_namespace_made_on_one_can_be_used_on_the_other_at_once(pair: Pair) -> None:
    one, other, _ = pair
    for number in range(20):
        name = f"team-{number}"
        made = await one.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        assert made.status == 201
        await other.create_config_map("first", namespace=name)


async def test_a_create_waits_for_what_admission_has_to_know(pair: Pair) -> None:
    """A namespace that was made elsewhere is there; one that is on its way out elsewhere takes nothing in."""
    one, other, held = pair
    for expected in (201, 403):
        held.gate.clear()
        if expected == 201:
            made = await one.request("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
            assert made.status == 201
        else:
            assert (await one.request("DELETE", "/api/v1/namespaces/team")).status == 200
        config_map = {"metadata": {"name": f"expects-{expected}"}}
        creating = asyncio.ensure_future(other.request("POST", "/api/v1/namespaces/team/configmaps", config_map))
        done, _ = await asyncio.wait([creating], timeout=0.2)
        assert not done
        held.gate.set()
        assert (await creating).status == expected


async def test_a_create_whose_body_comes_later_waits_for_what_was_taken_away_meanwhile(pair: Pair) -> None:
    one, other, held = pair
    async with test_judged_again.begun(other, other.context_for("mallory", "system:masters")) as request:
        held.gate.clear()
        await callers.revoke(one, "out", user="mallory")
        ending = asyncio.ensure_future(request.end())
        done, _ = await asyncio.wait([ending], timeout=0.2)
        assert not done
        held.gate.set()
        assert (await ending).status == 401


async def test_counter_incremented_from_both_sides_loses_nothing(pair: Pair) -> None:
    one, other, _ = pair
    await one.create_config_map("counter", n="0")
    path = "/api/v1/namespaces/default/configmaps/counter"

    async def add(side: worlds.World) -> None:
        for _ in range(25):
            while True:
                found = (await side.get(path)).json()
                found["data"]["n"] = str(int(found["data"]["n"]) + 1)
                if (await side.request("PUT", path, found)).status == 200:
                    break

    await asyncio.gather(add(one), add(other))
    assert (await one.get(path)).json()["data"]["n"] == "50"


# --- who is judged at one server by what was written at the other

CLIENT_CAS = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
NODE_READER = {
    "metadata": {"name": "node-reader"},
    "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
}


@dataclasses.dataclass(frozen=True)
class Caller:
    """Somebody with a credential, what takes it away, and what the next request is answered with."""

    take: Callable[[], Awaitable[Any]]
    options: dict[str, Any]
    refused: int = 401


async def choose(world: worlds.World, bundle: str) -> None:
    answer = await world.request("PATCH", CLIENT_CAS, {"data": {"client-ca-file": bundle}}, headers=dict(callers.MERGE))
    assert answer.status == 200, answer.body


async def with_a_bootstrap_token(world: worlds.World) -> Caller:
    token = await callers.bootstrap_token(world)
    path = f"{callers.SECRETS}/bootstrap-token-foobar"
    return Caller(
        lambda: world.request("DELETE", path), {"headers": callers.bearer(token), "context": world.anonymous_context()}
    )


async def with_an_account(world: worlds.World) -> Caller:
    token = await callers.account_token(world)
    return Caller(
        lambda: world.request("DELETE", f"{callers.ACCOUNTS}/robot"),
        {"headers": callers.bearer(token), "context": world.anonymous_context()},
    )


async def with_a_node_certificate(world: worlds.World) -> Caller:
    context = world.context_for("system:node:n1", "system:nodes")
    return Caller(lambda: callers.revoke(world, "n1", user="system:node:n1"), {"context": context})


async def with_a_binding(world: worlds.World) -> Caller:
    await callers.make(world, f"{callers.RBAC}/clusterroles", NODE_READER)
    await callers.bind(world, "node-reader", "User", "alice")
    path = f"{callers.RBAC}/clusterrolebindings/node-reader-alice"
    return Caller(lambda: world.request("DELETE", path), {"context": world.context_for("alice")}, refused=403)


async def with_another_ca(world: worlds.World) -> Caller:
    ca = authority.self_signed_ca(names.Subject(common_name="the next CA"), keys.generate(), world.clock.now())
    own = world.place.ca_certificate.read_text()
    await choose(world, own + ca.pem.decode())
    return Caller(lambda: choose(world, own), {"context": callers.administrator(world, ca)})


@pytest.mark.parametrize(
    "holder",
    [with_a_bootstrap_token, with_an_account, with_a_node_certificate, with_a_binding, with_another_ca],
)
async def test_what_is_taken_away_at_one_is_refused_by_the_next_request_at_the_other(
    pair: Pair, holder: Callable[[worlds.World], Awaitable[Caller]]
) -> None:
    one, other, held = pair
    caller = await holder(one)
    path = "/api/v1/nodes" if caller.refused == 403 else "/api"

    async def ask() -> int:
        return (await other.get(path, **caller.options)).status

    assert await ask() == 200
    held.gate.clear()
    await caller.take()
    asking = asyncio.ensure_future(ask())
    # The copy behind `other` still has the credential: it must not be judged by that.
    done, _ = await asyncio.wait([asking], timeout=0.2)
    assert not done
    # A probe has nothing to wait for.
    assert (await other.get("/livez")).status == 200
    held.gate.set()
    assert await asking == caller.refused


async def test_a_watch_at_the_other_ends_with_what_its_caller_had(pair: Pair) -> None:
    one, other, _ = pair
    caller = await with_an_account(one)
    await callers.bind(one, "view", "ServiceAccount", "robot", namespace="default")
    path = "/api/v1/namespaces/default/configmaps?watch=1"
    session = other.session(caller.options["context"])
    async with session.get(path, headers=caller.options["headers"]) as response:
        assert response.status == 200
        await caller.take()
        async with asyncio.timeout(20):
            await response.read()


async def test_a_watch_of_one_goes_on_at_the_other(pair: Pair) -> None:
    one, other, held = pair
    path = "/api/v1/namespaces/default/configmaps"
    first = await one.create_config_map("first")
    second = await other.create_config_map("second")
    held.gate.clear()
    third = await one.create_config_map("third")
    version = first["metadata"]["resourceVersion"]
    asyncio.get_running_loop().call_later(0.1, held.gate.set)
    async with other.session().get(f"{path}?watch=1&resourceVersion={version}") as response, asyncio.timeout(20):
        events = [msgspec.json.decode(await response.content.readline()) for _ in range(2)]
    versions = [event["object"]["metadata"]["resourceVersion"] for event in events]
    assert versions == [each["metadata"]["resourceVersion"] for each in (second, third)]


async def test_a_kind_defined_at_one_is_served_by_the_other(pair: Pair) -> None:
    one, other, held = pair
    names_ = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "names": names_, "scope": "Namespaced", "versions": [version]}
    definition = {"metadata": {"name": "widgets.example.com"}, "spec": spec}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await callers.make(one, path, definition)
    async with asyncio.timeout(20):
        while not _is_established((await one.get(f"{path}/widgets.example.com")).json()):
            await asyncio.sleep(0.02)
    held.gate.clear()
    widgets = "/apis/example.com/v1/namespaces/default/widgets"
    await callers.make(one, widgets, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})
    reading = asyncio.ensure_future(other.get(f"{widgets}/w"))
    held.gate.set()
    assert (await reading).status == 200


def _is_established(definition: Any) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(row["type"] == "Established" and row["status"] == "True" for row in conditions)


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"


async def lease_names(world: worlds.World) -> list[str]:
    found = (await world.get(f"{LEASES}?labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver")).json()
    return [item["metadata"]["name"] for item in found["items"]]


async def ports_of(world: worlds.World) -> set[int]:
    subsets = (await world.get(ENDPOINTS)).json()["subsets"]
    return {row["port"] for subset in subsets for row in subset["ports"]}


def peers_of(world: worlds.World) -> peers.Peers:
    assert world.server.peers is not None
    return world.server.peers


async def test_servers_know_of_one_another_and_both_are_endpoints(pair: Pair) -> None:
    one, other, _ = pair
    assert len(await lease_names(one)) == 2
    assert (peers_of(one).count, peers_of(other).count) == (2, 2)
    assert await ports_of(one) == {one.server.address[1], other.server.address[1]}


async def test_a_server_that_ends_gives_its_share_back(tmp_path: pathlib.Path, opening: Opening) -> None:
    async with worlds.world(tmp_path / "d", store=await opening(), shared=True) as one:
        async with worlds.world(tmp_path / "d", store=await opening(), shared=True):
            assert peers_of(one).count == 2
        assert (await one.get("/api/v1/namespaces/default")).status == 200
        assert peers_of(one).count == 1
        await one.movable().advance(peers.RENEW + 1)
        async with asyncio.timeout(20):
            while await ports_of(one) != {one.server.address[1]}:
                await asyncio.sleep(0.02)


async def test_a_server_that_is_silent_counts_no_more(pair: Pair) -> None:
    """Its Lease stands unchanged for too long on the clock of the other, and is its own when it comes back."""
    one, other, _ = pair
    async with asyncio.timeout(40):
        while peers_of(one).count != 1:
            await one.movable().advance(peers.RENEW + 1)
            await asyncio.sleep(0.05)
    assert peers_of(other).count == 2
    async with asyncio.timeout(40):
        while peers_of(one).count != 2:
            await other.movable().advance(peers.RENEW + 1)
            await asyncio.sleep(0.05)


async def test_after_the_store_was_away_nobody_is_taken_to_be_gone_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None could renew its Lease: whoever can first would else take the budgets of all."""
    one, other, _ = pair
    renewed = peers_of(one)._announce

    failed, done = [0], asyncio.Event()

    async def away() -> None:
        failed[0] += 1
        raise protocol.StoreUnavailable("away")

    monkeypatch.setattr(peers_of(one), "_announce", away)
    async with asyncio.timeout(40):
        while failed[0] < 4:
            await one.movable().advance(peers.RENEW + 1)
            await asyncio.sleep(0.02)

    async def back() -> None:
        await renewed()
        done.set()

    monkeypatch.setattr(peers_of(one), "_announce", back)
    async with asyncio.timeout(40):
        while not done.is_set():
            await one.movable().advance(peers.RENEW + 1)
            await asyncio.sleep(0.05)
        while one.server.storage.replica.version < (await other.server.storage._store.current_revision()):
            await asyncio.sleep(0.02)
    assert (await one.get("/api/v1/namespaces/default")).status == 200
    assert peers_of(one).count == 2


async def test_a_lease_speaks_for_the_stored_form_longer_than_for_the_share(pair: Pair) -> None:
    one, _, _ = pair
    spec = (await one.get(f"{LEASES}/{peers_of(one).name}")).json()["spec"]
    assert spec["leaseDurationSeconds"] == announcement.LEASE_SECONDS


async def test_two_servers_of_one_name_notice_it(pair: Pair) -> None:
    one, other, _ = pair
    kept = peers_of(other).name
    peers_of(one).name = kept
    await one.movable().advance(peers.RENEW + 1)
    async with asyncio.timeout(20):
        while peers_of(one).name == kept or peers_of(one).name not in await lease_names(other):
            await asyncio.sleep(0.02)
    assert peers_of(other).name == kept


def lease(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    """What somebody may write who has the right to write Leases in kube-system."""
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


async def test_a_lease_that_no_server_wrote_is_no_server(pair: Pair) -> None:
    """It neither ends a server, nor takes a share of the budgets, nor is among the endpoints."""
    one, other, _ = pair
    known = await ports_of(one)
    copied = (await one.get(f"{LEASES}/{peers_of(other).name}")).json()["metadata"]["annotations"]
    for name, said in {
        "apiserver-a": {peers.ADDRESSES: "nonsense", peers.PORT: "1"},
        "apiserver-b": {peers.ADDRESSES: "0.0.0.1", peers.PORT: "6666"},
        "apiserver-c": copied,
        "apiserver-d": copied | {peers.ADDRESSES: "10.6.6.6"},
        "apiserver-e": {},
    }.items():
        await callers.make(one, LEASES, lease(name, said))
    # The real one again, with another address.
    path = f"{LEASES}/{peers_of(other).name}"
    document = (await one.get(path)).json()
    document["metadata"]["annotations"][peers.ADDRESSES] = "10.6.6.6"
    assert (await one.request("PUT", path, document)).status == 200
    # What each renewal does.
    await peers_of(one).begin()
    await peers_of(one).publish()
    assert peers_of(one).count == 2
    assert await ports_of(one) == known
    subsets = (await one.get(ENDPOINTS)).json()["subsets"]
    assert {row["ip"] for subset in subsets for row in subset["addresses"]} == {"127.0.0.1"}


# Odd, so that a share is no whole number. Clocks stand still: nothing comes back while a test runs.
BURST, PLACES, STRANGERS = 15, 9, 7
SMALL = limits_module.Limits(
    user_burst=BURST, connections_per_source=PLACES, connections_burst=STRANGERS, waiting_seconds=0.0
)


async def knock(stack: contextlib.AsyncExitStack, side: worlds.World, context: ssl.SSLContext) -> wire.Line | None:
    """A connection that stays open until the end; None if it is not let in."""
    try:
        return await stack.enter_async_context(wire.line(side.server.address[1], context))
    except (ConnectionError, ssl.SSLError):
        return None


async def test_budgets_hold_for_the_sum_of_both(tmp_path: pathlib.Path, opening: Opening) -> None:
    """Never more than documented, and one for each server: connections by rate and by places, and requests."""
    async with (
        worlds.world(tmp_path / "d", store=await opening(), shared=True, limits=SMALL) as one,
        worlds.world(tmp_path / "d", store=await opening(), shared=True, limits=SMALL) as other,
        contextlib.AsyncExitStack() as stack,
    ):
        sides = (one, other) * PLACES
        stranger, alice = one.anonymous_context(), one.context_for("alice")
        for side in (one, other):
            await side.server.replica.fresh()
        strangers = [await knock(stack, side, stranger) for side in sides]
        assert STRANGERS - 2 <= len([line for line in strangers if line]) <= STRANGERS + 2
        for side in (one, other):
            await side.movable().advance(1.0)
        # Who is known takes the places of strangers, and makes room for nobody.
        lines: list[tuple[worlds.World, wire.Line]] = []
        answers = []
        for side in sides:
            if (line := await knock(stack, side, alice)) is not None:
                lines.append((side, line))
                answers.append((await line.ask("GET", "/api/v1/namespaces/default/configmaps")).status)
        assert PLACES - 2 <= len(lines) <= PLACES + 2
        assert {side for side, _ in lines} == {one, other}
        answers += [(await line.ask("GET", "/api/v1/namespaces/default/configmaps")).status for _, line in lines * 4]
        assert set(answers) == {403, 429}
        assert BURST - 2 <= answers.count(403) <= BURST + 2


async def test_a_server_that_comes_brings_no_more_than_its_share(tmp_path: pathlib.Path, opening: Opening) -> None:
    """What one server let pass alone is not asked back; the one that comes has half of a budget, and both have no more."""
    limits = dataclasses.replace(SMALL, connections_per_source=4096, connections_burst=400)
    async with worlds.world(tmp_path / "d", store=await opening(), shared=True, limits=limits) as one:
        alice = one.context_for("alice")

        async def let_pass(side: worlds.World) -> int:
            path = "/api/v1/namespaces/default/configmaps"
            answers = [(await side.get(path, context=alice)).status for _ in range(2 * BURST)]
            return answers.count(403)

        assert await let_pass(one) == BURST
        async with worlds.world(tmp_path / "d", store=await opening(), shared=True, limits=limits) as other:
            assert await let_pass(other) == BURST // 2
            assert await let_pass(one) == 0


async def test_all_may_begin_on_an_empty_store_at_once(tmp_path: pathlib.Path, opening: Opening) -> None:
    opened = [await opening() for _ in range(3)]

    async def look(world: worlds.World) -> list[str]:
        found = []
        for path in ("/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/api/v1/configmaps"):
            found += [item["metadata"]["uid"] for item in (await world.get(path)).json()["items"]]
        return found

    async with contextlib.AsyncExitStack() as stack:
        begun = [stack.enter_async_context(worlds.world(tmp_path / "d", store=store, shared=True)) for store in opened]
        made = await asyncio.gather(*begun)
        first, *others = [await look(world) for world in made]
        assert all(each == first for each in others)
        assert len(set(first)) == len(first)


class Squeezed:
    """A form that a next version may have: the document takes less room."""

    def pack(self, payload: bytes) -> bytes:
        return zlib.compress(payload)

    def unpack(self, packed: bytes) -> bytes:
        return zlib.decompress(packed)


# The first version there was, and one that is to come.
FIRST = {1: envelope.FORMS[1]}
NEXT = {**envelope.FORMS, 3: Squeezed()}


async def _form_of(store: SharedStore, key: str) -> int:
    entry = await store.get(key)
    assert entry is not None
    return int(entry.value[0])


async def test_a_new_form_is_written_when_the_last_server_that_cannot_read_it_is_gone(
    tmp_path: pathlib.Path, opening: Opening
) -> None:
    path, secrets = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/secrets"
    store = await opening()
    older = contextlib.AsyncExitStack()
    old = await older.enter_async_context(worlds.world(tmp_path / "d", store=await opening(), shared=True, forms=FIRST))
    async with older, worlds.world(tmp_path / "d", store=store, shared=True, forms=NEXT) as new:
        made = await new.create_config_map("while-both-serve", k="v")
        assert await _form_of(store, "core/configmaps/default/while-both-serve") == 1
        # The older one could not read in the ledger who made a token, so nobody writes it.
        assert not new.server.storage.names_makers()
        answer = await old.get(f"{path}/while-both-serve")
        assert (answer.status, answer.json()) == (200, made)
        # It ends, and says so.
        await older.aclose()
        async with asyncio.timeout(60):
            while new.server.announcer.form == 1:
                await new.movable().advance(peers.RENEW)
                await asyncio.sleep(0.02)
        await new.create_config_map("afterwards", k="v")
        made = (await new.request("POST", secrets, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})).json()
        assert [
            await _form_of(store, f"core/{key}")
            for key in ("configmaps/default/while-both-serve", "configmaps/default/afterwards", "secrets/default/s")
        ] == [1, 3, 3]
        assert new.server.storage.names_makers()
    # The older version does not start any more, and says what to do; the newer one reads both forms.
    with pytest.raises(stored_forms.StoreTooNew, match="values of form 3") as refusal:
        async with worlds.world(tmp_path / "d", store=await opening(), shared=True, forms=FIRST):
            pass
    assert "restore a backup from before the upgrade" in (refusal.value.hint or "")
    async with worlds.world(tmp_path / "d", store=await opening(), shared=True, forms=NEXT) as again:
        names = {item["metadata"]["name"] for item in (await again.get(path)).json()["items"]}
        assert names >= {"while-both-serve", "afterwards"}
        assert (await again.get(f"{secrets}/s")).json() == made
