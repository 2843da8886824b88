# SPDX-License-Identifier: Apache-2.0
"""The whole in ten lines, for `handfast status`: made from the checks of `handfast check`, so that the two cannot disagree. It reads nothing.

1. Each line is a topic. It says what its main check says, and the worst check of the topic, where that is another one.
2. Something needs somebody where a check has failed or warns. What could not be read is said, and needs nobody.
3. The last line is the next step for the first of the worst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from handfast.rules import check
from handfast.rules.diagnoses import judged

# 1. the topics, each with its checks, the main one first
TOPICS: Final[Mapping[str, tuple[str, ...]]] = {
    "api": ("api", "credential", "dns", "tcp", "tls", "clock"),
    "controllers": ("controllers", "roles", "rights", "webhooks"),
    "store": ("store",),
    "ca": ("cas", "client-cas"),
    "tokens": ("tokens", "cluster-info", "signatures"),
    "requests": ("requests",),
    "nodes": ("nodes", "node-serving", "node-rights"),
    "machines": ("machines", "machine-pools", "bootstrap-credentials"),
    "mesh": (judged.MESH,),
}
_CALM: Final = frozenset({check.Verdict.OK, check.Verdict.UNKNOWN})
_NOTHING: Final = "nothing needs you"


class Line(msgspec.Struct, frozen=True):
    """One topic; reason and next step are those of its worst check."""

    topic: str
    verdict: check.Verdict
    sentence: str
    reason: str = ""
    hint: str = ""


def lines(checks: Sequence[check.Check]) -> tuple[Line, ...]:
    """A line for each topic."""
    return tuple(_line(topic, _of(topic, checks)) for topic in TOPICS)


def document(line: Line) -> dict[str, str]:
    """A line, for machines to read; what there is nothing to say of is left out."""
    fields = {"topic": line.topic, "state": str(line.verdict), "message": line.sentence}
    return fields | {key: value for key, value in (("reason", line.reason), ("hint", line.hint)) if value}


def needs_somebody(checks: Sequence[check.Check]) -> bool:
    """Whether something does (2)."""
    return check.worst(checks) not in _CALM


def next_step(checks: Sequence[check.Check]) -> str:
    """What to do now (3)."""
    if not needs_somebody(checks):
        return _NOTHING
    worst = _worst(checks)
    return f"{worst.name}: {worst.hint}"


def _of(topic: str, checks: Sequence[check.Check]) -> list[check.Check]:
    names = TOPICS[topic]
    rows = [row for row in checks if row.name in names or (topic == judged.MESH and row.name.startswith(f"{topic}-"))]
    return sorted(rows, key=lambda row: (row.name != names[0], checks.index(row)))


def _line(topic: str, rows: Sequence[check.Check]) -> Line:
    main, worst = rows[0], _worst(rows)
    said = main.sentence
    if worst is not main and worst.verdict is not check.Verdict.OK:
        said = f"{said}; {worst.name}: {worst.sentence}" if main.verdict is check.Verdict.OK else worst.sentence
    return Line(topic, worst.verdict, said, worst.reason, worst.hint)


def _worst(rows: Sequence[check.Check]) -> check.Check:
    at = check.worst(rows)
    return next(row for row in rows if row.verdict is at)
