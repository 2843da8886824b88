#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/reasons.md from src/handfast/data/reasons.toml. With `--check` it only compares.

It knows no reason: whether all of them are there is tests/test_reasons.py's to show.
"""

from __future__ import annotations

import os.path
import pathlib
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "handfast" / "data" / "reasons.toml"
PAGE = ROOT / "docs" / "reference" / "reasons.md"
_HEAD = """# Reasons

Every reason that you can meet: in the last line of an error, in a condition, an Event, a log, a metric or the audit log. `handfast explain REASON`
prints the same, and asks no server. The page behind a reason tells more.

Made by `python scripts/reasons.py` from [reasons.toml](../../src/handfast/data/reasons.toml); a test compares both, and the entries with the code.
"""


def page() -> str:
    """The page."""
    groups = tomllib.loads(SOURCE.read_text())
    return "\n".join([_HEAD, *(line for group in groups.values() for line in _section(group))])


def _section(group: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {group['title']}\n\n| reason | what it means | what to do |\n|---|---|---|"
    for reason, row in sorted(group["reasons"].items()):
        yield f"| [{reason}]({_link(row.get('page', group['page']))}) | {_cell(row['means'])} | {_cell(row['do'])} |"
    yield ""


def _link(path: str) -> str:
    return os.path.relpath(ROOT / path, PAGE.parent)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str]) -> int:
    if "--check" in arguments:
        if PAGE.is_file() and PAGE.read_text() == page():
            return 0
        print(f"error: {PAGE.relative_to(ROOT)} is out of date: run python scripts/reasons.py", file=sys.stderr)
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
