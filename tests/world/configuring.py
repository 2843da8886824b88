# SPDX-License-Identifier: Apache-2.0
"""A change of a machine's configuration that kills itself with SIGKILL before its Nth call to the file system.

Run as a program it reads orders, and forks a child for each: it imports everything once. The child counts every call that changes
something, wherever it is. No clean-up runs: the process is gone.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any, Self

import structlog

from handfast.node import configuration_state, root_files
from handfast.rules.machine_config import applying

# Every call that changes something; an open counts where it makes a file.
COUNTED = ("open", "mkdir", "rename", "symlink", "unlink", "write", "fchmod", "fchown")
BASE = "/etc/systemd/system"


def plan(number: int) -> applying.Plan:
    """The first and the second rendering of the story: files that change, come and go, a link, and one that is to be absent."""
    files = [
        applying.PlannedFile("/etc/both", f"both {number}\n".encode(), 0o644),
        applying.PlannedFile("/etc/kubernetes/kubeconfig", f"credential {number}\n".encode(), 0o600),
        applying.PlannedFile(f"/etc/only/{number}", b"x" * 5000, 0o640),
        applying.PlannedFile("/etc/same", b"same\n", 0o644),
    ]
    links = {f"{BASE}/a.target.wants/{number}.service": f"{BASE}/{number}.service"}
    absent = ("/etc/theirs",) if number == 2 else ()
    return applying.Plan(rendering=f"r{number}", files=tuple(files), links=links, absent=absent)


def prepare(directory: pathlib.Path) -> None:
    """A machine that has the first rendering, and files of its own."""
    (directory / "etc").mkdir()
    (directory / "etc/theirs").write_text("theirs\n")
    (directory / "etc/both").write_text("before anything\n")
    act(directory, "first")


def act(directory: pathlib.Path, what: str) -> None:
    root = root_files.Root(directory)
    machine = configuration_state.Machine(root)
    if what == "restore":
        machine.restore()
    elif what == "recover":
        machine.recover()
    else:
        machine.apply(plan(1 if what == "first" else 2))
    root.close()


def count(kill_at: int) -> list[str]:
    calls: list[str] = []

    def counted(name: str, plain: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if name != "open" or arguments[1] & os.O_CREAT:
                calls.append(name)
                if len(calls) == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return plain(*arguments, **named)

        return call

    for name in COUNTED:
        setattr(os, name, counted(name, getattr(os, name)))
    return calls


def child(order: dict[str, Any]) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    plain = os.write
    calls = count(order["kill_at"])
    act(pathlib.Path(order["directory"]), order["what"])
    plain(1, json.dumps({"calls": len(calls)}).encode() + b"\n")


def zygote() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                child(json.loads(line))
            except BaseException as error:  # the parent must see it
                sys.stdout.write(json.dumps({"error": repr(error)}) + "\n")
                sys.stdout.flush()
            os._exit(0)
        _, code = os.waitpid(pid, 0)
        if os.WIFSIGNALED(code):
            os.write(1, json.dumps({"signal": os.WTERMSIG(code)}).encode() + b"\n")


class Zygote:
    """The other end, for tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.world.configuring"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, directory: pathlib.Path, what: str, kill_at: int = 0) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"directory": str(directory), "what": what, "kill_at": kill_at}) + "\n")
        self._process.stdin.flush()
        outcome: dict[str, Any] = json.loads(self._process.stdout.readline())
        return outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)


if __name__ == "__main__":
    zygote()
