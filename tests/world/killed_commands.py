# SPDX-License-Identifier: Apache-2.0
"""Commands that kill themselves with SIGKILL before or after their Nth write to the API server.

Run as a program it is a zygote: it imports everything once, and forks a child for each order that it reads. The process is gone, and no clean-up runs.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from handfast.client import transport

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: its exit code, or minus the signal that ended it."""

    code: int
    stdout: str
    stderr: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


def count(kill_at: int) -> None:
    """Before the first write is 1, after it 2, before the second 3."""
    plain, ticks = transport.Transport._send, 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def send(this: Any, link: Any, method: str, path: str, **more: Any) -> Any:
        if method not in WRITES:
            return await plain(this, link, method, path, **more)
        tick()
        answer = await plain(this, link, method, path, **more)
        tick()
        return answer

    vars(transport)["Transport"]._send = send


def child(order: dict[str, Any]) -> None:
    from handfast.cli import main

    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(f"{order['directory']}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
    count(order["kill_at"])
    sys.argv = ["handfast", *order["words"]]
    main.main()


def zygote() -> None:
    """Fork a child for each order; what `waitpid` says of it is the answer."""
    from handfast.cli import main, mesh_anchors
    from handfast.client import mesh_anchor_rotation, mesh_trust

    assert all((main, mesh_anchors, mesh_anchor_rotation, mesh_trust))
    answers = os.dup(1)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child(json.loads(line))
            except SystemExit as ended:
                code = int(ended.code or 0)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


class Zygote:
    """The other end, for tests: orders in, outcomes out, one after the other."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="killed-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.world.killed_commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("HANDFAST_")},
            text=True,
        )

    def run(self, words: Sequence[object], kill_at: int = 0) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"words": [str(word) for word in words], "kill_at": kill_at, "directory": self._directory.name}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        place = pathlib.Path(self._directory.name)
        return Outcome(code, (place / "stdout").read_text(), (place / "stderr").read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(20)
        self._directory.cleanup()


if __name__ == "__main__":
    zygote()
