# SPDX-License-Identifier: Apache-2.0
"""Requests are deleted by one call, when they are due, as they were seen. When that is: tests of `rules.certificates.request_age`."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast import errors
from handfast.controllers.certificates import cleaner
from tests.unit.controllers.csr_world import PLURAL, START
from tests.unit.controllers.csr_world import World as Base


class World(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cleaner = cleaner.CsrCleaner(self.client, self.clock)

    def see(self, *conditions: str, age: float = 0, **more: Any) -> float | None:
        made = START - datetime.timedelta(seconds=age)
        return self.clock.left(
            self.cleaner.see(self.add("x", *conditions, metadata={"creationTimestamp": made.isoformat()}, **more))
        )


@pytest.mark.parametrize(
    ("age", "seconds"),
    [
        pytest.param(0, 86400.000001, id="new"),
        pytest.param(86400 - 90, 90.000001, id="a minute and a half left"),
        pytest.param(86400, 0.000001, id="not greater yet"),
        pytest.param(86401, 0.0, id="due"),
    ],
)
def test_a_request_has_a_timer_by_its_age(age: float, seconds: float) -> None:
    assert World().see(age=age) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "more", [{"metadata": {"creationTimestamp": None}}, {"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}]
)
def test_without_a_timer(more: dict[str, Any]) -> None:
    world = World()
    assert world.cleaner.see(world.add(**more)) is None
    assert len(world.cleaner) == 0


async def test_deleted_by_one_call() -> None:
    world = World()
    world.see(age=86400 - 10)
    assert world.clock.left(await world.cleaner.reconcile("x")) == pytest.approx(10.000001)
    assert world.client.calls == []
    await world.clock.advance(11)
    assert await world.cleaner.reconcile("x") is None
    assert (world.client.calls, len(world.cleaner)) == ([("delete", PLURAL, "x")], 0)
    assert await world.cleaner.reconcile("x") is None


async def test_the_preconditions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.see(age=90000)
    sent: list[dict[str, Any]] = []

    async def delete(*_: Any, **options: Any) -> dict[str, Any]:
        sent.append(options)
        return {}

    monkeypatch.setattr(world.client, "delete", delete)
    await world.cleaner.reconcile("x")
    assert sent == [{"uid": "uid-x", "resource_version": "1"}]


@pytest.mark.parametrize("metadata", [{"uid": "another"}, {"resourceVersion": "99"}])
async def test_what_changed_meanwhile_stays(metadata: dict[str, str]) -> None:
    world = World()
    world.see(age=90000)
    world.stored()["metadata"] |= metadata
    with pytest.raises(errors.Refused, match="modified"):
        await world.cleaner.reconcile("x")
    # The loop comes again; by then the watch has told of the other.
    world.see(age=0)
    assert world.clock.left(await world.cleaner.reconcile("x")) == pytest.approx(86400.000001)


async def test_gone_already() -> None:
    world = World()
    world.see(age=90000)
    world.client.objects.clear()
    assert await world.cleaner.reconcile("x") is None
    world.see(age=90000)
    world.cleaner.forget("x")
    world.client.calls.clear()
    assert (await world.cleaner.reconcile("x"), world.client.calls) == (None, [])
