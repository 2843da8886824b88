# SPDX-License-Identifier: Apache-2.0
"""Every node in one line: how its certificate stands, when it was last seen, how it came, and what is wrong with it. It reads nothing.

1. A certificate is the newest client certificate of the node in the ledger. It is renewed when 70 to 90 % of its lifetime have passed; after
   that it is late.
2. A node is seen by its Lease. One that renews nothing, or has not registered, is silent.
3. How it came is told by the newest entry that is no renewal: by a token, by a Machine, by hand.
4. The states are in the order in which they need somebody, the first ones first.
5. What could not be read is no trouble of a node: without Leases none is silent, without a ledger none is unrecorded.

| state | what it means | who acts |
|---|---|---|
| expired | its certificate is over | whoever has the machine, and soon: it cannot ask for the next one by itself for ever |
| late | its certificate should have been renewed by now | whoever has the machine, before the end |
| waiting | somebody asks for its first certificate, and nobody has decided | who approves requests |
| recovering | it asks with its expired certificate for the next one, and nobody has decided | who approves requests, where it is not soon |
| silent | its certificate is good, and it is not seen | whoever has the machine |
| unrecorded | there is a Node, and the ledger has no certificate of it | nobody, where another signer is meant to have issued it |
| revoked | a Revocation refuses it, or its newest certificate | nobody |
| good | none of these | nobody |
"""

from __future__ import annotations

import collections
import datetime
import enum
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import durations, jsonpath, objects, signer_names
from handfast.api.printing import ages
from handfast.pki import renewal
from handfast.rules import revocation, user_names
from handfast.rules.certificates import kubelet
from handfast.rules.ledger import entries
from handfast.rules.nodes import claim, liveness, serving

_DECIDED: Final = frozenset({"Approved", "Denied", "Failed"})


class State(enum.StrEnum):
    """How a node stands; those that need somebody first (4)."""

    EXPIRED = "expired"
    LATE = "late"
    WAITING = "waiting"
    RECOVERING = "recovering"
    SILENT = "silent"
    UNRECORDED = "unrecorded"
    REVOKED = "revoked"
    GOOD = "good"


ORDER: Final = tuple(State)
# The states in which nobody has to do anything.
CALM: Final = frozenset({State.UNRECORDED, State.REVOKED, State.GOOD})
# A state, what is wrong, and what to do about it.
Judged = tuple[State, str, str]
NO_LEDGER: Final = "this server has no ledger, so that nobody knows when the certificates of its nodes end"
_GOOD: Final = (State.GOOD, "", "")
_ON_THE_MACHINE: Final = "on the machine: handfast node status"


class Request(msgspec.Struct, frozen=True):
    """A request for a node's client certificate that nobody has decided, and what it waits for, if something says so."""

    name: str
    requester: str
    created: datetime.datetime | None
    why: str


class Known(msgspec.Struct):
    """What there is of one node."""

    node: Mapping[str, Any] | None = None
    lease: Mapping[str, Any] | None = None
    issued: list[entries.Entry] = msgspec.field(default_factory=list)
    requests: list[Request] = msgspec.field(default_factory=list)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What one node is judged by: the newest of its certificates, and its Lease as it was seen."""

    registered: bool = False
    pulse: liveness.Pulse | None = None
    newest: entries.Entry | None = None
    came_by: str = ""
    requests: Sequence[Request] = ()
    revoked: revocation.Revocation | None = None
    # 5. whether Leases, and the ledger, could be read
    leases_read: bool = True
    ledger_read: bool = True


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as it is shown."""

    name: str
    state: State
    certificate: entries.Entry | None
    # 1. when it is renewed: from, until
    renewal: tuple[datetime.datetime, datetime.datetime] | None
    seen: datetime.datetime | None
    came_by: str
    revoked_by: str
    problem: str
    next_step: str


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """What the API has about nodes. None: it could not be read (5)."""

    nodes: Sequence[Mapping[str, Any]]
    leases: Sequence[Mapping[str, Any]] | None
    issued: Sequence[entries.Entry] | None
    # The certificates that nodes serve with.
    serving: Sequence[entries.Entry] | None
    requests: Sequence[objects.Document]
    revocations: revocation.Index


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes together: how many are in each state, and those that need somebody, the most urgent first; of very many in one state, some."""

    counts: Mapping[State, int]
    needing: Sequence[Row]
    # Of the certificates that they serve with.
    serving: serving.Standing = serving.Standing()


def standing(read: Objects, now: datetime.datetime) -> Standing:
    """How all of them stand."""
    shown = rows(read, now)
    counts = collections.Counter(row.state for row in shown)
    return Standing(
        counts={state: counts[state] for state in ORDER},
        needing=[row for row in shown if row.state not in CALM],
        serving=served(read, now),
    )


def served(read: Objects, now: datetime.datetime) -> serving.Standing:
    """How their serving certificates stand: nothing of the nodes is judged but whether they are revoked."""
    known = gather(read) if len(read.revocations) else {}
    revoked = {name for name, one in known.items() if _revocation(name, _newest(one), read, now) is not None}
    return serving.standing(read.nodes, read.serving, revoked, now)


def gather(read: Objects) -> dict[str, Known]:
    """What there is of each node, by its name. A request that cannot be read is no node's."""
    known: dict[str, Known] = {}
    for node in read.nodes:
        _of(known, jsonpath.text(node, "metadata", "name")).node = node
    for entry in read.issued or ():
        if name := node_of(entry):
            _of(known, name).issued.append(entry)
    for document in read.requests:
        if request := waiting(document):
            _of(known, request[0]).requests.append(request[1])
    for lease in read.leases or ():
        # The Lease of a name that nothing else knows is left over.
        if (one := known.get(jsonpath.text(lease, "metadata", "name"))) is not None:
            one.lease = lease
    return known


