# SPDX-License-Identifier: Apache-2.0
"""What the agent leaves on disk, and how it is asked to renew."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import stat

import pytest
import structlog

from handfast import errors
from handfast.node import report
from handfast.runtime import files
from tests.world.clock import MovableClock, settle


def left(directory) -> report.Report:
    """What the agent wrote, which has to be there."""
    found = report.read(directory)
    assert found is not None
    return found


class Agent:
    def __init__(self, directory):
        self.directory = directory
        self.clock = MovableClock()
        self.seen = report.Report(node="n", pid=os.getpid(), problems={"lease": "late"}, static_pods=("a",))
        self.renewals = 0
        self.reporter = report.Reporter(directory, lambda: self.seen, self.renew, self.clock)

    def renew(self):
        self.renewals += 1


@pytest.fixture
def agent(tmp_path):
    return Agent(tmp_path)


def test_written_and_read(agent, tmp_path):
    agent.reporter.turn()
    found = left(tmp_path)
    assert dataclasses.replace(found, written="") == agent.seen
    assert report.is_fresh(found, agent.clock.now())
    assert stat.S_IMODE((tmp_path / report.STATUS).stat().st_mode) == 0o600


def test_one_that_is_anothers(agent, tmp_path, monkeypatch):
    """That it cannot be read is not the same as that no agent runs."""
    agent.reporter.turn()

    def denied(path, **_):
        raise files.explain(PermissionError(13, "permission denied"), "read", path)

    monkeypatch.setattr(files, "read", denied)
    with pytest.raises(errors.Refused, match="permission denied") as refused:
        report.read(tmp_path)
    assert refused.value.reason == "PermissionDenied"
    assert "sudo" in str(refused.value.hint)


async def test_an_old_one_is_not_fresh(agent, tmp_path):
    agent.reporter.turn()
    found = left(tmp_path)
    await agent.clock.advance(3 * report.REFRESH + 1)
    assert not report.is_fresh(found, agent.clock.now())


def test_one_of_a_process_that_is_gone_is_not_fresh(agent, tmp_path, monkeypatch):
    agent.reporter.turn()
    found = left(tmp_path)

    def gone(*_):
        raise ProcessLookupError

    def another(*_):
        raise PermissionError

    monkeypatch.setattr(os, "kill", gone)
    assert not report.is_fresh(found, agent.clock.now())
    monkeypatch.setattr(os, "kill", another)
    assert report.is_fresh(found, agent.clock.now())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"node": "n"}', '{"node": "n", "pid": 1}', '{"node":"n","pid":1,"written":"x"}']
)
def test_none_that_can_be_read(tmp_path, text):
    assert report.read(tmp_path) is None
    (tmp_path / report.STATUS).write_text(text)
    assert report.read(tmp_path) is None


def test_a_later_version_may_say_more(agent, tmp_path):
    agent.reporter.turn()
    path = tmp_path / report.STATUS
    path.write_text(json.dumps({**json.loads(path.read_text()), "new": 1}))
    assert left(tmp_path).node == "n"


async def test_written_on_change_and_every_half_minute(agent, tmp_path):
    task = asyncio.ensure_future(agent.reporter.run())
    await settle()
    first = (tmp_path / report.STATUS).stat().st_ino
    await agent.clock.advance(10)
    assert (tmp_path / report.STATUS).stat().st_ino == first
    agent.seen = dataclasses.replace(agent.seen, pods=1)
    await agent.clock.advance(2)
    assert left(tmp_path).pods == 1
    written = left(tmp_path).written
    await agent.clock.advance(report.REFRESH)
    assert left(tmp_path).written > written
    task.cancel()


def test_asked_to_rotate(agent, tmp_path):
    agent.reporter.turn()
    assert agent.renewals == 0
    report.ask_to_rotate(tmp_path)
    agent.reporter.turn()
    agent.reporter.turn()
    assert agent.renewals == 1
    assert not (tmp_path / report.ROTATE).exists()


def test_a_disk_that_takes_nothing_costs_the_report_only(agent, tmp_path):
    agent.reporter = report.Reporter(tmp_path / "none", lambda: agent.seen, agent.renew, agent.clock)
    with structlog.testing.capture_logs() as lines:
        agent.reporter.turn()
        agent.reporter.turn()
    assert [line["event"] for line in lines] == ["the status was not written"]


def test_a_wish_that_cannot_be_removed(agent, tmp_path):
    (tmp_path / report.ROTATE).mkdir()
    with structlog.testing.capture_logs() as lines:
        agent.reporter.turn()
    assert agent.renewals == 0
    assert lines[0]["event"] == "a wish to renew cannot be taken"


def test_removed_at_the_end(agent, tmp_path):
    agent.reporter.turn()
    agent.reporter.remove()
    agent.reporter.remove()
    assert report.read(tmp_path) is None
    (tmp_path / report.STATUS).mkdir()
    with structlog.testing.capture_logs() as lines:
        agent.reporter.remove()
    assert lines[0]["event"] == "the status was not removed"
