#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/pictures/demo.svg: a recording of `handfast demo`, from a real run in a terminal of its own. It invents nothing.

1. The demo runs under a pseudo terminal of 100 columns. Each piece of its output is taken down with the moment at which it came.
2. A small terminal makes lines of it: text, colours, and lines that are taken back, as those that say that something is waited for.
3. The picture is one column of text that rolls through a window, by CSS alone: no script, no font and no picture of others. Pauses are shortened.
4. It is readable in light and dark. Who wants no motion sees the end.

tests/test_recording.py compares the lines in it with the story.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import html
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from handfast.runtime import clock as clocks

ROOT: Final = pathlib.Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "pictures" / "demo.svg"
COLUMNS: Final = 100
ROWS: Final = 30
# Of the picture, in pixels: the width of a character, the height of a line, the room around them.
_WIDTH, _HEIGHT, _MARGIN = 8, 18, 16
# Seconds: the shortest and the longest pause, one before each step, and one at the end.
_SHORTEST, _LONGEST, _STEP, _END = 0.06, 1.2, 1.6, 8.0
_PARTS: Final = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(\r?\n)|(\r)|([^\x1b\r\n]+)|(\x1b)")
# The parameters of an escape sequence -> the class of the text; as `telemetry.colour` has them.
_CLASSES: Final = {"": "", "0": "", "1": "b", "2": "f", "1;36": "t", "1;32": "g", "33": "w", "1;31": "e"}
_STYLE: Final = """
.box{fill:#fbfbfa;stroke:#d4d4d0}
text{font:13px/18px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#24292f;white-space:pre}
.b{font-weight:600;fill:#111}.f{fill:#667079}.t{font-weight:600;fill:#0b6177}.g{font-weight:600;fill:#1a7f37}
.w{fill:#8a5a00}.e{font-weight:600;fill:#b42318}
@media (prefers-color-scheme:dark){.box{fill:#16191d;stroke:#33383f}text{fill:#d5d9de}.b{fill:#fff}.f{fill:#8b949e}.t{fill:#6cc9df}
.g{fill:#5fce7d}.w{fill:#e0b14e}.e{fill:#ff8a80}}
@media (prefers-reduced-motion:reduce){.roll{animation:none!important}}
"""


