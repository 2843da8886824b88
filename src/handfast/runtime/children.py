# SPDX-License-Identifier: Apache-2.0
"""A child process of `handfast up`: how it is started, what ties it to its supervisor, and why it ended.

It keeps no child running: `supervisor` does. What holds for each:

1. It is this program, started with exec. Nothing is forked without exec.
2. It has its own process group: Ctrl-C in a terminal reaches the supervisor only, which stops its children in order.
3. It does not outlive the supervisor. Each holds one end of a socket pair (`cli.supervised` is the other half): when
   the supervisor dies, however it dies, the kernel closes the other end, and the child ends itself. Unlike
   PR_SET_PDEATHSIG this has no race at start, is not limited to Linux, and a child that is stuck ends as well.
4. It reports through the same pair why it ended, once, before it exits.
5. It keeps more freed memory at hand than glibc would by default, unless GLIBC_TUNABLES is set already.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.runtime import watchdog

_MAX_REPORT: Final = 64 * 1024
_EXIT_UNAVAILABLE: Final = 3
CHILD_FAILED: Final = "ChildFailed"
NOT_ANSWERING: Final = "NotAnswering"
MESSAGES_ABOVE: Final = "its own messages are above"
SUPERVISED: Final = "--supervised"
# 5. freed memory at hand: for each thread glibc keeps seven freed pieces of each size up to a kilobyte. A TLS handshake takes
# and frees more than a thousand; what is over seven is joined and cut again. That costs 2 to 3 % of a new connection, once
# a server has run for a while. 127 is the most that every glibc can count, and at most 4 MiB for each thread. It can be
# chosen only at the start of a process, and only by this variable.
_ALLOCATOR: Final = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=127"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a child runs; `ready` tells whether it does its work, and None that there is nothing to wait for.

    `livez` makes a question whether it is alive, which waits so many seconds for each answer; None: nobody asks.
    `again` are the words that are added when a child that has done its work is run once more. The others go on without one that is
    not `needed`, whatever becomes of it.
    """

    name: str
    argv: Sequence[str]
    descriptors: Sequence[int] = ()
    ready: Callable[[], Awaitable[bool]] | None = None
    livez: Callable[[float], watchdog.Livez] | None = None
    again: Sequence[str] = ()
    needed: bool = True


def command(*words: str) -> tuple[str, ...]:
    """This program with other words. -P keeps the current directory, which may be anyone's, out of the imports."""
    return (sys.executable, "-P", "-m", "handfast", *words)


class Permanent(errors.Refused):
    """What a child reports that cannot be kept running: starting it again would end the same way."""


@dataclass(slots=True)
class Child:
    """A running process and this end of the socket pair that ties it to the supervisor."""

    process: asyncio.subprocess.Process
    tie: socket.socket
    # Why it was killed from here, if it was.
    silent: str = ""

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def outcome(self) -> errors.HandfastError:
        """Why it ended: its own report if it left one, else what the kernel says. Call once, after its end."""
        code = self.process.returncode or 0
        how = f"killed by {_signal_name(-code)}" if code < 0 else f"exit code {code}"
        # Read here, not while it runs: a child reports once, just before it exits.
        with self.tie, contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            self.tie.setblocking(False)
            report = json.loads(self.tie.recv(_MAX_REPORT))
            family = errors.Unavailable if code == _EXIT_UNAVAILABLE else errors.Refused
            family = Permanent if report.get("permanent") is True else family
            return family(report["error"], reason=report["reason"], hint=report.get("hint"))
        if self.silent:
            return errors.Refused(f"killed: {self.silent}", reason=NOT_ANSWERING)
        return errors.Refused(how, reason=CHILD_FAILED, hint=MESSAGES_ABOVE)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def spawn(role: Role, *, output: int | None = None) -> Child:
    """Start a child tied to this process; its output is ours unless `output` says otherwise."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise _not_started(role, error) from error
    try:
        process = await asyncio.create_subprocess_exec(
            *role.argv,
            SUPERVISED,
            str(theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(*role.descriptors, theirs.fileno()),
            process_group=0,
            env={**_ALLOCATOR, **os.environ},
        )
    except OSError as error:
        ours.close()
        raise _not_started(role, error) from error
    finally:
        theirs.close()
    return Child(process, ours)


def _not_started(role: Role, error: OSError) -> errors.HandfastError:
    return errors.Unavailable(
        f"cannot start the {role.name}: {(error.strerror or 'failed').lower()}", reason=CHILD_FAILED
    )


async def run_once(role: Role) -> bytes:
    """Run a child that does one thing and ends; what it printed, or the error that it reported."""
    child = await spawn(role, output=asyncio.subprocess.PIPE)
    try:
        printed, complaints = await child.process.communicate()
    except asyncio.CancelledError:
        child.send(signal.SIGKILL)
        await child.process.wait()
        child.tie.close()
        raise
    outcome = child.outcome()
    if child.process.returncode:
        if outcome.reason == CHILD_FAILED:
            # It had no chance to report, so that what it wrote is all there is.
            last = complaints.decode("utf-8", "replace").strip().splitlines()[-3:]
            outcome = errors.Refused(
                f"the {role.name} failed with {outcome.message}: {' / '.join(last)}", reason=CHILD_FAILED
            )
        raise outcome
    return printed
