# SPDX-License-Identifier: Apache-2.0
"""UIDs are random UUIDs of version 4, each given once."""

from __future__ import annotations

import uuid

from handfast.apiserver import uids


def test_version_and_variant() -> None:
    supply = uids.Uids()
    for _ in range(1000):
        text = supply.new()
        found = uuid.UUID(text)
        assert str(found) == text
        assert found.version == 4
        assert found.variant == uuid.RFC_4122


def test_never_the_same_twice() -> None:
    # More than a pool holds, from two supplies and the shared one.
    one, other = uids.Uids(), uids.Uids()
    made = [source() for _ in range(600) for source in (one.new, other.new, uids.new)]
    assert len(set(made)) == len(made)


def test_the_pool_is_used_up_before_it_is_filled_again() -> None:
    supply = uids.Uids()
    supply.new()
    pool = supply._bytes
    for _ in range(len(pool) // 16 - 1):
        supply.new()
        assert supply._bytes is pool
    supply.new()
    assert supply._bytes is not pool
