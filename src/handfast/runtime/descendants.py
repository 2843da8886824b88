# SPDX-License-Identifier: Apache-2.0
"""The processes that this one has started, and all that those have started, by the kernel's own tables. It ends none.

1. Whoever loses its parent becomes a child of this process, not of the first of the machine (PR_SET_CHILD_SUBREAPER): so none gets lost.
2. A process that has ended and was not waited for is none.
3. What cannot be read has ended meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
from collections.abc import Iterator
from typing import Final

_PROC: Final = pathlib.Path("/proc")
_SUBREAPER: Final = 36
_ENDED: Final = frozenset({"Z", "X"})


def adopt() -> None:
    """Have orphans among the descendants become children of this process (1)."""
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def alive() -> dict[int, str]:
    """Every descendant that runs, by its id, with its command line."""
    children: dict[int, list[int]] = {}
    for pid, parent in _running():
        children.setdefault(parent, []).append(pid)
    rows: dict[int, str] = {}
    waiting = [os.getpid()]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            rows[pid] = _command(pid)
            waiting.append(pid)
    return rows


def reap() -> None:
    """Take note of the end of orphans that were adopted (1). Only where nobody else waits for a child."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def sockets(pids: dict[int, str]) -> set[int]:
    """The inodes of the sockets that these processes hold."""
    inodes = set()
    for pid in pids:
        # 3. it has ended, or is another user's
        with contextlib.suppress(OSError):
            for path in (_PROC / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    kind, _, inode = str(path.readlink()).partition(":[")
                    if kind == "socket":
                        inodes.add(int(inode.removesuffix("]")))
    return inodes


def _running() -> Iterator[tuple[int, int]]:
    """Every process that has not ended (2), and its parent."""
    for path in _PROC.iterdir():
        if path.name.isdecimal():
            # 3. it has ended meanwhile
            with contextlib.suppress(OSError):
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in _ENDED:
                    yield int(path.name), int(parent)


def _command(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
