# SPDX-License-Identifier: Apache-2.0
"""Whoever may write a subresource changes the part it stands for and nothing else, whichever way they write.

The subresources are those of the server's own table, with a custom kind in it, so that one that is added is tried too.
Every row is tried by PUT and by every patch type, with bodies that ask for more than the subresource gives.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.api import kinds
from handfast.api.defaulting import defaults
from handfast.api.schema import schema
from handfast.apiserver.strategy import strategies
from tests.properties import sample_documents
from tests.scenarios import granting
from tests.world import world as worlds

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JSON, MERGE, STRATEGIC, APPLY, PUT = "json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply", "PUT"
WAYS = (JSON, MERGE, STRATEGIC, APPLY, PUT)
# What a write to /status may change beside the status.
USERS = ("labels", "annotations", "managedFields", "resourceVersion")
EVIL = {"serviceAccountName": "root", "containers": [{"name": "c", "image": "evil"}]}
GRASPING: dict[str, Any] = {
    "metadata": {
        "finalizers": ["evil.example.com/x"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "evil", "uid": "u"}],
        "uid": "evil",
        "generation": 99,
    },
    "spec": {"evil": "yes"},
    "evil": {"yes": True},
}
WIDGETS = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.deep.size", "statusReplicasPath": ".status.count"},
                },
            }
        ],
    },
}


async def define(world: worlds.World) -> kinds.Kind:
    await granting.made(world, DEFINITIONS, WIDGETS)
    kind = world.server.table.find("example.com", "v1", "widgets")
    assert kind is not None
    return kind


def sample(kind: kinds.Kind) -> dict[str, Any]:
    if kind.message:
        document = sample_documents.document(kind)
        defaults.apply(kinds.stored_row(kind), document)
    else:
        metadata = {"name": "web", "namespace": "default", "uid": "u1", "creationTimestamp": sample_documents.CREATED}
        spec = {"deep": {"size": 1, "other": "kept"}, "replicas": "no number", "template": {"kept": True}}
        document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        # A kind whose schema has no spec drops one in every write.
        if "spec" in (kind.schema or {}).get("properties", {"spec": {}}):
            document["spec"] = spec
    return document


def path(kind: kinds.Kind, name: str) -> str:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/{'namespaces/default/' if kind.namespaced else ''}{kind.plural}/{name}"


def written(table: kinds.Table, subresource: str) -> Iterator[kinds.Kind]:
    for kind in table:
        sub = kind.subresource(subresource)
        if sub is not None and {"update", "patch"} & set(sub.verbs):
            yield kind


async def stored(world: worlds.World, kind: kinds.Kind) -> dict[str, Any]:
    """The sample of a kind, in the store without anybody's admission."""
    document = sample(kind)
    name = document["metadata"]["name"]
    if await world.server.storage.find(kind, "default" if kind.namespaced else "", name) is None:
        await world.server.storage.create(kind, document)
    answer = await world.get(path(kind, name))
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


async def write(world: worlds.World, url: str, way: str, body: Any, user: str = "") -> worlds.Answer:
    context = world.context_for(user) if user else None
    if way == PUT:
        return await world.request("PUT", url, body, context=context)
    media = "apply-patch+yaml" if way == APPLY else way
    url += "?fieldManager=mallory&force=true" if way == APPLY else ""
    return await world.request("PATCH", url, body, context=context, headers={"Content-Type": f"application/{media}"})


