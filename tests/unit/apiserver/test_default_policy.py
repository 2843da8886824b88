# SPDX-License-Identifier: Apache-2.0
"""Defaults on a real store: made when missing, completed when not, and nothing taken away."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast.api import kinds
from handfast.apiserver import default_policy
from handfast.apiserver.access import policy
from handfast.apiserver.state import envelope, items, replica, storage
from handfast.rules import access, decision
from handfast.rules.rbac import defaults, policy_rules
from handfast.runtime import tasks
from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.world import clock as clocks

KINDS = {kind.plural: kind for kind in kinds.builtin() if kind.group == policy_rules.GROUP}
OWN = {"verbs": ["own"], "apiGroups": [""], "resources": ["pods"]}


class RacingStorage(storage.Storage):
    """Storage in which another server is faster with every write, if told so."""

    races = False

    async def create(self, kind: kinds.Kind, document: dict[str, Any]) -> items.Item:
        made = await super().create(kind, document)
        if self.races:
            raise protocol.Mismatch("key", None)
        return made

    async def replace(self, kind: kinds.Kind, document: dict[str, Any], old: items.Item) -> items.Item:
        if self.races:
            raise protocol.Mismatch("key", None)
        return await super().replace(kind, document, old)


class Server:
    def __init__(self, store: engine.SqliteStore) -> None:
        envelopes = envelope.Envelopes(None, ())
        self.clock = clocks.MovableClock()
        self.copy = replica.Replica(store, envelopes)
        self.storage = RacingStorage(store, envelopes, self.copy)
        self.feed = policy.PolicyFeed(self.copy)

    async def ensure(self) -> None:
        await default_policy.ensure(self.storage, self.clock)
        await self.copy.fresh()

    async def get(self, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
        found = await self.storage.find(KINDS[plural], namespace, name)
        assert found is not None
        return found.document()

    async def change(self, plural: str, name: str, **fields: Any) -> None:
        found = await self.storage.find(KINDS[plural], "", name)
        assert found is not None
        document = {**found.document(), **fields}
        await self.storage.replace(KINDS[plural], document, found)

    def versions(self) -> dict[tuple[str, str, str], int]:
        return {
            (plural, item.namespace, item.name): item.version
            for plural, kind in KINDS.items()
            for item in self.copy.collection(kind.prefix).snapshot()
        }


@pytest.fixture
async def server(tmp_path: pathlib.Path) -> AsyncIterator[Server]:
    store = await engine.open_store(str(tmp_path / "store.db"))
    made = Server(store)
    await made.copy.load()
    made.feed.load()
    async with tasks.Group("test") as group:
        group.start(made.copy.follow(), name="follow")
        yield made
        group.end()
    await store.close()


async def test_everything_is_made_once(server: Server):
    await server.ensure()
    versions = server.versions()
    assert set(versions) == {(default.plural, default.namespace, default.name) for default in defaults.documents()}
    found = await server.get("roles", "system:controller:token-cleaner", "kube-system")
    assert found["metadata"]["namespace"] == "kube-system"
    assert found["metadata"]["uid"]
    await server.ensure()
    assert server.versions() == versions


async def test_roles_for_people_work_before_any_controller(server: Server):
    await server.ensure()
    verbs = {
        name: {verb for rule in (await server.get("clusterroles", name))["rules"] for verb in rule["verbs"]}
        for name in ("view", "edit", "admin")
    }
    assert verbs["view"] == {"get", "list", "watch"}
    assert "create" in verbs["edit"]
    view, edit, admin = [
        policy_rules.parse((await server.get("clusterroles", name))["rules"]) for name in ("view", "edit", "admin")
    ]
    assert set(view) < set(edit) < set(admin)
    asked = access.Attributes(
        user="root", groups=("system:masters",), verb="delete", is_resource=True, plural="nodes", name="n"
    )
    assert isinstance(server.feed.policy.decide(asked), decision.Approve)


async def test_what_is_missing_is_added_and_what_is_more_stays(server: Server):
    await server.ensure()
    before = await server.get("clusterroles", "system:node-bootstrapper")
    await server.change("clusterroles", "system:node-bootstrapper", rules=[OWN])
    await server.change("clusterrolebindings", "system:discovery", subjects=[{"kind": "User", "name": "u"}])
    await server.ensure()
    found = await server.get("clusterroles", "system:node-bootstrapper")
    assert found["rules"] == [OWN, *before["rules"]]
    assert found["metadata"]["uid"] == before["metadata"]["uid"]
    subjects = (await server.get("clusterrolebindings", "system:discovery"))["subjects"]
    assert [subject["name"] for subject in subjects] == ["u", "system:authenticated"]


async def test_protected_objects_are_left_alone(server: Server):
    await server.ensure()
    for plural, name, more in (
        ("clusterroles", "system:node-bootstrapper", {"rules": []}),
        ("clusterroles", "view", {"rules": [OWN]}),
        ("clusterrolebindings", "system:discovery", {"roleRef": {"kind": "ClusterRole", "name": "view"}}),
    ):
        metadata = {**(await server.get(plural, name))["metadata"], "annotations": {defaults.AUTOUPDATE: "false"}}
        await server.change(plural, name, metadata=metadata, **more)
    await server.copy.fresh()
    versions = server.versions()
    await server.ensure()
    after = server.versions()
    # Those that gather from `view` follow what it says now.
    assert {key for key in versions if versions[key] != after[key]} <= {
        ("clusterroles", "", "edit"),
        ("clusterroles", "", "admin"),
    }
    assert (await server.get("clusterroles", "view"))["rules"] == [OWN]


async def test_a_binding_to_another_role_is_made_anew(server: Server):
    await server.ensure()
    before = await server.get("clusterrolebindings", "cluster-admin")
    await server.change("clusterrolebindings", "cluster-admin", roleRef={"kind": "ClusterRole", "name": "view"})
    await server.ensure()
    after = await server.get("clusterrolebindings", "cluster-admin")
    assert after["roleRef"] == before["roleRef"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


async def test_an_extra_source_is_gathered(server: Server):
    await server.ensure()
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    document = {
        "apiVersion": f"{policy_rules.GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "widgets", "labels": labels},
        "rules": [OWN],
    }
    await server.storage.create(KINDS["clusterroles"], document)
    await server.ensure()
    for name in ("view", "edit", "admin"):
        assert OWN in (await server.get("clusterroles", name))["rules"]


async def test_another_server_may_be_faster(server: Server):
    server.storage.races = True
    await server.ensure()
    # What the other one made is there; what could not be gathered is left to it.
    assert len(server.versions()) == len(defaults.documents())
    assert (await server.get("clusterroles", "view"))["rules"] == []
    server.storage.races = False
    await server.ensure()
    assert (await server.get("clusterroles", "view"))["rules"]


async def test_a_deleted_role_is_not_gathered_for(server: Server, monkeypatch: pytest.MonkeyPatch):
    await server.ensure()
    found = await server.storage.find(KINDS["clusterroles"], "", "view")
    assert found is not None
    # Between making and gathering someone deletes it.
    monkeypatch.setattr(defaults, "documents", list)
    await server.storage.delete(KINDS["clusterroles"], found)
    await server.ensure()
    assert ("clusterroles", "", "view") not in server.versions()
