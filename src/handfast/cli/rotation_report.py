# SPDX-License-Identifier: Apache-2.0
"""What a call of a rotation is told as: for people, and as a document. `rules.trust_rotation` says what a report is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handfast.rules import trust_rotation


def document(what: str, reports: Sequence[trust_rotation.Report]) -> dict[str, Any]:
    """Every step of one call."""
    return {"what": str(what), "steps": [_step(report) for report in reports]}


def _step(report: trust_rotation.Report) -> dict[str, Any]:
    from handfast.api import objects

    return {
        **({"dryRun": True} if report.tried else {}),
        "did": None if report.did is None else str(report.did),
        "actions": list(report.actions),
        "next": None if report.next is None else str(report.next),
        "waitsFor": [
            {"what": wait.sentence, "until": None if wait.until is None else objects.timestamp(wait.until)}
            for wait in report.waits
        ],
    }


def text(report: trust_rotation.Report, about: Mapping[str, str]) -> str:
    """One step; `about` says what each is."""
    lines: list[str] = []
    if report.did is not None:
        word = "would be done" if report.tried else "done"
        lines += [f"{word}: {report.did} ({about[report.did]})", *(f"  {action}" for action in report.actions)]
    if report.next is None:
        lines.append("the rotation would be over" if report.tried else "the rotation is over")
        return "\n".join(lines)
    lines.append(f"next: {report.next} ({about[report.next]})")
    lines += [f"  waits: {wait.sentence}" for wait in report.waits]
    return "\n".join(lines)
