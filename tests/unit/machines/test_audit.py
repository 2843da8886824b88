# SPDX-License-Identifier: Apache-2.0
"""What is written down of a request. The names of the table in `audit.py` are here."""

from __future__ import annotations

import json
from typing import Any, cast

from handfast.machines import audit
from handfast.rules.machine_config import requester
from handfast.telemetry import rotating
from tests.unit.machines import asking
from tests.world.clock import MovableClock


class Lines:
    """A writer that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def add(self, line: bytes) -> None:
        self.lines.append(line)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def journal(clock: MovableClock | None = None) -> tuple[audit.Audit, Lines]:
    lines = Lines()
    return audit.Audit(clock or MovableClock(), cast("rotating.LineWriter", lines)), lines


async def test_a_line_says_who_from_where_for_what_and_what_came_of_it():
    made, lines = journal()
    async with asking.serving(asking.Source(), made) as server:
        await server.ask("/config/worker", secret=asking.SECRET)
        await server.ask("/config/master")
    served, refused = lines.rows
    assert served.pop("time")
    assert served.pop("rendering").startswith("rendered-worker-")
    assert served == {
        "source": "127.0.0.1",
        "method": "GET",
        "pool": "worker",
        "status": 200,
        "proof": "pool-secret",
        "user": "pool worker",
        "version": "2.2.0",
    }
    assert (refused["status"], refused["reason"], refused["pool"]) == (401, "NoProof", "master")


async def test_a_line_has_no_secret():
    made, lines = journal()
    async with asking.serving(asking.Source(), made) as server:
        await server.ask("/config/worker", secret=asking.SECRET)
        await server.ask("/config/worker", secret="a-wrong-secret")
    assert all(word not in line for line in lines.lines for word in (asking.SECRET.encode(), b"a-wrong-secret"))


def event(**more: Any) -> audit.Event:
    return audit.Event(
        **{"method": "GET", "pool": "worker", "source": "192.0.2.1", "status": 401, "reason": "NoProof", **more}
    )


def test_a_line_cannot_be_forged():
    made, lines = journal()
    made.note(event(pool='x"}\n{"status":200', serial="y" * 5000))
    (line,) = lines.lines
    assert line.count(b"\n") == 1
    assert len(line) < 1000
    assert lines.rows[0]["pool"] == 'x"}\ufffd{"status":200'


async def test_a_flood_has_few_lines():
    clock = MovableClock()
    made, lines = journal(clock)
    for _ in range(200):
        made.note(event())
    allowed = requester.Allowed(proof="pool-secret", who="pool worker")
    made.note(event(status=200, allowed=allowed, reason=""))
    assert len(lines.rows) == 51
    assert lines.rows[-1]["strangersWithoutALine"] == 150
    await clock.advance(1.0)
    made.note(event())
    assert len(lines.rows) == 52
    assert "strangersWithoutALine" not in lines.rows[-1]


async def test_a_flood_of_one_who_proved_who_they_are_has_few_lines():
    clock = MovableClock()
    made, lines = journal(clock)
    allowed = requester.Allowed(proof="pool-secret", who="pool worker")
    for _ in range(200):
        made.note(event(status=200, allowed=allowed, reason=""))
    # Others are written down all the same: from another address, or with another proof.
    made.note(event(status=200, allowed=allowed, reason="", source="192.0.2.2"))
    made.note(event(status=200, allowed=requester.Allowed(proof="machine-secret", who="a"), reason=""))
    assert len(lines.rows) == 52
    assert lines.rows[-2]["provedWithoutALine"] == 150
    assert "provedWithoutALine" not in lines.rows[-1]
    await clock.advance(1.0)
    made.note(event(status=200, allowed=allowed, reason=""))
    assert len(lines.rows) == 53


def test_answers_are_counted_by_reason_and_proof():
    made, _ = journal()
    counter = audit.ANSWERS.labels("401", "NoProof", "")
    before = counter._value.get()
    made.note(event())
    assert counter._value.get() == before + 1


def test_without_a_file_it_is_still_counted():
    audit.Audit(MovableClock()).note(event())
