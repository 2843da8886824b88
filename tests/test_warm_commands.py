# SPDX-License-Identifier: Apache-2.0
"""A command that is forked is the same as one that is started: what it writes, how it ends, and what it has from its caller."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import subprocess
import sys

import pytest

from handfast.runtime import files
from tests.world import warm

pytestmark = pytest.mark.slow
SECONDS = 60


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "handfast", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)


def forked(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return warm.run(arguments, {**os.environ, **variables}, SECONDS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("version",),
        ("token", "--help"),
        ("token", "creat"),
        ("token", "list", "--kubeconfig", "/none"),
        ("explain", "NotFound", "-o", "json"),
        ("config", "show", "--dir", "/none"),
    ],
    ids=" ".join,
)
def test_it_writes_and_ends_as_one_that_is_started(arguments: tuple[str, ...]) -> None:
    mine, theirs = forked(*arguments), started(*arguments)
    assert (mine.returncode, mine.stdout, mine.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
    assert mine.args == theirs.args


def test_variables_directory_and_umask_are_the_callers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o077)
    try:
        done = forked("init", "--listen", "127.0.0.1:16443", HANDFAST_DIR="here", HANDFAST_LOG_LEVEL="debug")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "here").rglob("*")} == {0}
    assert "debug" in forked("config", "show", HANDFAST_DIR="here", HANDFAST_LOG_LEVEL="debug").stdout
    assert "debug" not in forked("config", "show", HANDFAST_DIR="here").stdout


def test_where_python_itself_would_differ_it_is_started() -> None:
    assert "PYTHONVERBOSE" not in os.environ
    assert "import 'handfast.cli.version'" in forked("version", PYTHONVERBOSE="1").stderr


def test_several_run_side_by_side() -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = [*pool.map(lambda number: forked("explain", f"No{number}Reason"), range(8))]
    assert [f'no reason is called "No{number}Reason"' in each.stderr for number, each in enumerate(done)] == [True] * 8


def test_one_that_does_not_end_is_killed(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir(mode=0o700)
    words = ("serve", "apiserver", "--dir", str(directory), "--listen", "127.0.0.1:0")
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run(words, os.environ, 2)
    # Nobody has it any more.
    files.lock_directory(directory).release()
