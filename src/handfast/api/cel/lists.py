# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes adds to CEL for lists and sets. `library` gives these functions their names.

Lists are walked once. Sets are lists here, too: they are compared pair by pair, and not at all if there are too many pairs.
"""

from __future__ import annotations

import functools
from typing import Any, Final

_MOST_IN_SETS: Final = 1000


def is_sorted(values: list[Any]) -> bool:
    return all(_ordered(values[index - 1], values[index]) for index in range(1, len(values)))


def _ordered(left: Any, right: Any) -> bool:
    try:
        return bool(left <= right)
    except TypeError:
        raise ValueError("no such overload: the elements cannot be compared") from None


def total(values: list[Any]) -> Any:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        raise ValueError("no such overload: sum() takes numbers")
    return sum(values)


def least(values: list[Any]) -> Any:
    return functools.reduce(lambda left, right: left if _ordered(left, right) else right, _some(values, "min"))


def greatest(values: list[Any]) -> Any:
    return functools.reduce(lambda left, right: right if _ordered(left, right) else left, _some(values, "max"))


def _some(values: list[Any], name: str) -> list[Any]:
    if not values:
        raise ValueError(f"{name} called on empty list")
    return values


def index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index, value in enumerate(values) if same(value, wanted)), -1)


def last_index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index in range(len(values) - 1, -1, -1) if same(values[index], wanted)), -1)


def same(left: Any, right: Any) -> bool:
    """Equality of CEL: to Python, 1 equals True."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def contains_all(values: list[Any], wanted: list[Any]) -> bool:
    """Whether each of `wanted` is among the values."""
    _require_few(values, wanted)
    return all(index_of(values, each) >= 0 for each in wanted)


def _require_few(left: list[Any], right: list[Any]) -> None:
    if len(left) * len(right) > _MOST_IN_SETS**2:
        raise ValueError(f"sets are compared up to {_MOST_IN_SETS} elements each")


def are_equivalent(left: list[Any], right: list[Any]) -> bool:
    return contains_all(left, right) and contains_all(right, left)


def intersect(left: list[Any], right: list[Any]) -> bool:
    _require_few(left, right)
    return any(index_of(left, each) >= 0 for each in right)
