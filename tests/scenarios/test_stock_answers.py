# SPDX-License-Identifier: Apache-2.0
"""Small things of Kubernetes' answers that its clients and its own end-to-end suite look at, over a real server."""

from __future__ import annotations

import asyncio
import base64
import copy
from typing import Any

import msgspec
import pytest
import yaml

from handfast.pki import keys, names, requests
from tests.scenarios import test_custom_resources as customs
from tests.scenarios import test_watch
from tests.world import world as worlds

PATH = "/api/v1/namespaces/default/configmaps"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
MERGE = {"Content-Type": "application/merge-patch+json"}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def merge(world: worlds.World, path: str, patch: Any) -> worlds.Answer:
    return await world.request("PATCH", path, msgspec.json.encode(patch), headers=dict(MERGE))


async def test_whoever_asks_for_yaml_gets_it(world: worlds.World) -> None:
    await world.create_config_map("a", text="a: b")
    for path in (f"{PATH}/a", PATH):
        answer = await world.get(path, headers={"Accept": "application/yaml"})
        assert answer.headers["Content-Type"] == "application/yaml"
        assert yaml.safe_load(answer.body) == (await world.get(path)).json()
    assert (await world.get(f"{PATH}?watch=1", headers={"Accept": "application/yaml"})).status == 406


async def test_whoever_would_rather_have_protobuf_gets_metadata_as_protobuf_has_it(world: worlds.World) -> None:
    await world.create_config_map("a")
    plain = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    wire = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    for accept, fields in ((plain, {"kind", "apiVersion", "metadata"}), (f"{wire},{plain}", {"metadata"})):
        listed = (await world.get(PATH, headers={"Accept": accept})).json()
        assert (listed["kind"], listed["items"][0].keys()) == ("PartialObjectMetadataList", fields)


async def test_a_review_is_no_table(world: worlds.World) -> None:
    question = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    refused = await world.request("POST", REVIEWS, question, headers=TABLE)
    assert (refused.status, refused.json()["details"]) == (406, {})
    either = {"Accept": f"{TABLE['Accept']}, application/json"}
    answered = await world.request("POST", REVIEWS, question, headers=either)
    assert answered.json()["kind"] == "SelfSubjectAccessReview"


@pytest.mark.parametrize("text", ["invalid", "5", "5s5", "d"])
async def test_a_timeout_that_is_none_is_refused(world: worlds.World, text: str) -> None:
    answer = await world.get(f"{PATH}?timeout={text}")
    assert answer.status == 400
    assert answer.message.startswith("invalid timeout specified in the request URL")


@pytest.mark.parametrize("text", ["0s", "1m30.5s", "", "0", "300ms"])
async def test_a_timeout_is_taken(world: worlds.World, text: str) -> None:
    assert (await world.get(f"{PATH}?timeout={text}")).status == 200


