# SPDX-License-Identifier: Apache-2.0
"""Somebody who follows a page: types each command into a shell, and compares what is printed with what the page shows.

Each command must end with 0. What a page shows must be printed (`page_match` says what counts as the same); where it shows
nothing, nothing is compared, unless the page is followed to the letter. Commands that go on for ever are started in
terminals of their own, with what the shell exports, and are interrupted at the end. A second control plane takes the place of
the first.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Self

from tests import page_match, page_text
from tests.scenarios import up_world

READY = "Handfast is ready"
# Commands that do not end -> what they say when they are at work.
STAY = {
    "etcd --data-dir ": "ready to serve client requests",
    "haproxy ": "Loading success",
    "handfast up ": READY,
    ".venv/bin/handfast up ": READY,
    "handfast serve controllers --kubeconfig ": "controllers started",
    "handfast node run ": "registered",
    "handfast console": "This address opens it",
    "handfast serve machine-config ": "configurations are served",
    "handfast mesh run --service-account shop/web ": " runs at ",
}
# Commands that look at what may take a moment to come about: typed again until they show it.
SETTLE = (
    "handfast node status",
    "handfast node list",
    "handfast join failures",
    "handfast node configuration status",
    "handfast machine pools",
    "handfast csr explain ",
    "handfast machine explain ",
    "handfast mesh run --service-account shop/client -- curl ",
    "handfast mesh edges ",
    "handfast status",
    "handfast mesh anchors rotate --dry-run",
    "tail -n 1 calls.txt",
    "grep -c ",
)
_MARK = "--- this command has ended with "


def environment(home: pathlib.Path, **more: str) -> dict[str, str]:
    """A newcomer's: nothing of the make, coverage and kubectl that may run this test."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), **more}


def on_free_ports(home: pathlib.Path) -> dict[str, str]:
    """The same, for a control plane beside others on this machine."""
    return environment(home, HANDFAST_LISTEN="127.0.0.1:0", HANDFAST_ADMIN_LISTEN="127.0.0.1:0")


def install(directory: pathlib.Path) -> None:
    """The command `handfast`, and nothing else, in a new directory."""
    directory.mkdir(parents=True)
    command = directory / "handfast"
    # With what tests/conftest.py gives to every process, and a newcomer's environment does not have: each begins 0.1 s sooner.
    given = shlex.join(f"{name}={os.environ[name]}" for name in ("PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR"))
    command.write_text(f'#!/bin/sh\nexec env {given} {sys.executable} -m handfast "$@"\n')
    command.chmod(0o755)


class Shell:
    """bash, which remembers what was exported; leaving the block ends it, and what it left in the background."""

    def __init__(self, directory: pathlib.Path, variables: Mapping[str, str], enter: Sequence[str] = ()) -> None:
        self._printed, self._errors = (directory.parent / f"shell.{stream}" for stream in ("out", "err"))
        with self._printed.open("wb") as printed, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*enter, "bash", "-c", 'cd "$1" && exec bash -u', "bash", str(directory)],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=errors,
                start_new_session=True,
                text=True,
            )

    def type(self, command: str, seconds: float = 60) -> tuple[int, str, str]:
        """How it ended, what it printed, and its errors."""
        printed, errors = self._printed.stat().st_size, self._errors.stat().st_size
        assert self._process.stdin is not None
        # Whoever reads standard input would read the next commands.
        self._process.stdin.write(f"{{ {command}\n}} < /dev/null\nprintf '%s%d\\n' '{_MARK}' $?\n")
        self._process.stdin.flush()
        ended = re.compile(rf"{re.escape(_MARK)}(\d+)\n\Z")
        up_world.until(lambda: ended.search(_since(self._printed, printed)), seconds, what=command)
        text, code, _ = ended.split(_since(self._printed, printed))
        return int(code), text, _since(self._errors, errors)

    def exports(self) -> dict[str, str]:
        _, text, _ = self.type("env -0")
        return dict(entry.split("=", 1) for entry in text.split("\0") if entry)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait(30)


def _since(path: pathlib.Path, begin: int) -> str:
    return path.read_bytes()[begin:].decode()


class Reader:
    """A person with a shell and as many terminals as it takes, on this machine or on one that `enter` leads to."""

    def __init__(
        self,
        directory: pathlib.Path,
        variables: Mapping[str, str],
        enter: Sequence[str] = (),
        *,
        to_the_letter: bool = False,
    ) -> None:
        self._directory = directory
        self._enter = enter
        self._to_the_letter = to_the_letter
        self._match = page_match.Match()
        self._plane: up_world.Terminal | None = None
        self._closing = contextlib.ExitStack()
        self.shell = self._closing.enter_context(Shell(directory, variables, enter))

    def follow(self, step: page_text.Step, failing: str = "") -> str:
        """What it printed, which is what is shown; of a command that goes on, nothing. `failing`: it ends with 1, and says why."""
        command = self._match.typed(step.command)
        for prefix, says in STAY.items():
            if command.startswith(prefix):
                self.start(command, says)
                return ""
        if command.startswith(SETTLE):
            # What is wrong after that is told below, with all that was printed.
            with contextlib.suppress(AssertionError):
                up_world.until(lambda: self._match.holds(step.printed, self.shell.type(command)[1]), what=command)
        code, printed, errors = self.shell.type(command)
        assert code == bool(failing), f"{command}\nended with {code}:\n{printed}{errors}"
        assert failing in errors
        if step.printed.strip() or self._to_the_letter:
            assert self._match.holds(step.printed, printed), f"{command}\nshown:\n{step.printed}\nprinted:\n{printed}"
        return printed

    def start(self, command: str, says: str) -> up_world.Terminal:
        """In a terminal of its own."""
        if says == READY and self._plane is not None:
            _end(self._plane)
        words = [*self._enter, "bash", "-c", f"cd '{self._directory}' && exec {command}"]
        terminal = self._closing.enter_context(up_world.Terminal(words, self.shell.exports(), self._directory))
        self._closing.callback(_end, terminal)
        terminal.shows(says)
        self._plane = terminal if says == READY else self._plane
        return terminal

    def interrupt(self) -> None:
        """End the control plane as Ctrl-C does."""
        assert self._plane is not None
        _end(self._plane)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()


def _end(terminal: up_world.Terminal) -> None:
    """Ctrl-C, and time to stop; one that does not is killed with its terminal."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        if terminal.process.poll() is None:
            terminal.interrupt()
        terminal.process.wait(30)
