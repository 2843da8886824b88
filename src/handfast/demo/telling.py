# SPDX-License-Identifier: Apache-2.0
"""Tells the story: types each line, compares what is seen with what must be, and cleans up whatever happened. It prints nothing: an audience does.

1. Parts that are not installed are looked for first. Steps that need them are left out, and the reason is told; all others are told.
2. A line of which something is not seen ends the story, also one that is typed at the end of a demo that stays. The ends of all logs are told with it.
3. A line that asks for what comes in a moment is typed again, for as long as patience lasts; not when a process that was to stay has ended badly.
4. Whatever ends the story, all processes are ended and all files removed, and that is looked at: what is left fails the demo.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pathlib
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from handfast import errors
from handfast.demo import lines, place, processes, story
from handfast.proxy import binary
from handfast.runtime import addresses, descendants
from handfast.runtime import clock as clocks
from handfast.wire import extra

PASSED, FAILED, LEFT_OUT = "passed", "failed", "left out"
_PATIENCE: Final = 180.0
_PAUSE: Final = 0.3
_TAIL: Final = 15
_LOGS: Final = ("*.log", "*.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for. `before` is waited for before each step; `console`: there is one, for a demo that stays."""

    listen: addresses.Address | None = None
    script: pathlib.Path | None = None
    stay: bool = False
    before: Callable[[], Awaitable[None]] | None = None
    console: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one line has given."""

    line: lines.Line
    text: str
    output: str
    code: int | None
    seconds: float
    # What was to be seen, and was not; empty: nothing.
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one step went."""

    number: int
    step: lines.Step
    verdict: str
    seconds: float = 0.0
    answers: tuple[Answer, ...] = ()
    # Why it was left out, and the next step.
    missing: errors.HandfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What was left after the end, which is nothing."""

    processes: Sequence[str] = ()
    ports: Sequence[str] = ()
    files: Sequence[str] = ()
    # What was there before it, for who wants to look.
    places: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not (self.processes or self.ports or self.files)


class Audience(Protocol):
    """Who is told."""

    def opened(self, opening: Sequence[str]) -> None: ...
    def begun(self, number: int, total: int, step: lines.Step) -> None: ...
    def typed(self, text: str) -> None: ...
    def waiting(self) -> None: ...
    def answered(self, answer: Answer) -> None: ...
    def done(self, result: Result) -> None: ...
    def stays(self, kubeconfig: str, answers: Sequence[Answer]) -> None: ...
    def logs(self, ends: Sequence[tuple[str, Sequence[str]]]) -> None: ...
    def cleaning(self) -> None: ...
    def ended(self, left: Left, seconds: float) -> None: ...


@dataclass(slots=True)
class Telling:
    """One time that the story is told."""

    options: Options
    audience: Audience
    clock: clocks.Clock
    place: place.Place
    processes: processes.Processes
    facts: dict[str, str] = field(default_factory=dict)
    missing: errors.HandfastError | None = None

    async def tell(self) -> None:
        """The whole story; it raises what ended it."""
        self.missing = _missing_part(self.place)
        console = self.options.stay and self.options.console
        self.facts = _facts(self.place, mesh=self.missing is None, console=console)
        self.audience.opened(list(self.place.opening(os.environ)))
        for number, step in enumerate(story.STEPS, 1):
            if self.options.before is not None:
                await self.options.before()
            self.audience.begun(number, len(story.STEPS), step)
            # 1. what needs a part that is not there
            if step.part and self.missing is not None:
                self.audience.done(Result(number=number, step=step, verdict=LEFT_OUT, missing=self.missing))
                continue
            await self._step(number, step)
        if self.options.stay:
            answers = [await self._line(line) for line in story.STAYING if console]
            # 2. there is no address that opens it
            for answer in answers:
                self._require_seen(answer, "the end of the story")
            self.audience.stays(self.facts["kubeconfig"], answers)
            await asyncio.Event().wait()

    async def _step(self, number: int, step: lines.Step) -> None:
        begun, answers = self.clock.monotonic(), []
        for line in step.lines:
            answers.append(await self._line(line))
            if answers[-1].missing:
                break
        verdict = FAILED if answers[-1].missing else PASSED
        seconds = self.clock.monotonic() - begun
        self.audience.done(Result(number=number, step=step, verdict=verdict, seconds=seconds, answers=tuple(answers)))
        # 2. something was not seen
        self._require_seen(answers[-1], f"step {number}, {step.title!r}")

    def _require_seen(self, answer: Answer, where: str) -> None:
        """Return if a line has shown what it must, else tell the ends of all logs, and refuse (2)."""
        if not answer.missing:
            return
        self.audience.logs(self._ends())
        raise errors.Refused(
            f"{where}: {answer.missing}",
            reason="DemoStepFailed",
            hint="what was typed and printed, and the ends of all logs, are above; a machine under load may be too slow",
        )

    async def _line(self, line: lines.Line) -> Answer:
        text = lines.filled(line.instead if line.instead and not shutil.which("kubectl") else line.text, self.facts)
        self.audience.typed(text)
        begun = self.clock.monotonic()
        if line.stays:
            self.processes.stay(text, may_end=line.may_end)
            answer = Answer(line=line, text=text, output="", code=None, seconds=0.0)
        else:
            answer = await self._seen(line, text, begun)
            self.facts |= lines.kept(line, answer.output)
        self.audience.answered(answer)
        return answer

    async def _seen(self, line: lines.Line, text: str, begun: float) -> Answer:
        """Run the line, again where that is asked for (3)."""
        while True:
            code, output = await self.processes.run(text, self.audience.waiting)
            missing = lines.why_not(line, self.facts, code, output)
            seconds = self.clock.monotonic() - begun
            answer = Answer(line=line, text=text, output=output, code=code, seconds=seconds, missing=missing)
            if not missing or not line.again:
                return answer
            if ended := self.processes.failed():
                return dataclasses.replace(answer, missing=f"{missing}; and this was to stay, and has ended: {ended}")
            if seconds > _PATIENCE:
                return answer
            self.audience.waiting()
            await self.clock.sleep(_PAUSE)

    def _ends(self) -> list[tuple[str, list[str]]]:
        """The last lines of every log."""
        paths = sorted(path for pattern in _LOGS for path in self.place.home.glob(pattern))
        texts = [(path.name, path.read_text(errors="replace").splitlines()[-_TAIL:]) for path in paths]
        # The join command of `init` has a token in it.
        return [(name, rows) for name, rows in texts if rows and name != "init.txt"]


async def tell(options: Options, audience: Audience, clock: clocks.Clock) -> None:
    """Tell the story in a new place, and leave nothing behind; it raises what ended it, or what was left."""
    begun = clock.monotonic()
    where = place.make(os.environ, options.listen, options.script)
    before = os.umask(0o077)
    # 4. nothing gets lost
    descendants.adopt()
    started = processes.Processes(where.home, where.variables(os.environ), clock)
    why: BaseException | None = None
    try:
        await Telling(options, audience, clock, where, started).tell()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised after the end
        why = error
    left = await _clean_up(started, where, audience, clock)
    os.umask(before)
    audience.ended(left, clock.monotonic() - begun)
    if why is not None and left.is_clean:
        raise why
    if not left.is_clean:
        raise errors.Refused(
            f"the demo has left something: {'; '.join((*left.processes, *left.ports, *left.files))}",
            reason="DemoLeftSomething",
            hint="end those processes, remove those files, and please report it",
        ) from why


async def _clean_up(started: processes.Processes, where: place.Place, audience: Audience, clock: clocks.Clock) -> Left:
    begun = clock.monotonic()
    try:
        audience.cleaning()
    finally:
        left, ports = await started.end()
        files = where.remove()
    places = [str(path) for path in where.directories()]
    return Left(processes=left, ports=ports, files=files, places=places, seconds=clock.monotonic() - begun)


def _missing_part(where: place.Place) -> errors.HandfastError | None:
    """Why there can be no workloads here; None: there can (1)."""
    try:
        extra.require()
        binary.path()
    except errors.Refused as refused:
        return refused
    if where.memory is None:
        return errors.Refused(
            "there is no directory in memory for the keys of workloads: neither /dev/shm nor TMPDIR is one",
            reason="NoMemoryDirectory",
            hint="set TMPDIR to a directory of a tmpfs",
        )
    return None


def _facts(where: place.Place, *, mesh: bool, console: bool) -> dict[str, str]:
    """What is known before the first line."""
    return {
        "api": str(where.api),
        "mesh": " --mesh" if mesh else "",
        "console": " --console" if console else "",
        "web": str(place.free_port()),
        "python": "python3" if shutil.which("python3") else sys.executable,
        "kubeconfig": str(where.home / "data" / "admin.conf"),
    }
