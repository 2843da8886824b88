# SPDX-License-Identifier: Apache-2.0
"""Runs the roles of a control plane as child processes: starts them in order, restarts what dies, stops them in order.

It never forks without exec and loads no HTTP, crypto or logging library, so that it stays small beside its children.
It does not serve anything. What it keeps:

1. A role starts when the one before it is ready. The first to start is the last to stop.
2. A child that dies is started again after a growing delay. One that dies `Timing.give_up` times in a row, each time
   within `Timing.young` seconds of its start, ends everything, and the error says so, with its last one. Where the
   kernel has no process or memory to give for a start, that counts as a death, and the other roles go on. A child that
   reports that starting it again cannot help (a damaged store) ends everything at once, with its reason.
3. SIGTERM, SIGINT or SIGHUP stops the children, all within `Timing.stop` seconds, after which they are killed. A
   second SIGINT kills at once.
4. Children have their own process group: Ctrl-C in a terminal reaches the supervisor only, which keeps the order.
5. No child outlives the supervisor. Each holds one end of a socket pair (`cli.supervised` is the other half): when
   the supervisor dies, however it dies, the kernel closes the other end and the child ends itself. Unlike
   PR_SET_PDEATHSIG this has no race at start, is not Linux alone, and a child that is stuck ends as well.
6. The child that prepares runs again, beside the roles, after as many seconds as its output asks for; where it fails,
   that is told, nobody stops, and it is tried again after `Timing.again` seconds.
7. A child that no longer answers (`watchdog` says when) is killed, with the reason in the log, and started again by rule 2.
   SIGKILL at once: one that is stopped sees no other signal before it is continued, and one whose event loop is stuck
   acts on none. Nothing is lost by it: what was acknowledged is in the store.
8. Children keep more freed memory at hand than glibc would have them, unless GLIBC_TUNABLES is set already.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from handfast import errors
from handfast.assembly import watchdog
from handfast.datadir import endpoints
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

_MAX_REPORT: Final = 64 * 1024
_EXIT_UNAVAILABLE: Final = 3
CHILD_FAILED: Final = "ChildFailed"
NOT_ANSWERING: Final = "NotAnswering"
_ABOVE: Final = "its own messages are above"
SUPERVISED: Final = "--supervised"
# 8. For each thread glibc keeps seven freed pieces of each size up to a kilobyte. A TLS handshake takes and frees more than a
# thousand, and what is over seven is joined and cut again: 2 to 3 % of a new connection, once a server has run for a while.
# 127 is the most that every glibc can count, and at most 4 MiB for each thread. It can only be chosen at the start of a
# process, and only so.
_ALLOCATOR: Final = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=127"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long things may take, in seconds."""

    ready: float = 60.0
    poll: float = 0.05
    young: float = 30.0
    give_up: int = 5
    stop_each: float = 4.0
    stop: float = 9.0
    again: float = 60.0
    # Rule 7; None: nobody is asked.
    silence: watchdog.Patience | None = field(default_factory=watchdog.Patience)
    restart: backoff.Schedule = field(default_factory=lambda: backoff.Schedule(initial=0.2, cap=10.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a child runs; `ready` tells whether it does its work, and None that there is nothing to wait for.

    `livez` makes who asks whether it is alive, and waits so many seconds for each answer; None: nobody asks. `again` are
    the words that are added when a child that has done its work is run once more.
    """

    name: str
    argv: Sequence[str]
    descriptors: Sequence[int] = ()
    ready: Callable[[], Awaitable[bool]] | None = None
    livez: Callable[[float], watchdog.Livez] | None = None
    again: Sequence[str] = ()


class Events(Protocol):
    """Who is told what happens."""

    def event(self, level: str, text: str, **fields: Any) -> None: ...

    def prepared(self, printed: bytes) -> float | None:
        """Called with the output of the child that runs before the roles, if there is one, each time it has run.

        The answer is after how many seconds it is to run again; None: never.
        """
        ...

    def changed(self, pids: Mapping[str, int]) -> None:
        """Called whenever a child has (re)started or ended, with the process id of each that runs. It does not raise."""
        ...

    def ready(self) -> None:
        """Called once, when every role is ready."""
        ...


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
        return errors.Refused(how, reason=CHILD_FAILED, hint=_ABOVE)


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


class Supervisor:
    """The children of one control plane, from the first start to the last stop."""

    def __init__(
        self,
        roles: Sequence[Role],
        events: Events,
        timing: Timing | None = None,
        first: Role | None = None,
        *,
        clock: clocks.Clock | None = None,
    ) -> None:
        self._clock = clock or clocks.SystemClock()
        self._first = first
        self._roles = roles
        self._events = events
        self._timing = timing or Timing()
        self._children: dict[str, Child] = {}
        self._stopping = asyncio.Event()
        self._failure: errors.HandfastError | None = None
        self._again: float | None = None

    def interrupt(self, number: signal.Signals) -> None:
        """What a signal does: the first one stops, a second SIGINT kills."""
        if not self._stopping.is_set():
            self._events.event("info", f"{number.name} received, stopping")
            self._stopping.set()
        elif number is signal.SIGINT:
            self._failure = errors.Refused("interrupted twice: the children were killed", reason="Interrupted")
            self._kill()

    def _kill(self) -> None:
        for child in self._children.values():
            child.send(signal.SIGKILL)

    async def run(self) -> None:
        """Until a signal stops it (returns) or a role cannot be kept running (raises its error)."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.interrupt, number)
        async with asyncio.TaskGroup() as group:
            if self._first is not None:
                await self._unless_stopped(group, self._run_first(self._first))
            for role in self._roles:
                if self._stopping.is_set():
                    break
                group.create_task(self._keep(role), name=role.name)
                await self._unless_stopped(group, self._until_ready(role))
            if not self._stopping.is_set():
                self._events.ready()
            again = group.create_task(self._prepare_again())
            await self._stopping.wait()
            again.cancel()
            await self._stop_children()
        if self._failure is not None:
            raise self._failure

    async def _unless_stopped(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` to its end, or to the stop, whichever comes first."""
        task = group.create_task(work)
        stop = group.create_task(self._stopping.wait())
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        stop.cancel()

    async def _run_first(self, role: Role) -> None:
        try:
            printed = await run_once(role)
        except errors.HandfastError as error:
            self._fail(error)
        else:
            self._again = self._events.prepared(printed)

    async def _prepare_again(self) -> None:
        """Rule 6."""
        while self._first is not None and self._again is not None:
            await self._pause(self._again)
            # A wait that ends in the moment in which it is cancelled ends well, so that the cancellation is not seen here.
            if self._stopping.is_set():
                return
            role = dataclasses.replace(self._first, argv=(*self._first.argv, *self._first.again))
            try:
                self._again = self._events.prepared(await run_once(role))
            except errors.HandfastError as error:
                self._again = self._timing.again
                self._events.event("warning", f"the {role.name} failed: {error.message}", reason=error.reason)

    def _fail(self, error: errors.HandfastError) -> None:
        self._failure = self._failure or error
        self._stopping.set()

    async def _pause(self, seconds: float) -> None:
        """Wait, unless a stop comes first."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _keep(self, role: Role) -> None:
        """Rule 2: run `role` again and again until the stop."""
        loop = asyncio.get_running_loop()
        delays = backoff.Backoff(self._timing.restart)
        deaths = 0
        while not self._stopping.is_set():
            begun = loop.time()
            outcome = await self._run_child(role)
            if self._stopping.is_set():
                return
            if isinstance(outcome, Permanent):
                outcome.message = f"the {role.name} cannot run, so that everything was stopped: {outcome.message}"
                self._fail(outcome)
                return
            if loop.time() - begun < self._timing.young:
                deaths += 1
            else:
                deaths = 0
                delays.reset()
            if deaths >= self._timing.give_up:
                self._fail(_given_up(role, deaths, self._timing.young, outcome))
                return
            delay = next(delays)
            self._events.event(
                "warning", f"the {role.name} ended and is started again", why=outcome.message, seconds=round(delay, 1)
            )
            await self._pause(delay)

    async def _run_child(self, role: Role) -> errors.HandfastError:
        """One life of a role: why it ended, or did not begin."""
        try:
            child = self._children[role.name] = await spawn(role)
        except errors.HandfastError as error:
            return error
        self._tell_pids()
        if self._stopping.is_set():
            # The stop came while the child was being started, and did not see it. It has done nothing yet.
            child.send(signal.SIGKILL)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(role, child))
            await child.process.wait()
            watching.cancel()
        self._tell_pids()
        return child.outcome()

    def _tell_pids(self) -> None:
        running = {name: child.process for name, child in self._children.items()}
        self._events.changed({name: one.pid for name, one in running.items() if one.returncode is None})

    async def _watch(self, role: Role, child: Child) -> None:
        """Kill the child once it no longer answers (rule 7)."""
        silence, pid = self._timing.silence, child.process.pid
        if role.livez is None or silence is None:
            return
        ask = role.livez(silence.answer)
        try:
            why = await watchdog.watch(ask, lambda: watchdog.state_of(pid), self._clock, silence)
        finally:
            ask.close()
        # A server that stops answers nobody, and has its own deadline.
        if not self._stopping.is_set():
            child.silent = why
            self._events.event(
                "error", f"the {role.name} does not answer and is killed", why=why, pid=pid, reason=NOT_ANSWERING
            )
            child.send(signal.SIGKILL)

    async def _until_ready(self, role: Role) -> None:
        if role.ready is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timing.ready
        try:
            while not self._stopping.is_set() and not await role.ready():
                if loop.time() >= deadline:
                    self._fail(_never_ready(role, self._timing.ready))
                    return
                await self._pause(self._timing.poll)
        except errors.HandfastError as error:
            self._fail(error)

    async def _stop_children(self) -> None:
        """Rule 3: the last started stops first; whoever is left at the deadline is killed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timing.stop
        for role in reversed(self._roles):
            child = self._children.get(role.name)
            if child is None:
                continue
            child.send(signal.SIGTERM)
            patience = min(self._timing.stop_each, deadline - loop.time())
            await _ended(child, deadline - loop.time() if role is self._roles[0] else patience)
        for role in self._roles:
            child = self._children.get(role.name)
            if child is not None:
                await _ended(child, max(0.0, deadline - loop.time()))
                if child.process.returncode is None:
                    self._events.event("warning", f"the {role.name} did not stop in time and was killed")
                    child.send(signal.SIGKILL)


async def _ended(child: Child, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.process.wait(), seconds)


def _never_ready(role: Role, seconds: float) -> errors.HandfastError:
    return errors.Unavailable(f"the {role.name} was not ready within {seconds:g} s", reason="NotReady", hint=_ABOVE)


def _given_up(role: Role, deaths: int, young: float, outcome: errors.HandfastError) -> errors.HandfastError:
    look = f"the messages of the {role.name} are above; once the cause is gone, start again"
    return errors.Refused(
        f"the {role.name} died {deaths} times in a row, each time within {young:g} s of its start, "
        f"so that everything was stopped; the last time: {outcome.message}",
        reason=outcome.reason,
        hint=look if outcome.hint in {None, _ABOVE} else f"{outcome.hint}; {look}",
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


async def answers(address: endpoints.Address, path: str, context: ssl.SSLContext | None) -> bool:
    """Whether GET `path` answers 200. Written out here because an HTTP library would double this process."""
    local = address.local()
    request = f"GET {path} HTTP/1.1\r\nHost: {local}\r\nUser-Agent: handfast-supervisor\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(local.host, local.port, ssl=context)
            try:
                writer.write(request.encode("ascii"))
                line = await reader.readline()
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, ValueError):
        return False
    return line.split(b" ", 2)[1:2] == [b"200"]
