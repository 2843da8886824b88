# SPDX-License-Identifier: Apache-2.0
"""The verbs of the API, one behaviour a test, over real TLS on a real store."""

from __future__ import annotations

import asyncio
import base64
import io
import pathlib
from typing import Any

import msgspec
import pytest

from tests.world import world as worlds

PATH = "/api/v1/namespaces/default/configmaps"
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
POD = {
    "metadata": {"name": "p"},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
}


async def merge(world: worlds.World, path: str, patch: Any) -> worlds.Answer:
    return await world.request("PATCH", path, msgspec.json.encode(patch), headers=dict(MERGE))


async def test_create_fills_in_what_only_the_server_knows(world: worlds.World) -> None:
    made = await world.create_config_map("a", k="v")
    metadata = made["metadata"]
    assert (made["apiVersion"], made["kind"], metadata["namespace"]) == ("v1", "ConfigMap", "default")
    assert len(metadata["uid"]) == 36
    assert metadata["uid"][14] == "4"
    assert metadata["creationTimestamp"].endswith("Z")
    assert (await world.get(f"{PATH}/a")).json() == made


DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 3,
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
    },
}


@pytest.mark.parametrize("verb", ["PUT", "PATCH"])
async def test_what_an_update_leaves_out_gets_its_default_again(world: worlds.World, verb: str) -> None:
    """Of the whole object, or of a part that the update adds."""
    path = "/apis/apps/v1/namespaces/default/deployments"
    made = (await world.request("POST", path, DEPLOYMENT)).json()
    assert made["spec"]["strategy"]["type"] == "RollingUpdate"
    added = {"name": "more", "image": "i:2"}
    if verb == "PUT":
        spec = {key: DEPLOYMENT["spec"][key] for key in ("selector", "template")}  # type: ignore[index]
        spec = {**spec, "template": {**spec["template"], "spec": {"containers": [added]}}}
        answer = await world.request("PUT", f"{path}/d", {"metadata": {"name": "d"}, "spec": spec})
    else:
        nothing = dict.fromkeys(("replicas", "revisionHistoryLimit", "strategy", "progressDeadlineSeconds"))
        spec = {**nothing, "template": {"spec": {"containers": [added]}}}
        answer = await merge(world, f"{path}/d", {"spec": spec})
    assert answer.status == 200, answer.body
    found = answer.json()["spec"]
    assert (found["replicas"], found["revisionHistoryLimit"], found["progressDeadlineSeconds"]) == (1, 10, 600)
    assert found["strategy"] == made["spec"]["strategy"]
    (container,) = found["template"]["spec"]["containers"]
    assert (container["name"], container["imagePullPolicy"]) == ("more", "IfNotPresent")


async def test_create_twice_is_already_exists(world: worlds.World) -> None:
    await world.create_config_map("a")
    answer = await world.request("POST", PATH, {"metadata": {"name": "a"}})
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "a" already exists'


