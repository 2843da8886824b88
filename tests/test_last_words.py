# SPDX-License-Identifier: Apache-2.0
"""What is left of a story that failed: `tests/world/last_words.py` shows the ends of logs and terminals, and not more than that."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time

import pytest

from tests.world import last_words

STORY = """
import subprocess, sys
from tests.scenarios import up_world

def test_that_fails(tmp_path):
    (tmp_path / "up.log").write_text("the injector has no certificate\\n")
    with up_world.Terminal([sys.executable, "-c", "print('ready' + ' soon')"], {}) as terminal:
        terminal.shows("ready soon")
        assert False

def test_that_passes(tmp_path):
    (tmp_path / "fine.log").write_text("nothing to tell\\n")
"""


def test_the_newest_words_are_shown_and_bounded(tmp_path: pathlib.Path) -> None:
    since = time.time() - 1
    for number in range(last_words.SOURCES + 3):
        (tmp_path / f"{number}.log").write_bytes(b"\xff" + b"a line that is one of many\n" * 100_000)
    (tmp_path / "long.log").write_text("x" * 1_000_000)
    (tmp_path / "empty.log").touch()
    (tmp_path / "directory.log").mkdir()
    said = last_words.words(tmp_path, since)
    assert 1000 < len(said) <= last_words.SOURCES * (last_words.BYTES + 100)
    assert "--- empty.log" not in said
    assert max(len(part.splitlines()) for part in said.split("--- ")) <= last_words.LINES + 1


def test_what_was_written_before_the_test_is_not_its_own(tmp_path: pathlib.Path) -> None:
    (tmp_path / "old.log").write_text("of another")
    assert last_words.words(tmp_path, time.time() + 60) == ""


@pytest.mark.slow
def test_a_failure_tells_what_its_processes_said(tmp_path: pathlib.Path) -> None:
    story = tmp_path / "test_story.py"
    story.write_text(STORY)
    words = ("-m", "pytest", "-q", "-p", "tests.world.last_words", "-p", "no:randomly", "-p", "no:cacheprovider")
    own = ("--rootdir", str(tmp_path), "--confcutdir", str(tmp_path), "--basetemp", str(tmp_path / "base"), str(story))
    done = subprocess.run([sys.executable, *words, *own], capture_output=True, text=True, timeout=100, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    _, _, shown = done.stdout.partition(last_words.TITLE)
    assert "up.log\nthe injector has no certificate" in shown
    assert f"--- terminal of {sys.executable}\nready soon" in shown
    assert "nothing to tell" not in done.stdout
