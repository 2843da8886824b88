# SPDX-License-Identifier: Apache-2.0
"""Runtime classes at admission: what a Pod gets from one, and what it may not say without."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.apiserver.admission import plugin, runtime_class
from tests.unit.apiserver import admission_world

CLASSES = ("node.k8s.io", "runtimeclasses")


def _admitted(spec: dict[str, Any], subresource: str = "") -> dict[str, Any]:
    world = admission_world.World()
    world.put(CLASSES, "kata", overhead={"podFixed": {"cpu": "1"}})
    write = plugin.Write(
        operation=plugin.CREATE,
        kind=admission_world.KINDS["", "pods"],
        subresource=subresource,
        namespace="a",
        name="x",
        document={"spec": spec},
        old=None,
        user=admission_world.JANE,
        dry_run=False,
    )
    runtime_class.admit(write, world.context)
    return spec


def test_a_pod_gets_the_overhead_of_its_class():
    assert _admitted({"runtimeClassName": "kata"})["overhead"] == {"cpu": "1"}
    assert _admitted({}) == {}
    assert "overhead" not in _admitted({"runtimeClassName": "kata"}, "status")


@pytest.mark.parametrize("spec", [{"overhead": {"cpu": "-9"}}, {"runtimeClassName": "gone"}])
def test_a_pod_says_no_overhead_without_a_class(spec: dict[str, Any]):
    with pytest.raises(plugin.Refusal):
        _admitted(spec)
