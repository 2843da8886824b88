# SPDX-License-Identifier: Apache-2.0
"""Bootstrap tokens: what each is good for, who used it, who was refused. One of them is `one_token`'s, a new one `new_token`'s.

The secret half of a token is in no informer and on no page here: see `needs`.
"""

from __future__ import annotations

import math
from typing import Any, Final

from handfast import errors
from handfast.console import derived, needs, page
from handfast.console import known as known_module
from handfast.console.pages import requests as requests_page
from handfast.rules.console import questions, rows, tokens
from handfast.rules.nodes import join_failures

NEEDS: Final = (needs.TOKENS, needs.FAILED_JOINS, needs.REQUESTS)
# How many of the newest refusals stand below the list.
_NEWEST: Final = 20


def failures_of(known: known_module.Known) -> list[join_failures.Failed]:
    """Joins that were refused, or led to nothing, the newest first."""

    def make() -> list[join_failures.Failed]:
        events = join_failures.of_events(each.document() for each in known.of(needs.FAILED_JOINS))
        undecided = tokens.of_requests(requests_page.rows_of(known))
        return sorted([*events, *undecided], key=lambda each: each.last, reverse=True)

    made: list[join_failures.Failed] = known.once(
        "failed-joins", (needs.FAILED_JOINS, needs.REQUESTS), make, seconds=0.0
    )
    return made


def _row(token: needs.Token) -> tokens.Row | None:
    """None: the Secret has another name than that of a token; the API server's own rules leave it aside, too."""
    try:
        return tokens.read(token.document())
    except errors.Refused:
        return None


def rows_of(known: known_module.Known) -> list[tokens.Row]:
    """Every token, those first that need a look."""
    read: derived.Derived[needs.Token, tokens.Row] = known.once(
        "tokens-read", (), lambda: derived.Derived(known.of(needs.TOKENS), _row), seconds=math.inf, at_most=math.inf
    )

    def make() -> list[tokens.Row]:
        refused, now = tokens.refusals_by_token(failures_of(known)), known.now()
        return tokens.ordered(row.at(now).refused(refused.get(row.id)) for row in read.all())

    # A token expires without any change: the list is made again after a while.
    made: list[tokens.Row] = known.once("token-rows", NEEDS, make, seconds=0.0, at_most=5.0)
    return made


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """The list."""
    everything = rows_of(known)
    failures = failures_of(known)
    sure = known.is_sure((needs.TOKENS,))
    return {
        "title": tokens.title(everything, sure=sure),
        "sentence": tokens.sentence(everything, known.now(), sure=sure),
        "failures_known": known.is_sure((needs.FAILED_JOINS, needs.REQUESTS)),
        "failures": failures[:_NEWEST],
        "failures_in_all": len(failures),
        "range": rows.select(everything, question, text=lambda row: row.text, columns=tokens.COLUMNS),
    }


def _badge(known: known_module.Known) -> page.Badge | None:
    looks = sum(row.needs_a_look for row in rows_of(known))
    return page.Badge(looks) if looks else None


PAGE: Final = page.Page(
    path="/tokens",
    name="Tokens",
    title="Tokens",
    template="tokens.html",
    needs=NEEDS,
    show=show,
    live=("tokens_head", "refusals"),
    rows=True,
    badge=_badge,
)
