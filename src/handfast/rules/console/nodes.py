# SPDX-License-Identifier: Apache-2.0
"""The Nodes page: which rows somebody asks for, and what each says. How nodes stand is `nodes.overview`'s; they are kept in order by `node_table`.

1. A filter is words, all of which must fit: `label=value` is a label; any other is a part of the name, or the beginning of a serial number or
   of a key. A state is chosen beside it.
2. Rows are in the order of the table unless a column is named. An order that was made is kept until the table changes.
3. A page has a bounded number of rows, and only those are judged and drawn anew.
4. All bars of a page are on one axis, which fits the lifetimes of its rows unless somebody chose another.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast.rules import revocation
from handfast.rules.console import node_record, node_table, questions, rows, timeline
from handfast.rules.nodes import overview

STATE: Final = "state"
SPAN: Final = "span"
# 1. `off` is what people say of a machine that is silent.
STATES: Final[Mapping[str, overview.State]] = {
    **{state.value: state for state in overview.ORDER},
    "off": overview.State.SILENT,
}
_KEYS: Final[Mapping[str, Callable[[node_record.Record], Any]]] = {
    "name": operator.attrgetter("name"),
    "issued": lambda record: (record.issued, record.name),
    "ends": lambda record: (record.ends or float("inf"), record.name),
    "seen": lambda record: (record.renewed, record.name),
    "came": lambda record: (record.came_by, record.name),
}
SORTS: Final = tuple(_KEYS)
# Since Leases are renewed all the time, an order by them is made anew.
_UNSTEADY: Final = frozenset({"seen"})
_Fits = Callable[[node_record.Record], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One node, with the bar of its certificate, if it has one, and where the ledger has it."""

    judged: overview.Row
    bar: timeline.Bar | None
    labels: tuple[str, ...]
    place: str

    @property
    def name(self) -> str:
        return self.judged.name

    @property
    def late_by(self) -> datetime.datetime | None:
        """When its renewal is over, or should have been."""
        return None if self.judged.renewal is None else self.judged.renewal[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The rows that are asked for, on their axis."""

    range: rows.Range[Row]
    axis: timeline.Axis


class Nodes:
    """The page's rows, from a table that is kept (2)."""

    def __init__(self, table: node_table.Table) -> None:
        self._table = table
        self._sorted: dict[str, tuple[int, Sequence[node_record.Record]]] = {}

    def page(self, question: questions.Question, now: datetime.datetime) -> Page:
        """The rows of a question (3)."""
        table = self._table
        table.settle(now)
        everything = self._in_order(question.sort)
        fits = _fits(question)
        chosen = everything if fits is None else [record for record in everything if fits(record)]
        if question.descending:
            chosen = chosen[::-1]
        start = min(question.start, max(0, len(chosen) - 1) // question.count * question.count)
        shown = chosen[start : start + question.count]
        judged = [(record, table.row(record, now)) for record in shown]
        # 4. one axis
        axis = timeline.chosen(question.more.get(SPAN, ""), _lifetimes(shown), now)
        items = [row_of(record, row, axis) for record, row in judged]
        return Page(
            range=rows.Range(items=items, start=start, total=len(chosen), everything=len(table.ordered)), axis=axis
        )

    def _in_order(self, sort: str) -> Sequence[node_record.Record]:
        table = self._table
        # 2. the table's own order, or one that was made
        if sort not in _KEYS:
            return table.ordered
        version, made = self._sorted.get(sort, (-1, ()))
        if version != table.version or sort in _UNSTEADY:
            made = sorted(table.ordered, key=_KEYS[sort])
            self._sorted[sort] = (table.version, made)
        return made


def row_of(record: node_record.Record, judged: overview.Row, axis: timeline.Axis) -> Row:
    """One node on an axis."""
    certificate, window = judged.certificate, judged.renewal
    bar = None
    if certificate is not None and window is not None:
        bar = timeline.bar(axis, certificate.issued_at, window, certificate.not_after)
    return Row(judged=judged, bar=bar, labels=record.labels, place=record.place)


def _lifetimes(shown: Sequence[node_record.Record]) -> list[datetime.timedelta]:
    return [datetime.timedelta(seconds=record.ends - record.issued) for record in shown if record.issued]


def _fits(question: questions.Question) -> _Fits | None:
    """Whether a record is asked for; None: all are (1)."""
    tests = [_word(word) for word in question.filter.lower().split()]
    state = STATES.get(question.more.get(STATE, ""))
    if state is not None:
        tests.append(lambda record: record.state is state)
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else lambda record: all(test(record) for test in tests)


def _word(word: str) -> _Fits:
    # 1. a label, or a name, a serial number, a key
    if "=" in word:
        return lambda record: any(label.lower() == word for label in record.labels)
    key = revocation.normal_key_fingerprint(word).removeprefix("0x").replace(":", "")
    if not _is_hex(key):
        return lambda record: word in record.name
    serial, digits = revocation.normal_serial(key), bytes.fromhex(key[: len(key) // 2 * 2])

    def fits(record: node_record.Record) -> bool:
        if word in record.name or record.serial.startswith((serial, key)):
            return True
        return record.key.startswith(digits) and node_record.key_text(record).startswith(key)

    return fits


def _is_hex(text: str) -> bool:
    return len(text) >= 4 and not set(text) - set("0123456789abcdef")