async def test_create_in_a_missing_namespace(world: worlds.World) -> None:
    answer = await world.request("POST", "/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}})
    assert (answer.status, answer.message) == (404, 'namespaces "nowhere" not found')


async def test_generate_name(world: worlds.World) -> None:
    names = set()
    for _ in range(5):
        answer = await world.request("POST", PATH, {"metadata": {"generateName": "job-"}})
        names.add(answer.json()["metadata"]["name"])
    assert len(names) == 5
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


async def test_no_name_is_invalid(world: worlds.World) -> None:
    answer = await world.request("POST", PATH, {"metadata": {}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "name or generateName is required" in answer.message


async def test_a_stale_update_is_a_conflict_and_changes_nothing(world: worlds.World) -> None:
    made = await world.create_config_map("a", n="0")
    assert (await world.request("PUT", f"{PATH}/a", {**made, "data": {"n": "1"}})).status == 200
    answer = await world.request("PUT", f"{PATH}/a", {**made, "data": {"n": "2"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the object has been modified" in answer.message
    assert (await world.get(f"{PATH}/a")).json()["data"] == {"n": "1"}


async def test_an_update_without_a_version_is_unconditional(world: worlds.World) -> None:
    await world.create_config_map("a", n="0")
    answer = await world.request("PUT", f"{PATH}/a", {"metadata": {"name": "a"}, "data": {"n": "1"}})
    assert (answer.status, answer.json()["data"]) == (200, {"n": "1"})


async def test_an_update_that_changes_nothing_is_not_written(world: worlds.World) -> None:
    made = await world.create_config_map("a", n="0")
    answer = await world.request("PUT", f"{PATH}/a", made)
    assert answer.json()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_update_of_a_missing_object(world: worlds.World) -> None:
    answer = await world.request("PUT", f"{PATH}/a", {"metadata": {"name": "a"}})
    assert (answer.status, answer.reason) == (404, "NotFound")
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a"
    # Leases are created by PUT, as in Kubernetes.
    assert (await world.request("PUT", lease, {"metadata": {"name": "a"}, "spec": {}})).status == 201


async def test_update_keeps_what_the_server_set(world: worlds.World) -> None:
    made = await world.create_config_map("a")
    changed = {**made, "metadata": {**made["metadata"], "creationTimestamp": "2001-01-01T00:00:00Z"}}
    after = (await world.request("PUT", f"{PATH}/a", changed)).json()
    assert after["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    other = {**made, "metadata": {**made["metadata"], "uid": "00000000-0000-4000-8000-000000000000"}}
    assert (await world.request("PUT", f"{PATH}/a", other)).status == 409


async def test_status_and_spec_are_separate(world: worlds.World) -> None:
    path = "/api/v1/namespaces/default/pods"
    made = (await world.request("POST", path, {**POD, "status": {"phase": "Running"}})).json()
    assert made["status"]["phase"] == "Pending"
    after = (await merge(world, f"{path}/p/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}})).json()
    assert (after["status"]["phase"], after["spec"]["nodeName"]) == ("Running", "n1")
    after = (
        await merge(world, f"{path}/p", {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}})
    ).json()
    assert (after["status"]["phase"], after["metadata"]["labels"]) == ("Running", {"a": "b"})


async def test_generation_counts_changes_of_the_spec(world: worlds.World) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = (await world.request("POST", path, {"metadata": {"name": "d"}, "spec": spec})).json()
    assert (made["metadata"]["generation"], made["spec"]["replicas"]) == (1, 1)
    after = (await merge(world, f"{path}/d", {"metadata": {"labels": {"x": "y"}}})).json()
    assert after["metadata"]["generation"] == 1
    after = (await merge(world, f"{path}/d", {"spec": {"replicas": 3}})).json()
    assert after["metadata"]["generation"] == 2
    after = (await merge(world, f"{path}/d/status", {"status": {"readyReplicas": 3}})).json()
    assert after["metadata"]["generation"] == 2
    scale = (await world.get(f"{path}/d/scale")).json()
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 3}, "a=b")
    scale["spec"]["replicas"] = 5
    assert (await world.request("PUT", f"{path}/d/scale", scale)).json()["spec"]["replicas"] == 5
    assert (await world.get(f"{path}/d")).json()["metadata"]["generation"] == 3


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/json-patch+json", [{"op": "replace", "path": "/data/k", "value": "new"}]),
        ("application/merge-patch+json", {"data": {"k": "new"}}),
        ("application/strategic-merge-patch+json", {"data": {"k": "new"}}),
    ],
)
async def test_patch_types(world: worlds.World, content_type: str, patch: Any) -> None:
    await world.create_config_map("a", k="old", other="same")
    body = msgspec.json.encode(patch)
    answer = await world.request("PATCH", f"{PATH}/a", body, headers={"Content-Type": content_type})
    assert (answer.status, answer.json()["data"]) == (200, {"k": "new", "other": "same"})


async def test_patch_with_a_version_is_conditional(world: worlds.World) -> None:
    made = await world.create_config_map("a")
    old = made["metadata"]["resourceVersion"]
    await merge(world, f"{PATH}/a", {"data": {"n": "1"}})
    answer = await merge(world, f"{PATH}/a", {"metadata": {"resourceVersion": old}, "data": {"n": "2"}})
    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_concurrent_patches_are_all_applied(world: worlds.World) -> None:
    await world.create_config_map("a")
    answers = await asyncio.gather(*(merge(world, f"{PATH}/a", {"data": {f"k{n}": "v"}}) for n in range(6)))
    assert {answer.status for answer in answers} == {200}
    assert len((await world.get(f"{PATH}/a")).json()["data"]) == 6


async def test_server_side_apply_creates_updates_and_removes(world: worlds.World) -> None:
    def config(**data: str) -> bytes:
        return msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})

    url = f"{PATH}/a?fieldManager=me"
    made = await world.request("PATCH", url, config(x="1", y="2"), headers=dict(APPLY))
    assert made.status == 201
    again = await world.request("PATCH", url, config(x="1", y="2"), headers=dict(APPLY))
    assert again.status == 200
    assert again.json()["metadata"]["resourceVersion"] == made.json()["metadata"]["resourceVersion"]
    less = await world.request("PATCH", url, config(x="1"), headers=dict(APPLY))
    assert less.json()["data"] == {"x": "1"}
    other = await world.request("PATCH", f"{PATH}/a?fieldManager=you", config(x="9"), headers=dict(APPLY))
    assert (other.status, other.reason) == (409, "Conflict")
    assert 'conflict with "me"' in other.message
    forced = await world.request("PATCH", f"{PATH}/a?fieldManager=you&force=true", config(x="9"), headers=dict(APPLY))
    assert forced.json()["data"] == {"x": "9"}
    nobody = await world.request("PATCH", f"{PATH}/a", config(x="1"), headers=dict(APPLY))
    assert (nobody.status, nobody.reason) == (422, "Invalid")


def owners(answer: worlds.Answer) -> list[tuple[str, str, str, list[str]]]:
    """Who is in the record: manager, operation, subresource and the fields of the object."""
    return [
        (row["manager"], row["operation"], row.get("subresource", ""), sorted(row["fieldsV1"]))
        for row in answer.json()["metadata"].get("managedFields", [])
    ]


async def test_who_owns_what_is_recorded_from_creation(world: worlds.World) -> None:
    url = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployment = {"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": spec, "status": {"replicas": 7}}
    made = await world.request("POST", f"{url}?fieldManager=maker", deployment)
    own = ("maker", "Update", "", ["f:metadata", "f:spec"])
    assert owners(made) == [own]
    # The status is the controller's, through its own door; the number of replicas is theirs who scale.
    headers = {"Content-Type": "application/merge-patch+json", "User-Agent": "controller/v1 (linux)"}
    reported = {"spec": {"replicas": 9}, "status": {"replicas": 1}}
    answer = await world.request("PATCH", f"{url}/web/status", reported, headers=dict(headers))
    assert owners(answer) == [("controller", "Update", "status", ["f:status"]), own]
    await world.request("PATCH", f"{url}/web/scale?fieldManager=hpa", {"spec": {"replicas": 3}}, headers=dict(headers))
    found = (await world.get(f"{url}/web")).json()
    rows = {row["manager"]: row for row in found["metadata"]["managedFields"]}
    assert rows["hpa"]["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in rows["maker"]["fieldsV1"]["f:spec"]
    # Sent back as it was read, nothing is written.
    again = await world.request("PUT", f"{url}/web?fieldManager=idle", found)
    assert again.json()["metadata"] == found["metadata"]
    # Cleared, and not begun again by an update.
    found["metadata"]["managedFields"] = []
    assert owners(await world.request("PUT", f"{url}/web", found)) == []
    assert owners(await merge(world, f"{url}/web", {"spec": {"replicas": 5}})) == []


async def test_leases_and_events_are_recorded_from_their_first_apply_on(world: worlds.World) -> None:
    url = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert owners(await world.request("POST", url, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}})) == []
    media = {"Content-Type": "application/apply-patch+yaml"}
    applied = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "labels": {"a": "b"}}}
    answer = await world.request("PATCH", f"{url}/l?fieldManager=me", applied, headers=media)
    assert owners(answer) == [("me", "Apply", "", ["f:metadata"]), ("before-first-apply", "Update", "", ["f:spec"])]


