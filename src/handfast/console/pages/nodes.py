# SPDX-License-Identifier: Apache-2.0
"""The page of nodes, and that of one node: lifetimes as bars on one axis. What is shown of each is `rules.console.nodes`'."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from handfast.console import doors, needs, page
from handfast.console import known as known_module
from handfast.console.pages import certificates
from handfast.rules import user_names
from handfast.rules.console import nodes, questions, timeline
from handfast.rules.nodes import overview

_NEEDS: Final = (needs.NODES, needs.LEASES, needs.LEDGER, needs.REQUESTS, needs.REVOCATIONS)
# How many certificates of one node are shown; the ledger has the others.
_MOST: Final = 20


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """The rows that are asked for, and how many there are in each state."""
    found = known.fleet.nodes.page(question, known.now())
    axis = found.axis
    counts = known.fleet.table.counts
    return {
        # Every range of the page is on the same axis.
        "question": dataclasses.replace(question, more={**question.more, nodes.SPAN: axis.name}),
        "range": found.range,
        "axis": axis,
        "marks": axis.marks(),
        "closer": timeline.closer(axis.name),
        "wider": timeline.wider(axis.name),
        "counts": [(state.value, counts[state]) for state in overview.ORDER],
        "needing": sum(count for state, count in counts.items() if state not in overview.CALM),
        "chosen": nodes.STATES.get(question.more.get(nodes.STATE, "")),
    }


def _badge(known: known_module.Known) -> page.Badge | None:
    table = known.fleet.table
    table.settle(known.now())
    needing = sum(count for state, count in table.counts.items() if state not in overview.CALM)
    urgent = table.counts[overview.State.EXPIRED] + table.counts[overview.State.LATE] > 0
    return page.Badge(needing, urgent) if needing else None


async def show_one(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """One node: how it stands, and its certificates with what is behind each."""
    fleet, now, name = known.fleet, known.now(), question.of
    fleet.table.settle(now)
    record = fleet.table.get(name)
    lines = fleet.ledger.with_word(f"CN={user_names.NODE_PREFIX}{name}", _MOST)
    if record is None and not lines:
        raise doors.NotOurs(
            404,
            f'nothing is known of a node "{name}"',
            reason="NotFound",
            hint="the page of nodes has those that there are: /nodes",
        )
    span = question.more.get(nodes.SPAN, "")
    issued = [line.entry for line in lines if line.entry is not None]
    axis = timeline.chosen(span, [entry.not_after - entry.issued_at for entry in issued], now)
    row = None if record is None else nodes.row_of(record, fleet.table.row(record, now), axis)
    return {
        "question": dataclasses.replace(question, more={**question.more, nodes.SPAN: axis.name}),
        "name": name,
        "row": row,
        "requests": () if record is None else record.requests,
        "axis": axis,
        "marks": axis.marks(),
        "closer": timeline.closer(axis.name),
        "wider": timeline.wider(axis.name),
        "certificates": [certificates.shown(known, line, axis) for line in lines],
        "most": _MOST,
    }


PAGE: Final = page.Page(
    path="/nodes",
    name="Nodes",
    title="Nodes",
    template="nodes.html",
    needs=_NEEDS,
    show=show,
    live=("summary",),
    rows=True,
    badge=_badge,
)
ONE: Final = page.Page(
    path="/nodes/*",
    title="Node",
    template="node.html",
    needs=(*_NEEDS, needs.TOKENS),
    show=show_one,
    live=("standing", "certificates"),
)