@dataclass(slots=True)
class Row:
    """One line of the terminal: when it came, and its pieces, each with its class."""

    at: float
    pieces: list[tuple[str, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)


class Screen:
    """As much of a terminal as the demo needs (2): it has no end below."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._style = ""
        self.rows = [Row(0.0)]

    def write(self, at: float, text: str) -> None:
        for parameters, command, line_feed, _, plain, _ in _PARTS.findall(text):
            if command == "m":
                self._style = _CLASSES.get(parameters, self._style)
            elif command == "A":
                del self.rows[max(len(self.rows) - int(parameters or 1), 1) :]
                self.rows[-1] = Row(at)
            elif line_feed:
                self.rows.append(Row(at))
            elif plain:
                self._put(at, plain)

    def _put(self, at: float, text: str) -> None:
        while text:
            room = self._columns - len(self.rows[-1].text)
            if room <= 0:
                self.rows.append(Row(at))
                continue
            row = self.rows[-1]
            row.at = row.at if row.pieces else at
            row.pieces.append((self._style, text[:room]))
            text = text[room:]


def record(words: Sequence[str], environment: dict[str, str]) -> Iterator[tuple[float, bytes]]:
    """Run it in a terminal (1): each piece of output, and the second in which it came."""
    clock = clocks.SystemClock()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    begun = clock.monotonic()
    # A terminal whose last program has ended is an error, not an end of file.
    with contextlib.suppress(OSError):
        while data := os.read(ours, 65536):
            yield clock.monotonic() - begun, data
    os.close(ours)
    if process.wait():
        raise SystemExit(f"the demo failed with exit code {process.returncode}; run it by itself to see why")


def rows_of(pieces: Iterable[tuple[float, bytes]]) -> list[Row]:
    """The lines that were there at the end (2)."""
    screen, rest = Screen(COLUMNS), b""
    for at, data in pieces:
        # A character may come in two pieces, and so may an escape sequence.
        data = rest + data
        cut = len(data)
        with contextlib.suppress(ValueError):
            cut = data.rindex(b"\n") + 1
        rest = data[cut:] if len(data) - cut < 4096 else b""
        screen.write(at, data[: len(data) - len(rest)].decode(errors="replace"))
    screen.write(0.0, rest.decode(errors="replace"))
    rows = screen.rows
    while rows and not rows[-1].text.strip():
        rows.pop()
    return rows


def moments(rows: Sequence[Row]) -> list[float]:
    """When each line is shown: as it came, with pauses that are neither too long nor too short (3)."""
    shown, now, before, has_begun = [], 0.0, 0.0, False
    for row in rows:
        gap = min(max(row.at - before, _SHORTEST), _LONGEST)
        is_step = any(style == "t" for style, _ in row.pieces)
        # What comes before the first step is there from the beginning.
        has_begun = has_begun or is_step
        now += (max(gap, _STEP) if is_step else gap) if has_begun else 0.0
        before = max(before, row.at)
        shown.append(now)
    return shown


def picture(rows: Sequence[Row]) -> str:
    """The recording as SVG."""
    shown = moments(rows)
    total = shown[-1] + _END
    width, height = COLUMNS * _WIDTH + 2 * _MARGIN, ROWS * _HEIGHT + 2 * _MARGIN
    # Of lines that come at the same moment, the last one counts.
    frames = "".join(
        _frame(at / total, number) for at, number in {at: number for number, at in enumerate(shown, 1)}.items()
    )
    last = _offset(len(rows))
    style = (
        f"{_STYLE}.roll{{transform:translateY({last}px);animation:roll {total:.1f}s step-end infinite}}\n"
        f"@keyframes roll{{{frames}}}"
    )
    lines = "\n".join(_line(number, row) for number, row in enumerate(rows) if row.text.strip())
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="title about">
<title id="title">handfast demo</title>
<desc id="about">A recording of handfast demo, made by scripts/recording.py from a real run. docs/demo.md tells the same in words.</desc>
<style>{style}</style>
<rect class="box" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>
<svg x="{_MARGIN}" y="{_MARGIN}" width="{width - 2 * _MARGIN}" height="{ROWS * _HEIGHT}">
<g class="roll">
{lines}
</g>
</svg>
</svg>
"""


def _offset(number: int) -> int:
    """Where the column is when so many lines are shown: the last one is at the bottom."""
    return (ROWS - number) * _HEIGHT


def _frame(share: float, number: int) -> str:
    return f"{share * 100:.2f}%{{transform:translateY({_offset(number)}px)}}"


def _line(number: int, row: Row) -> str:
    inner = "".join(
        f'<tspan class="{style}">{html.escape(text, quote=False)}</tspan>' if style else html.escape(text, quote=False)
        for style, text in row.pieces
    )
    return f'<text x="0" y="{number * _HEIGHT + 13}" xml:space="preserve">{inner}</text>'


def main() -> None:
    """Record, and write the picture."""
    parser = argparse.ArgumentParser(description="Record `handfast demo` as docs/pictures/demo.svg.")
    parser.add_argument("--out", type=pathlib.Path, default=PICTURE, help="Where the picture goes.")
    out: pathlib.Path = parser.parse_args().out
    scripts = pathlib.Path(sys.executable).parent
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    path = f"{scripts}:{os.environ.get('PATH', os.defpath)}"
    environment = {**kept, "PATH": path, "TERM": "xterm-256color", "TMPDIR": "/tmp"}
    rows = rows_of(record([str(scripts / "handfast"), "demo"], environment))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(picture(rows))
    print(f"{out}: {len(rows)} lines, {out.stat().st_size} octets, {moments(rows)[-1]:.0f} s")


if __name__ == "__main__":
    main()
