# SPDX-License-Identifier: Apache-2.0
"""The sentences of the first page: one for each check that is not well, the most urgent first. It is what `handfast check` says, so that the two cannot disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from handfast.rules import check
from handfast.rules.diagnoses import judged, standing

_ORDER: Final = (check.Verdict.FAILED, check.Verdict.WARNING)
# A topic of `handfast status` -> the page that shows it.
PAGES: Final[Mapping[str, str]] = {
    "requests": "/requests",
    "nodes": "/nodes",
    "tokens": "/tokens",
    "machines": "/nodes",
    "mesh": "/mesh",
    "store": "/store",
}
_ELSE: Final = "/check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """Something that needs somebody."""

    title: str
    text: str
    urgent: bool
    reason: str
    command: str
    link: str


def sentences(checks: Sequence[check.Check]) -> list[Sentence]:
    """What needs somebody, the most urgent first."""
    needing = [each for each in checks if each.verdict in _ORDER]
    return [_sentence(each) for each in sorted(needing, key=lambda each: _ORDER.index(each.verdict))]


def _sentence(each: check.Check) -> Sentence:
    return Sentence(
        title=each.name,
        text=each.sentence,
        urgent=each.verdict is check.Verdict.FAILED,
        reason=each.reason,
        command=each.hint,
        link=PAGES.get(_topic(each.name), _ELSE),
    )


def _topic(name: str) -> str:
    if name.startswith(f"{judged.MESH}-"):
        return judged.MESH
    return next((topic for topic, names in standing.TOPICS.items() if name in names), "")
