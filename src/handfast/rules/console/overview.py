# SPDX-License-Identifier: Apache-2.0
"""The sentences of the first page: what needs somebody, the most urgent first. It looks nothing up.

1. It is what `handfast check` says, so that the two cannot disagree: a check that fails or warns is a sentence, in the order of the checks.
2. Nodes and requests are told apart where a person would: by state, with how many, since when and until when.
3. Joins that were refused within the last hour are told, too: no check fails for them, and somebody stands in front of a machine.
4. Each has since when, what follows, the command and the page that shows more. Where nobody wrote down since when, it is the first look at which it was so.
5. Many names are shown as a few, and counted.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib import parse as urls

from handfast.api import jsonpath
from handfast.api.printing import ages
from handfast.rules import check, request_explanation
from handfast.rules.console import consequences
from handfast.rules.diagnoses import facts, judged, members, standing
from handfast.rules.mesh import check_workloads
from handfast.rules.nodes import join_failures
from handfast.rules.nodes import overview as node_states
from handfast.rules.tokens import failed_joins

_ORDER: Final = (check.Verdict.FAILED, check.Verdict.WARNING)
# A topic of `handfast status` -> the page that shows it.
PAGES: Final[Mapping[str, str]] = {
    "requests": "/requests",
    "nodes": "/nodes",
    "tokens": "/tokens",
    "machines": "/machines",
    "mesh": "/mesh",
    "store": "/store",
}
_ELSE: Final = "/check"
# A reason of which a page shows exactly what it is about.
_LINKS: Final[Mapping[str, str]] = {check_workloads.WOULD_REFUSE: "/mesh/edges?state=would+be+refused"}
# 3. how long ago a refused join may be
RECENT: Final = datetime.timedelta(hours=1)
_STATES: Final[Mapping[node_states.State, tuple[str, str]]] = {
    node_states.State.EXPIRED: ("the certificate is over", "CertificateExpired"),
    node_states.State.LATE: ("the certificate should have been renewed by now", "RenewalLate"),
    node_states.State.WAITING: ("somebody asks for a first certificate, and nobody has decided", "NodeWaits"),
    node_states.State.RECOVERING: (
        "asks with its expired certificate for the next one, and nobody has decided",
        "NodeWaits",
    ),
    node_states.State.SILENT: ("the certificate is good, and the node is not seen", "NodeSilent"),
}
_STUCK: Final = "RequestsNotActedOn"
_URGENT: Final = frozenset({node_states.State.EXPIRED, node_states.State.LATE})
# States in which there is a request that waits.
_ASKING: Final = frozenset({node_states.State.WAITING, node_states.State.RECOVERING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """Something that needs somebody: whom or what it is about, what is wrong, since and until when, what follows and what to do."""

    about: str
    text: str
    urgent: bool
    reason: str = ""
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    follows: str = ""
    command: str = ""
    link: str = _ELSE


# A check's name and reason -> when it was first seen so.
Seen = Mapping[tuple[str, str], datetime.datetime]


def remembered(before: Seen, checks: Sequence[check.Check], now: datetime.datetime) -> Seen:
    """Since when each check that is not well is so, as far as somebody looked (4)."""
    needing = [(each.name, each.reason) for each in checks if each.verdict in _ORDER]
    return {key: before.get(key, now) for key in needing}


def sentences(
    checks: Sequence[check.Check], known: facts.Facts | None, joins: Iterable[join_failures.Failed], seen: Seen
) -> list[Sentence]:
    """What needs somebody, the most urgent first."""
    told: list[Sentence] = []
    for each in (one for one in checks if one.verdict in _ORDER):
        told += _of_check(each, known, checks, seen)
    if known is not None:
        told += _of_joins(joins, known.now)
    return sorted(told, key=lambda sentence: not sentence.urgent)


def _of_check(
    each: check.Check, known: facts.Facts | None, checks: Sequence[check.Check], seen: Seen
) -> Iterator[Sentence]:
    # 2. told apart
    if each.name == "nodes" and known is not None and not isinstance(known.nodes, check.Unread):
        yield from _of_nodes(_standing(known.nodes, known.now), checks)
    elif each.name == "requests" and known is not None and not isinstance(known.requests, check.Unread):
        yield _of_requests(each, known.requests)
    else:
        # 1. in the words of the check
        yield Sentence(
            about=each.name,
            text=each.sentence,
            urgent=each.verdict is check.Verdict.FAILED,
            reason=each.reason,
            since=each.since or seen.get((each.name, each.reason)),
            follows=consequences.of(each.reason),
            command=each.hint,
            link=_LINKS.get(each.reason) or page_of(each.name),
        )


def page_of(name: str) -> str:
    """The page that shows what a check is about."""
    if name.startswith(f"{judged.MESH}-"):
        return PAGES[judged.MESH]
    return PAGES.get(next((topic for topic, names in standing.TOPICS.items() if name in names), ""), _ELSE)


def _of_nodes(standing: node_states.Standing, checks: Sequence[check.Check]) -> Iterator[Sentence]:
    asked = any(each.name == "requests" and each.verdict in _ORDER for each in checks)
    for state, group in itertools.groupby(standing.needing, key=lambda row: row.state):
        if state in _ASKING and asked:
            # Its request is told of already.
            continue
        these = list(group)
        text, reason = _STATES[state]
        first, count = these[0], standing.counts[state]
        ends = [row.certificate.not_after for row in these if row.certificate is not None]
        yield Sentence(
            about=_several("node", [row.name for row in these], count),
            text=text if count > 1 else first.problem or text,
            urgent=state in _URGENT,
            reason=reason,
            since=_began(these),
            until=min(ends) if ends and state is node_states.State.LATE else None,
            follows=consequences.of(reason),
            command=first.next_step,
            link=f"/nodes/{urls.quote(first.name, safe='')}" if count == 1 else f"/nodes?state={state}",
        )


def _standing(read: node_states.Objects | node_states.Standing, now: datetime.datetime) -> node_states.Standing:
    return read if isinstance(read, node_states.Standing) else node_states.standing(read, now)


def _began(rows: Sequence[node_states.Row]) -> datetime.datetime | None:
    """When the first of these, all in one state, came into it; None: nobody wrote that down."""
    instants = [_since(row) for row in rows]
    return min((each for each in instants if each is not None), default=None)


def _since(row: node_states.Row) -> datetime.datetime | None:
    if row.state is node_states.State.SILENT:
        # One that never registered was not seen at all: its certificate says since when it could be.
        return row.seen or (None if row.certificate is None else row.certificate.issued_at)
    if row.state is node_states.State.EXPIRED and row.certificate is not None:
        return row.certificate.not_after
    return row.renewal[1] if row.state is node_states.State.LATE and row.renewal is not None else None


def _of_requests(each: check.Check, read: facts.Requests) -> Sentence:
    waiting = [one for one in read.documents if members.is_open(one)]
    names = [jsonpath.text(one, "metadata", "name") for one in waiting]
    why = read.explanations.get(names[0]) if len(names) == 1 else None
    created = [ages.instant(jsonpath.text(one, "metadata", "creationTimestamp")) for one in waiting]
    return Sentence(
        about=_several("request", names),
        text=each.sentence if each.reason == _STUCK else _why(names, why),
        urgent=each.verdict is check.Verdict.FAILED,
        reason=each.reason,
        since=min((one for one in created if one is not None), default=None),
        follows=consequences.of(each.reason),
        command=each.hint,
        link=f"/requests/{urls.quote(names[0], safe='')}" if len(names) == 1 else "/requests",
    )


def _why(names: Sequence[str], why: request_explanation.Explanation | None) -> str:
    """Which ones wait, and of one alone which checks it fails; what was compared stands on its page."""
    if len(names) > 1:
        return f"they wait for somebody: {check.several(names)}"
    failed = [] if why is None else [each.name for each in why.checks if not each.passed]
    return f"it waits for somebody; it fails: {check.several(failed)}" if failed else "it waits for somebody"


def _of_joins(joins: Iterable[join_failures.Failed], now: datetime.datetime) -> Iterator[Sentence]:
    """One for each credential and reason (3); a request that waits is told of as a request."""
    recent = [each for each in joins if now - each.last <= RECENT and not each.request]
    rows = sorted(recent, key=_credential)
    for (known, token, credential, reason), group in itertools.groupby(rows, key=_credential):
        these = list(group)
        times = sum(each.count for each in these)
        sources = list(dict.fromkeys(each.source for each in these if each.source))
        wheres = f" from {check.several(sources)}" if sources else ""
        yield Sentence(
            about=_CREDENTIALS.get(credential)
            or (f"Token {token}" if known and token else "A token that is not there"),
            text=f"was refused {times} time{'' if times == 1 else 's'}{wheres}",
            urgent=False,
            reason=reason,
            since=min(each.first or each.last for each in these),
            follows="Whoever has it does not join with it.",
            command=these[0].change,
            link=f"/tokens/{urls.quote(token, safe='')}" if known and token else "/tokens",
        )


_CREDENTIALS: Final = {
    failed_joins.CERTIFICATE: "A certificate for bootstrapping",
    failed_joins.ACCOUNT: "A token of the account node-bootstrapper",
}


def _credential(each: join_failures.Failed) -> tuple[bool, str, str, str]:
    return each.known, each.token, each.credential, each.reason


def _several(what: str, names: Sequence[str], count: int = 0) -> str:
    # 5. few names
    count = max(len(names), count)
    return f"{what} {names[0]}" if count == 1 else f"{count:,} {what}s"
