# SPDX-License-Identifier: Apache-2.0
"""The depth of a document is counted in containers, of either sort."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api.codec import nesting


def nested(levels: int, *, key: str = "") -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {key: value} if key else [value]
    return value


@pytest.mark.parametrize("key", ["", "a"])
def test_the_limit_is_allowed_and_one_more_is_not(key):
    assert not nesting.is_too_deep(nested(nesting.MAX_DEPTH, key=key))
    assert nesting.is_too_deep(nested(nesting.MAX_DEPTH + 1, key=key))


def test_width_is_not_depth():
    assert not nesting.is_too_deep({str(number): [{}, []] for number in range(1000)})
    assert not nesting.is_too_deep(1)


def test_no_depth_exhausts_the_stack():
    assert nesting.is_too_deep(nested(5000))
