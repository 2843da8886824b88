# SPDX-License-Identifier: Apache-2.0
"""How a proxy says which Pod it is in."""

from __future__ import annotations

import pytest

from handfast.rules.mesh import workload_tokens
from handfast.rules.mesh.workload_tokens import Workload


@pytest.mark.parametrize(
    ("text", "workload"),
    [
        ('{"ns":"shop","pod":"web-0"}', Workload("shop", "web-0")),
        ('{"ns":"shop", "nodeName":"n1", "pod":"web.0"}', Workload("shop", "web.0")),
        ("shop:web-0", Workload("shop", "web-0")),
    ],
)
def test_both_forms_are_read(text, workload):
    assert workload_tokens.parse(text) == workload


@pytest.mark.parametrize(
    "text",
    [
        "",
        "shop",
        ":",
        "shop:",
        ":web",
        "shop:web:0",
        "Shop:web",
        "{",
        "{}",
        '{"ns":"shop"}',
        '{"ns":"shop","pod":1}',
        '{"ns":["shop"],"pod":"web"}',
        '{"ns":"shop","external_workload":"vm"}',
        '{"ns":"a/../b","pod":"web"}',
        '{"ns":' * 2000,
        "a" * 5000,
    ],
)
def test_anything_else_is_refused_and_quoted_in_bounds(text):
    with pytest.raises(workload_tokens.InvalidWorkload) as refused:
        workload_tokens.parse(text)
    assert refused.value.message.startswith("Invalid workload: ")
    assert len(refused.value.message) < 300
