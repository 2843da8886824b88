# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of CEL: RE2, which takes time in proportion to the text, and each program bounded by its memory.

`matches` stands in the place of the evaluator's own: see `engine`. `find` and `findAll` are Kubernetes' additions.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import re2

_LONGEST_PATTERN: Final = 4096


@functools.lru_cache(maxsize=256)
def _pattern(expression: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    # A pattern that only the object knows: its program is bounded by memory, and so is its time.
    options.max_mem = 1 << 16
    if len(expression) > _LONGEST_PATTERN:
        raise ValueError(f"a pattern has at most {_LONGEST_PATTERN} characters")
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError):
        raise ValueError("RE2 does not take this pattern") from None


def matches(text: str, expression: str) -> bool:
    """What `engine` puts in the place of the evaluator's own: see there."""
    return _matched(expression).search(text) is not None


@functools.lru_cache(maxsize=64)
def _matched(expression: str) -> Any:
    """A pattern as the evaluator takes it: mostly one that the author of a rule wrote. 64 of them are at most 64 MiB."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError):
        raise ValueError("RE2 does not take this pattern") from None


def find(text: str, expression: str) -> str:
    match = _pattern(expression).search(text)
    return "" if match is None else str(match.group(0))


def find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    matches: list[str] = []
    for match in _pattern(expression).finditer(text):
        if 0 <= limit <= len(matches):
            break
        matches.append(str(match.group(0)))
    return matches
