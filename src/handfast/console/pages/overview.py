# SPDX-License-Identifier: Apache-2.0
"""The first page: what needs somebody, most urgent first, and what expires. What that is, is judged in `rules.console`.

What is made of a look is made once for it, not for each browser: with thousands of nodes it takes a while.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast.api import jsonpath
from handfast.api.printing import ages
from handfast.console import known as known_module
from handfast.console import needs, page
from handfast.console.pages import tokens as tokens_page
from handfast.rules import check
from handfast.rules.console import endings, expiring, overview, questions
from handfast.rules.diagnoses import facts as facts_module
from handfast.rules.diagnoses import judged
from handfast.rules.mesh import control_plane
from handfast.rules.nodes import join_failures
from handfast.rules.nodes import overview as node_states

# How long the first page of a new console waits for its first look.
_PATIENCE: Final = 4.0
_NEEDS: Final = (needs.NODES, needs.FAILED_JOINS, needs.REVOCATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What is made of one look."""

    checks: Sequence[check.Check]
    sentences: Sequence[overview.Sentence]
    seen: overview.Seen
    days: Sequence[expiring.Day]
    since: expiring.Since


_NOTHING: Final = _Judged(checks=(), sentences=(), seen={}, days=(), since=expiring.Since(0, 0, 0, 0))


def judge(known: known_module.Known) -> _Judged:
    """The same for all who ask, until somebody has looked again."""
    if known.looking.facts is None:
        return _NOTHING
    before = known.last("overview", _NOTHING).seen
    return known.once("overview", _NEEDS, lambda: _judged(known, before), seconds=5.0, at_most=float("inf"))


def _judged(known: known_module.Known, before: overview.Seen) -> _Judged:
    facts = known.facts()
    if facts is None:
        return _NOTHING
    checks = judged.everything(facts)
    seen = overview.remembered(before, checks, facts.now)
    joins = list(join_failures.of_events([event.document() for event in known.of(needs.FAILED_JOINS)]))
    ledger, table, now = known.fleet.ledger, known.fleet.table, known.now()
    made = [
        ages.instant(jsonpath.text(each.document(), "metadata", "creationTimestamp"))
        for each in known.of(needs.REVOCATIONS)
    ]
    return _Judged(
        checks=checks,
        sentences=overview.sentences(checks, facts, joins, seen),
        seen=seen,
        days=expiring.days(table.lifetimes(), now),
        since=expiring.since_yesterday(ledger.issued_since(now - expiring.DAY), joins, made, now),
    )


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """What is said."""
    del question
    facts = await known.looking.first(_PATIENCE)
    found = judge(known)
    return {
        "sentences": found.sentences,
        "checked": len(found.checks),
        "known_at": known.looking.known_at,
        "unknown": [each for each in found.checks if each.verdict is check.Verdict.UNKNOWN],
        "looking_trouble": known.looking.trouble,
        "recorded": facts is not None and known.fleet.table.ledger_read,
        # Whether no entry means that there is none.
        "ledger_read": known.is_sure((needs.LEDGER,)),
        "days": found.days,
        "bars": expiring.bars(found.days),
        "picture": (expiring.DAYS * expiring.WIDTH, expiring.HEIGHT),
        "expiring": expiring.in_words(found.days),
        "since": found.since,
        # Whether something is in the way of the next look.
        "is_old": bool(known.looking.trouble) or known.server_trouble() is not None,
        "joins_read": known.of(needs.FAILED_JOINS).synced,
        "revocations_read": known.of(needs.REVOCATIONS).synced,
        "ends": endings.ordered(_ends(known, facts), known.now()),
        "on_time": on_time(known),
        "elsewhere": _elsewhere,
    }


def _ends(known: known_module.Known, facts: facts_module.Facts | None) -> list[endings.Ending]:
    """What nobody counts in days: CAs, certificates of the server and of who asks, the mesh's own, tokens."""
    shown = endings.of_tokens([row.expires for row in tokens_page.rows_of(known)], known.now())
    shown += _of_mesh(known)
    if facts is None:
        return shown
    if not isinstance(facts.reach.certificate, check.Unread):
        shown.append(endings.Ending("The API server's certificate", facts.reach.certificate.not_after))
    if facts.credential is not None:
        shown.append(endings.Ending("Your own certificate", facts.credential.not_after))
    return [*shown, *endings.of_bundle("The cluster's CA", facts.own_ca)]


def _of_mesh(known: known_module.Known) -> list[endings.Ending]:
    anchors = known.of(needs.MESH_CONFIG).get(known.mesh_namespace, control_plane.TRUST_ANCHOR)
    signing = known.of(needs.MESH_SECRETS).get(known.mesh_namespace, control_plane.SIGNING)
    roots = "" if anchors is None else (anchors.data or {}).get(control_plane.ANCHORS_KEY, "")
    certificate = "" if signing is None or signing.data is None else signing.data.certificate or ""
    try:
        chain = base64.b64decode(certificate, validate=True)
    except ValueError:
        chain = b""
    # Of the issuer's chain the first is the issuer.
    return [
        *endings.of_bundle("The mesh's root", roots.encode(), "/mesh"),
        *endings.of_bundle("The mesh's issuer", chain, "/mesh")[:1],
    ]


def on_time(known: known_module.Known) -> tuple[int, int]:
    """How many nodes hold a certificate and renew it on time, of how many."""
    counts = known.fleet.table.counts
    return counts[node_states.State.GOOD], sum(counts.values())


def _elsewhere(
    sentences: Sequence[overview.Sentence], pages: Sequence[page.Page], badges: Mapping[str, page.Badge | None]
) -> list[page.Page]:
    """Pages with something that needs somebody, of which no sentence tells."""
    told = {"/" + each.link.removeprefix("/").partition("/")[0].partition("?")[0] for each in sentences}
    return [each for each in pages if badges.get(each.path) and each.path not in {PAGE.path, *told}]


def _badge(known: known_module.Known) -> page.Badge | None:
    needing = judge(known).sentences
    return page.Badge(len(needing), any(each.urgent for each in needing)) if needing else None


PAGE: Final = page.Page(
    path="/",
    name="Overview",
    title="Overview",
    template="overview.html",
    needs=_NEEDS,
    facts=True,
    show=show,
    live=("needing", "ahead"),
    badge=_badge,
)
