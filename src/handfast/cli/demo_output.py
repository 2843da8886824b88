# SPDX-License-Identifier: Apache-2.0
"""How the demo is shown: a page that grows, for people, or a line of JSON for each step. It judges nothing.

1. What is typed stands after `$ `, as it can be typed. On a terminal a long line is folded so that a shell still reads it as one.
2. Only a terminal has colours, and a line that says that something is waited for.
3. For machines each step is one line of JSON, with every line that was typed, all that it printed, and the verdict; the last line is about the end.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, Final

from handfast.cli import output
from handfast.demo import lines, telling
from handfast.runtime import clock as clocks
from handfast.telemetry.colour import Style

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_WIDEST: Final = 120
_CLEAN: Final = "nothing is left: no process, no port, no file"


class Page:
    """For people."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._live = sys.stdout.isatty() and sys.stderr.isatty()
        self._width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else 1 << 16
        self._shown = 0
        self._ticks = 0
        self._since = 0.0
        self.step = 0
        self.is_staying = False

    def opened(self, opening: Sequence[str]) -> None:
        rows = [(f"  {row}", Style.STRONG) for row in opening]
        output.styled(
            [
                ("Handfast, on this machine. Every line can be typed; in another terminal, begin with\n", Style.PLAIN),
                *rows,
            ]
        )

    def begun(self, number: int, total: int, step: lines.Step) -> None:
        self.step = number
        title = (f"\n{number} of {total}  {step.title}", Style.TITLE)
        output.styled([title, *((row, Style.PLAIN) for row in self._wrapped(step.why, ""))])

    def _wrapped(self, text: str, indent: str) -> list[str]:
        """A line of text on as many lines of the terminal as it takes, by words."""
        more = indent + " " * (len(text) - len(text.lstrip()))
        wrapped = textwrap.wrap(
            text,
            self._width,
            initial_indent=indent,
            subsequent_indent=f"{more}  " if indent else "",
            break_long_words=False,
            drop_whitespace=True,
            replace_whitespace=False,
            break_on_hyphens=False,
        )
        return wrapped if len(indent + text) > self._width else [f"{indent}{text}"]

    def typed(self, text: str) -> None:
        # 1. as it can be typed
        rows = lines.folded(text, self._width - 2)
        output.styled([(f"{'$ ' if at == 0 else '  '}{row}", Style.STRONG) for at, row in enumerate(rows)])
        self._since, self._ticks = self._clock.monotonic(), 0

    def waiting(self) -> None:
        # 2. on a terminal only
        if self._live:
            self._ticks += 1
            frame = _FRAMES[self._ticks % len(_FRAMES)]
            output.live([f"{frame} {self._clock.monotonic() - self._since:.0f} s"], instead_of=self._shown)
            self._shown = 1

    def _still(self) -> None:
        """Take away what says that something is waited for."""
        if self._shown:
            output.live([], instead_of=self._shown)
            self._shown = 0

    def answered(self, answer: telling.Answer) -> None:
        self._still()
        if rows := lines.shown(answer.line, answer.output):
            output.styled([(each, Style.PLAIN) for row in rows for each in self._wrapped(row, "  ")])

    def done(self, result: telling.Result) -> None:
        if result.missing is not None:
            output.styled([(f"– left out: {result.missing.message}; {result.missing.hint}", Style.WARNING)])
        elif result.verdict == telling.PASSED:
            output.styled([(f"✓ {result.seconds:.1f} s", Style.GOOD)])
        else:
            output.styled([(f"✗ {result.answers[-1].missing}", Style.ERROR)])

    def stays(self, kubeconfig: str, answers: Sequence[telling.Answer]) -> None:
        self.is_staying = True
        rows = [("\nEverything goes on until Ctrl-C.\n", Style.GOOD), (f"  kubeconfig  {kubeconfig}", Style.STRONG)]
        if answers:
            rows.append(
                (
                    "  console     by the address above, once, within a minute; type the line again for another",
                    Style.STRONG,
                )
            )
        output.styled(rows)

    def logs(self, ends: Sequence[tuple[str, Sequence[str]]]) -> None:
        for name, rows in ends:
            output.styled([(f"\nthe end of {name}:", Style.WARNING), *((f"  {row}", Style.PLAIN) for row in rows)])

    def cleaning(self) -> None:
        self._still()
        output.styled([("\nCleaning up: every process is ended, and every file removed", Style.TITLE)])

    def ended(self, left: telling.Left, seconds: float) -> None:
        text, style = (f"✓ {_CLEAN}", Style.GOOD) if left.is_clean else ("✗ something is left", Style.ERROR)
        rows = [(f"  {path} is gone", Style.PLAIN) for path in left.places if path not in left.files]
        output.styled([*rows, (text, style), (f"\n{seconds:.0f} s in all", Style.PLAIN)])


class Lines:
    """For machines (3)."""

    def __init__(self) -> None:
        self.step = 0
        self.is_staying = False

    @staticmethod
    def _print(**fields: Any) -> None:
        output.result(json.dumps(fields, ensure_ascii=False))

    def opened(self, opening: Sequence[str]) -> None:
        self._print(opening=list(opening))

    def begun(self, number: int, total: int, step: lines.Step) -> None:
        del total, step
        self.step = number

    def typed(self, text: str) -> None:
        """Told with its answer."""

    def waiting(self) -> None:
        """Nobody looks on."""

    def answered(self, answer: telling.Answer) -> None:
        """Told with its step."""

    def done(self, result: telling.Result) -> None:
        missing = result.missing
        self._print(
            step=result.number,
            title=result.step.title,
            why=result.step.why,
            verdict=result.verdict,
            seconds=round(result.seconds, 2),
            lines=[_answer(each) for each in result.answers],
            **({} if missing is None else {"missing": missing.message, "hint": missing.hint, "reason": missing.reason}),
        )

    def stays(self, kubeconfig: str, answers: Sequence[telling.Answer]) -> None:
        self.is_staying = True
        self._print(stays=True, kubeconfig=kubeconfig, lines=[_answer(each) for each in answers])

    def logs(self, ends: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._print(logs={name: list(rows) for name, rows in ends})

    def cleaning(self) -> None:
        """Told with the end."""

    def ended(self, left: telling.Left, seconds: float) -> None:
        rows = {"processes": list(left.processes), "ports": list(left.ports), "files": list(left.files)}
        self._print(clean=left.is_clean, left=rows, removed=list(left.places), seconds=round(seconds, 2))


def _answer(answer: telling.Answer) -> dict[str, Any]:
    fields = {"command": answer.text, "output": answer.output, "code": answer.code, "seconds": round(answer.seconds, 2)}
    return fields | ({"missing": answer.missing} if answer.missing else {})
