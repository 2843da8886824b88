# SPDX-License-Identifier: Apache-2.0
"""The page of the checks: what `handfast check` says, kept fresh while somebody looks. What is judged is in `rules.diagnoses`; it judges nothing."""

from __future__ import annotations

from typing import Any, Final

from handfast.console import known as known_module
from handfast.console import page
from handfast.rules import check
from handfast.rules.console import checks as checks_module
from handfast.rules.console import questions
from handfast.rules.diagnoses import judged

# How long the page of a new console waits for its first look.
_PATIENCE: Final = 4.0


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """Every check, in the order of the command."""
    looking = known.looking
    await looking.first(_PATIENCE)
    facts = known.facts()
    rows = () if facts is None else judged.everything(facts)
    only = question.more.get("only", "")
    return {
        "checks": [
            each for each in checks_module.ordered(rows) if only != "unwell" or each.verdict is not check.Verdict.OK
        ],
        "everything": rows,
        "only": only,
        "sentence": checks_module.sentence(rows),
        "counts": checks_module.counts(rows),
        "known_at": looking.known_at,
        "progress": looking.progress,
        "every": round(looking.pause),
        "looking_trouble": looking.trouble,
    }


PAGE: Final = page.Page(
    path="/check",
    name="Check",
    title="Check",
    template="check.html",
    facts=True,
    show=show,
    live=("check_summary", "check_rows"),
)
