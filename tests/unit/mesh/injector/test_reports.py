# SPDX-License-Identifier: Apache-2.0
"""What is told of reviews: to whom, how often, and of what nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
import structlog

from handfast.rules.mesh import admission, admission_reviews
from tests.unit.mesh.injector import injecting
from tests.unit.rules.mesh import pods
from tests.world import clock as clocks


@pytest.fixture
def world() -> injecting.World:
    world = injecting.World()
    world.install()
    return world


def note(world: injecting.World, document: dict[str, Any], annotations: dict[str, str], **request: Any) -> None:
    review = admission_reviews.read(injecting.review(document, **request))
    assert world.around.plan is not None
    world.reports.note(review, admission.judge(review, world.around.plan, admission.Around(annotations=annotations)))


async def written(world: injecting.World, seconds: float = 5.0) -> list[tuple[str, str, str]]:
    """The Events after a while: about what, reason and message."""
    task = asyncio.create_task(world.reports.run())
    await clocks.settle()
    await world.clock.advance(seconds)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    rows = [document for (plural, _, _), document in world.client.objects.items() if plural == "events"]
    return [(row["involvedObject"]["name"], row["reason"], row["message"]) for row in rows]


def owned(name: str = "web") -> dict[str, Any]:
    document = pods.pod()
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": True}
    document["metadata"]["ownerReferences"] = [{"name": "other", "kind": "A", "apiVersion": "v1"}, owner]
    return document


async def test_an_event_is_about_what_makes_the_pod_else_about_the_namespace(world):
    note(world, owned(), injecting.ENABLED)
    note(world, pods.pod(hostNetwork=True), injecting.ENABLED)
    assert await written(world) == [
        ("web", "Injected", "the mesh's proxy was injected"),
        ("shop", "InjectionSkipped", "the mesh's proxy was not injected: hostNetwork is enabled"),
    ]


async def test_nothing_is_told_of_what_nobody_wanted(world):
    note(world, owned(), {})
    note(world, owned(), injecting.ENABLED, dryRun=True)
    note(world, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 3306}]}}, {}, kind="Service")
    note(world, owned(), injecting.ENABLED, operation="UPDATE")
    note(world, pods.pod(serviceAccountName="a.b"), injecting.ENABLED)
    note(world, owned(), injecting.ENABLED, namespace="not-there")
    assert await written(world) == []


async def test_the_same_event_is_written_once_a_minute(world):
    for _ in range(10):
        note(world, owned(), injecting.ENABLED)
    assert len(await written(world)) == 1
    writes = len(world.client.calls)
    note(world, owned(), injecting.ENABLED)
    await written(world)
    assert len(world.client.calls) == writes
    await world.clock.advance(60)
    note(world, owned(), injecting.ENABLED)
    await written(world)
    assert len(world.client.calls) > writes


async def test_a_few_events_are_written_in_a_second(world):
    for number in range(20):
        note(world, owned(f"o-{number}"), injecting.ENABLED)
    assert len(await written(world, 0.9)) == 5


async def test_what_was_told_is_not_remembered_without_end(world, monkeypatch):
    monkeypatch.setattr("handfast.mesh.injector.reports._MOST_REMEMBERED", 3)
    for number in range(10):
        note(world, owned(f"o-{number}"), injecting.ENABLED)
    assert len(world.reports._written) == 3


async def test_of_one_kind_one_line_a_second_is_told_to_the_log(world):
    with structlog.testing.capture_logs() as lines:
        for _ in range(5):
            note(world, pods.pod(hostNetwork=True), injecting.ENABLED)
        await world.clock.advance(1.0)
        note(world, {**pods.pod(hostNetwork=True), "metadata": {"name": "n" * 100_000}}, injecting.ENABLED)
    assert [line["event"] for line in lines] == ["an object was skipped"] * 2
    assert len(repr(lines)) < 2000
