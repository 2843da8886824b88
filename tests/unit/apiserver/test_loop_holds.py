# SPDX-License-Identifier: Apache-2.0
"""Whoever holds the event loop is named and counted, within bounds; a query or a token is never told."""

from __future__ import annotations

import pytest
import structlog
from aiohttp.test_utils import make_mocked_request

from handfast.api import kinds
from handfast.apiserver import calls, identity, loop_holds, request
from handfast.telemetry import metrics
from tests.world.clock import MovableClock

SECRETS = next(row for row in kinds.builtin() if row.plural == "secrets")


class Holds:
    def __init__(self) -> None:
        self.clock = MovableClock()
        self.metrics = metrics.ApiServerMetrics()
        self.holds = loop_holds.LoopHolds(self.metrics, self.clock)

    def step(self, target: str = "/api/v1/secrets", method: str = "GET", seconds: float = 0.2, **more: object) -> None:
        asked = calls.Call(make_mocked_request(method, target), "boot-1", request.RequestInfo(method.lower(), ""))
        for name, value in more.items():
            setattr(asked, name, value)
        self.holds.step(asked, seconds)

    def counted(self) -> str:
        return self.metrics.text().decode()


@pytest.fixture
def holds() -> Holds:
    return Holds()


def test_the_line_names_the_request(holds: Holds) -> None:
    with structlog.testing.capture_logs() as lines:
        holds.step(
            user=identity.User("jane", ()),
            impersonator=identity.User("root", ()),
            source="192.0.2.7",
            info=request.RequestInfo("list", "/api/v1/secrets"),
            kind=SECRETS,
        )
    assert lines == [
        {
            "event": "a request held the event loop",
            "log_level": "warning",
            "milliseconds": 200,
            "id": "boot-1",
            "method": "GET",
            "path": "/api/v1/secrets",
            "user": "jane",
            "impersonator": "root",
            "source": "192.0.2.7",
        }
    ]
    assert 'handfast_apiserver_request_held_loop_total{resource="secrets",verb="list"} 1.0' in holds.counted()


def test_no_query_no_token_and_no_line_break_is_told(holds: Holds) -> None:
    with structlog.testing.capture_logs() as lines:
        holds.step("/x/abcdef.0123456789abcdef/%0Aforged?password=hunter2", user=identity.User("a\nb" * 1000, ()))
    assert "hunter2" not in str(lines)
    assert "0123456789abcdef" not in str(lines)
    assert all(str(value).isprintable() for value in lines[0].values())


def test_lengths_are_bounded(holds: Holds) -> None:
    with structlog.testing.capture_logs() as lines:
        holds.step(f"/{'x' * 100_000}", user=identity.User("u" * 100_000, ()))
    assert len(lines) == 1
    assert len(str(lines)) < 10_000


def test_callers_cannot_invent_time_series(holds: Holds) -> None:
    for number in range(100):
        holds.step(f"/made/up/{number}", method=f"VERB{number}")
    found = [line for line in holds.counted().splitlines() if line.startswith("handfast_apiserver_request_held_loop")]
    assert [line for line in found if "_total{" in line] == [
        'handfast_apiserver_request_held_loop_total{resource="",verb="other"} 100.0'
    ]


async def test_a_flood_has_few_lines_and_is_counted_whole(holds: Holds) -> None:
    with structlog.testing.capture_logs() as lines:
        for _ in range(1000):
            holds.step()
        assert len(lines) == loop_holds.LINES_PER_SECOND
        await holds.clock.advance(1.0)
        holds.step()
    assert lines[-1]["lines_left_out"] == 1000 - loop_holds.LINES_PER_SECOND
    assert "lines_left_out" not in lines[0]
    assert 'request_held_loop_total{resource="",verb="get"} 1001.0' in holds.counted()


def test_lateness_is_a_histogram_from_a_millisecond_to_ten_seconds(holds: Holds) -> None:
    for seconds in (0.0005, 0.04, 3.0, 60.0):
        holds.holds.late(seconds)
    name = "handfast_event_loop_lateness_seconds"
    for bound, count in (("0.001", 1.0), ("0.05", 2.0), ("5.0", 3.0), ("10.0", 3.0), ("+Inf", 4.0)):
        assert f'{name}_bucket{{le="{bound}"}} {count}\n' in holds.counted()


def test_a_hold_that_is_no_requests_has_a_line_of_its_own(holds: Holds) -> None:
    with structlog.testing.capture_logs() as lines:
        holds.holds.late(0.9)
        holds.holds.late(5.0)
    assert [(line["event"], line["milliseconds"]) for line in lines] == [
        ("the event loop was held, and by no request", 5000)
    ]


def test_a_hold_that_has_its_request_has_one_line(holds: Holds) -> None:
    with structlog.testing.capture_logs() as lines:
        holds.step(seconds=5.0)
        holds.holds.late(5.0)
        assert len(lines) == 1
        holds.holds.late(5.0)
    assert len(lines) == 2
