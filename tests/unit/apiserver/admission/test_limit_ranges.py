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


async def _ask(row: plugin.Row, write: plugin.Write, context: plugin.Context) -> None:
    waiting = row.plugin(write, context)
    if waiting is not None:
        await waiting


@pytest.fixture
def context() -> plugin.Context:
    world = admission_world.World()
    world.put(RANGES, "sizes", "a", spec={"limits": LIMITS})
    return world.context


async def test_a_new_pod_gets_the_defaults(context):
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "main"}]}}
    await _ask(limit_ranges.DEFAULTS, _write("pods", pod), context)
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}


@pytest.mark.parametrize(("plural", "document"), [("pods", POD), ("persistentvolumeclaims", CLAIM)])
async def test_what_is_outside_is_refused(context, plural, document):
    with pytest.raises(plugin.Refusal) as caught:
        await _ask(limit_ranges.BOUNDS, _write(plural, document), context)
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
async def test_what_no_range_is_about_is_let_through(context, plural, document, facts):
    await _ask(limit_ranges.DEFAULTS, _write(plural, None if document is None else {}, **facts), context)
    await _ask(limit_ranges.BOUNDS, _write(plural, document, **facts), context)


async def test_what_costs_by_the_container_is_handed_over(context):
    """A Pod with 1,000 of them took 50 ms, on the event loop."""
    done = []

    async def work(do: Any, *arguments: Any) -> Any:
        done.append(do)
        return do(*arguments)

    pod: dict[str, Any] = {"spec": {"containers": [{"name": "main"}]}}
    for row in (limit_ranges.DEFAULTS, limit_ranges.BOUNDS):
        await _ask(row, _write("pods", pod, work=work), context)
        await _ask(row, _write("pods", pod, work=work, namespace="another"), context)
    assert len(done) == 2