async def test_a_scale_has_columns(world: worlds.World) -> None:
    pods = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": pods}
    await world.request("POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    table = (await world.get(f"{DEPLOYMENTS}/d/scale", headers=TABLE)).json()
    assert [row["name"] for row in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == ["d", 3, 0]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    metadata = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    assert (await world.get(f"{DEPLOYMENTS}/d/scale", headers=metadata)).json()["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize("include", ["Metadata", "None", "Object"])
async def test_the_bookmark_of_a_table_has_a_row(world: worlds.World, include: str) -> None:
    await world.create_config_map("a")
    query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with test_watch.watching(world, f"{query}&includeObject={include}", **TABLE) as stream:
        first, last = await stream.next(), await stream.next()
        if first["object"]["rows"][0]["cells"][0] != "a":
            first, last = last, await stream.next()
        while last["type"] != "BOOKMARK":
            last = await stream.next()
    row = last["object"]["rows"][0]
    assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert len(row["cells"]) == len(first["object"]["columnDefinitions"])


async def test_a_wrong_type_in_a_patch_is_invalid_and_nothing_is_quoted(world: worlds.World) -> None:
    await world.request("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "type": "Opaque"})
    answer = await merge(world, "/api/v1/namespaces/default/secrets/s", {"data": {"k": ["hidden"]}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.json()["details"]["causes"][0]["field"] == "patch"
    assert "hidden" not in answer.message


async def test_a_dry_run_has_no_version_because_it_is_not_stored(world: worlds.World) -> None:
    answer = await world.request("POST", f"{PATH}?dryRun=All", {"metadata": {"name": "dry"}})
    assert answer.status == 201
    assert "resourceVersion" not in answer.json()["metadata"]


async def test_endpoints_are_deprecated(world: worlds.World) -> None:
    told = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    answer = await world.get("/api/v1/namespaces/default/endpoints")
    assert answer.headers["Warning"] == f'299 - "{told}"'


async def test_an_approval_keeps_the_annotations_that_come_with_it(world: worlds.World) -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    pem = requests.build(names.Subject(common_name="somebody"), names.Sans(), keys.generate(keys.Kind.P256))
    request = {"request": base64.b64encode(pem).decode(), "signerName": "example.com/s", "usages": ["client auth"]}
    made = await world.request("POST", path, {"metadata": {"name": "c"}, "spec": request})
    assert made.status == 201, made.message
    verdict = {"type": "Approved", "status": "True", "reason": "R", "message": "m"}
    patch = {"metadata": {"annotations": {"a": "b"}, "finalizers": ["x.dev/f"]}, "status": {"conditions": [verdict]}}
    approved = (await merge(world, f"{path}/c/approval", patch)).json()
    assert approved["metadata"]["annotations"] == {"a": "b"}
    assert "finalizers" not in approved["metadata"]
    assert approved["status"]["conditions"][0]["reason"] == "R"


async def test_a_core_event_is_found_by_whoever_reported_it(world: worlds.World) -> None:
    path = "/api/v1/namespaces/default/events"
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    reporters: dict[str, dict[str, Any]] = {"old": {"source": {"component": "k"}}, "new": {"reportingComponent": "k"}}
    for name, reporter in {**reporters, "other": {"reportingComponent": "x"}}.items():
        when = {"reportingInstance": "i", "action": "a", "eventTime": "2030-01-01T00:00:00.000000Z"}
        event = {
            "metadata": {"name": name},
            "involvedObject": about,
            "reason": "R",
            "type": "Normal",
            **when,
            **reporter,
        }
        answer = await world.request("POST", path, event)
        assert answer.status == 201, answer.message
    listed = (await world.get(f"{path}?fieldSelector=source%3Dk")).json()["items"]
    assert {item["metadata"]["name"] for item in listed} == {"old", "new"}


async def test_a_watch_at_a_version_that_is_yet_to_come_waits_for_it(world: worlds.World) -> None:
    version = int((await world.create_config_map("a"))["metadata"]["resourceVersion"])
    async with test_watch.watching(world, f"&resourceVersion={version + 1}") as stream:
        await world.create_config_map("passed-by")
        await world.create_config_map("seen")
        assert await stream.brief() == ("ADDED", "seen")


async def test_stored_versions_have_a_hash(world: worlds.World) -> None:
    rows = {row["name"]: row for row in (await world.get("/api/v1")).json()["resources"]}
    # What a kube-apiserver says of Pods and ConfigMaps.
    assert rows["pods"]["storageVersionHash"] == "xPOwRZ+Yhw8="
    assert rows["configmaps"]["storageVersionHash"] == "qFsyl6wFWjQ="
    assert "storageVersionHash" not in rows["pods/status"]


async def test_defaults_that_a_definition_got_later_are_read(world: worlds.World) -> None:
    document = customs.definition()
    document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["b"] = {"type": "string"}
    await world.request("POST", customs.DEFINITIONS, document)
    await world.request("POST", customs.WIDGETS, {**_widget(), "metadata": {"name": "w"}})
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/b/default"
    headers = {"Content-Type": "application/json-patch+json"}
    body = msgspec.json.encode([{"op": "add", "path": path, "value": "B"}])
    changed = await world.request("PATCH", f"{customs.DEFINITIONS}/{customs.NAME}", body, headers=headers)
    assert changed.status == 200, changed.message
    async with asyncio.timeout(10):
        while (read := (await world.get(f"{customs.WIDGETS}/w")).json()).get("b") != "B":
            await asyncio.sleep(0.02)
    assert (await world.get(customs.WIDGETS)).json()["items"] == [read]
    again = (await world.get(f"{customs.WIDGETS}/w")).json()
    assert again == read
    table = {"Accept": f"{TABLE['Accept']}"}
    rows = (await world.get(f"{customs.WIDGETS}?includeObject=Object", headers=table)).json()["rows"]
    assert rows[0]["object"]["b"] == "B"
    # A patch starts from what is read.
    patched = (await merge(world, f"{customs.WIDGETS}/w", {"metadata": {"labels": {"x": "y"}}})).json()
    assert patched["b"] == "B"


def _widget() -> dict[str, Any]:
    return copy.deepcopy({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 1}})


async def test_anybody_may_add_conditions_to_a_definition_and_nobody_may_take_the_servers(world: worlds.World) -> None:
    await world.request("POST", customs.DEFINITIONS, customs.definition())
    path = f"{customs.DEFINITIONS}/{customs.NAME}/status"
    row = {"type": "Mine", "status": "True", "message": "said"}
    forged = {"type": "Established", "status": "False", "message": "not"}
    answer = await merge(world, path, {"status": {"conditions": [row, forged]}})
    conditions = {each["type"]: each for each in answer.json()["status"]["conditions"]}
    assert conditions["Mine"]["message"] == "said"
    assert conditions["Established"]["status"] == "True"
    assert "NamesAccepted" in conditions


async def test_a_pod_gets_what_its_runtime_class_gives(world: worlds.World) -> None:
    await world.ensure_service_account("default")
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    overhead = {"podFixed": {"cpu": "10m"}}
    await world.request("POST", classes, {"metadata": {"name": "kata"}, "handler": "kata", "overhead": overhead})
    spec = {"runtimeClassName": "kata", "containers": [{"name": "c", "image": "i"}]}
    pod = await world.request("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})
    assert pod.json()["spec"]["overhead"] == {"cpu": "10m"}
    none = {**spec, "runtimeClassName": "none"}
    refused = await world.request("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "q"}, "spec": none})
    assert (refused.status, refused.message) == (
        403,
        'pods "q" is forbidden: pod rejected: RuntimeClass "none" not found',
    )
