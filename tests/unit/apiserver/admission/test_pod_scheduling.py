# SPDX-License-Identifier: Apache-2.0
"""Priorities and tolerations at admission: which class counts, and which writes are looked at."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.apiserver.admission import plugin, pod_scheduling
from tests.unit.apiserver import admission_world

PODS, CLASSES = ("", "pods"), ("scheduling.k8s.io", "priorityclasses")


@pytest.fixture
def world() -> admission_world.World:
    return admission_world.World()


def _write(spec: dict[str, Any], *, old: dict[str, Any] | None = None, subresource: str = "") -> plugin.Write:
    operation = plugin.CREATE if old is None else plugin.UPDATE
    return admission_world.write_of(operation, PODS, document={"spec": spec}, old=old, subresource=subresource)


def test_a_pod_gets_the_priority_of_the_class_it_names(world: admission_world.World):
    priorities, spec = pod_scheduling.Priorities(), {"priorityClassName": "high"}
    with pytest.raises(plugin.Refusal, match="no PriorityClass with name high was found"):
        priorities.fill_in(_write(spec), world.context)
    world.put(CLASSES, "high", value=1000)
    priorities.fill_in(_write(spec), world.context)
    assert spec == {"priorityClassName": "high", "priority": 1000, "preemptionPolicy": "PreemptLowerPriority"}


def test_the_default_class_is_looked_for_again_when_the_classes_change(world: admission_world.World):
    priorities = pod_scheduling.Priorities()
    for value, is_default in ((0, None), (7, True), (0, False)):
        if is_default is not None:
            world.put(CLASSES, "usual", value=7, globalDefault=is_default)
        for _ in range(2):
            spec: dict[str, Any] = {}
            priorities.fill_in(_write(spec), world.context)
            assert spec["priority"] == value


def test_an_update_keeps_the_priority_and_a_subresource_changes_nothing(world: admission_world.World):
    priorities, spec = pod_scheduling.Priorities(), dict[str, Any]()
    priorities.fill_in(_write(spec, old={"spec": {"priority": 9}}), world.context)
    assert spec == {"priority": 9}
    priorities.fill_in(_write(spec, subresource="eviction"), world.context)
    pod_scheduling.tolerate(_write(spec, subresource="status"), world.context)
    assert spec == {"priority": 9}
    pod_scheduling.tolerate(_write(spec), world.context)
    assert len(spec["tolerations"]) == 2


def test_a_second_default_class_is_refused(world: admission_world.World):
    world.put(CLASSES, "usual", value=7, globalDefault=True)
    document = {"globalDefault": True}
    write = admission_world.write_of(plugin.CREATE, CLASSES, document=document, name="other")
    with pytest.raises(plugin.Refusal, match="PriorityClass usual is already marked as default"):
        pod_scheduling.Priorities().admit_class(write, world.context)
    own = admission_world.write_of(plugin.UPDATE, CLASSES, document=document, name="usual")
    pod_scheduling.Priorities().admit_class(own, world.context)
