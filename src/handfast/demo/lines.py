# SPDX-License-Identifier: Apache-2.0
"""What a story is made of: steps, each with the lines that are typed and what must be seen. It runs nothing.

1. A line is text for a shell, as it is shown and as it is run: nothing is added or left out between the two.
2. `{name}` in it stands for what is known only when the story is told: an address, a pin, the id of a token. What is put in is quoted.
3. A line that ends with `&` starts a process that stays.
4. A line is judged by its exit code and by every pattern that must be seen in what it prints.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from handfast import errors

# The part that some steps need, and that may not be there.
MESH: Final = "mesh"
_PLACE: Final = re.compile(r"\{([a-z]+)\}")
_BACKGROUND: Final = " &"
# A name in a path or a flag, which a shell takes as it is; facts that begin with a space are flags of ours.
_ASKS: Final = re.compile(r"--?[a-z-]+|[0-9]?>")
_CONTINUED: Final = " \\"
_FLAGS: Final = re.compile(r"( --[a-z-]+)*")


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is typed."""

    text: str
    # What has to be found in what it prints, each somewhere (4).
    seen: tuple[str, ...] = ()
    code: int = 0
    # It asks for something that comes in a moment: it is typed again until that is seen.
    again: bool = False
    # name -> the pattern of what is kept from the output under this name, for later lines (2).
    keep: Mapping[str, str] = field(default_factory=dict)
    # Of a long output the lines that a reader needs; none: all of it.
    show: tuple[str, ...] = ()
    # What is typed where there is no kubectl.
    instead: str = ""
    # A process that stays may end by itself, and badly; any other may not.
    may_end: bool = False

    @property
    def stays(self) -> bool:
        return self.text.endswith(_BACKGROUND)


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the story: what happens, why one would want it, and the lines."""

    title: str
    why: str
    lines: tuple[Line, ...]
    # What has to be installed for it; empty: nothing but Handfast.
    part: str = ""


def filled(text: str, facts: Mapping[str, str]) -> str:
    """The line with what is known now (2)."""

    def fact(match: re.Match[str]) -> str:
        value = facts.get(match[1])
        if value is None:
            raise errors.Misuse(f"the story asks for {match[1]!r} before it is known")
        return value if _FLAGS.fullmatch(value) else shlex.quote(value)

    return _PLACE.sub(fact, text)


def pattern(text: str) -> re.Pattern[str]:
    """What a line looks like whatever is put into its places (2)."""
    parts = _PLACE.split(text)
    return re.compile("".join(r"\S*(?: --[a-z-]+)*" if at % 2 else re.escape(part) for at, part in enumerate(parts)))


def as_run(text: str) -> str:
    """A line as it is given to a shell: one that stays becomes the shell's own process (3)."""
    return f"exec {text.removesuffix(_BACKGROUND)}" if text.endswith(_BACKGROUND) else text


def why_not(line: Line, facts: Mapping[str, str], code: int, output: str) -> str:
    """What is missing of what must be seen, as a sentence; empty: nothing (4)."""
    if code != line.code:
        return f"it ended with exit code {code}, and {line.code} was to be seen"
    wanted = (_PLACE.sub(lambda match: re.escape(facts.get(match[1], match[0])), each) for each in line.seen)
    missing = [each for each in wanted if not re.search(each, output, re.MULTILINE)]
    return f"this was to be seen, and was not: {', '.join(missing)}" if missing else ""


def kept(line: Line, output: str) -> dict[str, str]:
    """What later lines need of this output (2)."""
    rows = {}
    for name, wanted in line.keep.items():
        match = re.search(wanted, output, re.MULTILINE)
        if match is not None:
            rows[name] = match[0]
    return rows


def shown(line: Line, output: str) -> list[str]:
    """The lines of the output for a reader; what is left out is told by an ellipsis."""
    rows = output.rstrip("\n").splitlines() if output.strip() else []
    if not line.show:
        return rows
    chosen = [row for row in rows if any(re.search(each, row) for each in line.show)]
    return [*chosen, "…"] if len(chosen) < len(rows) else chosen


def folded(text: str, width: int) -> list[str]:
    """A line that is too long for a terminal, on several: a shell reads them as one. A flag stays with its value."""
    rows = [""]
    room = width - len(_CONTINUED)
    # A flag and its value that do not fit into one row are parted.
    parts = (part for group in _groups(text) for part in ([group] if len(group) + 4 <= room else group.split(" ", 1)))
    for group in parts:
        if rows[-1] and len(rows[-1]) + 1 + len(group) > room:
            rows[-1] += _CONTINUED
            rows.append(f"    {group}")
        else:
            rows[-1] += f" {group}" if rows[-1] else group
    return rows


def unfolded(rows: Iterable[str]) -> str:
    """The line that `folded` has made these of."""
    return " ".join(row.removesuffix(_CONTINUED).strip() for row in rows)


def is_continued(row: str) -> bool:
    """Whether the line goes on after this row."""
    return row.endswith(_CONTINUED)


def _groups(text: str) -> Iterator[str]:
    """The words, with their quotes around them; what follows a flag or a redirection stands with it."""
    before = ""
    for match in re.finditer(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+", text):
        word = match[0]
        if before and (not _ASKS.fullmatch(before) or word.startswith("-") or _ASKS.fullmatch(word)):
            yield before
            before = ""
        before = f"{before} {word}" if before else word
    yield before
