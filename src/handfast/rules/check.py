# SPDX-License-Identifier: Apache-2.0
"""A check: a name, a verdict, what was seen, a reason and a next step. `handfast check` and `handfast mesh check` are made of them.

1. Every check is there each time, in the same order and under the same name. What depends on a check that failed is unknown.
2. What the caller may not read is unknown, with the reason. It is never taken for good. What did not answer in time has failed.
3. Names that are many are shown as a few, and counted.

It looks nothing up and judges nothing: `rules.diagnoses` and `rules.mesh` do.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast.api import objects

UNKNOWN: Final = "Unknown"
TIMEOUT: Final = "Timeout"
_SHOWN: Final = 5
_ASK_OTHERWISE: Final = "ask with a credential that may read it: --kubeconfig"


class Verdict(enum.StrEnum):
    """How a check ended, the worst last."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAILED = "failed"


_WORST: Final = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Check:
    """One line: `reason` is a stable word, empty where all is well, `hint` is the next step, and `page` is where more is said."""

    name: str
    verdict: Verdict
    sentence: str
    reason: str = ""
    hint: str = ""
    page: str = ""


class Unread(msgspec.Struct, frozen=True):
    """What may not be read, or could not be (2)."""

    why: str
    reason: str = UNKNOWN
    hint: str = ""


Stored = objects.Document | None | Unread


def worst(checks: Sequence[Check]) -> Verdict:
    """The verdict of all of them."""
    return max((check.verdict for check in checks), key=_WORST.index, default=Verdict.OK)


def unknown(name: str, why: str) -> Check:
    """A check that could not be made (1, 2)."""
    return Check(name, Verdict.UNKNOWN, why, UNKNOWN, _ASK_OTHERWISE)


def unread(name: str, trouble: Unread) -> Check:
    """A check of what could not be read (2)."""
    verdict = Verdict.FAILED if trouble.reason == TIMEOUT else Verdict.UNKNOWN
    return Check(name, verdict, trouble.why, trouble.reason, trouble.hint or _ASK_OTHERWISE)


def several(names: Sequence[str], total: int = 0) -> str:
    """Names for a sentence (3); there are `total`, where not all of them are given."""
    shown, more = names[:_SHOWN], max(len(names), total) - _SHOWN
    return ", ".join(shown) if more <= 0 else f"{', '.join(shown)} and {more} more"


def about(
    name: str, rows: Sequence[str], verdict: Verdict, reason: str, sentence: Callable[[str], str], hint: str, well: str
) -> Check:
    """A check that is well unless there are rows to name."""
    if not rows:
        return Check(name, Verdict.OK, well)
    return Check(name, verdict, sentence(several(rows)), reason, hint)
