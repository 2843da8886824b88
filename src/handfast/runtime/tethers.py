# SPDX-License-Identifier: Apache-2.0
"""Child processes that the kernel ends with their parent, however that dies, and how their end is awaited. It starts none.

`children` ties children of this program by a socket; here are those of other programs, which know of no tie.

1. The kernel is told to kill the child (PR_SET_PDEATHSIG) between fork and exec. Whether the parent is still the one that forked is looked at
   after that, so that no moment is left. A small program of Python's does so and becomes the child: nothing is forked without exec.
2. The thread that starts it has to live as long as the process: the kernel means threads. It is the loop's, which is the main one.
3. The child has the environment that its parent gave to the start, and nothing that Python adds.
4. The child has the signals of a fresh process: what Python ignores, it does not. Where it cannot be executed, it says so, with the exit code of a
   shell, 126.
5. Only the child itself is killed. What it has started is its own to end.
"""

from __future__ import annotations

import asyncio
import ctypes.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from handfast.runtime import tasks

# What Python sets for itself, and its children, where the locale is C.
_LOCALE: Final = "LC_CTYPE"
# 4. as a shell has it
CANNOT_EXECUTE: Final = 126
# 1. the signal first, then the look at the parent; PR_SET_PDEATHSIG is 1
_LAUNCHER: Final = f"""\
import ctypes, os, signal, sys
libc = ctypes.CDLL({ctypes.util.find_library("c")!r}, use_errno=True)
if libc.prctl(1, {int(signal.SIGKILL)}, 0, 0, 0) != 0 or os.getppid() != int(sys.argv[1]):
    os._exit(125)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
os.environ.pop({_LOCALE!r}, None)
if sys.argv[2]:
    os.environ[{_LOCALE!r}] = sys.argv[2]
try:
    os.execve(sys.argv[3], sys.argv[4:], os.environ)
except OSError as error:
    print(f"cannot execute {{sys.argv[3]}}: {{error.strerror}}", file=sys.stderr, flush=True)
    os._exit({CANNOT_EXECUTE})
"""


def command(words: Sequence[str], variables: Mapping[str, str], *, program: str = "") -> tuple[str, ...]:
    """What to start instead of `words`, with these variables. `program` is the path of what is executed; without it, the first word."""
    # 3. nothing that Python adds
    launcher = (sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), variables.get(_LOCALE, ""))
    return (*launcher, program or words[0], *words)


async def ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once it has ended; a pidfd can be read then. Negative: the signal that killed it."""
    if process.poll() is None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        descriptor = os.pidfd_open(process.pid)
        loop.add_reader(descriptor, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
    return process.wait()


async def end(process: subprocess.Popen[bytes], grace: float) -> None:
    """Ask it to end, and kill it after so many seconds."""
    if process.poll() is None:
        process.terminate()
        async with tasks.deadline(grace):
            await ended(process)
    if process.poll() is None:
        process.kill()
        await ended(process)
