# SPDX-License-Identifier: Apache-2.0
"""Runs the roles of a control plane as child processes: starts them in order, restarts what dies, stops them in order.

It loads no HTTP, crypto or logging library, so that it stays small beside its children. It serves nothing. How a child is
started and tied to this process is in `children`. The rules:

1. A role starts when the one before it is ready. The first to start is the last to stop.
2. A child that dies is started again after a growing delay. A child that dies `Timing.give_up` times in a row, each time
   within `Timing.young` seconds of its start, ends everything; the error says so, with the child's last error. Where the
   kernel has no process or memory for a start, that counts as a death, and the other roles go on. A child that
   reports that starting it again cannot help (a damaged store) ends everything at once, with its reason.
   A role that is not needed (`children.Role`) ends nothing: where it would have, or is not ready in time, that is told, the others go
   on, and it is started again every `Timing.again` seconds.
3. SIGTERM, SIGINT or SIGHUP stops the children, all within `Timing.stop` seconds, after which they are killed. A
   second SIGINT kills at once.
4. The child that prepares runs again, beside the roles, after as many seconds as its output asks for. A failure is logged
   and stops nobody; the next try is after `Timing.again` seconds.
5. A child that no longer answers (`watchdog` says when) is killed, with the reason in the log, and restarted by rule 2.
   SIGKILL at once: a stopped process sees no other signal before it is continued, and a process whose event loop is stuck
   acts on none. Nothing is lost: what was acknowledged is in the store.
6. What has to be done `beside` them begins when every role is ready, and is cancelled at the stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from handfast import errors
from handfast.runtime import addresses, backoff, children, watchdog
from handfast.runtime import clock as clocks


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
    # For rule 5. None: no child is asked whether it is alive.
    silence: watchdog.Patience | None = field(default_factory=watchdog.Patience)
    restart: backoff.Schedule = field(default_factory=lambda: backoff.Schedule(initial=0.2, cap=10.0))


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


class Supervisor:
    """The children of one control plane, from the first start to the last stop."""

    def __init__(
        self,
        roles: Sequence[children.Role],
        events: Events,
        timing: Timing | None = None,
        first: children.Role | None = None,
        *,
        beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        clock: clocks.Clock | None = None,
    ) -> None:
        self._clock = clock or clocks.SystemClock()
        self._first = first
        self._beside = beside
        self._roles = roles
        self._events = events
        self._timing = timing or Timing()
        self._children: dict[str, children.Child] = {}
        self._stopping = asyncio.Event()
        self._failure: errors.HandfastError | None = None
        self._again: float | None = None
        # 2. roles that are not needed, and are done without for now
        self._without: set[str] = set()

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
            # Rule 6: beside them, until the stop.
            works = [group.create_task(work()) for work in (self._prepare_again, *self._beside)]
            await self._stopping.wait()
            for work in works:
                work.cancel()
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

    async def _run_first(self, role: children.Role) -> None:
        try:
            printed = await children.run_once(role)
        except errors.HandfastError as error:
            self._fail(error)
        else:
            self._again = self._events.prepared(printed)

    async def _prepare_again(self) -> None:
        """Run the child that prepares whenever it is due (rule 4)."""
        while self._first is not None and self._again is not None:
            await self._pause(self._again)
            # A wait that ends in the moment in which it is cancelled ends well, so that the cancellation is not seen here.
            if self._stopping.is_set():
                return
            role = dataclasses.replace(self._first, argv=(*self._first.argv, *self._first.again))
            try:
                self._again = self._events.prepared(await children.run_once(role))
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

    async def _keep(self, role: children.Role) -> None:
        """Rule 2: run `role` again and again until the stop."""
        loop = asyncio.get_running_loop()
        delays = backoff.Backoff(self._timing.restart)
        deaths = 0
        while not self._stopping.is_set():
            begun = loop.time()
            outcome = await self._run_child(role)
            if self._stopping.is_set():
                return
            if loop.time() - begun < self._timing.young:
                deaths += 1
            else:
                deaths = 0
                delays.reset()
            given_up = self._given_up(role, deaths, outcome)
            if given_up is not None and role.needed:
                self._fail(given_up)
                return
            if given_up is None:
                self._without.discard(role.name)
                delay = next(delays)
                text = f"the {role.name} ended and is started again"
            else:
                self._without.add(role.name)
                delay = self._timing.again
                text = f"the {role.name} cannot be kept running; everything else goes on, and it is tried again"
            self._events.event("warning", text, why=outcome.message, seconds=round(delay, 1), **_reason(given_up))
            await self._pause(delay)

    def _given_up(self, role: children.Role, deaths: int, outcome: errors.HandfastError) -> errors.HandfastError | None:
        """Why `role` cannot be kept running; None: it is worth another start."""
        if isinstance(outcome, children.Permanent):
            message = f"the {role.name} cannot run, so that everything was stopped: {outcome.message}"
            return children.Permanent(message, reason=outcome.reason, hint=outcome.hint)
        return _died(role, deaths, self._timing.young, outcome) if deaths >= self._timing.give_up else None

    async def _run_child(self, role: children.Role) -> errors.HandfastError:
        """One life of a role: why it ended, or did not begin."""
        try:
            child = self._children[role.name] = await children.spawn(role)
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

    async def _watch(self, role: children.Role, child: children.Child) -> None:
        """Kill the child once it no longer answers (rule 5)."""
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
                "error",
                f"the {role.name} does not answer and is killed",
                why=why,
                pid=pid,
                reason=children.NOT_ANSWERING,
            )
            child.send(signal.SIGKILL)

    async def _until_ready(self, role: children.Role) -> None:
        if role.ready is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timing.ready
        try:
            while not self._stopping.is_set() and not await role.ready():
                if role.name in self._without:
                    return
                if loop.time() >= deadline:
                    self._not_ready(role)
                    return
                await self._pause(self._timing.poll)
        except errors.HandfastError as error:
            self._fail(error)

    def _not_ready(self, role: children.Role) -> None:
        late = _never_ready(role, self._timing.ready)
        if role.needed:
            self._fail(late)
        else:
            self._events.event("warning", f"{late.message}; everything else goes on", **_reason(late))

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


async def _ended(child: children.Child, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.process.wait(), seconds)


def _never_ready(role: children.Role, seconds: float) -> errors.HandfastError:
    return errors.Unavailable(
        f"the {role.name} was not ready within {seconds:g} s", reason="NotReady", hint=children.MESSAGES_ABOVE
    )


def _reason(error: errors.HandfastError | None) -> dict[str, str]:
    return {} if error is None else {"reason": error.reason}


def _died(role: children.Role, deaths: int, young: float, outcome: errors.HandfastError) -> errors.HandfastError:
    look = f"the messages of the {role.name} are above; once the cause is gone, start again"
    return errors.Refused(
        f"the {role.name} died {deaths} times in a row, each time within {young:g} s of its start, "
        f"so that everything was stopped; the last time: {outcome.message}",
        reason=outcome.reason,
        hint=look if outcome.hint in {None, children.MESSAGES_ABOVE} else f"{outcome.hint}; {look}",
    )


async def answers(address: addresses.Address, path: str, context: ssl.SSLContext | None) -> bool:
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
