# SPDX-License-Identifier: Apache-2.0
"""What every target promises: refusals that are meant for users, and work in proportion to the input. It knows no input.

1. Nothing is raised but a refusal (`errors.Refused`; of a reader that may also say "try later": `errors.Unavailable`). A Status that
   says the server is at fault is none.
2. A refusal can be sent: its text is valid Unicode, and not much longer than the input.
3. The Python functions that are called are at most `CALLS` and `CALLS_PER_BYTE` for each byte. Time is not looked at, because a
   loaded machine would decide. What is remembered after the first time counts the second time only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from handfast import errors
from handfast.api import status

CALLS: Final = 10_000
CALLS_PER_BYTE: Final = 30
# A text may quote its input some times over, each byte as an escape of six.
_TEXT: Final = 50_000
_TEXT_PER_BYTE: Final = 20

Run = Callable[[bytes], object]


class Broken(AssertionError):
    """A promise was not kept."""


def refusing(run: Run, *allowed: type[errors.HandfastError]) -> Run:
    """The same, where refusals of these families are fine: without any, `Refused`."""
    families = allowed or (errors.Refused,)

    def guarded(data: bytes) -> object:
        # 1. nothing but a refusal
        try:
            return run(data)
        except families as error:
            _require_sendable(error, len(data))
            return None

    return guarded


def _require_sendable(error: errors.HandfastError, size: int) -> None:
    if isinstance(error, status.StatusError):
        require(error.code < 500, f"a refusal says that the server is at fault: {error.code} {error.reason}")
    # 2. the text can be sent
    text = " ".join([error.message, error.hint or "", error.reason])
    text.encode("utf-8")
    require(len(text) <= _TEXT + _TEXT_PER_BYTE * size, f"{len(text)} characters say what is wrong with {size} bytes")


def bounded(run: Run, data: bytes) -> None:
    """Run it; raises `Broken` if it takes more steps than so long an input may."""
    most = CALLS + CALLS_PER_BYTE * len(data)
    # 3. in proportion to the input; twice, since what the first one remembers is not the input's fault
    if (count := _calls(run, data)) > most and (count := _calls(run, data)) > most:
        raise Broken(f"{len(data)} bytes take {count} calls; at most {most} are allowed")


def _calls(run: Run, data: bytes) -> int:
    count = 0

    def watch(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        run(data)
    finally:
        sys.setprofile(before)
    return count


def require(holds: bool, sentence: str) -> None:
    """Raise `Broken` unless it holds."""
    if not holds:
        raise Broken(sentence)
