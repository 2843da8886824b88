#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/rooms.md, the map of the rooms, from the rooms' own contracts. With `--check` it only compares.

What a room holds, never does and where to start is its docstring's; what it may import is said by the layers in .importlinter;
what it does import is read from the source, and kept in the line `Imports:` of its docstring. It judges no import: `lint-imports`
does.
"""

from __future__ import annotations

import ast
import configparser
import functools
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "handfast"
PAGE = ROOT / "docs" / "reference" / "rooms.md"
LABELS = ("Holds:", "Imports:", "Never:", "Start:")
_HEAD = """# The rooms

Made by `python scripts/rooms.py` from the docstring of each room and from [.importlinter](../../.importlinter); a test
compares. Imports only point down this page. *May import* is what the layers allow, *imports* what is imported today.
How the rooms work together is told in [tour.md](../tour.md).
"""


@dataclass(frozen=True)
class Room:
    """A package, by its dotted name below `handfast`, with the lines of its docstring."""

    name: str
    path: pathlib.Path
    title: str
    holds: str
    never: str
    start: str


def rooms() -> dict[str, Room]:
    """Every room and sub-room with code, by name."""
    read = {}
    for path in sorted(SOURCE.rglob("__init__.py")):
        name = ".".join(path.parent.relative_to(SOURCE).parts)
        if name:
            read[name] = _room(name, path)
    return read


def _room(name: str, path: pathlib.Path) -> Room:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    title = text.split("\n\n", 1)[0]
    said = {label: _line(text, label) for label in LABELS}
    return Room(name, path, " ".join(title.split()), said["Holds:"], said["Never:"], said["Start:"])


def _line(text: str, label: str) -> str:
    match = re.search(rf"^{label} (.+?)(?=^(?:{'|'.join(LABELS)}) |^$|\Z)", text, re.MULTILINE | re.DOTALL)
    return " ".join(match[1].split()) if match else ""


def layers() -> list[list[str]]:
    """The rooms, highest first, as the contract has them."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    lines = contracts["importlinter:contract:layers"]["layers"].split("\n")
    return [[name.strip() for name in re.split(r"[|:]", line)] for line in lines if line.strip()]


def below(room: str) -> list[str]:
    """What the contract lets a room import."""
    rows = layers()
    at = next(number for number, row in enumerate(rows) if room in row)
    return [name for row in rows[at + 1 :] for name in row]


def imported(room: Room, names: Sequence[str]) -> list[str]:
    """The rooms that the modules of this one import. Sub-rooms are told apart only where they are its neighbours."""
    top = room.name.partition(".")[0]
    neighbours = [name for name in names if name.startswith(f"{top}.")]
    seen = set()
    for path in room.path.parent.glob("*.py"):
        for target in _targets(path.read_text()):
            home = next((name for name in neighbours if f"{target}.".startswith(f"{name}.")), target.partition(".")[0])
            seen.add(home)
    return sorted(seen - {room.name})


@functools.cache
def _targets(content: str) -> tuple[str, ...]:
    return tuple(_imports(ast.parse(content)))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "handfast":
            base = (node.module or "").removeprefix("handfast").strip(".")
            yield from (".".join(filter(None, (base, alias.name))) for alias in node.names)


def imports_line(room: Room, names: Sequence[str]) -> str:
    return f"Imports: {', '.join(imported(room, names)) or 'nothing'}."


def with_imports(room: Room, names: Sequence[str]) -> str:
    """The text of a room's `__init__.py` with its imports as they are."""
    line = imports_line(room, names)
    return re.sub(r"^Imports: .*$", lambda _: line, room.path.read_text(), count=1, flags=re.MULTILINE)


def page() -> str:
    """The map."""
    known = rooms()
    listed = [known[name] for row in layers() for name in row if name in known]
    return "\n".join([_HEAD, *(_section(room, known) for room in listed)])


def _section(room: Room, known: dict[str, Room]) -> str:
    names = list(known)
    lines = [
        f"## {room.name}",
        "",
        room.title,
        "",
        f"- Holds: {room.holds}",
        f"- May import: {', '.join(below(room.name)) or 'nothing'}. Imports: {', '.join(imported(room, names)) or 'nothing'}.",
        f"- Never: {room.never}",
        f"- Start with {room.start}",
    ]
    subs = [sub for name, sub in known.items() if name.startswith(f"{room.name}.")]
    if subs:
        lines += ["", "| sub-room | what it is | imports | never | start with |", "|---|---|---|---|---|"]
        lines += [
            f"| {sub.name.rpartition('.')[2]} | {sub.title} {sub.holds} | {', '.join(imported(sub, names))} | {sub.never} | {sub.start} |"
            for sub in subs
        ]
    return "\n".join([*lines, ""])


def stale() -> list[pathlib.Path]:
    """The files that are not as this would write them."""
    known = rooms()
    wrong = [room.path for room in known.values() if with_imports(room, list(known)) != room.path.read_text()]
    if not PAGE.is_file() or PAGE.read_text() != page():
        wrong.append(PAGE)
    return wrong


def main(arguments: Sequence[str]) -> int:
    if "--check" in arguments:
        wrong = stale()
        for path in wrong:
            print(f"error: {path.relative_to(ROOT)} is out of date: run python scripts/rooms.py", file=sys.stderr)
        return 1 if wrong else 0
    known = rooms()
    for room in known.values():
        room.path.write_text(with_imports(room, list(known)))
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
