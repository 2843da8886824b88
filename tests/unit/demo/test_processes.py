# SPDX-License-Identifier: Apache-2.0
"""Processes of the demo, real ones: what was started ends, and what is lost is found."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from handfast import errors
from handfast.demo import processes
from handfast.runtime import clock as clocks
from handfast.runtime import descendants
from tests.world import small_disk

pytestmark = pytest.mark.slow
LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); open('port', 'w').write(str(s.getsockname()[1])); time.sleep(100)"


def told(tmp_path: pathlib.Path, work):
    """Run this with new processes, in a process of its own that adopts orphans."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            descendants.adopt()
            started = processes.Processes(tmp_path, os.environ, clocks.SystemClock())
            asyncio.run(work(started))
            code = 0
        except BaseException as error:
            (tmp_path / "error").write_text(repr(error))
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, (tmp_path / "error").read_text()


def test_a_line_that_finds_no_room_for_what_it_prints_is_told_of(tmp_path):
    directory = tmp_path / "full"
    directory.mkdir()
    with small_disk.mounted(directory, "nr_inodes=2"):
        (directory / "last").touch()

        async def work(started):
            with pytest.raises(errors.Unavailable, match=f"cannot make a file in {directory}: no space left") as caught:
                await started.run("echo", lambda: None)
            assert caught.value.reason == "NoSpace"
            assert await started.end() == ([], [])

        told(directory, work)


async def until(clock, question):
    for _ in range(600):
        if question():
            return
        await clock.sleep(0.05)
    raise AssertionError("it did not happen")


def test_a_line_gives_its_exit_code_and_all_that_it_prints(tmp_path):
    async def work(started):
        ticks = []
        assert await started.run("echo one; echo two >&2; sleep 0.3; exit 3", lambda: ticks.append(1)) == (
            3,
            "one\ntwo\n",
        )
        assert ticks
        assert await started.end() == ([], [])

    told(tmp_path, work)


def test_what_stays_is_ended_with_its_port(tmp_path):
    async def work(started):
        started.stay(f'{sys.executable} -c "{LISTEN}" &', may_end=False)
        await until(started.clock, (tmp_path / "port").exists)
        assert started.failed() == ""
        assert await started.end() == ([], [])
        assert descendants.alive() == {}

    told(tmp_path, work)


def test_what_was_to_stay_and_has_ended_badly_is_named(tmp_path):
    async def work(started):
        started.stay("true &", may_end=False)
        started.stay("false &", may_end=True)
        started.stay("sh -c 'exit 4' &", may_end=False)
        await until(started.clock, lambda: started.failed() != "")
        assert started.failed() == "sh -c 'exit 4' &"

    told(tmp_path, work)


def test_a_grandchild_that_was_lost_is_found_told_and_killed_with_its_port(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_LINGER", 0.3)

    async def work(started):
        # A daemon: nobody waits for it, and its parent is gone.
        code, _ = await started.run(f'setsid {sys.executable} -c "{LISTEN}" > /dev/null 2>&1 & exit 0', lambda: None)
        assert code == 0
        await until(started.clock, (tmp_path / "port").exists)
        left, ports = await started.end()
        assert len(left) == 1
        assert "create_server" in left[0]
        # It was killed, so that its port is free as well.
        await until(started.clock, lambda: descendants.alive() == {})
        assert ports in ([], [f"127.0.0.1:{(tmp_path / 'port').read_text()}"])

    told(tmp_path, work)


def test_who_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_GRACE", 0.2)

    async def work(started):
        started.stay("sh -c 'trap \"\" TERM; touch ready; while :; do sleep 0.1; done' &", may_end=False)
        await until(started.clock, (tmp_path / "ready").exists)
        left, ports = await started.end()
        assert (left, ports) == ([], [])
        assert started.jobs.popitem()[1].returncode == -signal.SIGKILL

    told(tmp_path, work)


def test_who_was_there_before_is_left_alone(tmp_path):
    async def work(started):
        with subprocess.Popen(["sleep", "100"]) as other:
            again = processes.Processes(tmp_path, os.environ, started.clock)
            assert await again.end() == ([], [])
            assert other.poll() is None
            other.kill()

    told(tmp_path, work)
