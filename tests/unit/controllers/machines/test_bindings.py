# SPDX-License-Identifier: Apache-2.0
"""Bindings that go round the inventory are told of, each once."""

from __future__ import annotations

from typing import Any

import msgspec

from handfast.client import cache, events
from handfast.controllers.machines import approver, bindings
from handfast.rules.machines import bootstrapper
from tests.unit.controllers.machines.machine_world import World

RULE = {"verbs": ["create"], "apiGroups": ["*"], "resources": ["certificatesigningrequests/nodeclient"]}


class Bound(World):
    def __init__(self) -> None:
        super().__init__()
        self.bindings, self.roles = cache.Informer(bindings.BINDINGS), cache.Informer(bindings.ROLES)
        recorder = events.Recorder(self.client, self.clock, approver.NAME)
        self.watched_bindings = bindings.Bindings(self.bindings, self.roles, self.settings, recorder)
        self._number = 0

    def _meta(self, name: str) -> dict[str, Any]:
        self._number += 1
        return {"name": name, "uid": name, "resourceVersion": str(self._number)}

    def role(self, name: str, *rules: dict[str, Any]) -> None:
        self.roles.put(msgspec.convert({"metadata": self._meta(name), "rules": list(rules)}, bindings.Role))

    def bind(self, name: str, role: str, *groups: str) -> None:
        subjects = [{"kind": "Group", "name": group} for group in groups]
        reference = {"kind": "ClusterRole", "name": role}
        document = {"metadata": self._meta(name), "roleRef": reference, "subjects": subjects}
        self.bindings.put(msgspec.convert(document, bindings.Binding))


async def test_a_binding_that_goes_round_is_told_of_once_and_again_when_it_comes_back() -> None:
    world = Bound()
    world.bind("round", "wide", *bootstrapper.GROUPS)
    await world.watched_bindings.reconcile("round")
    assert world.said_of("ClusterRoleBinding") == []
    world.role("wide", RULE)
    for _ in range(2):
        await world.watched_bindings.reconcile("round")
    ((reason, message),) = world.said_of("ClusterRoleBinding")
    assert (reason, 'ClusterRoleBinding "round"' in message) == ("InventoryBypassed", True)
    world.role("wide")
    await world.watched_bindings.reconcile("round")
    world.role("wide", RULE)
    await world.watched_bindings.reconcile("round")
    events_ = [row for (plural, _, _), row in world.client.objects.items() if plural == "events"]
    assert [row["count"] for row in events_] == [2]


async def test_a_binding_that_never_was_is_nothing_to_tell_of() -> None:
    world = Bound()
    await world.watched_bindings.reconcile("never")
    assert world.said_of("ClusterRoleBinding") == []


async def test_a_binding_that_is_gone_is_forgotten() -> None:
    world = Bound()
    world.role("wide", RULE)
    for _ in range(2):
        world.bind("round", "wide", *bootstrapper.GROUPS)
        await world.watched_bindings.reconcile("round")
        (binding,) = world.bindings
        world.bindings.remove(binding)
        await world.watched_bindings.reconcile("round")
    events_ = [row for (plural, _, _), row in world.client.objects.items() if plural == "events"]
    assert [row["count"] for row in events_] == [2]
