# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions over a real server: kinds come, are used like any other, change, and go with their objects."""

from __future__ import annotations

import asyncio
import copy
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.api.cel import engine
from handfast.api.custom import definitions
from handfast.store.sqlite import engine as sqlite
from tests.interop import running
from tests.scenarios.test_two_servers import SharedStore
from tests.world import world as worlds

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "/apis/example.com"
WIDGETS = f"{GROUP}/v1/namespaces/default/widgets"
NAME = "widgets.example.com"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 10},
                "colour": {"type": "string", "default": "red", "enum": ["red", "green", "blue"]},
                "motto": {"type": "string", "pattern": "^(a+)+$", "maxLength": 40},
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "port": {"x-kubernetes-int-or-string": True},
                            "protocol": {"type": "string", "default": "TCP"},
                        },
                    },
                },
                "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "count": {"type": "integer"}}},
    },
}


def version(name: str = "v1", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": copy.deepcopy(SCHEMA)},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.count"},
        },
        "additionalPrinterColumns": [
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.colour"}],
        **more,
    }


def definition(
    *versions: dict[str, Any], plural: str = "widgets", kind: str = "Widget", **names: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, **names},
            "versions": list(versions or [version()]),
        },
    }


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"size": 1, **spec}}


def conditions(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {row["type"]: (row["status"], row["reason"]) for row in document["status"]["conditions"]}


async def define(world: worlds.World, document: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = await world.request("POST", DEFINITIONS, document or definition(shortNames=["wd"]))
    assert answer.status == 201, answer.body
    made: dict[str, Any] = answer.json()
    return made


async def create(world: worlds.World, document: dict[str, Any], path: str = WIDGETS) -> dict[str, Any]:
    answer = await world.request("POST", path, document)
    assert answer.status == 201, answer.body
    made: dict[str, Any] = answer.json()
    return made


async def patch(world: worlds.World, path: str, body: Any, kind: str = "merge-patch+json") -> worlds.Answer:
    return await world.request("PATCH", path, body, headers={"Content-Type": f"application/{kind}"})


async def gone(world: worlds.World, path: str) -> None:
    """Until a path answers 404; the clean-up runs beside the requests."""
    async with asyncio.timeout(10):
        while (await world.get(path)).status != 404:
            await asyncio.sleep(0)


async def test_a_definition_is_established_in_the_answer_and_usable_at_once(world: worlds.World) -> None:
    made = await define(world)
    assert conditions(made) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert made["status"]["storedVersions"] == ["v1"]
    assert made["status"]["acceptedNames"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
        "shortNames": ["wd"],
    }
    listed = (await world.get(f"{GROUP}/v1")).json()["resources"]
    assert [row["name"] for row in listed] == ["widgets", "widgets/status", "widgets/scale"]
    assert (await world.get(GROUP)).json()["preferredVersion"]["version"] == "v1"
    document = (await world.get("/openapi/v3/apis/example.com/v1")).json()
    assert "com.example.v1.Widget" in document["components"]["schemas"]


async def test_objects_are_pruned_and_filled_in(world: worlds.World) -> None:
    await define(world)
    sent = widget(taste="sweet", extra={"any": {"thing": 1}}, ports=[{"name": "a", "port": "x", "odd": 1}])
    sent["metadata"]["odd"] = "1"
    answer = await world.request("POST", WIDGETS, sent)
    assert answer.status == 201
    assert answer.headers.getall("Warning") == [
        '299 - "unknown field \\"metadata.odd\\""',
        '299 - "unknown field \\"spec.taste\\""',
        '299 - "unknown field \\"spec.ports[0].odd\\""',
    ]
    assert answer.json()["spec"] == {
        "size": 1,
        "colour": "red",
        "extra": {"any": {"thing": 1}},
        "ports": [{"name": "a", "port": "x", "protocol": "TCP"}],
    }
    assert answer.json()["metadata"]["generation"] == 1
    assert "odd" not in answer.json()["metadata"]


async def test_strict_validation_refuses_what_warn_drops(world: worlds.World) -> None:
    await define(world)
    answer = await world.request("POST", f"{WIDGETS}?fieldValidation=Strict", widget(taste="sweet"))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.taste"'
    )
    ignored = await world.request("POST", f"{WIDGETS}?fieldValidation=Ignore", widget(taste="sweet"))
    assert (ignored.status, "Warning" in ignored.headers) == (201, False)
    patched = await patch(world, f"{WIDGETS}/w?fieldValidation=Strict", {"spec": {"taste": "sour"}})
    assert (patched.status, patched.reason) == (422, "Invalid")


async def test_bad_values_are_refused_with_field_and_reason(world: worlds.World) -> None:
    await define(world)
    answer = await world.request("POST", WIDGETS, widget(size=11, colour="mauve", motto="b"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert {(cause["field"], cause["reason"]) for cause in answer.json()["details"]["causes"]} == {
        ("spec.size", "FieldValueInvalid"),
        ("spec.colour", "FieldValueNotSupported"),
        ("spec.motto", "FieldValueInvalid"),
    }
    missing = await world.request("POST", WIDGETS, {"metadata": {"name": "w"}})
    assert missing.message == 'Widget.example.com "w" is invalid: spec: Required value'
    named = await world.request("POST", WIDGETS, widget("Not A Name"))
    assert named.json()["details"]["causes"][0]["field"] == "metadata.name"
    typed = await world.request("POST", WIDGETS, {"metadata": {"name": "w", "labels": "x"}, "spec": {"size": 1}})
    assert (typed.status, typed.reason) == (400, "BadRequest")


async def test_a_put_names_the_version_it_replaces(world: worlds.World) -> None:
    await define(world)
    made = await create(world, widget())
    missing = await world.request("PUT", f"{WIDGETS}/none", widget("none"))
    assert missing.status == 404
    answer = await world.request("PUT", f"{WIDGETS}/w", widget(size=2))
    assert (answer.status, answer.json()["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")
    assert "must be specified for an update" in answer.message
    changed = await world.request("PUT", f"{WIDGETS}/w", {**made, "spec": {"size": 2, "odd": 1}})
    assert changed.status == 200
    assert changed.json()["spec"] == {"size": 2, "colour": "red"}
    assert changed.json()["metadata"]["generation"] == 2
    stale = await world.request("PUT", f"{WIDGETS}/w", made)
    assert (stale.status, stale.reason) == (409, "Conflict")


async def test_the_status_is_written_through_its_subresource_only(world: worlds.World) -> None:
    await define(world)
    made = await create(world, {**widget(), "status": {"phase": "Sneaky"}})
    assert "status" not in made
    answer = await patch(world, f"{WIDGETS}/w/status", {"status": {"phase": "Ready", "odd": 1}, "spec": {"size": 9}})
    assert (answer.status, answer.json()["status"], answer.json()["spec"]["size"]) == (200, {"phase": "Ready"}, 1)
    assert answer.json()["metadata"]["generation"] == 1
    plain = await patch(world, f"{WIDGETS}/w", {"status": {"phase": "Wrong"}})
    assert plain.json()["status"] == {"phase": "Ready"}


async def test_without_the_subresource_status_is_a_field(world: worlds.World) -> None:
    await define(world, definition(version(subresources=None)))
    await create(world, {**widget(), "status": {"phase": "New"}})
    answer = await patch(world, f"{WIDGETS}/w", {"status": {"phase": "Old"}})
    assert (answer.json()["status"], answer.json()["metadata"]["generation"]) == ({"phase": "Old"}, 2)
    assert (await world.get(f"{WIDGETS}/w/status")).status == 404


async def test_scale_reads_and_writes_the_paths_of_the_definition(world: worlds.World) -> None:
    await define(world)
    await create(world, widget(size=3))
    await patch(world, f"{WIDGETS}/w/status", {"status": {"count": 2}})
    scale = (await world.get(f"{WIDGETS}/w/scale")).json()
    assert (scale["kind"], scale["spec"], scale["status"]["replicas"]) == ("Scale", {"replicas": 3}, 2)
    answer = await world.request("PUT", f"{WIDGETS}/w/scale", {**scale, "spec": {"replicas": 4}})
    assert (answer.status, answer.json()["spec"]) == (200, {"replicas": 4})
    found = (await world.get(f"{WIDGETS}/w")).json()
    assert found["spec"] == {"size": 4, "colour": "red"}
    assert found["metadata"]["generation"] == 2
    bad = await patch(world, f"{WIDGETS}/w/scale", {"spec": {"replicas": 40}})
    assert (bad.status, bad.reason) == (422, "Invalid")


async def test_lists_tables_and_selectors(world: worlds.World) -> None:
    await define(world)
    await create(world, widget("a"))
    await create(world, widget("b", colour="blue"))
    listed = (await world.get(WIDGETS)).json()
    assert listed["kind"] == "WidgetList"
    assert [(item["kind"], item["apiVersion"]) for item in listed["items"]] == [("Widget", "example.com/v1")] * 2
    chosen = (await world.get(f"{WIDGETS}?fieldSelector=spec.colour%3Dblue")).json()
    assert [item["metadata"]["name"] for item in chosen["items"]] == ["b"]
    table = await world.get(WIDGETS, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert [column["name"] for column in table.json()["columnDefinitions"]] == ["Name", "Colour", "Age"]
    assert [row["cells"][:2] for row in table.json()["rows"]] == [["a", "red"], ["b", "blue"]]


async def test_patches_and_apply(world: worlds.World) -> None:
    await define(world)
    path = f"{WIDGETS}/w?fieldManager=me"
    body = {"apiVersion": "example.com/v1", "kind": "Widget", **widget(ports=[{"name": "a", "port": 1}])}
    first = await patch(world, path, body, "apply-patch+yaml")
    assert first.status == 201, first.body
    again = await patch(world, path, body, "apply-patch+yaml")
    assert (again.status, again.json()["metadata"]) == (200, first.json()["metadata"])
    body["spec"]["ports"] = [{"name": "b", "port": 2}]
    other = await patch(world, f"{WIDGETS}/w?fieldManager=you", body, "apply-patch+yaml")
    assert [port["name"] for port in other.json()["spec"]["ports"]] == ["a", "b"]
    strategic = await patch(world, f"{WIDGETS}/w", {"spec": {"size": 2}}, "strategic-merge-patch+json")
    assert (strategic.status, strategic.reason) == (415, "UnsupportedMediaType")
    json_patch = await patch(
        world, f"{WIDGETS}/w", [{"op": "replace", "path": "/spec/size", "value": 5}], "json-patch+json"
    )
    assert json_patch.json()["spec"]["size"] == 5
    twice = await patch(world, f"{WIDGETS}/w", {"spec": {"ports": [{"name": "a"}, {"name": "a"}]}})
    assert (twice.status, twice.json()["details"]["causes"][0]["reason"]) == (422, "FieldValueDuplicate")


async def test_versions_show_the_same_objects(world: worlds.World) -> None:
    await define(world, definition(version("v1beta1", storage=False), version("v1")))
    groups = (await world.get(GROUP)).json()
    assert [row["version"] for row in groups["versions"]] == ["v1", "v1beta1"]
    beta = WIDGETS.replace("v1", "v1beta1")
    made = await create(world, widget("old"), beta)
    assert made["apiVersion"] == "example.com/v1beta1"
    assert (await world.get(f"{WIDGETS}/old")).json()["apiVersion"] == "example.com/v1"
    assert [item["apiVersion"] for item in (await world.get(beta)).json()["items"]] == ["example.com/v1beta1"]
    changed = await patch(world, f"{beta}/old", {"spec": {"size": 2}})
    assert (changed.json()["apiVersion"], changed.json()["spec"]["size"]) == ("example.com/v1beta1", 2)


async def test_what_was_stored_in_another_version_is_served_in_the_new_one(world: worlds.World) -> None:
    made = await define(world, definition(version("v1"), version("v2", storage=False)))
    await create(world, widget())
    made["spec"]["versions"][0]["storage"], made["spec"]["versions"][1]["storage"] = False, True
    updated = await world.request("PUT", f"{DEFINITIONS}/{NAME}", made)
    assert updated.json()["status"]["storedVersions"] == ["v1", "v2"]
    newer = WIDGETS.replace("v1", "v2")
    assert (await world.get(f"{newer}/w")).json()["apiVersion"] == "example.com/v2"
    assert (await world.get(f"{WIDGETS}/w")).json()["apiVersion"] == "example.com/v1"
    status = await patch(world, f"{newer}/w/status", {"status": {"phase": "Ready"}})
    assert (status.status, status.json()["apiVersion"]) == (200, "example.com/v2")
    dropped = copy.deepcopy(updated.json())
    del dropped["spec"]["versions"][0]
    refused = await world.request("PUT", f"{DEFINITIONS}/{NAME}", dropped)
    assert (refused.status, refused.json()["details"]["causes"][0]["field"]) == (422, "status.storedVersions[0]")


async def test_a_schema_can_change_and_old_faults_may_stay(world: worlds.World) -> None:
    made = await define(world)
    await create(world, widget(size=9))
    spec = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["size"]["maximum"] = 5
    spec["properties"]["shape"] = {"type": "string", "default": "round"}
    assert (await world.request("PUT", f"{DEFINITIONS}/{NAME}", made)).status == 200
    labelled = await patch(world, f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}})
    assert (labelled.status, labelled.json()["spec"]["shape"]) == (200, "round")
    assert (await patch(world, f"{WIDGETS}/w", {"spec": {"size": 8}})).status == 422
    assert (await patch(world, f"{WIDGETS}/w", {"spec": {"size": 5}})).status == 200


async def test_watches_follow_objects_and_end_with_their_kind(world: worlds.World) -> None:
    await define(world)
    async with world.session().get(f"{WIDGETS}?watch=true") as stream:
        made = await create(world, widget())
        assert b'"ADDED"' in await stream.content.readline()
        await patch(world, f"{WIDGETS}/w", {"spec": {"size": 2}})
        assert b'"MODIFIED"' in await stream.content.readline()
        assert (await world.request("DELETE", f"{DEFINITIONS}/{NAME}")).status == 200
        last = await stream.content.readline()
        assert b'"DELETED"' in last
        assert made["metadata"]["uid"].encode() in last
        assert await stream.content.read() == b""


async def test_deleting_a_definition_deletes_its_objects_and_its_kind(world: worlds.World) -> None:
    await define(world)
    for name in ("a", "b"):
        await create(world, widget(name))
    assert (await world.request("DELETE", f"{DEFINITIONS}/{NAME}")).status == 200
    await gone(world, f"{DEFINITIONS}/{NAME}")
    assert (await world.get(WIDGETS)).status == 404
    assert (await world.get(GROUP)).status == 404
    assert "example.com" not in (await world.get("/apis")).body.decode()
    assert (await world.request("POST", WIDGETS, widget())).status == 404
    await define(world)
    assert (await world.get(WIDGETS)).json()["items"] == []


async def test_objects_with_finalizers_are_waited_for(world: worlds.World) -> None:
    await define(world)
    # In the order of their names: once the second is gone, the first was looked at.
    held = widget("a-held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await create(world, held)
    await create(world, widget("free"))
    await world.request("DELETE", f"{DEFINITIONS}/{NAME}")
    await gone(world, f"{WIDGETS}/free")
    assert (await world.get(f"{WIDGETS}/a-held")).json()["metadata"]["deletionTimestamp"]
    found = (await world.get(f"{DEFINITIONS}/{NAME}")).json()
    assert conditions(found)["Terminating"] == ("True", "InstanceDeletionInProgress")
    assert (await world.request("POST", WIDGETS, widget("late"))).status == 405
    body = {"apiVersion": "example.com/v1", "kind": "Widget", **widget("late")}
    applied = await patch(world, f"{WIDGETS}/late?fieldManager=me", body, "apply-patch+yaml")
    assert (applied.status, applied.reason) == (405, "MethodNotAllowed")
    assert (await patch(world, f"{WIDGETS}/a-held", {"metadata": {"finalizers": None}})).status == 200
    await gone(world, f"{DEFINITIONS}/{NAME}")
    assert (await world.get(WIDGETS)).status == 404


async def test_names_that_are_taken_are_given_when_they_are_free(world: worlds.World) -> None:
    await define(world)
    second = await define(world, definition(plural="gadgets", kind="Widget", listKind="GadgetList"))
    assert conditions(second) == {"NamesAccepted": ("False", "KindConflict"), "Established": ("False", "NotAccepted")}
    gadgets = f"{GROUP}/v1/namespaces/default/gadgets"
    assert (await world.get(gadgets)).status == 404
    await world.request("DELETE", f"{DEFINITIONS}/{NAME}")
    await gone(world, f"{DEFINITIONS}/{NAME}")
    async with asyncio.timeout(10):
        while (await world.get(gadgets)).status != 200:
            await asyncio.sleep(0)
    found = (await world.get(f"{DEFINITIONS}/gadgets.example.com")).json()
    assert conditions(found)["Established"][0] == "True"


@pytest.mark.parametrize(
    ("group", "plural", "kind"),
    [
        ("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest"),
        ("handfast.dev", "revocations", "Revocation"),
        ("handfast.dev", "others", "Revocation"),
        ("coordination.k8s.io", "leases", "Other"),
    ],
)
async def test_built_in_kinds_cannot_be_defined(world: worlds.World, group: str, plural: str, kind: str) -> None:
    document = definition(version("v9"), plural=plural, kind=kind)
    document["metadata"] = {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "x"}}
    document["spec"]["group"] = group
    answer = await world.request("POST", DEFINITIONS, document)
    assert (answer.status, "is built into this server" in answer.message) == (422, True), answer.body


async def test_who_writes_the_status_of_a_definition_gets_no_names(world: worlds.World) -> None:
    await define(world)
    before = await define(world, definition(plural="gadgets", kind="Widget", listKind="GadgetList"))
    forged = {
        "acceptedNames": {"plural": "gadgets", "kind": "Widget", "listKind": "GadgetList", "singular": "gadget"},
        "conditions": [{"type": kind, "status": "True", "reason": "Mine"} for kind in ("NamesAccepted", "Established")],
        "storedVersions": ["v9"],
    }
    url = f"{DEFINITIONS}/gadgets.example.com"
    applied = {key: before[key] for key in ("apiVersion", "kind")} | {"status": forged}
    for answer in (
        await world.request("PUT", f"{url}/status", {**before, "status": forged}),
        await patch(world, f"{url}/status", {"status": forged}),
        await patch(world, f"{url}/status", {"status": forged}, "strategic-merge-patch+json"),
        await patch(world, f"{url}/status", [{"op": "add", "path": "/status", "value": forged}], "json-patch+json"),
        await patch(world, f"{url}/status?fieldManager=me&force=true", applied, "apply-patch+yaml"),
    ):
        assert (answer.status, answer.json()["status"]) == (200, before["status"]), answer.body
    assert (await world.get(f"{GROUP}/v1/namespaces/default/gadgets")).status == 404


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"pattern": "("}, "pattern", "FieldValueInvalid"),
        ({"pattern": "(a)\\1"}, "pattern", "FieldValueInvalid"),
        ({"default": 7}, "default", "FieldValueTypeInvalid"),
        ({"uniqueItems": True}, "uniqueItems", "FieldValueForbidden"),
        ({"type": "text"}, "type", "FieldValueNotSupported"),
    ],
)
async def test_bad_schemas_are_refused(world: worlds.World, change: dict[str, Any], field: str, reason: str) -> None:
    document = definition()
    document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["motto"] |= change
    answer = await world.request("POST", DEFINITIONS, document)
    assert (answer.status, answer.reason) == (422, "Invalid")
    cause = answer.json()["details"]["causes"][0]
    place = "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[motto]"
    assert (cause["field"], cause["reason"]) == (f"{place}.{field}", reason)


