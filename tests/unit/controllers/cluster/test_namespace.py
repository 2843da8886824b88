# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.controllers import loop
from handfast.controllers.cluster import namespace
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock

DELETED = {"deletionTimestamp": "2030-01-01T00:00:00Z"}


def world(**metadata: Any) -> tuple[FakeClient, namespace.Namespaces]:
    client = FakeClient()
    client.put("namespaces", "ns", metadata=metadata, spec={"finalizers": ["kubernetes", "example.dev/other"]})
    return client, namespace.Namespaces(client, MovableClock())


def conditions(client: FakeClient) -> dict[str, Any]:
    return {row["type"]: row for row in client.objects["namespaces", "", "ns"]["status"]["conditions"]}


async def test_a_namespace_in_use_is_left_alone():
    client, handler = world()
    client.put("configmaps", "c", "ns")
    await handler.reconcile("ns")
    await handler.reconcile("unknown")
    assert client.calls == []


async def test_emptied_then_let_go_but_only_by_us():
    client, handler = world(**DELETED)
    client.put("configmaps", "c", "ns")
    client.put("configmaps", "c", "elsewhere")
    client.put(
        "customresourcedefinitions",
        "widgets.example.dev",
        spec={
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True}],
        },
        status={"conditions": [{"type": "Established", "status": "True"}]},
    )
    client.put("widgets", "w", "ns")
    await handler.reconcile("ns")
    assert client.calls == [
        ("deletecollection", "configmaps", "ns"),
        ("deletecollection", "widgets", "ns"),
        ("update finalize", "namespaces", "ns"),
    ]
    assert client.objects["namespaces", "", "ns"]["spec"]["finalizers"] == ["example.dev/other"]
    assert ("configmaps", "elsewhere", "c") in client.objects
    await handler.reconcile("ns")
    assert len(client.calls) == 3


async def test_what_remains_is_told_once():
    client, handler = world(**DELETED)
    client.put("configmaps", "c", "ns", metadata={"finalizers": ["example.dev/hold"]})
    for _ in range(2):
        with pytest.raises(loop.NotYet, match="not empty"):
            await handler.reconcile("ns")
    assert client.calls.count(("update status", "namespaces", "ns")) == 1
    found = conditions(client)
    assert {name: row["status"] for name, row in found.items()} == {
        "NamespaceDeletionContentFailure": "False",
        "NamespaceContentRemaining": "True",
        "NamespaceFinalizersRemaining": "True",
    }


async def test_what_cannot_be_deleted_does_not_keep_the_rest():
    client, handler = world(**DELETED)
    client.put("configmaps", "c", "ns")
    client.put("secrets", "s", "ns")
    client.put("pods", "p", "ns")

    def refuse(verb: str, plural: str, _name: str) -> None:
        if verb == "deletecollection" and plural == "configmaps":
            raise status.forbidden("configmaps", "", "", "no")
        if plural == "pods":
            raise status.not_found("pods", "", "")

    client.before = refuse
    with pytest.raises(loop.NotYet):
        await handler.reconcile("ns")
    assert ("secrets", "ns", "s") not in client.objects
    failure = conditions(client)["NamespaceDeletionContentFailure"]
    assert failure["status"] == "True"
    assert failure["message"] == "configmaps: configmaps is forbidden: no"


async def test_errors_pass_through():
    client, handler = world(**DELETED)

    def refuse(*_: str) -> None:
        raise errors.Unavailable("no server")

    client.before = refuse
    with pytest.raises(errors.Unavailable, match="no server"):
        await handler.reconcile("ns")

    def forbid(*_: str) -> None:
        raise status.forbidden("namespaces", "", "ns", "no")

    client.before = forbid
    with pytest.raises(errors.Refused, match="forbidden"):
        await handler.reconcile("ns")


def test_a_condition_keeps_the_time_of_its_last_turn():
    left = namespace.Left(remaining={"pods": 2}, finalizers={"a": 1, "b": 1})
    first = left.conditions({}, "T1")
    assert {row["lastTransitionTime"] for row in first.values()} == {"T1"}
    second = namespace.Left(remaining={"pods": 1}).conditions(first, "T2")
    times = {name: row["lastTransitionTime"] for name, row in second.items()}
    assert times == {
        "NamespaceDeletionContentFailure": "T1",
        "NamespaceContentRemaining": "T1",
        "NamespaceFinalizersRemaining": "T2",
    }
    assert bool(left)
    assert not namespace.Left()


@pytest.mark.parametrize("finalizers", [[None, "example.dev/hold"], "example.dev/hold", [{}], 5])
async def test_an_odd_object_is_still_there(finalizers: Any):
    client, handler = world(**DELETED)
    client.put("configmaps", "odd", "ns", metadata={"finalizers": finalizers, "ownerReferences": [None]})
    client.put("configmaps", "plain", "ns")
    with pytest.raises(loop.NotYet, match=r"not empty: \{'configmaps': 1\}"):
        await handler.reconcile("ns")
    assert ("configmaps", "ns", "plain") not in client.objects
    assert ("update finalize", "namespaces", "ns") not in client.calls
    del client.objects["configmaps", "ns", "odd"]
    await handler.reconcile("ns")
    assert ("update finalize", "namespaces", "ns") in client.calls


async def test_handfasts_own_kinds_go_with_their_namespace():
    client, handler = world(**DELETED)
    client.put("meshworkloads", "web-1", "ns")
    await handler.reconcile("ns")
    assert ("deletecollection", "meshworkloads", "ns") in client.calls
