# SPDX-License-Identifier: Apache-2.0
"""A file of machines, YAML or CSV, as rows of `declaration`. What the fields mean is not judged here.

1. It is UTF-8 text, with or without a byte order mark, and not empty.
2. A file whose first line of words has the column `name` is CSV: a line of column names, then a line for each machine. Columns are
   separated by commas, semicolons or tabs, whichever the first line has. Several values in one cell are separated by blanks.
3. Anything else is YAML: a list of machines, or a mapping whose only key is `machines`. A field has a text, or a list of texts where
   it may have several values. A number is no text: 0012 would be ten, so that it has to be in quotes.
4. A column or key that is not a field is refused, with those that there are. A field that has one value has no more.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any, Final

from handfast import errors
from handfast.api.codec import yaml_document
from handfast.rules.machines import declaration

# 20,000 machines have 300,000 keys and values, and CSV of 2 MB.
MAX_NODES: Final = 1_000_000
_KEY: Final = "machines"
_DELIMITERS: Final = ",;\t"
_ALLOWED: Final = ", ".join(declaration.FIELDS)


def read(data: bytes) -> declaration.Declaration:
    """The machines of a file, or everything that is wrong with it."""
    # 1. text
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return _only(line, "file", "is no UTF-8 text: save it as UTF-8")
    if not text.strip():
        return _only(1, "file", f"is empty: write a list of machines, each with {_ALLOWED}")
    delimiter = _delimiter(text)
    rows, problems = _yaml(text) if delimiter is None else _csv(text, delimiter)
    declared = declaration.declare(rows)
    declared.problems = sorted([*problems, *declared.problems], key=lambda problem: problem.line)
    return declared


def _only(line: int, what: str, sentence: str) -> declaration.Declaration:
    return declaration.Declaration(problems=[declaration.Remark(line, what, sentence)])


_Read = tuple[list[declaration.Row], list[declaration.Remark]]


def _delimiter(text: str) -> str | None:
    """What separates the columns of a CSV file; None: it is none (2)."""
    first = next(line for line in text.splitlines() if line.strip())
    for delimiter in _DELIMITERS:
        cells = [cell.strip().strip('"') for cell in first.split(delimiter)]
        if len(cells) > 1 and declaration.NAME in cells:
            return delimiter
    return None


def _csv(text: str, delimiter: str) -> _Read:
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    rows: list[declaration.Row] = []
    problems: list[declaration.Remark] = []
    head: list[str] | None = None
    end = 0
    try:
        for cells in reader:
            # A cell in quotes may have several lines.
            line, end = end + 1, reader.line_num
            if not any(cell.strip() for cell in cells):
                continue
            if head is None:
                head = [cell.strip() for cell in cells]
                problems += _columns(head, line)
                continue
            if len(cells) > len(head):
                problems.append(
                    declaration.Remark(line, "line", f"has {len(cells)} cells, and there are {len(head)} columns")
                )
                continue
            values = {name: _values(name, cell) for name, cell in zip(head, cells, strict=False)}
            rows.append(declaration.Row(line, {name: found for name, found in values.items() if found}))
    except csv.Error as error:
        problems.append(declaration.Remark(reader.line_num, "line", f"is no CSV: {error}"))
    return rows, problems


def _columns(head: Sequence[str], line: int) -> Iterator[declaration.Remark]:
    # 4. a field, and each once
    for name in dict.fromkeys(head):
        if name not in declaration.FIELDS:
            yield _unknown(line, "column", name)
        elif head.count(name) > 1:
            yield declaration.Remark(line, "column", f'"{name}" is there {head.count(name)} times')


def _unknown(line: int, what: str, name: str) -> declaration.Remark:
    return declaration.Remark(line, what, f'"{name}" is none: there are {_ALLOWED}')


def _values(name: str, cell: str) -> tuple[str, ...]:
    if name in declaration.SEVERAL:
        return tuple(cell.split())
    return (cell.strip(),) if cell.strip() else ()


def _yaml(text: str) -> _Read:
    try:
        document, repeated, lines = yaml_document.load_with_lines(text.encode(), MAX_NODES)
    except errors.Refused as refused:
        where, _, what = refused.message.partition(": ")
        line = where.removeprefix("line ")
        number = int(line) if line.isdecimal() else 1
        return [], [declaration.Remark(number, "file", f"is no YAML: {what if line.isdecimal() else refused.message}")]
    prefix = ""
    problems = [declaration.Remark(lines.get(path, 1), "key", f"{path} is there twice") for path in repeated]
    if isinstance(document, dict) and set(document) == {_KEY}:
        document, prefix = document[_KEY], _KEY
    if not isinstance(document, list):
        sentence = (
            f"is no list of machines, nor a mapping whose only key is {_KEY}, nor CSV with a column {declaration.NAME}"
        )
        return [], [*problems, declaration.Remark(1, "file", sentence)]
    rows: list[declaration.Row] = []
    for number, item in enumerate(document):
        path = f"{prefix}[{number}]"
        if not isinstance(item, dict):
            problems.append(declaration.Remark(lines[path], "machine", f"is no mapping: it has {_ALLOWED}"))
            continue
        values, wrong = _fields(item, path, lines)
        problems += wrong
        if not wrong:
            rows.append(declaration.Row(lines[path], values))
    return rows, problems


def _fields(
    item: dict[str, Any], path: str, lines: dict[str, int]
) -> tuple[dict[str, tuple[str, ...]], list[declaration.Remark]]:
    values: dict[str, tuple[str, ...]] = {}
    wrong = []
    for name, value in item.items():
        line = lines.get(f"{path}.{name}", lines[path])
        if name not in declaration.FIELDS:
            wrong.append(_unknown(line, "key", name))
        elif value is None:
            continue
        elif isinstance(value, str):
            values[name] = (value,)
        elif name in declaration.SEVERAL and isinstance(value, list) and all(isinstance(each, str) for each in value):
            values[name] = tuple(value)
        else:
            wrong.append(declaration.Remark(line, name, _shape(name)))
    return values, wrong


def _shape(name: str) -> str:
    more = " or a list of texts" if name in declaration.SEVERAL else ""
    return f"is no text{more}: put numbers and true or false in quotes"
