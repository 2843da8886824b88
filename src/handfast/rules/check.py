# SPDX-License-Identifier: Apache-2.0
"""A check: a name, a verdict, what was seen, a reason and a next step. `handfast check` and `handfast mesh check` are made of them.

1. Every check is there each time, in the same order and under the same name. What depends on a check that failed is unknown.
2. What the caller may not read, or the server does not have, is unknown, and never taken for good. Every other refusal, and no answer, is a failure, with the
   server's own reason: it says something of the server, and nothing of the caller.
3. Names that are many are shown as a few, and counted.

It looks nothing up and judges nothing: `rules.diagnoses` and `rules.mesh` do.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects

UNKNOWN: Final = "Unknown"
TIMEOUT: Final = "Timeout"
_SHOWN: Final = 5
_ASK_OTHERWISE: Final = "ask with a credential that may read it: --kubeconfig"
# Refusals that say something of the caller, or of what the server was never given.
_OF_THE_CALLER: Final = frozenset({UNKNOWN, "Unauthorized", "Forbidden", "NotFound"})
LOG: Final = "see the log of the API server: what `handfast up` or `handfast serve apiserver` writes to standard error"
# What to do about a refusal that does not say it.
_NEXT_STEPS: Final[Mapping[str, str]] = {
    "TooManyRequests": "wait and ask again: the API server limits how much is asked of it; if it stays so, find out who asks so much",
    "Expired": "ask again: what was listed has changed meanwhile",
    "Unreachable": f"see that it runs still; {LOG}",
}
# Where an object is stored that no rule of this version can read.
NOT_UNDERSTOOD: Final = "NotUnderstood"


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
    # Since when it is so, where somebody wrote that down.
    since: datetime.datetime | None = None


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
    verdict = Verdict.UNKNOWN if trouble.reason == UNKNOWN else Verdict.FAILED
    return Check(name, verdict, trouble.why, trouble.reason, trouble.hint or _ASK_OTHERWISE)


def refused(error: errors.HandfastError) -> Unread:
    """Why something could not be read, by the error of whoever was asked (2)."""
    if error.reason in _OF_THE_CALLER:
        return Unread(error.message, UNKNOWN, error.hint or "")
    return Unread(error.message, error.reason, error.hint or _NEXT_STEPS.get(error.reason, LOG))


def not_understood(error: Exception) -> Unread:
    """There is something that no rule can read (2)."""
    said = f"what is there cannot be understood ({type(error).__name__})"
    return Unread(
        said,
        NOT_UNDERSTOOD,
        "look at the objects of this kind with kubectl: one has a field of another form than its kind has",
    )


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
