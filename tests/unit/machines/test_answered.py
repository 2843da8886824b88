# SPDX-License-Identifier: Apache-2.0
"""What is kept of answers."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.machines import answered


def test_a_name_is_put_in_afterwards():
    kept, built = answered.Kept("MARK"), []

    def build(name: str) -> bytes:
        built.append(name)
        return f"hello {name}".encode()

    assert kept.get("k", "a", build) == b"hello a"
    assert kept.get("k", "b", build) == b"hello b"
    assert kept.get("k", "", build) == b"hello "
    assert built == ["MARK", ""]


def test_so_much_is_kept_and_no_more():
    kept, built = answered.Kept("MARK", most=25), []

    def build(_: str) -> bytes:
        built.append(1)
        return b"x" * 10

    for key in ("a", "b", "c", "b", "c", "a"):
        kept.get(key, "", build)
    assert len(built) == 4
    assert answered.Kept("MARK", most=1).get("a", "", build) == b"x" * 10


def test_that_there_is_no_answer_is_found_out_once():
    kept, built = answered.Kept("MARK"), []

    def build(_: str) -> bytes:
        built.append(1)
        raise errors.Refused("it cannot be said", reason="Newer")

    for _ in range(3):
        with pytest.raises(errors.Refused, match="it cannot be said") as caught:
            kept.get("k", "", build)
        assert caught.value.reason == "Newer"
    assert built == [1]


def test_what_is_kept_does_not_print():
    kept = answered.Kept("MARK")
    kept.get("k", "", lambda _: b"hush")
    assert "hush" not in repr(kept)
