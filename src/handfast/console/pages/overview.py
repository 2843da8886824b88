# SPDX-License-Identifier: Apache-2.0
"""The first page: what needs somebody, most urgent first. What that is, is judged in `rules.console.overview`."""

from __future__ import annotations

from typing import Any, Final

from handfast.console import known as known_module
from handfast.console import needs, page
from handfast.rules.console import overview, questions
from handfast.rules.diagnoses import judged

# How long the first page of a new console waits for its first look.
_PATIENCE: Final = 4.0
_NEEDS: Final = (needs.REQUESTS, needs.LEDGER, needs.FAILED_JOINS, needs.REVOCATIONS)


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """What is said."""
    del question
    facts = await known.looking.first(_PATIENCE)
    checks = () if facts is None else judged.everything(facts)
    return {
        "sentences": overview.sentences(checks),
        "checked": len(checks),
        "known_at": known.looking.known_at,
        "unknown": [each for each in checks if each.verdict == "unknown"],
        "looking_trouble": known.looking.trouble,
    }


def _badge(known: known_module.Known) -> page.Badge | None:
    facts = known.looking.facts
    if facts is None:
        return None
    needing = overview.sentences(judged.everything(facts))
    return page.Badge(len(needing), any(each.urgent for each in needing)) if needing else None


PAGE: Final = page.Page(
    path="/",
    name="Overview",
    title="Overview",
    template="overview.html",
    needs=_NEEDS,
    facts=True,
    show=show,
    live=("needing",),
    badge=_badge,
)