def _of(known: dict[str, Known], name: str) -> Known:
    return known.setdefault(name, Known())


def node_of(entry: entries.Entry) -> str:
    """The node whose client certificate this is; empty: it is none."""
    return serving.node_of(entry, signer_names.KUBELET_CLIENT)


def waiting(document: objects.Document) -> tuple[str, Request] | None:
    """The node, and the request, where it is one for a node's client certificate that nobody has decided."""
    conditions = jsonpath.mappings(document, "status", "conditions")
    if jsonpath.text(document, "spec", "signerName") != signer_names.KUBELET_CLIENT:
        return None
    if any(each.get("type") in _DECIDED for each in conditions) or jsonpath.text(document, "status", "certificate"):
        return None
    try:
        facts = kubelet.read(document)
    except errors.Refused:
        return None
    if not facts.node_name:
        return None
    why = next((jsonpath.text(each, "message") for each in conditions if each.get("type") == claim.WAITING), "")
    meta = jsonpath.mapping(document, "metadata")
    request = Request(jsonpath.text(meta, "name"), facts.username, ages.instant(meta.get("creationTimestamp")), why)
    return facts.node_name, request


def rows(read: Objects, now: datetime.datetime) -> list[Row]:
    """Every node, those that need somebody first (4); then by the end of the certificate."""
    known = gather(read)
    shown = [_row(name, one, read, now) for name, one in known.items()]
    # Certificates of machines that are gone for good are history, not nodes.
    present = [row for row, one in zip(shown, known.values(), strict=True) if _is_present(row, one, now)]
    return sorted(present, key=_urgency)


def _is_present(row: Row, one: Known, now: datetime.datetime) -> bool:
    certificate = row.certificate
    return one.node is not None or bool(one.requests) or (certificate is not None and now < certificate.not_after)


def _urgency(row: Row) -> tuple[int, datetime.datetime, str]:
    end = row.certificate.not_after if row.certificate else datetime.datetime.max.replace(tzinfo=datetime.UTC)
    return ORDER.index(row.state), end, row.name


def _row(name: str, one: Known, read: Objects, now: datetime.datetime) -> Row:
    newest = _newest(one)
    facts = Facts(
        registered=one.node is not None,
        pulse=liveness.seen(one.lease, None, 0.0, beat=False),
        newest=newest,
        came_by=came_by(one.issued),
        requests=one.requests,
        revoked=_revocation(name, newest, read, now),
        leases_read=read.leases is not None,
        ledger_read=read.issued is not None,
    )
    return judge(name, facts, now)


def _newest(one: Known) -> entries.Entry | None:
    return max(one.issued, key=lambda entry: entry.issued_at, default=None)


def _revocation(
    name: str, newest: entries.Entry | None, read: Objects, now: datetime.datetime
) -> revocation.Revocation | None:
    """What refuses a node, as itself or with its newest certificate."""
    serial, key = ("", "") if newest is None else (newest.serial, newest.key_fingerprint)
    return read.revocations.of_node(name, now, serial=serial, key=key)


