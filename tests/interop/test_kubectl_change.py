# SPDX-License-Identifier: Apache-2.0
"""kubectl edit, patch, replace, label, annotate, scale, set and the commands for nodes: every way to change an object."""

from __future__ import annotations

import json
import re

import pytest

from tests.interop import manifests, running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]


def _containers(kubectl: running.Kubectl) -> list[str]:
    return kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.template.spec.containers[*].name}").out.split()


def test_edit_with_an_editor(full):
    edited = full("edit", "cm", "settings", environment={"KUBE_EDITOR": "sed -i 's/colour: green/colour: red/'"})
    assert edited.out == "configmap/settings edited\n"
    assert full.json("get", "cm", "settings")["data"] == {"colour": "red", "size": "3"}
    untouched = full("edit", "cm", "settings", environment={"KUBE_EDITOR": "true"})
    assert "Edit cancelled, no changes made." in untouched.err
    refused = full(
        "edit", "pod", "web", environment={"KUBE_EDITOR": "sed -i 's/image: nginx:1/image: \"\"/'"}, code=None
    )
    assert refused.err.startswith('error: pods "web" is invalid\n')
    assert full.json("get", "pod", "web")["spec"]["containers"][0]["image"] == "nginx:1"


def test_json_patch(full):
    patch = [
        {"op": "test", "path": "/data/colour", "value": "green"},
        {"op": "replace", "path": "/data/colour", "value": "red"},
        {"op": "remove", "path": "/data/size"},
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
    ]
    assert full("patch", "cm", "settings", "--type=json", "-p", json.dumps(patch)).out == "configmap/settings patched\n"
    document = full.json("get", "cm", "settings")
    assert document["data"] == {"colour": "red"}
    assert document["metadata"]["labels"] == {"app": "web", "a/b": "c"}
    assert "test" in full.fails("patch", "cm", "settings", "--type=json", "-p", json.dumps(patch[:1]))


def test_merge_patch_replaces_lists_and_strategic_merges_them(full):
    spec = '{"spec": {"template": {"spec": {"containers": [{"name": "more", "image": "busybox"}]}}}}'
    full("patch", "deployment", "web", "--type=strategic", "-p", spec)
    assert sorted(_containers(full)) == ["main", "more", "side"]
    delete = '{"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}'
    full("patch", "deployment", "web", "-p", delete)
    assert sorted(_containers(full)) == ["main", "more"]
    full("patch", "deployment", "web", "--type=merge", "-p", spec)
    assert _containers(full) == ["more"]
    assert full.json("get", "deployment", "web")["metadata"]["generation"] == 4


def test_patch_that_changes_nothing_writes_nothing(full):
    before = full.resource_version("cm", "settings")
    assert full("patch", "cm", "settings", "-p", '{"data": {"nothing": null}}').out == (
        "configmap/settings patched (no change)\n"
    )
    assert full.resource_version("cm", "settings") == before


def test_patch_refuses_wrong_types_and_values_out_of_range(full):
    assert "cannot unmarshal number" in full.fails("patch", "cm", "settings", "-p", '{"data": {"a": 1}}')
    assert "must be greater than or equal to 0" in full.fails(
        "patch", "deployment", "web", "--type=merge", "-p", '{"spec": {"replicas": -1}}'
    )


def test_status_changes_only_through_its_subresource(full):
    full.needs(24, "patch --subresource")
    status = '{"status": {"replicas": 2, "observedGeneration": 1}, "spec": {"replicas": 9}}'
    full("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", status)
    document = full.json("get", "deployment", "web")
    assert document["status"] == {"replicas": 2, "observedGeneration": 1}
    assert (document["spec"]["replicas"], document["metadata"]["generation"]) == (2, 1)
    full("patch", "deployment", "web", "--type=merge", "-p", '{"status": {"replicas": 5}}')
    assert full.json("get", "deployment", "web")["status"]["replicas"] == 2


def test_replace_needs_the_latest_version_or_force(full):
    document = full.json("get", "cm", "settings")
    first = full.resource_version("cm", "settings")
    full("replace", "-f", "-", stdin=json.dumps(document))
    assert full.resource_version("cm", "settings") == first
    document["data"] = {"colour": "red"}
    assert full("replace", "-f", "-", stdin=json.dumps(document)).out == "configmap/settings replaced\n"
    assert full.fails("replace", "-f", "-", stdin=json.dumps(document)) == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on configmaps '
        '"settings": the object has been modified; please apply your changes to the latest version and try again'
    )
    del document["metadata"]["resourceVersion"]
    full("replace", "-f", "-", stdin=json.dumps(document))
    assert full("replace", "--force", "-f", "-", stdin=json.dumps(document)).lines[-1] == "configmap/settings replaced"
    assert full.json("get", "cm", "settings")["metadata"]["uid"] != document["metadata"]["uid"]
    document["metadata"]["name"] = "nothing"
    assert 'configmaps "nothing" not found' in full.fails("replace", "-f", "-", stdin=json.dumps(document))


