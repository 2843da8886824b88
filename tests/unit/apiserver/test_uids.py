# SPDX-License-Identifier: Apache-2.0
"""UIDs are random UUIDs of version 4, each given once."""

from __future__ import annotations

import concurrent.futures
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
    left = len(supply._drawn)
    assert left == 4096 // 16 - 1
    for _ in range(left):
        supply.new()
    assert not supply._drawn
    supply.new()
    assert len(supply._drawn) == left


def test_threads_share_a_supply() -> None:
    supply = uids.Uids()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        made = [text for each in threads.map(lambda _: [supply.new() for _ in range(2000)], range(4)) for text in each]
    assert len(set(made)) == 8000