def operations(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The same as a JSON patch, by replacing whole fields; what the patch may not name is left out."""
    found = [{"op": "add", "path": f"/{key}", "value": value} for key, value in body.items() if key != "metadata"]
    metadata = body.get("metadata", {}).items()
    return found + [{"op": "add", "path": f"/metadata/{key}", "value": value} for key, value in metadata]


def bodies(way: str, before: dict[str, Any], wanted: dict[str, Any]) -> Any:
    """`wanted` asked for in one of the ways."""
    if way == JSON:
        return operations(wanted)
    if way in {MERGE, STRATEGIC}:
        return wanted
    body = copy.deepcopy(before) if way == PUT else {key: before[key] for key in ("apiVersion", "kind")}
    metadata = {**body.get("metadata", {}), **wanted.get("metadata", {}), "name": before["metadata"]["name"]}
    if way == APPLY:
        # These would be preconditions, and end it too early.
        metadata.pop("uid", None)
    elif "uid" in before["metadata"]:
        metadata["uid"] = before["metadata"]["uid"]
    return {**body, **wanted, "metadata": metadata}


def without(document: dict[str, Any], *paths: str) -> dict[str, Any]:
    left = copy.deepcopy(document)
    for each in paths:
        *parents, last = each.split(".")
        place = left
        for key in parents:
            place = place.get(key, {})
        place.pop(last, None)
    return left


EVIL_NUMBER = 666
VALUES = {"string": "evil", "bool": True, "int32": 7, "int64": 7}


def grasping(kind: kinds.Kind) -> dict[str, Any]:
    """A new status, and a spec besides. Of a built-in kind they have fields that it knows: others would be dropped."""
    if not kind.message:
        known = (
            (kind.schema or {}).get("properties", {}).get("status", {}).get("properties", {"evil": {"type": "string"}})
        )
        field = next(name for name, row in known.items() if row.get("type") == "string")
        return {**GRASPING, "status": {field: "evil"}}
    fields = schema.message(kind.message).fields
    status = schema.message(fields["status"].type).fields
    if "conditions" in status:
        condition = {"type": "evil.example.com/yes", "status": "True", "reason": "evil", "message": "evil"}
        wanted: dict[str, Any] = {"conditions": [{**condition, "lastTransitionTime": "2024-01-01T00:00:00Z"}]}
    elif "active" in status:
        wanted = {"active": [{"name": "evil"}]}
    elif "used" in status:
        wanted = {"used": {"count/evil.example.com": "1"}}
    elif "currentReplicas" in status:
        # It has no text to be evil in.
        wanted = {"currentReplicas": EVIL_NUMBER}
    elif "loadBalancer" in status:
        wanted = {"loadBalancer": {"ingress": [{"hostname": "evil.example.com"}]}}
    else:
        wanted = {"message": "evil"} if "message" in status else {"attached": True, "attachError": {"message": "evil"}}
    spec = schema.message(fields["spec"].type).fields.values()
    known = next(({row.name: VALUES[row.type]} for row in spec if row.type in VALUES and not row.repeated), {})
    return {**GRASPING, "spec": {**GRASPING["spec"], **known}, "status": wanted}


def declared(way: str, document: dict[str, Any]) -> dict[str, Any]:
    """Without fields that no built-in kind has: who applies one is refused for that alone."""
    if way != APPLY:
        return document
    parts = {
        part: {key: value for key, value in document[part].items() if key != "evil"} for part in ("spec", "status")
    }
    return {**{key: value for key, value in document.items() if key != "evil"}, **parts}


@pytest.mark.parametrize("way", WAYS)
async def test_a_write_to_status_changes_nothing_but_the_status(world: worlds.World, way: str) -> None:
    await define(world)
    effective = []
    for kind in written(world.server.table, "status"):
        before = await stored(world, kind)
        url = path(kind, before["metadata"]["name"])
        wanted = declared(way, grasping(kind)) if kind.message else grasping(kind)
        answer = await write(world, f"{url}/status", way, bodies(way, before, wanted))
        after = (await world.get(url)).json()
        free = ("status", *(f"metadata.{key}" for key in USERS))
        assert without(after, *free) == without(before, *free), (kind.plural, answer.body)
        if any(mark in str(after.get("status", {})) for mark in ("evil", str(EVIL_NUMBER))):
            effective.append(kind.plural)
        # The server itself makes the status of a definition, anew in every write.
        elif kind.plural != "customresourcedefinitions" and (kind.message or way != STRATEGIC):
            assert answer.status in {400, 403, 422}, (kind.plural, answer.body)
    assert {"pods", "deployments", "nodes"} <= set(effective)
    assert ("widgets" in effective) == (way != STRATEGIC)


SCALES: dict[str, Any] = {
    JSON: operations({"spec": {"replicas": 7, "template": {"spec": EVIL}}, "metadata": {"labels": {"evil": "yes"}}}),
    MERGE: {"spec": {"replicas": 7, "template": {"spec": EVIL}}, "metadata": {"labels": {"evil": "yes"}}},
    STRATEGIC: {"spec": {"replicas": 7, "template": {"spec": EVIL}}, "metadata": {"labels": {"evil": "yes"}}},
    APPLY: {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "web", "labels": {"evil": "yes"}},
        "spec": {"replicas": 7, "template": {"spec": EVIL}},
        "evil": True,
    },
    PUT: {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "web", "labels": {"evil": "yes"}, "annotations": {"evil": "yes"}},
        "spec": {"replicas": 7, "template": {"spec": EVIL}},
        "evil": True,
    },
}


@pytest.mark.parametrize("way", WAYS)
async def test_scale_changes_the_replicas_and_nothing_else(world: worlds.World, way: str) -> None:
    await define(world)
    seen = set()
    for kind in written(world.server.table, "scale"):
        before = await stored(world, kind)
        url = path(kind, "web")
        place = strategies.replicas_path(kind).removeprefix(".")
        answer = await write(world, f"{url}/scale", way, SCALES[way])
        after = (await world.get(url)).json()
        free = (place, "metadata.managedFields", "metadata.resourceVersion", "metadata.generation")
        assert without(after, *free) == without(before, *free), kind.plural
        if way == STRATEGIC and not kind.message:
            assert answer.status == 415
            continue
        assert (answer.status, answer.json()["kind"], answer.json()["spec"]) == (200, "Scale", {"replicas": 7})
        assert after["metadata"]["generation"] == before["metadata"].get("generation", 0) + 1
        seen.add(kind.plural)
    assert {"deployments", "statefulsets", "replicasets", "replicationcontrollers"} <= seen
    assert ("widgets" in seen) == (way != STRATEGIC)


@pytest.mark.parametrize("way", [APPLY, PUT])
async def test_who_may_scale_cannot_send_the_workload(world: worlds.World, way: str) -> None:
    custom = await define(world)
    for kind, group in ((sample_documents.kind("apps", "deployments"), "apps"), (custom, "example.com")):
        user = f"scaler-of-{kind.plural}"
        await granting.grant(world, user, granting.rule("patch update", f"{kind.plural}/scale", group=group))
        before = await stored(world, kind)
        hostile = copy.deepcopy(without(before, "metadata.managedFields"))
        hostile["spec"]["template"] = {"metadata": {"labels": {"app": "web"}}, "spec": EVIL}
        answer = await write(world, f"{path(kind, 'web')}/scale", way, hostile, user)
        assert (answer.status, "autoscaling/v1" in answer.message) == (400, True), answer.body
        assert (await world.get(path(kind, "web"))).json() == before


class TestAppliedScale:
    """A Scale can be applied: the applier owns the number of replicas."""

    async def test_it_owns_the_replicas(self, world: worlds.World) -> None:
        for kind, fields in (
            (sample_documents.kind("apps", "deployments"), {"f:spec": {"f:replicas": {}}}),
            (await define(world), {"f:spec": {".": {}, "f:deep": {".": {}, "f:size": {}}}}),
        ):
            before = await stored(world, kind)
            url = path(kind, "web")
            for _ in range(2):
                assert (await write(world, f"{url}/scale", APPLY, SCALES[APPLY])).status == 200
            rows = (await world.get(url)).json()["metadata"]["managedFields"]
            owned = [row for row in rows if row["manager"] == "mallory"]
            assert [(row["operation"], row["subresource"], row["fieldsV1"]) for row in owned] == [
                ("Apply", "scale", fields)
            ]
            other = {**SCALES[APPLY], "spec": {"replicas": 8}}
            headers = {"Content-Type": "application/apply-patch+yaml"}
            answer = await world.request("PATCH", f"{url}/scale?fieldManager=other", other, headers=headers)
            assert (answer.status, answer.reason) == (409, "Conflict"), before

    async def test_it_is_refused(self, world: worlds.World) -> None:
        kind = sample_documents.kind("apps", "deployments")
        before = await stored(world, kind)
        rows: tuple[tuple[dict[str, Any], int, str], ...] = (
            ({"spec": {}}, 422, "spec.replicas: Required value"),
            ({"spec": None}, 422, "spec.replicas: Required value"),
            ({"spec": {"replicas": -1}}, 422, "must be greater than or equal to 0"),
            ({"spec": {"replicas": "many"}}, 400, "cannot unmarshal"),
            ({"kind": "Deployment"}, 400, "must be of type Scale"),
            ({"metadata": {"name": "other"}}, 400, "does not match the name on the URL"),
            ({"metadata": {"namespace": "other"}}, 400, "does not match the namespace"),
            ({"metadata": {"managedFields": [{"manager": "x"}]}}, 400, "managedFields"),
            ({"metadata": {"resourceVersion": "1"}}, 409, "has been modified"),
            ({"metadata": {"uid": "other"}}, 409, "UID in precondition"),
        )
        for change, code, says in rows:
            answer = await write(world, f"{path(kind, 'web')}/scale", APPLY, {**SCALES[APPLY], **change})
            assert (answer.status, says in answer.message) == (code, True), answer.body
        assert (await world.get(path(kind, "web"))).json() == before

    async def test_it_creates_nothing(self, world: worlds.World) -> None:
        kind = sample_documents.kind("apps", "deployments")
        answer = await write(world, f"{path(kind, 'web')}/scale", APPLY, SCALES[APPLY])
        assert (answer.status, answer.reason) == (404, "NotFound")


@pytest.mark.parametrize("way", WAYS)
async def test_approval_changes_the_conditions(world: worlds.World, way: str) -> None:
    kind = sample_documents.kind("certificates.k8s.io", "certificatesigningrequests")
    before = await stored(world, kind)
    url = path(kind, "web")
    note = {"type": "Failed", "status": "True", "reason": "seen"}
    conditions = [*before.get("status", {}).get("conditions", []), note]
    wanted = {**GRASPING, "status": {"conditions": conditions, "certificate": "", "evil": "yes"}}
    answer = await write(world, f"{url}/approval", way, bodies(way, before, declared(way, wanted)))
    assert answer.status == 200, answer.body
    after = (await world.get(url)).json()
    free = ("status.conditions", "metadata.managedFields", "metadata.resourceVersion")
    assert without(after, *free) == without(before, *free)
    assert "Failed" in [row["type"] for row in after["status"]["conditions"]]


async def test_finalize_changes_the_finalizers(world: worlds.World) -> None:
    kind = sample_documents.kind("", "namespaces")
    before = await stored(world, kind)
    wanted = {**GRASPING, "spec": {"evil": "yes", "finalizers": ["example.com/mine"]}, "status": {"phase": "evil"}}
    answer = await write(world, f"{path(kind, 'web')}/finalize", PUT, bodies(PUT, before, wanted))
    assert answer.status == 200, answer.body
    after = (await world.get(path(kind, "web"))).json()
    assert after["spec"] == {**before["spec"], "finalizers": ["example.com/mine"]}
    assert without(after, "spec", "metadata.resourceVersion") == without(before, "spec", "metadata.resourceVersion")
    for way in (JSON, MERGE, STRATEGIC, APPLY):
        assert (await write(world, f"{path(kind, 'web')}/finalize", way, {})).status == 405


async def test_binding_changes_the_node_and_its_condition(world: worlds.World) -> None:
    kind = sample_documents.kind("", "pods")
    document = without(sample(kind), "spec.nodeName")
    document["status"] = {
        "phase": "Pending",
        "qosClass": "Burstable",
        "conditions": [{"type": "Mine", "status": "True"}],
    }
    await world.server.storage.create(kind, document)
    url = path(kind, "web")
    before = (await world.get(url)).json()
    binding = {**GRASPING, "metadata": {"name": "web", "labels": {"evil": "yes"}}, "target": {"name": "n9"}}
    answer = await world.request("POST", f"{url}/binding", binding)
    assert answer.status == 201, answer.body
    after = (await world.get(url)).json()
    free = ("spec.nodeName", "status.conditions", "metadata.resourceVersion")
    assert without(after, *free) == without(before, *free)
    assert after["spec"]["nodeName"] == "n9"
    assert [row["type"] for row in after["status"]["conditions"]] == ["Mine", "PodScheduled"]
    for way in WAYS:
        assert (await write(world, f"{url}/binding", way, {})).status == 405


async def test_every_subresource_that_writes_has_a_strategy(world: worlds.World) -> None:
    custom = await define(world)
    found = {sub.name for kind in (*world.server.table, custom) for sub in kind.subresources}
    # An eviction deletes, and a token is made: neither changes what it is asked of.
    assert found - {"eviction", "token"} == set(strategies.SUBRESOURCES) - {""}
