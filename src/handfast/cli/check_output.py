# SPDX-License-Identifier: Apache-2.0
"""How checks are printed: a table, then what to do about each that is not well. It judges nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from handfast.cli import output, tables

if TYPE_CHECKING:
    from handfast.rules import check


def show(checks: Sequence[check.Check]) -> None:
    """Every check, in order."""
    rows = [(each.name, str(each.verdict), output.printable(each.sentence)) for each in checks]
    output.result(tables.table(("CHECK", "RESULT", "SEEN"), rows))
    for each in checks:
        if each.hint:
            step = f"\n  next: {output.printable(each.hint)}"
            page = f"\n  page: {each.page}" if each.page else ""
            output.result(f"\n{each.name}: {each.reason}{step}{page}")


class Bar:
    """What is done and what is not, on one line of a terminal; elsewhere nothing."""

    def __init__(self) -> None:
        self._lines = 0
        self._shown = sys.stderr.isatty()

    def progress(self, done: int, total: int, left: list[str]) -> None:
        if self._shown:
            output.live([f"{done} of {total}; looking at {', '.join(left)}"] if left else [], instead_of=self._lines)
            self._lines = 1 if left else 0
