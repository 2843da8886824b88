# SPDX-License-Identifier: Apache-2.0
"""Certificate requests: those that wait, and those that were decided. One of them is `one_request`'s."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from handfast.api import signing_requests
from handfast.console import derived, needs, page
from handfast.console import known as known_module
from handfast.rules.console import questions, requests, rows

_NEEDS: Final = (needs.REQUESTS,)
_STATE: Final = "state"


def rows_of(known: known_module.Known) -> Iterable[requests.Row]:
    """A row for each request."""
    made: derived.Derived[signing_requests.Request, requests.Row] = known.once(
        "request-rows",
        (),
        lambda: derived.Derived(known.of(needs.REQUESTS), requests.row),
        seconds=math.inf,
        at_most=math.inf,
    )
    return made.all()


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """The list, by state."""
    everything = known.once("requests", _NEEDS, lambda: requests.ordered(rows_of(known)), seconds=0.0)
    chosen = question.more.get(_STATE, "")
    some = [row for row in everything if row.state == chosen] if chosen in requests.STATES else everything
    return {
        "summary": requests.summary(everything, known.now(), sure=known.is_sure(_NEEDS)),
        "chosen": chosen if chosen in requests.STATES else "",
        "states": requests.STATES,
        "range": rows.select(some, question, text=lambda row: row.text, columns=requests.COLUMNS),
    }


def _badge(known: known_module.Known) -> page.Badge | None:
    waiting = sum(row.state == requests.PENDING for row in rows_of(known))
    return page.Badge(waiting) if waiting else None


PAGE: Final = page.Page(
    path="/requests",
    name="Requests",
    title="Requests",
    template="requests.html",
    needs=_NEEDS,
    show=show,
    live=("requests_head",),
    rows=True,
    badge=_badge,
)
