# SPDX-License-Identifier: Apache-2.0
"""Limit ranges at admission: which writes they are asked about."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.apiserver.admission import limit_ranges, plugin
from tests.unit.apiserver import admission_world

RANGES = ("", "limitranges")
LIMITS = [
    {"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "1"}},
    {"type": "PersistentVolumeClaim", "max": {"storage": "1"}},
]
POD = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]}}
CLAIM = {"spec": {"resources": {"requests": {"storage": "2"}}}}


def _write(plural: str, document: Any, **facts: Any) -> plugin.Write:
    usual: dict[str, Any] = {
        "operation": plugin.CREATE,
        "subresource": "",
        "namespace": "a",
        "old": None,
        "dry_run": False,
    }
    kind = admission_world.KINDS["", plural]
    return plugin.Write(
        **{**usual, "kind": kind, "name": "x", "document": document, "user": admission_world.JANE, **facts}
    )


@pytest.fixture
def context() -> plugin.Context:
    world = admission_world.World()
    world.put(RANGES, "sizes", "a", spec={"limits": LIMITS})
    return world.context


def test_a_new_pod_gets_the_defaults(context):
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "main"}]}}
    limit_ranges.fill_in(_write("pods", pod), context)
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}


@pytest.mark.parametrize(("plural", "document"), [("pods", POD), ("persistentvolumeclaims", CLAIM)])
def test_what_is_outside_is_refused(context, plural, document):
    with pytest.raises(plugin.Refusal) as caught:
        limit_ranges.admit(_write(plural, document), context)
    assert caught.value.why == "OutsideLimitRange"


@pytest.mark.parametrize(
    ("plural", "document", "facts"),
    [
        ("pods", POD, {"operation": plugin.UPDATE}),
        ("pods", POD, {"subresource": "binding"}),
        ("pods", None, {}),
        ("pods", POD, {"namespace": "another"}),
    ],
)
def test_what_no_range_is_about_is_let_through(context, plural, document, facts):
    limit_ranges.fill_in(_write(plural, None if document is None else {}, **facts), context)
    limit_ranges.admit(_write(plural, document, **facts), context)
