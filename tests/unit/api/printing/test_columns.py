# SPDX-License-Identifier: Apache-2.0
"""The data of the columns hangs together."""

from __future__ import annotations

from handfast.api import kinds
from handfast.api.printing import columns as print_columns


def test_there_is_a_row_for_each_built_in_kind_and_for_no_other():
    assert {kind.resource for kind in kinds.builtin() if "get" in kind.verbs} == set(print_columns.COLUMNS)


def test_columns_are_described_and_unique_in_their_table():
    for columns in print_columns.COLUMNS.values():
        names = [column.name for column in columns]
        assert len(set(names)) == len(names)
        assert all(column.description.endswith(".") for column in columns)
        assert {column.type for column in columns} <= {"string", "integer", "boolean", "date"}
