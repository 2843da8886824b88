# SPDX-License-Identifier: Apache-2.0
"""What the note of a backup may be: whoever writes to an etcd can write there, too."""

from __future__ import annotations

import pytest

from handfast.apiserver.state import store_figures


@pytest.mark.parametrize(
    "note",
    [None, "", "{", "[]", "{}", '{"takenAt": 1}', '{"takenAt": "yesterday"}', '{"takenAt": "0001-01-01T00:00:00"}'],
)
def test_a_note_that_tells_of_no_backup_is_none(note: str | None) -> None:
    assert store_figures.backup_time(note) == 0


def test_a_note_tells_when_a_backup_was_taken() -> None:
    assert store_figures.backup_time('{"takenAt": "1970-01-02T00:00:00Z", "file": "x"}') == 86400
