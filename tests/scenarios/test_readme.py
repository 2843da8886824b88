# SPDX-License-Identifier: Apache-2.0
"""The README, followed to the letter: `make up` in one terminal, kubectl in another, Ctrl-C to stop.

Proves that what a newcomer is told to type works and prints what the README says it prints. Blocks under a comment
`tested: … terminal` are run unchanged, in a directory that looks like the checkout; only the ports are others, by the
documented environment variables. Installing is not tried: `make up` finds everything installed.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.interop import running
from tests.scenarios import up_world

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^<!-- tested: (\w+) terminal -->\n```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "--- this command has ended ---"
READY = "Handfast is ready"


@dataclass(frozen=True)
class Step:
    """A command and what the README says it prints."""

    command: str
    printed: str


def steps(terminal: str, readme: str) -> list[Step]:
    """The commands of every tested block of one terminal, in order."""
    found = []
    for name, block in BLOCK.findall(readme):
        if name == terminal:
            first, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
            assert not first, "a block starts with a command"
            pairs = [part.split("\n", 1) for part in parts]
            found += [Step(command, printed) for command, printed in pairs]
    return found


def same(printed: str) -> list[list[str]]:
    """What does not differ from run to run: the words, without their distances and without ages."""
    return [
        ["AGE" if re.fullmatch(r"\d+[smh]", word) else word for word in line.split()] for line in printed.splitlines()
    ]


def environment(home: pathlib.Path) -> dict[str, str]:
    """A newcomer's: nothing of the make, coverage and kubectl that may run this test."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "HANDFAST_LISTEN": "127.0.0.1:0",
        "HANDFAST_ADMIN_LISTEN": "127.0.0.1:0",
    }


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory that looks like the repository, so that neither data nor virtual environment are the developer's own.

    Its .venv holds the one command that `make up` runs, and a stamp that says all is installed. There is no Python in
    it: should make install nevertheless, it would do so in here, and never into the environment that runs this test.
    """
    place = tmp_path / "checkout"
    (place / ".venv" / "bin").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-build.lock"):
        shutil.copy(ROOT / name, place)
    command = place / ".venv" / "bin" / "handfast"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m handfast "$@"\n')
    command.chmod(0o755)
    # Last, so that it is newer than what it depends upon.
    (place / ".venv" / ".runtime").touch()
    return place


def second_terminal(checkout: pathlib.Path, commands: list[Step]) -> list[str]:
    """What each command prints, in one shell."""
    script = "set -eu\n" + "".join(f"{step.command}\necho '{MARK}'\n" for step in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=checkout,
        env=environment(checkout.parent),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split(f"{MARK}\n")[:-1]


@pytest.mark.slow
@pytest.mark.kubectl
@pytest.mark.timeout(300)
def test_the_readme_works_as_written(checkout):
    running.find_kubectl()
    readme = (ROOT / "README.md").read_text()
    (first,) = steps("first", readme)
    second = steps("second", readme)
    assert first.command == "make up"
    assert any("kubectl" in step.command for step in second)
    data = checkout / "handfast-data"
    with up_world.Terminal(["bash", "-c", first.command], environment(checkout.parent), checkout) as terminal:
        assert READY in terminal.shows("To stop it:")
        for step, printed in zip(second, second_terminal(checkout, second), strict=True):
            assert same(printed) == same(step.printed), step.command
        assert (data / "endpoints.json").exists()
        terminal.interrupt()
        terminal.process.wait(30)
        up_world.until(lambda: not (data / "endpoints.json").exists(), what="its end")
    assert (data / "store.db").exists(), "the data stays"


def test_the_tested_blocks_are_found():
    readme = "<!-- tested: first terminal -->\n```console\n$ a b\nprinted 5s\n$ c\n```\n```console\n$ never\n```\n"
    assert steps("first", readme) == [Step("a b", "printed 5s\n"), Step("c", "")]
    assert steps("second", readme) == []


def test_ages_and_distances_do_not_count():
    assert same("NAME   AGE\na   5s\n") == same("NAME AGE\na 12m\n")
    assert same("a 5s") != same("b 5s")
