# SPDX-License-Identifier: Apache-2.0
"""Quotas over a real store. The names of the table in `apiserver/admission/quotas.py` are here."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast import errors
from handfast.api import objects
from handfast.apiserver.admission import plugin, quotas
from handfast.apiserver.state import envelope, items, replica, storage
from handfast.rules.rbac import default_roles
from handfast.runtime import tasks
from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.unit.apiserver import admission_world
from tests.world import clock as clocks

MAPS = admission_world.KINDS["", "configmaps"]
QUOTAS = admission_world.KINDS["", "resourcequotas"]


class Server:
    """One server on a store: its copy, and its rows of admission."""

    def __init__(self, store: protocol.Store) -> None:
        envelopes = envelope.Envelopes(None, ())
        self.replica = replica.Replica(store, envelopes)
        self.storage = storage.Storage(store, envelopes, self.replica)
        context = plugin.Context(self.replica, admission_world.refuses, clocks.MovableClock().now)
        self._chain = plugin.Chain(quotas.Quotas(self.storage).rows, context)

    async def ask(self, name: str = "new", **facts: Any) -> None:
        usual = {
            "operation": plugin.CREATE,
            "kind": MAPS,
            "subresource": "",
            "namespace": "a",
            "name": name,
            "document": {"metadata": {"name": name, "namespace": "a"}},
            "old": None,
            "user": admission_world.JANE,
            "dry_run": False,
        }
        await self._chain.run(plugin.Write(**{**usual, **facts}))

    async def quota(self, name: str = "few", **hard: str) -> None:
        hard = {key.replace("_", "."): amount for key, amount in hard.items()}
        status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        metadata = {"name": name, "namespace": "a"}
        document = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "status": status}
        await self.storage.create(QUOTAS, document)

    async def item(self, name: str = "few") -> items.Item:
        found = await self.storage.find(QUOTAS, "a", name)
        assert found is not None
        return found

    async def used(self, name: str = "few") -> dict[str, str]:
        used: dict[str, str] = (await self.item(name)).document()["status"]["used"]
        return used


@pytest.fixture
async def servers(tmp_path: pathlib.Path) -> AsyncIterator[tuple[Server, Server]]:
    """Two, on one store."""
    store = await engine.open_store(str(tmp_path / "store.db"))
    pair = Server(store), Server(store)
    async with tasks.Group("test") as group:
        for each in pair:
            await each.replica.load()
            group.start(each.replica.follow(), name="follow")
        yield pair
        group.end()
    await store.close()


@pytest.fixture
async def server(servers: tuple[Server, Server]) -> Server:
    return servers[0]


async def test_without_a_quota_nothing_is_asked(server: Server) -> None:
    await server.ask()


async def test_the_use_is_written_before_the_object_is_stored(server: Server) -> None:
    await server.quota(configmaps="2", pods="3")
    await server.ask()
    assert await server.used() == {"configmaps": "1", "pods": "0"}


async def test_of_many_at_once_as_many_get_in_as_fit(server: Server) -> None:
    await server.quota(configmaps="3")
    asked = await asyncio.gather(*(server.ask(f"m{number}") for number in range(10)), return_exceptions=True)
    assert asked.count(None) == 3
    refusals = [each for each in asked if isinstance(each, plugin.Refusal)]
    assert len(refusals) == 7
    assert refusals[0].why == "QuotaExceeded"
    assert 'configmaps "m3" is forbidden: exceeded quota: few, requested: configmaps=1' in refusals[0].message
    assert await server.used() == {"configmaps": "3"}


async def test_another_servers_reservation_counts(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.quota(configmaps="4")
    asks = [each.ask(f"m{number}") for number in range(10) for each in servers]
    asked = await asyncio.gather(*asks, return_exceptions=True)
    assert [each for each in asked if each is not None and not isinstance(each, plugin.Refusal)] == []
    assert asked.count(None) == 4
    assert await other.used() == {"configmaps": "4"}


async def test_a_name_that_is_taken_uses_nothing(server: Server) -> None:
    await server.quota(configmaps="1")
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "namespace": "a"}}
    await server.storage.create(MAPS, document)
    await server.replica.fresh()
    with pytest.raises(protocol.Mismatch):
        await server.ask()
    assert await server.used() == {"configmaps": "0"}


async def test_a_dry_run_reserves_nothing(server: Server) -> None:
    await server.quota(configmaps="1")
    await server.ask(dry_run=True)
    assert await server.used() == {"configmaps": "0"}
    await server.ask()
    with pytest.raises(plugin.Refusal):
        await server.ask("another", dry_run=True)


async def test_what_one_quota_refuses_uses_none_up(server: Server) -> None:
    await server.quota("a-many", configmaps="5")
    await server.quota("b-none", configmaps="0")
    with pytest.raises(plugin.Refusal, match="b-none"):
        await server.ask()
    assert await server.used("a-many") == {"configmaps": "0"}


@pytest.mark.parametrize(
    "facts",
    [
        {"subresource": "status"},
        {"document": None},
        {"kind": admission_world.KINDS["", "nodes"]},
        {"operation": plugin.UPDATE},
        {"operation": plugin.DELETE},
    ],
)
async def test_only_what_is_added_is_asked_about(server: Server, facts: dict[str, Any]) -> None:
    await server.quota(configmaps="0")
    await server.ask(**facts)


async def test_a_change_of_a_service_is_asked_about(server: Server) -> None:
    await server.quota(services_nodeports="1")
    document = {"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [{}, {}]}}
    facts = {"kind": admission_world.KINDS["", "services"], "operation": plugin.UPDATE, "document": document, "old": {}}
    with pytest.raises(plugin.Refusal, match=r"services\.nodeports=2"):
        await server.ask("web", **facts)


def _meddle(server: Server, act: Any) -> None:
    """Let somebody else write between each look and each write."""
    replace = server.storage.replace

    async def late(kind: Any, document: objects.Document, old: items.Item) -> items.Item:
        await act()
        return await replace(kind, document, old)

    server.storage.replace = late  # type: ignore[method-assign]


async def test_a_conflict_is_judged_anew(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.quota(configmaps="1")
    others = iter(("theirs",))

    async def act() -> None:
        for name in others:
            await other.ask(name)

    _meddle(one, act)
    with pytest.raises(plugin.Refusal, match="used: configmaps=1"):
        await one.ask()
    assert await one.used() == {"configmaps": "1"}


async def test_a_quota_that_goes_meanwhile_limits_nothing(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.quota(configmaps="1")

    async def act() -> None:
        await other.storage.delete(QUOTAS, await other.item())

    _meddle(one, act)
    await one.ask()


async def test_who_never_gets_a_turn_is_told_so(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.quota(configmaps="100")
    numbers = iter(range(1000))

    async def act() -> None:
        item = await other.item()
        document = item.document()
        document["metadata"]["labels"] = {"touched": str(next(numbers))}
        await other.storage.replace(QUOTAS, document, item)

    _meddle(one, act)
    with pytest.raises(errors.Unavailable, match="please try again") as caught:
        await one.ask()
    assert caught.value.reason == "QuotaContended"


def test_no_role_for_tenants_writes_quotas() -> None:
    for role in ("system:aggregate-to-view", "system:aggregate-to-edit", "system:aggregate-to-admin"):
        for rule in default_roles.CLUSTER_ROLES[role]:
            if {"resourcequotas", "resourcequotas/status", "limitranges"} & set(rule.resources):
                assert set(rule.verbs) <= set(default_roles.READ)
