# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast.controllers import views
from handfast.rules.machine_config import names


def node(**more: Any) -> views.Node:
    metadata = {
        "name": "n1",
        "uid": "u",
        "labels": {"a": "b"},
        "annotations": {"other": "x", names.CURRENT: "rendered-worker-1"},
        **more.pop("metadata", {}),
    }
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert({"metadata": metadata, "status": status, **more}, views.Node)


def test_what_a_roll_out_writes_is_told_apart_from_all_else():
    annotations = {"other": "x", **dict.fromkeys(names.OF_ROLL_OUTS, "new")}
    assert views.only_rolled_out(node(), node(metadata={"annotations": annotations, "resourceVersion": "2"}))


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"uid": "another"}},
        {"metadata": {"labels": {}}},
        {"metadata": {"annotations": {"other": "y"}}},
        {"metadata": {"annotations": None}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
        {"status": {"addresses": [{"type": "Hostname", "address": "n1"}]}},
    ],
)
def test_any_other_change_of_a_node_is_looked_at(more: dict[str, Any]):
    assert not views.only_rolled_out(node(), node(**more))


def test_a_node_that_comes_or_goes_is_looked_at():
    assert not views.only_rolled_out(None, node())
    assert not views.only_rolled_out(node(), None)
