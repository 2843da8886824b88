# SPDX-License-Identifier: Apache-2.0
"""The page of the issuance ledger, that of one entry, and that of a rule. What is found is `rules.console.ledger`'s to say."""

from __future__ import annotations

import re
from typing import Any, Final

from handfast.console import doors, needs, page
from handfast.console import known as known_module
from handfast.console.pages import certificates
from handfast.rules.console import ledger, questions, rows, timeline, trails

_NEEDS: Final = (needs.LEDGER,)
_HASH: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """The rows that are asked for, and the chains as they are verified."""
    book, more = known.fleet.ledger, question.more
    wanted = ledger.search(question.filter, more.get("since", ""), more.get("until", ""))
    found = book.page(wanted, question.start, question.count, more.get("older", ""))
    start = question.start
    if not found.rows and found.total:
        start = (found.total - 1) // question.count * question.count
        found = book.page(wanted, start, question.count, more.get("older", ""))
    return {
        "range": rows.Range(
            items=found.rows, start=start if found.total else 0, total=found.total, everything=len(book)
        ),
        "found": found,
        "problem": wanted.problem,
        "chains": book.chains(),
        "segments": book.segment_count,
        **_noted(book, more.get("head", "")),
    }


def _noted(book: ledger.Ledger, text: str) -> dict[str, Any]:
    """What is said of a hash that somebody noted before."""
    head = text.strip().lower()
    if not head:
        return {"head": "", "head_problem": "", "head_there": None}
    if not _HASH.fullmatch(head):
        return {
            "head": text,
            "head_problem": "a hash has 64 hex digits, as a page or `handfast ledger verify` showed it",
            "head_there": None,
        }
    return {"head": head, "head_problem": "", "head_there": book.has(head)}


async def show_one(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """One entry with what is behind it."""
    line = known.fleet.ledger.at(question.of)
    if line is None:
        raise doors.NotOurs(
            404,
            f'there is no entry "{question.of}" in the ledger',
            reason="NotFound",
            hint="the page of the ledger has those that there are: /ledger; the oldest are deleted once all beside them have expired",
        )
    entry, now = line.entry, known.now()
    axis = timeline.chosen("", [] if entry is None else [entry.not_after - entry.issued_at], now)
    return {"certificate": certificates.shown(known, line, axis), "axis": axis, "marks": axis.marks()}


async def show_rule(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """What a rule compares, and the newest certificates by it."""
    name = question.of
    rule = trails.RULES.get(name)
    lines = known.fleet.ledger.with_word(name, 10)
    if rule is None and not lines:
        raise doors.NotOurs(
            404,
            f'no rule "{name}" is known, and nothing was issued by it',
            reason="NotFound",
            hint="the entries of the ledger name the rules that there are: /ledger",
        )
    return {"name": name, "rule": rule, "lines": lines}


PAGE: Final = page.Page(
    path="/ledger",
    name="Ledger",
    title="Ledger",
    template="ledger.html",
    needs=_NEEDS,
    show=show,
    live=("ledger_head", "chains"),
    rows=True,
)
ONE: Final = page.Page(
    path="/ledger/*",
    title="Ledger entry",
    template="ledger_entry.html",
    needs=(*_NEEDS, needs.REQUESTS, needs.TOKENS),
    show=show_one,
)
RULE: Final = page.Page(path="/rules/*", title="Rule", template="rule.html", needs=_NEEDS, show=show_rule)
