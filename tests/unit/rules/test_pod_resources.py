# SPDX-License-Identifier: Apache-2.0
"""What all containers of a Pod ask for together."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from handfast.rules import pod_resources


def _asks(cpu: str, **more: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}, "limits": {"memory": "1"}}, **more}


def _cpu(spec: dict[str, Any], **more: bool) -> Decimal | None:
    return pod_resources.of_pod(spec, "requests", **more).get("cpu")


def test_containers_add_up():
    assert _cpu({"containers": [_asks("1"), _asks("500m"), {}]}) == Decimal("1.5")


def test_an_init_container_counts_where_it_needs_more():
    assert _cpu({"containers": [_asks("1")], "initContainers": [_asks("3"), _asks("2")]}) == 3
    assert _cpu({"containers": [_asks("4")], "initContainers": [_asks("3")]}) == 4


def test_a_sidecar_adds_up_with_the_containers_and_with_later_init_containers():
    sidecar = _asks("1", restartPolicy="Always")
    assert _cpu({"containers": [_asks("1")], "initContainers": [sidecar]}) == 2
    assert _cpu({"containers": [_asks("1")], "initContainers": [sidecar, _asks("3")]}) == 4


def test_what_the_pod_says_takes_the_place_of_the_sum():
    assert _cpu({"containers": [_asks("1")], "resources": {"requests": {"cpu": "7"}}}) == 7


def test_a_pod_asks_for_no_less_than_its_containers():
    assert _cpu({"containers": [_asks("7")], "resources": {"requests": {"cpu": "1"}}}) == 7
    assert _cpu({"containers": [_asks("7")], "resources": {"limits": {"cpu": "9"}}}) == 7


def test_a_limit_of_the_pod_is_its_request_where_nobody_says_one():
    spec = {"containers": [{}, {}], "resources": {"limits": {"cpu": "9"}}}
    assert _cpu(spec) == 9
    assert pod_resources.of_pod({**spec, "containers": [_asks("1")] * 2}, "limits") == {"cpu": 9, "memory": 2}


def test_an_overhead_comes_on_top_of_what_is_there():
    spec: dict[str, Any] = {"containers": [_asks("1")], "overhead": {"cpu": "1", "memory": "2"}}
    assert _cpu(spec) == 2
    assert _cpu(spec, overhead=False) == 1
    assert pod_resources.of_pod(spec, "limits") == {"memory": 3}


def test_what_is_no_quantity_is_left_out():
    assert pod_resources.amounts({"cpu": "many", "memory": "1Ki"}) == {"memory": 1024}
