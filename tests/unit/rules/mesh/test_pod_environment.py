# SPDX-License-Identifier: Apache-2.0
"""The environment of a container as a kubelet makes it: order, references, fields, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.mesh import pod_environment

PLACE = pod_environment.Place(pod_ips=("127.77.3.4", "fd00::4"), host_ip="192.0.2.7")
POD: dict[str, Any] = {
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "u-1",
        "labels": {"app": "web", "example.com/x": "y"},
        "annotations": {"a": "b$(N)"},
    },
    "spec": {"serviceAccountName": "seller", "nodeName": "n1"},
}


def resolved(*rows: dict[str, Any], pod: dict[str, Any] | None = None) -> dict[str, str]:
    return pod_environment.resolve(pod or POD, {"name": "c", "env": list(rows)}, PLACE)


def literal(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}


def field(path: str, name: str = "F") -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)$(B)y", "x12y"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(LATER)", "$(LATER)"),
        ("$(A", "$(A"),
        ("$A", "$A"),
        ("costs 5$", "costs 5$"),
        ("$()", "$()"),
        ("$$", "$"),
    ],
)
def test_references_are_expanded_as_a_kubelet_does(text, is_):
    values = resolved(literal("A", "1"), literal("B", "2"), literal("C", text), literal("LATER", "3"))
    assert values["C"] == is_


def test_variables_are_made_in_their_order_and_the_last_of_a_name_counts():
    values = resolved(literal("A", "1"), literal("B", "$(A)"), literal("A", "2"), literal("C", "$(A)"), {"name": "E"})
    assert values == {"A": "2", "B": "1", "C": "2", "E": ""}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("metadata.name", "web-0"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['example.com/x']", "y"),
        ("metadata.labels['absent']", ""),
        ("metadata.annotations['a']", "b$(N)"),
        ("spec.serviceAccountName", "seller"),
        ("spec.nodeName", "n1"),
        ("status.podIP", "127.77.3.4"),
        ("status.podIPs", "127.77.3.4,fd00::4"),
        ("status.hostIP", "192.0.2.7"),
        ("status.hostIPs", "192.0.2.7"),
    ],
)
def test_fields_are_those_of_the_pod(path, text):
    values = resolved(literal("N", "no"), field(path), literal("AGAIN", "<$(F)>"))
    assert (values["F"], values["AGAIN"]) == (text, f"<{text}>")


def test_a_pod_that_is_bound_to_no_node_and_names_no_account():
    values = resolved(field("spec.nodeName", "N"), field("spec.serviceAccountName", "S"), pod={"metadata": {}})
    assert values == {"N": "", "S": "default"}
    none = pod_environment.Place(pod_ips=())
    container = {"env": [field("status.podIP"), field("status.hostIP", "H")]}
    assert pod_environment.resolve(POD, container, none) == {"F": "", "H": ""}


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ({"secretKeyRef": {"name": "s", "key": "k", "optional": True}}, "secretKeyRef"),
        ({"configMapKeyRef": {"name": "s", "key": "k"}}, "configMapKeyRef"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "resourceFieldRef"),
        ({"fieldRef": {"fieldPath": "spec.hostname"}}, "spec.hostname"),
        ({"fieldRef": {"fieldPath": "metadata.labels"}}, "metadata.labels"),
        ({"fieldRef": {}}, "fieldRef"),
    ],
)
def test_what_cannot_be_resolved_is_refused_by_name(source, word):
    with pytest.raises(pod_environment.Unresolved) as refused:
        resolved({"name": "PASSWORD", "valueFrom": source})
    assert "'PASSWORD'" in refused.value.message
    assert word in refused.value.message


def test_variables_from_whole_objects_are_refused():
    with pytest.raises(pod_environment.Unresolved, match="envFrom"):
        pod_environment.resolve(POD, {"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}, PLACE)


@pytest.mark.parametrize(("name", "value"), [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0y")])
def test_what_no_process_can_have_is_refused(name, value):
    with pytest.raises(pod_environment.Unresolved, match="no process"):
        resolved(literal(name, value))


def test_a_container_is_found_wherever_it_is():
    pod = {"spec": {"initContainers": [{"name": "a"}], "containers": [{"name": "b"}]}}
    assert pod_environment.find(pod, "a") == {"name": "a"}
    assert pod_environment.find(pod, "b") == {"name": "b"}
    assert pod_environment.find(pod, "c") is None


@pytest.mark.parametrize("count", [(12, 10), (40_000, 1)])
def test_variables_that_grow_without_end_are_refused(count):
    # A Pod of a few lines would take all memory of the machine, else.
    variables, times = count
    rows = [{"name": "A0", "value": "x" * 100}]
    rows += [{"name": f"A{n}", "value": f"$(A{n - 1})" * times} for n in range(1, variables)]
    with pytest.raises(pod_environment.Unresolved, match="cannot be resolved: there is more than"):
        pod_environment.resolve({}, {"env": rows}, pod_environment.Place(pod_ips=()))
