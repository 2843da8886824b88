# SPDX-License-Identifier: Apache-2.0
"""The program with a sampler beside it: on SIGUSR1 it writes down which functions its CPU time went to.

Each sample counts as much as the process computed since the one before, so that calls which keep the interpreter to
themselves count for what they are. It is for people: no test reads what it writes.
"""

from __future__ import annotations

import collections
import os
import pathlib
import signal
import sys
import threading
import time
from types import FrameType

EVERY = 0.001
# What every request goes through says nothing.
_TRUNK = (
    "web_protocol.py",
    "serving/aiohttp_parts.py",
    "serving/connection.py",
    "serving/listener.py",
    "apiserver/pipeline.py",
    "apiserver/verbs/resources.py",
)
_IDLE = ("threading.py", "thread.py", "queue.py", "runners.py", "store/sqlite/writer.py:_take")
_stacks: collections.Counter[str] = collections.Counter()
_below: collections.Counter[str] = collections.Counter()


def _place(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    short = path.rpartition("/src/handfast/")[2] if "/src/handfast/" in path else path.rpartition("/")[2]
    return f"{short}:{frame.f_code.co_name}:{frame.f_lineno}"


def _stack(frame: FrameType | None) -> list[str]:
    found = []
    while frame is not None:
        found.append(_place(frame))
        frame = frame.f_back
    return found


def _sample() -> None:
    before = time.process_time()
    while True:
        time.sleep(EVERY)
        now = time.process_time()
        spent, before = now - before, now
        if spent < EVERY / 2:
            continue
        stacks = [_stack(frame) for ident, frame in sys._current_frames().items() if ident != threading.get_ident()]
        # A thread whose innermost frame waits is not the one that computes.
        busy = [stack for stack in stacks if not stack[0].startswith(_IDLE)]
        for stack in busy[:1] or [["(idle, or outside Python: the loop, TLS, the collector)"]]:
            _stacks[" < ".join(stack[:6])] += int(spent * 1e6)
            for name in {line.rpartition(":")[0] for line in stack if not line.startswith(_TRUNK)}:
                if "/" in name and not name.startswith("cli/"):
                    _below[name] += int(spent * 1e6)


def _write(*_: object) -> None:
    place = pathlib.Path(os.environ["STALL_PROFILE"])
    lines = [f"      {count / 1000:7.0f} ms in {stack}" for stack, count in _stacks.most_common(4)]
    lines += [f"      {count / 1000:7.0f} ms in or below {name}" for name, count in _below.most_common(12)]
    _stacks.clear()
    _below.clear()
    draft = place.with_suffix(".new")
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(place)


if __name__ == "__main__":
    from handfast.cli import main

    signal.signal(signal.SIGUSR1, _write)
    threading.Thread(target=_sample, daemon=True).start()
    main.main()
