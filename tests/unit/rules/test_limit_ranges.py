# SPDX-License-Identifier: Apache-2.0
"""What limit ranges fill in and refuse. The names of the table in `rules/limit_ranges.py` are here."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules import limit_ranges


def limits(kind: str = "Container", **lists: Any) -> dict[str, Any]:
    return {"spec": {"limits": [{"type": kind, **lists}]}}


def pod(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    rows = [{"name": f"c{index}", "resources": row} for index, row in enumerate(containers)]
    return {"spec": {"containers": rows, **more}}


def said(limit_range: dict[str, Any], document: dict[str, Any]) -> str:
    verdict = limit_ranges.decide_pod(limit_range, document)
    return "" if verdict is None else verdict.sentence


def test_what_a_container_does_not_say_is_filled_in():
    document = pod({"limits": {"cpu": "2"}}, {}, initContainers=[{"name": "init"}])
    limit_ranges.fill_in(limits(default={"cpu": "1"}, defaultRequest={"cpu": "500m", "memory": "1Mi"}), document)
    filled = {"limits": {"cpu": "1"}, "requests": {"cpu": "500m", "memory": "1Mi"}}
    spec = document["spec"]
    assert spec["containers"][0]["resources"] == {**filled, "limits": {"cpu": "2"}}
    assert spec["containers"][1]["resources"] == spec["initContainers"][0]["resources"] == filled
    assert document["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container c0; cpu, memory request for container c1; "
        "cpu limit for container c1; cpu, memory request for init container init; cpu limit for init container init"
    )
    assert document["status"] == {"qosClass": "Burstable"}


def test_a_range_for_something_else_fills_nothing_in():
    document = pod({})
    limit_ranges.fill_in(limits("Pod", max={"cpu": "1"}), document)
    assert document == pod({})


@pytest.mark.parametrize(
    ("lists", "resources", "sentence"),
    [
        ({"min": {"cpu": "1"}}, {}, "minimum cpu usage per Container is 1.  No request is specified"),
        (
            {"min": {"cpu": "100m"}},
            {"requests": {"cpu": "50m"}},
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "500m"}},
            "minimum cpu usage per Container is 1, but limit is 500m",
        ),
        ({"min": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, ""),
        ({"max": {"memory": "1Gi"}}, {}, "maximum memory usage per Container is 1Gi.  No limit is specified"),
        (
            {"max": {"memory": "1Gi"}},
            {"limits": {"memory": "2Gi"}},
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        ),
        (
            {"max": {"memory": "1Gi"}},
            {"limits": {"memory": "1Gi"}, "requests": {"memory": "2Gi"}},
            "maximum memory usage per Container is 1Gi, but request is 2Gi",
        ),
        ({"max": {"memory": "1Gi"}}, {"limits": {"memory": "1Gi"}}, ""),
        ({"max": {"memory": "strange"}}, {}, ""),
        (
            {"min": {"cpu": "1"}, "max": {"cpu": "2"}},
            {},
            (
                "[minimum cpu usage per Container is 1.  No request is specified, "
                "maximum cpu usage per Container is 2.  No limit is specified]"
            ),
        ),
    ],
)
def test_every_container_is_held_to_the_bounds(lists, resources, sentence):
    assert said(limits(**lists), pod(resources)) == sentence


def test_a_limit_is_bounded_by_its_request():
    ratio = limits(maxLimitRequestRatio={"cpu": "2"})
    words = "cpu max limit to request ratio per Container is 2, but"
    assert said(ratio, pod({})) == f"{words} no request is specified or request is 0"
    assert said(ratio, pod({"requests": {"cpu": "1"}})) == f"{words} no limit is specified or limit is 0"
    assert said(ratio, pod({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}})) == f"{words} provided ratio is 3.000000"
    assert not said(ratio, pod({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}))


def test_the_containers_of_a_pod_add_up():
    one = {"limits": {"cpu": "1"}}
    assert not said(limits("Pod", max={"cpu": "2"}), pod(one, one))
    assert said(limits("Pod", max={"cpu": "2"}), pod(one, one, one)) == (
        "maximum cpu usage per Pod is 2, but limit is 3"
    )


@pytest.mark.parametrize(
    ("storage", "sentence"),
    [
        ("1Gi", "minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"),
        ("6Gi", "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi"),
        ("3Gi", ""),
        (
            None,
            (
                "[minimum storage usage per PersistentVolumeClaim is 2Gi.  No request is specified, "
                "maximum storage usage per PersistentVolumeClaim is 5Gi.  No request is specified]"
            ),
        ),
    ],
)
def test_a_claim_has_bounds_of_its_own(storage, sentence):
    claim = {"spec": {"resources": {"requests": {"storage": storage} if storage else {}}}}
    bounds = limits("PersistentVolumeClaim", min={"storage": "2Gi"}, max={"storage": "5Gi"})
    verdict = limit_ranges.decide_claim(bounds, claim)
    assert ("" if verdict is None else verdict.sentence) == sentence
