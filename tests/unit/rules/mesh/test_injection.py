# SPDX-License-Identifier: Apache-2.0
"""The JSON patch of an injection: its operations in order, and what it refuses to touch."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
from typing import Any

import pytest

from handfast.rules.mesh import injectable, injection, settings, sidecar
from tests.unit.rules.mesh import pods

OLD = [
    {"name": "LINKERD2_PROXY_TLS_TRUST_ANCHORS", "value": "a"},
    {"name": "MINE", "value": "b"},
    {"name": "LINKERD2_PROXY_POD_NAMESPACE", "value": "c"},
]


VECTORS = json.loads((pathlib.Path(__file__).parents[3] / "vectors" / "mesh" / "injection.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_patch_is_the_one_that_was_looked_at(vector):
    chosen = settings.changed(settings.Settings(), vector["settings"])
    plan = sidecar.Plan(settings=chosen, anchors=pods.ANCHORS, created_by="handfast/cli 1")
    found = pods.workload(vector["document"])
    identity = injectable.has_identity(found, chosen)
    assert injection.operations(plan, pods.target(vector["document"], identity=identity)) == vector["patch"]


def paths(document: dict[str, Any], *, identity: bool = True) -> list[str]:
    target = pods.target(document, identity=identity)
    return [f"{row['op']} {row['path']}" for row in injection.operations(pods.plan(), target)]


def test_the_patch_of_a_bare_template_is_in_order():
    at = "add /spec/template"
    assert paths(pods.deployment()) == [
        f"{at}/metadata",
        f"{at}/metadata/annotations",
        f"{at}/metadata/annotations/linkerd.io~1created-by",
        f"{at}/metadata/annotations/linkerd.io~1identity",
        f"{at}/metadata/annotations/linkerd.io~1trust-root-sha256",
        f"{at}/metadata/annotations/mesh.handfast.dev~1injection",
        f"{at}/metadata/labels",
        f"{at}/metadata/labels/linkerd.io~1control-plane-ns",
        f"{at}/metadata/labels/linkerd.io~1workload-ns",
        f"{at}/metadata/labels/linkerd.io~1proxy-deployment",
        f"{at}/spec/volumes",
        f"{at}/spec/initContainers",
        f"{at}/spec/volumes/-",
        f"{at}/spec/volumes/-",
        f"{at}/spec/volumes/-",
        f"{at}/spec/initContainers/0",
        f"{at}/spec/initContainers/1",
    ]


def test_the_patch_of_a_pod_without_an_identity_makes_only_what_is_missing():
    document = pods.pod(volumes=[{"name": "data"}], initContainers=[{"name": "first"}])
    document["metadata"] |= {"annotations": {"a": "b"}, "labels": {"c": "d"}}
    assert paths(document, identity=False) == [
        "add /metadata/annotations/linkerd.io~1created-by",
        "add /metadata/annotations/linkerd.io~1identity",
        "add /metadata/annotations/mesh.handfast.dev~1injection",
        "add /metadata/labels/linkerd.io~1control-plane-ns",
        "add /metadata/labels/linkerd.io~1workload-ns",
        "add /spec/volumes/-",
        "add /spec/initContainers/0",
        "add /spec/initContainers/1",
    ]


@pytest.mark.parametrize("identity", [True, False])
def test_the_result_always_says_whether_there_is_an_identity(identity):
    metadata = injection.inject(pods.plan(), pods.target(identity=identity))["metadata"]
    assert metadata["annotations"]["linkerd.io/identity"] == ("enabled" if identity else "disabled")
    assert metadata["annotations"]["linkerd.io/created-by"] == "handfast/cli 1"
    digest = hashlib.sha256(pods.ANCHORS.encode()).hexdigest()
    assert metadata["annotations"].get("linkerd.io/trust-root-sha256") == (digest if identity else None)
    assert metadata["labels"] == {"linkerd.io/control-plane-ns": "linkerd", "linkerd.io/workload-ns": "shop"}


def test_containers_of_the_application_have_nothing_of_the_proxys():
    document = pods.pod(initContainers=[{"name": "first"}])
    spec = injection.inject(pods.plan(), pods.target(document))["spec"]
    assert [row["name"] for row in spec["initContainers"]] == ["linkerd-init", "linkerd-proxy", "first"]
    assert spec["containers"] == document["spec"]["containers"]
    holders = [
        row["name"]
        for row in spec["initContainers"]
        for mount in row.get("volumeMounts", [])
        if mount["name"] == sidecar.STORE
    ]
    assert holders == ["linkerd-proxy"]


def test_variables_of_earlier_versions_are_taken_out_and_recorded():
    document = pods.pod(containers=[{"name": "a"}, {"name": "b", "env": OLD}])
    target = pods.target(document)
    removed = [row["path"] for row in injection.operations(pods.plan(), target) if row["op"] == "remove"]
    assert removed == ["/spec/containers/1/env/2", "/spec/containers/1/env/0"]
    injected = injection.inject(pods.plan(), target)
    assert injected["spec"]["containers"][1]["env"] == [OLD[1]]
    record = json.loads(injected["metadata"]["annotations"][injection.RECORD])
    assert record["removed"] == [["containers", "b", 0, OLD[0]], ["containers", "b", 2, OLD[2]]]
    assert document["spec"]["containers"][1]["env"] == OLD


def test_a_namespace_that_nobody_knows_is_not_made_up():
    document = pods.pod()
    del document["metadata"]["namespace"]
    target = sidecar.Target(workload=pods.workload(document), namespace="", identity=True)
    assert injection.inject(pods.plan(), target)["metadata"]["labels"] == {"linkerd.io/control-plane-ns": "linkerd"}


def test_a_name_that_is_no_label_is_not_among_the_labels():
    document = pods.deployment(name="w" * 64)
    assert not [path for path in paths(document) if "proxy-deployment" in path]


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"volumes": [{"name": "data"}, {"name": "linkerd-identity-store"}]}, r"spec.volumes\[1\].name"),
        ({"volumes": [{"name": "linkerd-identity-token"}]}, r"spec.volumes\[0\].name"),
        (
            {"containers": [{"name": "a", "volumeMounts": [{}, {"name": "linkerd-identity-store"}]}]},
            r"spec.containers\[0\].volumeMounts\[1\].name",
        ),
        (
            {"ephemeralContainers": [{"name": "a", "volumeMounts": [{"name": "linkerd-identity-store"}]}]},
            r"spec.ephemeralContainers\[0\].volumeMounts\[0\].name",
        ),
        (
            {"initContainers": [{"name": "a", "env": [{"name": "LINKERD2_PROXY_LOCAL_IDENTITY"}]}]},
            r"spec.initContainers\[0\].env\[0\].name",
        ),
        ({"securityContext": {"runAsUser": 2102}}, "spec.securityContext.runAsUser"),
        (
            {"containers": [{"name": "a"}, {"name": "b", "securityContext": {"runAsUser": 2102}}]},
            r"spec.containers\[1\].securityContext.runAsUser",
        ),
    ],
)
def test_what_is_ours_is_refused_with_its_place(spec, place):
    with pytest.raises(injection.Occupied, match=f"pod/web: {place} is '"):
        injection.operations(pods.plan(), pods.target(pods.pod(**spec)))


# Written down by hand, from the seed, the facts of Linkerd's injector and the source of its proxy, without running the injection. They say
# everything of the mesh that a Pod has afterwards, but for the record by which it is taken back; containers may say more.
DERIVED = json.loads((pathlib.Path(__file__).parents[3] / "vectors" / "mesh" / "derived.json").read_text())
UIDS = {"linkerd-identity": "u1", "linkerd-controller": "u2"}


def injected(vector: dict[str, Any]) -> dict[str, Any]:
    chosen = settings.changed(settings.Settings(), vector["settings"])
    plan = sidecar.Plan(settings=chosen, anchors=pods.ANCHORS, created_by="handfast/cli 1", uids=UIDS)
    identity = injectable.has_identity(pods.workload(vector["document"]), chosen)
    target = pods.target(vector["document"], identity=identity, uid=vector["uid"])
    return pods.workload(injection.inject(plan, target)).template


def variables(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By name; what is JSON is compared as that."""
    found = {}
    for row in rows:
        value = row.get("value", {"fieldRef": row.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")})
        is_json = isinstance(value, str) and value.startswith("{")
        found[row["name"]] = {"json": json.loads(value)} if is_json else value
    assert len(found) == len(rows)
    return found


def flags(words: list[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))


def holds(wanted: Any, found: Any) -> bool:
    """Whether all that is wanted is there; mappings may have more."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and holds(wanted[key], found[key]) for key in wanted)
    return bool(wanted == found)


@pytest.mark.parametrize("vector", DERIVED, ids=lambda vector: vector["name"])
def test_an_injected_pod_is_as_it_was_derived_by_hand(vector):
    template = injected(vector)
    metadata, spec = template["metadata"], template["spec"]
    assert {key: value for key, value in metadata["annotations"].items() if key != injection.RECORD} == vector[
        "annotations"
    ]
    assert metadata["labels"] == vector["labels"]
    assert spec["volumes"] == vector["volumes"]
    assert [row["name"] for row in spec["initContainers"]] == [row["name"] for row in vector["initContainers"]]
    for wanted, row in zip(vector["initContainers"], spec["initContainers"], strict=True):
        found = dict(row)
        if row["name"] == "linkerd-proxy":
            found["env"] = variables(row["env"])
            assert found["env"] == wanted["env"]
            assert ("startupProbe" in found) == ("startupProbe" in wanted)
        if row["name"] == "linkerd-init":
            found["args"] = flags(row["args"])
            assert found["args"] == wanted["args"]
        assert holds(wanted, found), (wanted, found)
    original = pods.workload(vector["document"]).spec["containers"]
    assert spec["containers"] == (vector["containers"] or original)


@pytest.mark.parametrize("vector", DERIVED, ids=lambda vector: vector["name"])
def test_what_a_variable_refers_to_comes_before_it(vector):
    [proxy] = [row for row in injected(vector)["spec"]["initContainers"] if row["name"] == "linkerd-proxy"]
    before: set[str] = set()
    for row in proxy["env"]:
        assert set(re.findall(r"\$\((\w+)\)", row.get("value", ""))) <= before
        before.add(row["name"])
