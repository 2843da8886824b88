# SPDX-License-Identifier: Apache-2.0
"""Which part of an object each subresource may change; over the wire it is tried in the scenarios."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import definitions, kinds, status
from handfast.apiserver import strategies

WIDGET = kinds.Kind(
    group="example.com",
    version="v1",
    kind="Widget",
    plural="widgets",
    singular="widget",
    namespaced=True,
    scale_paths=(".spec.deep.size", ".status.count", ""),
)


def row(plural: str) -> kinds.Kind:
    return next(found for found in kinds.builtin() if found.plural == plural)


def workload(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "w"}, "spec": {"template": {"image": "good"}, **spec}, "status": {"replicas": 1}}


@pytest.mark.parametrize("subresource", ["", *strategies.SUBRESOURCES])
def test_every_row_is_found(subresource: str) -> None:
    assert strategies.strategy(subresource) is strategies.SUBRESOURCES[subresource]


@pytest.mark.parametrize("subresource", ["eviction", "token", "frob", "Scale", "scale/"])
def test_an_unknown_one_writes_nothing(subresource: str) -> None:
    with pytest.raises(status.StatusError, match=f'through the subresource "{subresource}"') as caught:
        strategies.strategy(subresource)
    assert caught.value.code == 405


@pytest.mark.parametrize(("kind", "place"), [(row("deployments"), ("replicas",)), (WIDGET, ("deep", "size"))])
def test_scale_takes_the_number_and_the_record(kind: kinds.Kind, place: tuple[str, ...]) -> None:
    old = workload(replicas=1, deep={"size": 1})
    before, sent = copy.deepcopy(old), workload(replicas=7, deep={"size": 7, "evil": 1}, evil=1)
    sent |= {"status": {}, "evil": 1, "metadata": {"name": "x", "labels": {"a": "b"}, "managedFields": ["mine"]}}
    found = strategies.strategy("scale")(kind, sent, old)
    assert old == before
    wanted = workload(replicas=1, deep={"size": 1})
    inner = wanted["spec"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = 7
    assert found == {**wanted, "metadata": {"name": "w", "managedFields": ["mine"]}}
    # Said again after a webhook, it says the same.
    assert strategies.strategy("scale")(kind, copy.deepcopy(found), old) == found


def test_scale_without_a_number_changes_nothing() -> None:
    assert strategies.strategy("scale")(WIDGET, {"metadata": {}}, workload()) == workload()


def test_binding_takes_the_node_and_its_condition() -> None:
    mine, bound = {"type": "Mine"}, {"type": "PodScheduled", "status": "True"}
    old = workload() | {"status": {"phase": "Pending", "conditions": [mine, {"type": "PodScheduled"}]}}
    sent = workload(nodeName="n", evil=1) | {"status": {"phase": "evil", "conditions": [{"type": "Evil"}, bound]}}
    found = strategies.strategy("binding")(row("pods"), sent, old)
    assert found["spec"] == {**old["spec"], "nodeName": "n"}
    assert found["status"] == {"phase": "Pending", "conditions": [mine, bound]}
    assert strategies.strategy("binding")(row("pods"), sent, workload())["status"]["conditions"] == [bound]


def test_the_status_of_a_definition_is_the_servers() -> None:
    kind = next(found for found in kinds.builtin() if found.resource == definitions.RESOURCE)
    old = {"metadata": {"name": "d"}, "status": {"acceptedNames": {"plural": "a"}, "conditions": ["stored"]}}
    sent = {"metadata": {"name": "d"}, "status": {"acceptedNames": {"plural": "b"}, "storedVersions": ["v9"]}}
    assert strategies.strategy("status")(kind, sent, old) == old
