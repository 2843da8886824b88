# SPDX-License-Identifier: Apache-2.0
"""Taking back what was injected: exactly that, and nothing of anybody else's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handfast.rules.mesh import injection, uninjection
from tests.unit.rules.mesh import pods
from tests.unit.rules.mesh.test_injection import OLD


def injected(document: dict[str, Any]) -> dict[str, Any]:
    return injection.inject(pods.plan(), pods.target(document))


def uninjected(document: dict[str, Any]) -> dict[str, Any]:
    return uninjection.uninject(pods.workload(document))


@pytest.mark.parametrize(
    "document",
    [
        pods.pod(),
        pods.deployment(),
        pods.pod(volumes=None, initContainers=None),
        pods.pod(volumes=[], initContainers=[{"name": "first"}]),
        pods.pod(containers=[{"name": "b", "env": OLD}, {"name": "c", "env": OLD[:1]}]),
        pods.pod(initContainers=[{"name": "b", "env": OLD}]),
        pods.deployment({"metadata": None, "spec": pods.pod()["spec"]}),
        pods.deployment({"metadata": {"labels": None, "annotations": {}}, "spec": pods.pod()["spec"]}),
        pods.deployment(
            {
                "metadata": {
                    "labels": {"linkerd.io/workload-ns": "old"},
                    "annotations": {"linkerd.io/identity": "enabled", "a": "b"},
                },
                "spec": pods.pod()["spec"],
            }
        ),
    ],
)
def test_what_was_there_is_there_again(document):
    assert uninjected(injected(document)) == document


def test_what_others_have_injected_stays():
    document = pods.pod(containers=[{"name": "linkerd-proxy"}], initContainers=[{"name": "linkerd-init"}])
    assert uninjected(document) is document


def test_what_was_added_or_taken_away_since_is_left_so():
    document = injected(pods.pod(containers=[{"name": "b", "env": OLD}, {"name": "c", "env": OLD}, {"name": "d"}]))
    document["metadata"]["labels"] = {"mine": "x"}
    document["spec"]["volumes"].append({"name": "mine"})
    document["spec"]["containers"] = [{"name": "b"}, {"name": "d"}]
    bare = uninjected(document)
    assert bare["metadata"] == {"name": "web", "namespace": "shop", "labels": {"mine": "x"}}
    assert bare["spec"] == {"containers": [{"name": "b"}, {"name": "d"}], "volumes": [{"name": "mine"}]}


def test_variables_come_back_as_far_as_there_is_room():
    document = injected(pods.pod(containers=[{"name": "b", "env": OLD}]))
    document["spec"]["containers"][0]["env"] = []
    assert uninjected(document)["spec"]["containers"][0]["env"] == [OLD[0], OLD[2]]


@pytest.mark.parametrize("change", [{"absent": ["spec"]}, {"null": [1]}, {"removed": [["x", "b", 0, {}]]}])
def test_a_record_that_was_changed_is_refused(change):
    document = injected(pods.pod())
    annotations = document["metadata"]["annotations"]
    annotations[injection.RECORD] = json.dumps({**json.loads(annotations[injection.RECORD]), **change})
    with pytest.raises(uninjection.UnreadableRecord):
        uninjected(document)


@pytest.mark.parametrize("text", ["{", '{"removed": [["containers", "b", 0, ' + '{"a":' * 5000])
def test_a_record_that_cannot_be_read_is_refused(text):
    document = injected(pods.pod())
    document["metadata"]["annotations"][injection.RECORD] = text
    with pytest.raises(uninjection.UnreadableRecord):
        uninjected(document)
