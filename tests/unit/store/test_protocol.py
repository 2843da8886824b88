# SPDX-License-Identifier: Apache-2.0
"""What the store's errors say."""

from __future__ import annotations

from handfast.store import protocol


def test_a_mismatch_names_key_and_revision_but_never_the_value() -> None:
    found = protocol.Mismatch("secrets/a", protocol.Entry("secrets/a", b"hunter2", 7, 3))
    assert str(found) == "secrets/a: found revision 7"
    assert str(protocol.Mismatch("secrets/a", None)) == "secrets/a: not found"


def test_revision_errors_name_both_numbers() -> None:
    assert str(protocol.Compacted(3, 9)) == "revision 3 is compacted; the oldest that can be read is 9"
    assert str(protocol.FutureRevision(9, 3)) == "revision 9 is larger than the current 3"
