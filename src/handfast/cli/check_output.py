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
    for group in _folded(checks):
        first = group[0]
        step = f"\n  next: {output.printable(first.hint)}"
        # Of several, the page alone.
        at = first.page if len(group) == 1 else first.page.partition("#")[0]
        page = f"\n  page: {at}" if at else ""
        output.result(f"\n{', '.join(each.name for each in group)}: {first.reason}{step}{page}")


def _folded(checks: Sequence[check.Check]) -> list[list[check.Check]]:
    """Those with a next step, in order; those that could not be made for one and the same cause are told as one."""
    from handfast.rules import check as check_module

    groups: dict[object, list[check.Check]] = {}
    for each in checks:
        if each.hint:
            groups.setdefault(
                (each.hint, each.reason) if each.reason == check_module.UNKNOWN else each.name, []
            ).append(each)
    return list(groups.values())


class Bar:
    """What is done and what is not, on one line of a terminal; elsewhere nothing."""

    def __init__(self) -> None:
        self._lines = 0
        self._shown = sys.stderr.isatty()

    def progress(self, done: int, total: int, left: list[str]) -> None:
        if self._shown:
            output.live([f"{done} of {total}; looking at {', '.join(left)}"] if left else [], instead_of=self._lines)
            self._lines = 1 if left else 0
