# SPDX-License-Identifier: Apache-2.0
"""Certificate requests: those that wait, and those that were decided. One of them is `one_request`'s."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from handfast.api import metadata, signing_requests
from handfast.client import cache
from handfast.console import known as known_module
from handfast.console import needs, page
from handfast.rules.console import questions, requests, rows

_NEEDS: Final = (needs.REQUESTS,)
_STATE: Final = "state"


class Rows:
    """A row for each request. It is made when the request changes, and not when somebody looks: reading one costs 40 µs."""

    def __init__(self, informer: cache.Informer[signing_requests.Request]) -> None:
        self._rows: dict[metadata.Key, requests.Row] = {}
        informer.subscribe(self._take)

    def _take(self, old: signing_requests.Request | None, new: signing_requests.Request | None) -> None:
        if new is not None:
            self._rows[new.metadata.key] = requests.row(new)
        elif old is not None:
            self._rows.pop(old.metadata.key, None)

    def all(self) -> Iterable[requests.Row]:
        """Of every request, in no order."""
        return self._rows.values()


def rows_of(known: known_module.Known) -> Rows:
    """Those of a console, made once."""
    made: Rows = known.once(
        "request-rows", (), lambda: Rows(known.of(needs.REQUESTS)), seconds=math.inf, at_most=math.inf
    )
    return made


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """The list, by state."""
    everything = known.once("requests", _NEEDS, lambda: requests.ordered(rows_of(known).all()), seconds=0.0)
    chosen = question.more.get(_STATE, "")
    some = [row for row in everything if row.state == chosen] if chosen in requests.STATES else everything
    return {
        "summary": requests.summary(everything, known.now()),
        "chosen": chosen if chosen in requests.STATES else "",
        "states": requests.STATES,
        "range": rows.select(some, question, text=lambda row: row.text, columns=requests.COLUMNS),
    }


def _badge(known: known_module.Known) -> page.Badge | None:
    waiting = sum(row.state == requests.PENDING for row in rows_of(known).all())
    return page.Badge(waiting, urgent=True) if waiting else None


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