async def test_dry_run_stores_nothing(world: worlds.World) -> None:
    answer = await world.request("POST", f"{PATH}?dryRun=All", {"metadata": {"name": "a"}})
    assert answer.status == 201
    assert (await world.get(f"{PATH}/a")).status == 404
    made = await world.create_config_map("a", n="0")
    changed = await merge(world, f"{PATH}/a?dryRun=All", {"data": {"n": "1"}})
    assert changed.json()["data"] == {"n": "1"}
    assert (await world.request("DELETE", f"{PATH}/a?dryRun=All")).status == 200
    assert (await world.get(f"{PATH}/a")).json() == made
    assert (await world.request("POST", f"{PATH}?dryRun=All", {"metadata": {"name": "a"}})).status == 409
    assert (await world.request("POST", f"{PATH}?dryRun=maybe", {"metadata": {"name": "b"}})).status == 422


async def test_delete_answers_with_what_was_deleted(world: worlds.World) -> None:
    made = await world.create_config_map("a")
    answer = (await world.request("DELETE", f"{PATH}/a")).json()
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert (await world.request("DELETE", f"{PATH}/a")).status == 404


async def test_delete_preconditions(world: worlds.World) -> None:
    made = await world.create_config_map("a")
    for wrong in ({"uid": "x"}, {"resourceVersion": "1"}):
        answer = await world.request("DELETE", f"{PATH}/a", {"preconditions": wrong})
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert "Precondition failed" in answer.message
    right = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    assert (await world.request("DELETE", f"{PATH}/a", {"preconditions": right})).status == 200