def judge(name: str, facts: Facts, now: datetime.datetime) -> Row:
    """One node, as it stands at this instant."""
    newest = facts.newest
    state, problem, step = _of_someone(name, facts) or _of_certificate(newest, now) or _of_lease(name, facts, now)
    # 5. what could not be read
    if (state is State.UNRECORDED and not facts.ledger_read) or (state is State.SILENT and not facts.leases_read):
        state, problem, step = _GOOD
    return Row(
        name=name,
        state=state,
        certificate=newest,
        renewal=None if newest is None else window(newest),
        seen=None if facts.pulse is None else facts.pulse.renewed,
        came_by=facts.came_by,
        revoked_by="" if facts.revoked is None else facts.revoked.name,
        problem=problem,
        next_step=step,
    )


def window(entry: entries.Entry) -> tuple[datetime.datetime, datetime.datetime]:
    """When a certificate is renewed: from, until (1)."""
    start = renewal.deadline(entry.issued_at, entry.not_after, 0.0)
    return start, renewal.deadline(entry.issued_at, entry.not_after, renewal.LATEST)


def _of_someone(name: str, facts: Facts) -> Judged | None:
    """What people have decided of it, or have to decide."""
    revoked = facts.revoked
    if revoked is not None:
        by_name = user_names.node_user(name) in {text for kind, text in revoked.targets() if kind == "user"}
        undo = f"handfast node revoke {shlex.quote(name)} --undo"
        # One of its certificate alone lets it join again, with another key.
        step = undo if by_name else f"if that was a mistake: kubectl delete revocation {shlex.quote(revoked.name)}"
        return State.REVOKED, f"Revocation {revoked.name}: {revoked.reason}", step
    if not facts.requests:
        return None
    recovers = any(each.requester.startswith(user_names.NODE_RECOVERY_PREFIX) for each in facts.requests)
    return (State.RECOVERING if recovers else State.WAITING, *_of_requests(facts.requests))


def _of_certificate(newest: entries.Entry | None, now: datetime.datetime) -> Judged | None:
    """What is wrong with its certificate (1)."""
    if newest is None:
        return State.UNRECORDED, "the ledger has no certificate of it", ""
    if now >= newest.not_after:
        ended = durations.short(now - newest.not_after)
        return State.EXPIRED, f"its certificate ended {ended} ago", _ON_THE_MACHINE
    due = window(newest)[1]
    if now >= due:
        return State.LATE, f"its renewal is {durations.short(now - due)} late", _ON_THE_MACHINE
    return None


def _of_lease(name: str, facts: Facts, now: datetime.datetime) -> Judged:
    """Whether it is seen (2)."""
    pulse = facts.pulse
    if not facts.registered:
        gone = f"if it is gone for good: handfast node revoke {shlex.quote(name)}"
        return (
            State.SILENT,
            "it has a certificate, and has not registered",
            f"on the machine: handfast node run; {gone}",
        )
    if pulse is None:
        return State.SILENT, "it has never renewed its Lease", _ON_THE_MACHINE
    if pulse.left(now, 0.0) <= 0:
        ago = durations.short(now - pulse.renewed)
        return State.SILENT, f"its Lease was renewed {ago} ago", _ON_THE_MACHINE
    return _GOOD


def _of_requests(requests: Sequence[Request]) -> tuple[str, str]:
    first = min(requests, key=lambda each: (each.created is None, each.created, each.name))
    more = f", and {len(requests) - 1} more" if len(requests) > 1 else ""
    why = first.why or f"{first.requester} asks for its certificate, and nobody has decided"
    # Whoever asks chooses the name, and somebody will paste the command.
    return f"{why} ({first.name}{more})", f"handfast csr explain {shlex.quote(first.name)}"


# How the word begins for a node that came by a token; its id follows.
BY_TOKEN: Final = "token "  # noqa: S105  a word, no password


def came_by(issued: Iterable[entries.Entry]) -> str:
    """How a node came in, by its entries in the ledger (3); empty: they do not tell."""
    joins = [entry for entry in issued if entry.rule not in {entries.RENEWAL, entries.SERVING}]
    newest = max(joins, key=lambda entry: entry.issued_at, default=None)
    if newest is None:
        return ""
    if newest.rule.startswith(entries.MACHINE_JOIN):
        _, _, machine = newest.rule.partition(": ")
        return f"Machine {machine}" if machine else "machine-approver"
    if newest.rule.startswith(entries.BY_HAND):
        return "by hand"
    if newest.authenticated_by == entries.BOOTSTRAP_TOKEN:
        return f"{BY_TOKEN}{newest.token_id}"
    return "recovery" if newest.rule == entries.RECOVERY else newest.authenticated_by
