# SPDX-License-Identifier: Apache-2.0
"""`handfast demo` as a real process: everything that the story promises is seen, without any right of root, and nothing is left, whenever it ends."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from handfast.demo import lines, story
from tests.scenarios import up_world
from tests.world import small_disk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DEMO = (*up_world.COMMAND, "demo")
MEMORY = pathlib.Path("/dev/shm")


def unprivileged() -> tuple[str, ...]:
    """Root without any of its rights, where root runs the tests."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return ()
    return ("setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")


def environment(directory: pathlib.Path, **more: str) -> dict[str, str]:
    return {**up_world.environment(), "TMPDIR": str(directory), **more}


@pytest.fixture
def nothing_left(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory for temporary ones; afterwards neither it, nor memory, nor the table of processes has anything of the demo."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    before = set(MEMORY.glob("hf-demo-*"))
    yield directory
    assert list(directory.iterdir()) == []
    assert set(MEMORY.glob("hf-demo-*")) <= before
    assert list(working_in(directory)) == []


def working_in(directory: pathlib.Path) -> Iterator[str]:
    """The processes that work in a directory, or below it."""
    for path in pathlib.Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                if (path / "cwd").readlink().is_relative_to(directory):
                    yield (path / "cmdline").read_text()
            except OSError:
                continue


def test_everything_is_seen_without_any_right_of_root_and_stays_until_ctrl_c_and_nothing_is_left(nothing_left):
    """In a terminal. Its temporary directory has a long name, and the settings of whoever starts it do not count."""
    directory = nothing_left / ("long-" * 20)
    directory.mkdir()
    words = [*unprivileged(), *DEMO, "--step", "--stay", "-o", "json"]
    with up_world.Terminal(words, environment(directory, HANDFAST_LISTEN="not an address")) as terminal:
        for count in range(1, len(story.STEPS) + 1):
            enter(terminal, count)
        shown = terminal.shows('"stays": true', 500)
        stays = json.loads(next(line for line in shown.splitlines() if '"stays": true' in line))
        # Everything runs: the console opens, by the address that was printed.
        (typed,) = stays["lines"]
        assert opened(typed["output"].strip()) == 200
        assert pathlib.Path(stays["kubeconfig"]).exists()
        terminal.interrupt()
        # Its good end.
        assert terminal.process.wait(120) == 0
        shown = terminal.shows('"clean": ')
    rows = [json.loads(line.removeprefix("^C")) for line in shown.splitlines() if line and line != PROMPT]
    assert [row for row in rows if row.get("verdict") == "failed" or "logs" in row] == []
    opening, *steps, _, end = rows
    assert "unset HANDFAST_LISTEN" in opening["opening"]
    assert [(row["step"], row["title"], row["verdict"]) for row in steps] == [
        (number, step.title, "passed") for number, step in enumerate(story.STEPS, 1)
    ]
    for row, step in zip(steps, story.STEPS, strict=True):
        for typed, line in zip(row["lines"], step.lines, strict=True):
            assert lines.pattern(line.text).fullmatch(typed["command"])
            assert typed["code"] == (None if line.stays else line.code)
    assert (end["clean"], end["left"]) == (True, {"processes": [], "ports": [], "files": []})
    assert len(end["removed"]) == 2
    directory.rmdir()


def opened(address: str) -> int:
    """The answer to a browser that goes to an address, and where it leads, with the cookie that it is given."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(address, timeout=30) as answer:
        return int(answer.status)


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def number(request: pytest.FixtureRequest) -> signal.Signals:
    return signal.Signals(request.param)


PROMPT = "Enter: the next step"
# The parts of the mesh are not there: its steps are left out, and the others take half as long.
WITHOUT_MESH = "import sys; sys.modules['grpc'] = None; sys.argv = ['handfast', *sys.argv[1:]]; from handfast.cli import main; main.main()"


def enter(terminal: up_world.Terminal, count: int) -> None:
    """Enter, once it is asked for so many times."""
    up_world.until(lambda: terminal.text.count(PROMPT) == count or terminal.process.poll() is not None, 240, "a step")
    os.write(terminal._ours, b"\n")


def anywhere() -> tuple[int, int]:
    """A step after the control plane has begun, and one of its lines: others each time."""
    step, what = random.choice([each for each in enumerate(story.STEPS, 1) if each[0] > 3 and not each[1].part])
    return step, random.randint(1, len(what.lines))


# Where each signal comes, by step and line: while nothing stays yet, while a machine waits, and later.
WHERE = {signal.SIGHUP: lambda: (1, 2), signal.SIGTERM: lambda: (2, 2), signal.SIGINT: anywhere}


def test_whenever_it_is_interrupted_nothing_is_left_and_that_is_said(nothing_left, number):
    """In the middle of a step, with processes that have begun, in a terminal that sends it to its foreground."""
    step, line = WHERE[number]()
    words = [sys.executable, "-c", WITHOUT_MESH, "demo", "--step"]
    with up_world.Terminal(words, environment(nothing_left)) as terminal:
        for count in range(1, step + 1):
            enter(terminal, count)
        title = f"{step} of {len(story.STEPS)}  "

        def typed() -> int:
            return len(re.findall(r"(?m)^\S*\$ ", terminal.text.partition(title)[2]))

        up_world.until(lambda: typed() >= line, 240, f"step {step}, line {line}: {terminal.text}")
        os.killpg(terminal.process.pid, number)
        # Once more: the end is not disturbed.
        os.killpg(terminal.process.pid, number)
        shown = terminal.shows("reason: Interrupted")
        assert terminal.process.wait(60) == 1
    assert "nothing is left: no process, no port, no file" in shown
    assert f"error: {number.name} in step {step}; it was cleaned up" in shown
    assert "\x1b[1;36m" in shown
    # What is told of the steps that are left out is shown in tests/unit/demo/test_telling.py, too.
    assert "--mesh" not in shown
    assert ("– left out: " in shown) is (step > 9)


@pytest.mark.parametrize(
    ("words", "variables", "code", "reason", "text"),
    [
        (("--nothing",), {}, 2, "Usage", "--nothing"),
        (("-o", "yaml"), {}, 2, "Usage", "json"),
        (("--listen", "somewhere"), {}, 2, "Usage", "has no port"),
        (("--listen", "0.0.0.0:6443"), {}, 2, "Usage", "not on this machine alone"),
        (("--listen", "127.0.0.1:{taken}"), {}, 1, "AddressInUse", "another process has this port"),
        ((), {"TMPDIR": "/nowhere/at/all"}, 1, "FileNotFound", "/nowhere/at/all"),
        ((), {"TMPDIR": "/proc/self"}, 1, "", "/proc/self"),
    ],
)
def test_bad_input_is_told_before_anything_is_made(nothing_left, words, variables, code, reason, text):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        done = subprocess.run(
            [*DEMO, *(word.replace("{taken}", port) for word in words)],
            capture_output=True,
            text=True,
            check=False,
            env=environment(nothing_left, **variables),
            timeout=60,
        )
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert text in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"reason: {reason}")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "words", "reason"),
    [
        # Not one file has room; and the store has none, when the first line has begun.
        ("nr_inodes=2", 3, ("cannot write", "no space left on device"), "NoSpace"),
        (
            "size=600k",
            1,
            ("the end of init.log:", "reason: StoreFull", "nothing is left: no process"),
            "DemoStepFailed",
        ),
    ],
)
def test_a_full_temporary_directory_is_told_and_nothing_is_left(nothing_left, options, code, words, reason):
    directory = nothing_left / "full"
    directory.mkdir()
    with small_disk.mounted(directory, options):
        done = subprocess.run(
            DEMO, capture_output=True, text=True, check=False, env=environment(directory), timeout=120
        )
        assert list(directory.iterdir()) == []
    directory.rmdir()
    assert done.returncode == code, done.stderr
    assert all(word in done.stdout + done.stderr for word in words), done
    assert done.stderr.splitlines()[-1] == f"reason: {reason}"
    assert "Traceback" not in done.stderr
