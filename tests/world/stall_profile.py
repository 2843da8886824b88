# SPDX-License-Identifier: Apache-2.0
"""The program with a sampler beside it: on SIGUSR1 it writes down which functions its main thread was seen in."""

from __future__ import annotations

import collections
import os
import pathlib
import signal
import sys
import threading
import time
from types import FrameType

EVERY = 0.002
_seen: collections.Counter[str] = collections.Counter()
_whole: collections.Counter[str] = collections.Counter()


def _line(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    short = path.rpartition("/src/handfast/")[2] if "/src/handfast/" in path else path.rpartition("/")[2]
    return f"{short}:{frame.f_code.co_name}:{frame.f_lineno}"


def _sample(main: int) -> None:
    while True:
        time.sleep(EVERY)
        for ident, frame in sys._current_frames().items():
            if ident == threading.get_ident():
                continue
            top: FrameType | None = frame
            stack = []
            while top is not None:
                stack.append(_line(top))
                top = top.f_back
            if ident == main and not any("handfast" in one or "/" in one for one in stack[:1]) and "runners.py" in stack[0]:
                continue
            # Idle: in the loop's own run, or waiting for a queue or a future.
            if stack[0].split(":")[0] in {"runners.py", "threading.py", "queue.py", "thread.py", "base_events.py"}:
                continue
            _whole[" < ".join(stack[:7])] += 1
            for line in {one.rpartition(":")[0] for one in stack}:
                _seen[line] += 1


def _write(*_: object) -> None:
    place = pathlib.Path(os.environ["STALL_PROFILE"])
    lines = [f"{count * EVERY * 1000:8.0f} ms  {stack}" for stack, count in _whole.most_common(6)]
    lines += [f"{count * EVERY * 1000:8.0f} ms  in or below {name}" for name, count in _seen.most_common(25)]
    _seen.clear()
    _whole.clear()
    draft = place.with_suffix(".new")
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(place)


if __name__ == "__main__":
    from handfast.cli import main

    signal.signal(signal.SIGUSR1, _write)
    threading.Thread(target=_sample, args=(threading.main_thread().ident,), daemon=True).start()
    main.main()
