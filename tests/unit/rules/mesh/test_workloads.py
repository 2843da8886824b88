# SPDX-License-Identifier: Apache-2.0
"""Pods and pod templates: which kinds have one, where, and what is no such thing."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.mesh import workloads
from tests.unit.rules.mesh import pods

SPEC = {"containers": [{"name": "a"}]}


@pytest.mark.parametrize(
    ("version", "kind", "place"),
    [
        ("v1", "PodTemplate", ("template",)),
        ("v1", "ReplicationController", ("spec", "template")),
        *(("apps/v1", kind, ("spec", "template")) for kind in ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet")),
        ("extensions/v1beta1", "Deployment", ("spec", "template")),
        ("batch/v1", "Job", ("spec", "template")),
        ("batch/v1", "CronJob", ("spec", "jobTemplate", "spec", "template")),
    ],
)
def test_every_kind_with_a_pod_template_is_known(version, kind, place):
    document: dict[str, Any] = {"spec": SPEC}
    for key in reversed(place):
        document = {key: document}
    found = pods.workload({"apiVersion": version, "kind": kind, **document})
    assert (found.place, found.spec) == (place, SPEC)


@pytest.mark.parametrize(
    ("version", "kind"), [("v1", "Service"), ("example.com/v1", "Deployment"), ("apps/v1", "Pod"), ("", "")]
)
def test_other_kinds_are_no_workloads(version, kind):
    assert workloads.find({"apiVersion": version, "kind": kind}) is None


def test_a_pod_says_who_it_is():
    found = pods.workload(pods.pod(serviceAccountName="api"))
    assert (found.name, found.namespace, found.account) == ("web", "shop", "api")
    assert pods.workload(pods.pod(serviceAccount="old")).account == "old"
    assert pods.workload(pods.pod()).account == "default"
    assert workloads.title({"kind": "Pod", "metadata": {"generateName": "web-"}}) == "pod/web-"
    assert workloads.title({}) == "object"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("x", "spec.template must be an object"),
        ({}, "spec.template.spec must be an object"),
        ({"metadata": [], "spec": SPEC}, "spec.template.metadata must be an object"),
        ({"metadata": {"labels": []}, "spec": SPEC}, "spec.template.metadata.labels must be an object"),
        ({"metadata": {"annotations": {"a": 1}}, "spec": SPEC}, "spec.template.metadata.annotations.a must be a text"),
        ({"spec": {}}, "spec.template.spec.containers must be a list with a container at least"),
        ({"spec": {"containers": {}}}, "spec.template.spec.containers must be a list"),
        ({"spec": {"containers": ["a"]}}, r"containers\[0\] must be an object with a name"),
        ({"spec": {"containers": [{"name": 1}]}}, r"containers\[0\] must be an object with a name"),
        ({"spec": {"containers": [{"name": "a"}] * 2}}, "containers must be a list without a name twice"),
        ({"spec": {**SPEC, "volumes": 7}}, "volumes must be a list"),
        ({"spec": {"containers": [{"name": "a", "env": [{}]}]}}, r"containers\[0\].env\[0\] must be an object with a"),
        (
            {"spec": {"containers": [{"name": "a", "volumeMounts": [1]}]}},
            r"\[0\].volumeMounts must be a list of objects",
        ),
        ({"spec": {"containers": [{"name": "a", "ports": {}}]}}, r"\[0\].ports must be a list of objects"),
    ],
)
def test_what_has_not_the_form_of_a_template_is_refused_with_its_path(template, text):
    with pytest.raises(workloads.Misshapen, match=f"deployment/web: .*{text}"):
        workloads.find(pods.deployment(template))
