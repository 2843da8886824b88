#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how much of each room the tests reached, and fails when one of the two halves is below its floor.

It runs no tests: `make test` calls it after `coverage combine`. Counted are lines and branches together, as `coverage
report` does. What child processes run is not counted, nor what slow stories reach that are not marked `measured`: the processes' own wiring
(`cli`, `assembly`) shows less than the scenarios prove. A floor may only rise.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import coverage

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ("src", "handfast")
DECIDING = ("api", "pki", "bootstrap", "rules")
# Per cent of lines and branches.
DECIDING_FLOOR = 99.0
DOING_FLOOR = 95.0
_WORST = 8


@dataclass(frozen=True)
class Count:
    """What there is to reach, and what was reached."""

    lines: int = 0
    lines_hit: int = 0
    branches: int = 0
    branches_hit: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.lines + other.lines,
            self.lines_hit + other.lines_hit,
            self.branches + other.branches,
            self.branches_hit + other.branches_hit,
        )

    @property
    def missing(self) -> int:
        return self.lines + self.branches - self.lines_hit - self.branches_hit

    @property
    def percent(self) -> float:
        whole = self.lines + self.branches
        return 100.0 * (whole - self.missing) / whole if whole else 100.0


def room_of(path: str) -> str | None:
    """`api` for src/handfast/api/kinds.py, `handfast` for a module beside the rooms, None for anything else."""
    parts = pathlib.PurePath(path).parts
    for at in range(len(parts) - 2):
        if parts[at : at + 2] == PACKAGE:
            return parts[at + 2] if len(parts) > at + 3 else "handfast"
    return None


def counts(report: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]]) -> dict[str, Count]:
    """The files of a `coverage json` report that belong to the package, each with its count."""
    found = {}
    for path, entry in report["files"].items():
        if room_of(path) is not None:
            row = entry["summary"]
            found[path] = Count(
                row["num_statements"], row["covered_lines"], row["num_branches"], row["covered_branches"]
            )
    return found


def by_room(files: Mapping[str, Count]) -> dict[str, Count]:
    rooms: dict[str, Count] = {}
    for path, count in files.items():
        room = room_of(path) or ""
        rooms[room] = rooms.get(room, Count()) + count
    return rooms


def judge(files: Mapping[str, Count], present: Sequence[str]) -> tuple[list[str], list[str]]:
    """The lines of the table, and what is wrong. `present` are the rooms that the source tree has.

    1. Every room of the tree was measured: a room that is missing from the data would pass unseen.
    2. The deciding half is at or above its floor.
    3. So is the rest.
    """
    rooms = by_room(files)
    # 1.
    wrong = [f"{room}: not in the coverage data" for room in present if room not in rooms]
    table = [f"{'room':<12} {'lines':>6} {'branches':>8} {'missing':>8} {'reached':>9}"]
    for title, floor, names in (
        ("deciding half", DECIDING_FLOOR, [room for room in rooms if room in DECIDING]),
        ("doing half", DOING_FLOOR, [room for room in rooms if room not in DECIDING]),
    ):
        whole = sum((rooms[room] for room in names), Count())
        table.append("")
        table += [_row(room, rooms[room]) for room in sorted(names)]
        table.append(_row(title, whole) + f"   floor {floor:.1f} %")
        # 2. and 3.
        if whole.percent < floor:
            wrong.append(f"{title}: {whole.percent:.2f} % reached, the floor is {floor:.1f} %")
            wrong += _worst(files, names)
    return table, wrong


def _row(name: str, count: Count) -> str:
    return f"{name:<13} {count.lines:>5} {count.branches:>8} {count.missing:>8} {count.percent:>7.2f} %"


def _worst(files: Mapping[str, Count], rooms: Sequence[str]) -> list[str]:
    mine = [(path, count) for path, count in files.items() if room_of(path) in rooms and count.missing]
    mine.sort(key=lambda row: -row[1].missing)
    return [f"  {path}: {count.missing} lines and branches missing" for path, count in mine[:_WORST]]


def load(data_file: pathlib.Path) -> dict[str, Count]:
    """The counts of every file of the package, from combined coverage data."""
    measured = coverage.Coverage(data_file=str(data_file), config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    with tempfile.TemporaryDirectory() as directory:
        outfile = pathlib.Path(directory) / "coverage.json"
        measured.json_report(outfile=str(outfile))
        return counts(json.loads(outfile.read_bytes()))


def rooms_present() -> list[str]:
    """The rooms that have code: an `__init__.py` alone has none."""
    source = ROOT.joinpath(*PACKAGE)
    return sorted({path.parent.name for path in source.glob("*/*.py") if path.name != "__init__.py"})


def main(arguments: Sequence[str]) -> int:
    """0: at or above the floors; 1: below; 2: there is nothing to judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_file", nargs="?", default=str(ROOT / ".coverage"), help="default: .coverage")
    data_file = pathlib.Path(parser.parse_args(arguments).data_file)
    if not data_file.is_file():
        print(f"error: {data_file}: no coverage data", file=sys.stderr)
        print("hint: run `coverage run -m pytest`, then `coverage combine`", file=sys.stderr)
        return 2
    try:
        files = load(data_file)
    except coverage.CoverageException as error:
        print(f"error: {data_file}: {error}", file=sys.stderr)
        return 2
    table, wrong = judge(files, rooms_present())
    print("\n".join(table))
    for line in wrong:
        print(line if line.startswith(" ") else f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