async def test_rules_that_are_not_evaluated_are_announced(world: worlds.World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_cel", lambda: None)
    document = definition()
    root = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.size > 0"}]
    answer = await world.request("POST", DEFINITIONS, document)
    assert answer.headers.getall("Warning") == [f'299 - "{definitions.RULES_WARNING}"']


async def test_a_restart_keeps_kinds_and_objects(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world:
        await define(world)
        await create(world, widget(colour="blue"))
    async with worlds.world(tmp_path / "d") as world:
        assert (await world.get(f"{WIDGETS}/w")).json()["spec"]["colour"] == "blue"
        await create(world, widget("second"))
        await world.request("DELETE", f"{DEFINITIONS}/{NAME}")
        await gone(world, f"{DEFINITIONS}/{NAME}")


async def test_a_kind_defined_on_one_server_can_be_used_on_the_other_at_once(tmp_path: pathlib.Path) -> None:
    engine = await sqlite.open_store(str(tmp_path / "store.db"))
    first, second = SharedStore(engine), SharedStore(engine)
    async with (
        worlds.world(tmp_path / "d", store=first) as one,
        worlds.world(tmp_path / "d", store=second) as other,
    ):
        second.gate.clear()
        made = await define(one)
        creating = asyncio.ensure_future(other.request("POST", WIDGETS, widget()))
        # The second server has not seen the definition: the answer must wait for it, not say 404.
        done, _ = await asyncio.wait([creating], timeout=0.2)
        assert not done
        second.gate.set()
        assert (await creating).status == 201
        made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["new"] = {
            "type": "string"
        }
        second.gate.clear()
        assert (await one.request("PUT", f"{DEFINITIONS}/{NAME}", made)).status == 200
        writing = asyncio.ensure_future(patch(other, f"{WIDGETS}/w", {"spec": {"new": "field"}}))
        await asyncio.wait([writing], timeout=0.1)
        second.gate.set()
        assert (await writing).json()["spec"]["new"] == "field"
        assert (await one.request("DELETE", f"{DEFINITIONS}/{NAME}")).status == 200
        await gone(one, f"{DEFINITIONS}/{NAME}")
        assert (await other.get(f"{DEFINITIONS}/{NAME}")).status == 404
        assert (await other.get(WIDGETS)).status == 404
    await engine.close()


# --- with the real kubectl, against `handfast up` ---------------------------------------------------------------------


@pytest.fixture
def kubectl(tmp_path: pathlib.Path) -> Iterator[running.Kubectl]:
    binary, version_found = running.find_kubectl()
    plane = running.ControlPlane(tmp_path / "data")
    home = tmp_path / "home"
    home.mkdir()
    yield running.Kubectl(binary, home, plane.kubeconfig, version_found, "default")
    plane.stop()
    assert plane.failures() == []


def manifest(**spec: Any) -> str:
    return json.dumps({"apiVersion": "example.com/v1", "kind": "Widget", **widget(**spec)})


@pytest.mark.slow
@pytest.mark.kubectl
def test_kubectl_works_with_a_kind_from_its_definition_to_its_end(kubectl: running.Kubectl) -> None:
    kubectl.needs(27, "explaining by OpenAPI v3")
    kubectl("apply", "-f", "-", stdin=json.dumps(definition(shortNames=["wd"])))
    waited = kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=10s")
    assert waited.out == f"customresourcedefinition.apiextensions.k8s.io/{NAME} condition met\n"
    again = kubectl("apply", "-f", "-", stdin=json.dumps(definition(shortNames=["wd"])))
    assert again.out.endswith("unchanged\n")
    assert kubectl("create", "-f", "-", stdin=manifest()).out == "widget.example.com/w created\n"
    assert kubectl("get", "wd").lines[0].split() == ["NAME", "COLOUR", "AGE"]
    assert kubectl("get", "widgets", "w").lines[1].split()[:2] == ["w", "red"]
    assert kubectl("apply", "-f", "-", stdin=manifest(size=2)).out == "widget.example.com/w configured\n"
    assert kubectl("apply", "-f", "-", stdin=manifest(size=2)).out == "widget.example.com/w unchanged\n"
    server_side = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    assert kubectl(*server_side, stdin=manifest(size=3)).out == "widget.example.com/w serverside-applied\n"
    kubectl("patch", "widget", "w", "--type=merge", "-p", '{"spec": {"colour": "blue"}}')
    kubectl("edit", "widget", "w", environment={"KUBE_EDITOR": "sed -i s/blue/green/"})
    kubectl("label", "widget", "w", "a=b")
    kubectl("scale", "widget", "w", "--replicas=7")
    found = kubectl.json("get", "widget", "w")
    assert (found["spec"], found["metadata"]["labels"]) == ({"size": 7, "colour": "green"}, {"a": "b"})
    assert "colour\t<string>" in kubectl("explain", "widget.spec").out
    kubectl("delete", "crd", NAME, "--timeout=20s")
    assert kubectl("api-resources", "--api-group=example.com", "--cached=false", "--no-headers").out == ""
    assert "the server doesn't have a resource type" in kubectl.fails("get", "widgets")


@pytest.mark.slow
@pytest.mark.kubectl
def test_kubectl_shows_why_an_object_is_refused(kubectl: running.Kubectl) -> None:
    kubectl.needs(25, "field validation by the server")
    kubectl("create", "-f", "-", stdin=json.dumps(definition()))
    assert kubectl.fails("create", "-f", "-", stdin=manifest(size=0)) == (
        'The Widget "w" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1'
    )
    assert 'strict decoding error: unknown field "spec.taste"' in kubectl.fails(
        "create", "-f", "-", stdin=manifest(taste="sweet")
    )
    kubectl("create", "--validate=false", "-f", "-", stdin=manifest(taste="sweet"))
    assert "taste" not in kubectl("get", "widget", "w", "-o", "yaml").out