def test_every_kind_can_be_described_and_replaced_with_itself(kubectl, unique, tmp_path):
    kubectl.needs(25, "describing all kinds without their beta versions")
    file = tmp_path / "every.yaml"
    file.write_text(manifests.EVERY_KIND.replace("every", unique))
    kubectl("create", "-f", str(file))

    def counted() -> bool:
        items = {item["kind"]: item for item in kubectl.json("get", "-f", str(file))["items"]}
        return (
            "used" in items["ResourceQuota"]["status"]
            and "observedGeneration" in items["PodDisruptionBudget"]["status"]
        )

    running.eventually(counted, "a quota and a budget that were counted")
    before = kubectl.json("get", "-f", str(file))
    described = kubectl("describe", "-f", str(file))
    assert described.err in {
        "",
        "Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\n",
    }
    for item in before["items"]:
        assert re.search(rf"Name: +{item['metadata']['name']}\n", described.out)
    kubectl("replace", "-f", "-", stdin=json.dumps(before))
    assert kubectl.json("get", "-f", str(file)) == before


def test_labels_are_added_overwritten_and_removed(full):
    assert full("label", "cm", "settings", "a=b").out == "configmap/settings labeled\n"
    assert "--overwrite is false" in full.fails("label", "cm", "settings", "a=c")
    full("label", "cm", "settings", "a=c", "--overwrite")
    assert sorted(full("label", "cm", "settings", "--list").lines) == ["a=c", "app=web"]
    full("label", "cm", "settings", "a-")
    assert full.json("get", "cm", "settings")["metadata"]["labels"] == {"app": "web"}
    full("label", "cm,pods", "-l", "app=web", "seen=yes")
    assert full("get", "cm,pods", "-l", "seen=yes", "-o", "name").lines == ["configmap/settings", "pod/web"]
    assert 'The ConfigMap "settings" is invalid: metadata.labels: Invalid value: "bad!"' in full.fails(
        "label", "cm", "settings", "bad!=1"
    )


def test_annotations_are_added_overwritten_and_removed(full):
    assert full("annotate", "cm", "settings", "note=first words").out.startswith("configmap/settings annotate")
    assert "--overwrite is false" in full.fails("annotate", "cm", "settings", "note=other")
    full("annotate", "cm", "settings", "note=other", "--overwrite")
    assert full.json("get", "cm", "settings")["metadata"]["annotations"] == {"note": "other"}
    assert "the object has been modified" in full.fails("annotate", "cm", "settings", "x=y", "--resource-version=1")
    full("annotate", "cm", "settings", "note-")
    assert "annotations" not in full.json("get", "cm", "settings")["metadata"]


def test_scale_changes_the_replicas_and_holds_to_the_current_ones(full):
    assert full("scale", "deployment", "web", "--replicas=5").out == "deployment.apps/web scaled\n"
    assert full("get", "deployment", "web", "-o", "jsonpath={.spec.replicas} {.metadata.generation}").out == "5 2"
    assert full.fails("scale", "deployment", "web", "--current-replicas=9", "--replicas=1") == (
        "error: Expected replicas to be 9, was 5"
    )
    full("scale", "deployment", "--all", "--replicas=0")
    assert full.json("get", "deployment", "web")["spec"]["replicas"] == 0
    full.fails("scale", "deployment", "nothing", "--replicas=1")


def test_set_image_and_environment(full):
    full("set", "image", "deployment/web", "main=nginx:2")
    full("set", "env", "deployment/web", "-c", "main", "A-", "C=c")
    document = full.json("get", "deployment", "web")
    main = document["spec"]["template"]["spec"]["containers"][0]
    assert main["image"] == "nginx:2"
    assert main["env"] == [{"name": "B", "value": "b"}, {"name": "C", "value": "c"}]


def test_cordon_and_taint_a_node(kubectl, unique):
    kubectl("create", "-f", "-", stdin=manifests.node(unique))
    kubectl("cordon", unique)
    assert "SchedulingDisabled" in kubectl("get", "node", unique).out
    assert kubectl(
        "get", "nodes", "--field-selector", f"spec.unschedulable=true,metadata.name={unique}", "-o", "name"
    ).out
    kubectl("uncordon", unique)
    kubectl("taint", "node", unique, "a=b:NoExecute")
    kubectl("taint", "node", unique, "dedicated-")
    (taint,) = kubectl.json("get", "node", unique)["spec"]["taints"]
    assert (taint["key"], taint["value"], taint["effect"]) == ("a", "b", "NoExecute")