async def test_finalizers_keep_an_object_until_the_last_is_gone(world: worlds.World) -> None:
    await world.request("POST", PATH, {"metadata": {"name": "a", "finalizers": ["example.com/one"]}})
    marked = (await world.request("DELETE", f"{PATH}/a")).json()
    assert marked["metadata"]["deletionTimestamp"]
    more = await merge(world, f"{PATH}/a", {"metadata": {"finalizers": ["example.com/one", "example.com/two"]}})
    assert more.status == 422
    assert "no new finalizers can be added" in more.message
    assert (await merge(world, f"{PATH}/a", {"metadata": {"finalizers": None}})).status == 200
    assert (await world.get(f"{PATH}/a")).status == 404


async def test_propagation_policies_set_the_collector_s_finalizers(world: worlds.World) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        name = policy.lower()
        await world.create_config_map(name)
        answer = await world.request("DELETE", f"{PATH}/{name}", {"propagationPolicy": policy})
        assert answer.json()["metadata"]["finalizers"] == [finalizer]
    assert (await world.request("DELETE", f"{PATH}/foreground", {"propagationPolicy": "Never"})).status == 422


async def test_a_pod_on_a_node_gets_its_grace_period(world: worlds.World) -> None:
    path = "/api/v1/namespaces/default/pods"
    await world.request("POST", path, POD)
    marked = (await world.request("DELETE", f"{path}/p")).json()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30
    shorter = (await world.request("DELETE", f"{path}/p", {"gracePeriodSeconds": 5})).json()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    longer = (await world.request("DELETE", f"{path}/p", {"gracePeriodSeconds": 60})).json()["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 5
    assert (await world.request("DELETE", f"{path}/p", {"gracePeriodSeconds": 0})).status == 200
    assert (await world.get(f"{path}/p")).status == 404


async def test_binding_and_eviction(world: worlds.World) -> None:
    path = "/api/v1/namespaces/default/pods"
    free = {"metadata": {"name": "free"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await world.request("POST", path, free)
    bound = await world.request("POST", f"{path}/free/binding", {"target": {"kind": "Node", "name": "n1"}})
    assert bound.status == 201
    assert (await world.get(f"{path}/free")).json()["spec"]["nodeName"] == "n1"
    assert (await world.request("POST", f"{path}/free/binding", {"target": {"name": "n2"}})).status == 409
    assert (await world.request("POST", f"{path}/free/eviction", {"metadata": {"name": "free"}})).status == 201
    assert (await world.get(f"{path}/free")).json()["metadata"]["deletionTimestamp"]


async def test_an_eviction_reads_its_options_like_a_delete(world: worlds.World) -> None:
    path = "/api/v1/namespaces/default/pods"
    await world.request("POST", path, POD)

    async def evict(**options: Any) -> int:
        document = {"metadata": {"name": "p"}, "deleteOptions": options}
        return (await world.request("POST", f"{path}/p/eviction", document)).status

    assert await evict(dryRun=["All"]) == 201
    assert await evict(preconditions={"resourceVersion": "1"}) == 409
    assert await evict(dryRun=["Some"]) == 422
    assert "deletionTimestamp" not in (await world.get(f"{path}/p")).json()["metadata"]
    assert await evict(gracePeriodSeconds=-5) == 201
    assert (await world.get(f"{path}/p")).json()["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_delete_collection_by_selector(world: worlds.World) -> None:
    for name, team in (("a", "x"), ("b", "x"), ("c", "y")):
        await world.request("POST", PATH, {"metadata": {"name": name, "labels": {"team": team}}})
    assert (await world.request("DELETE", f"{PATH}?labelSelector=team%3Dx")).status == 200
    left = [item["metadata"]["name"] for item in (await world.get(PATH)).json()["items"]]
    assert left == ["c"]


async def test_protected_namespaces_stay(world: worlds.World) -> None:
    answer = await world.request("DELETE", "/api/v1/namespaces/kube-system")
    assert (answer.status, answer.reason) == (403, "Forbidden")


async def test_a_terminating_namespace_takes_nothing_new(world: worlds.World) -> None:
    await world.request("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    marked = (await world.request("DELETE", "/api/v1/namespaces/team")).json()
    assert marked["status"]["phase"] == "Terminating"
    answer = await world.request("POST", "/api/v1/namespaces/team/configmaps", {"metadata": {"name": "a"}})
    assert (answer.status, answer.json()["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    marked["spec"] = {}
    assert (await world.request("PUT", "/api/v1/namespaces/team/finalize", marked)).status == 200
    assert (await world.get("/api/v1/namespaces/team")).status == 404


async def test_secrets_are_sealed_on_disk_and_clear_over_the_api(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "d"
    async with worlds.world(directory) as world:
        made = await world.request(
            "POST",
            "/api/v1/namespaces/default/secrets",
            {"metadata": {"name": "s"}, "stringData": {"k": "hunter2-hunter2"}},
        )
        assert made.json()["data"] == {"k": base64.b64encode(b"hunter2-hunter2").decode()}
        await world.create_config_map("c", k="plain-plain-plain")
    raw = b"".join(path.read_bytes() for path in directory.glob("store.db*"))
    assert b"plain-plain-plain" in raw
    assert base64.b64encode(b"hunter2-hunter2") not in raw
    async with worlds.world(directory) as world:
        assert (await world.get("/api/v1/namespaces/default/secrets/s")).json() == made.json()


async def test_events_are_served_under_both_groups(world: worlds.World) -> None:
    core = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Started",
        "message": "it runs",
        "type": "Normal",
    }
    assert (await world.request("POST", "/api/v1/namespaces/default/events", core)).status == 201
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    new = (await world.get(f"{path}/e")).json()
    assert (new["apiVersion"], new["note"], new["regarding"]["name"]) == ("events.k8s.io/v1", "it runs", "p")
    listed = (await world.get(f"{path}?fieldSelector=regarding.name%3Dp")).json()
    assert [item["note"] for item in listed["items"]] == ["it runs"]
    found = (await world.get("/api/v1/events?fieldSelector=involvedObject.name%3Dother")).json()
    assert found["items"] == []


async def test_an_administrator_acts_as_another_with_that_ones_rights(world: worlds.World) -> None:
    answer = await world.get(PATH, headers={"Impersonate-User": "nobody"})
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert 'User "nobody" cannot list resource "configmaps"' in answer.message
    assert (await world.get(PATH, headers={"Impersonate-Group": "system:masters"})).status == 400
    both = {"Impersonate-User": "somebody", "Impersonate-Group": "system:masters"}
    assert (await world.get(PATH, headers=both)).status == 200


async def test_an_object_that_is_too_large_uses_no_quota_up(world: worlds.World) -> None:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    await world.request("POST", quotas, {"metadata": {"name": "one"}, "spec": {"hard": {"secrets": "1"}}})
    counted = {"status": {"hard": {"secrets": "1"}, "used": {"secrets": "0"}}}
    assert (await merge(world, f"{quotas}/one/status", counted)).status == 200
    secrets = "/api/v1/namespaces/default/secrets"
    labels = {"metadata": {"name": "s", "labels": {f"{'k' * 40}{number}": "v" * 63 for number in range(14_000)}}}
    body = io.BytesIO(msgspec.json.encode(labels))
    large = await world.request("POST", secrets, data=body, headers={"Content-Type": "application/json"})
    assert large.status == 413, large.message
    assert (await world.request("POST", secrets, {"metadata": {"name": "s"}})).status == 201
    refused = await world.request("POST", secrets, {"metadata": {"name": "more"}})
    assert (refused.status, "exceeded quota: one" in refused.message) == (403, True)
