# SPDX-License-Identifier: Apache-2.0
"""The page of certificate requests: rows in order, what a request asks for, and what an operator types to decide it.

Why a request stands where it stands is `rules.request_explanation`'s; who may decide it is the API server's. It draws nothing.

1. Those that wait come first, and the one that waits longest before the others. Then those that were approved and have no certificate,
   those that failed, those that were denied, and those that have their certificate; the newest of each first.
2. To approve or deny, the operator types a word that names what is let in: the node's name, where the request is for one. Where that
   could not be typed, or would look like another, it is the request's name; and where that could not be, the beginning of its UID.
3. A denial says why, in one line: whoever asked for the certificate reads it.

| who | holding | tries | stopped by | shown in tests/unit/rules/console/test_requests.py |
|---|---|---|---|---|
| a holder of a token | a request for the name of no node | have something else confirmed than is read | 2 | test_what_cannot_be_typed_is_confirmed_by_another_word |
| an operator in a hurry | two requests that look the same | approve the wrong one | 2 | test_another_word_confirms_nothing |
"""

from __future__ import annotations

import base64
import collections
import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.api import objects, signer_names, signing_requests
from handfast.api.printing import ages
from handfast.pki import certificates, pem, pins
from handfast.rules import request_explanation
from handfast.rules.certificates import kubelet
from handfast.rules.console import moments
from handfast.rules.machines import source_address
from handfast.rules.nodes import claim
from handfast.rules.tokens import use

PENDING: Final = "pending"
APPROVED: Final = "approved"
FAILED: Final = "failed"
DENIED: Final = "denied"
ISSUED: Final = "issued"
# 1. in this order
STATES: Final = (PENDING, APPROVED, FAILED, DENIED, ISSUED)
_PURPOSES: Final = {
    signer_names.KUBELET_CLIENT: "a node's client certificate",
    signer_names.KUBELET_SERVING: "a node's serving certificate",
    signer_names.KUBE_APISERVER_CLIENT: "a user's certificate",
}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LONGEST_WHY: Final = 256
_UID_LETTERS: Final = 8
# Seconds; what asks for more asks for what no calendar has.
_LONGEST_LIFE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request. `since` is when it came to be in its state, `said` what was said of that; what is not known is empty."""

    name: str
    uid: str
    state: str
    purpose: str
    signer: str
    requester: str
    node: str = ""
    token: str = ""
    created: datetime.datetime | None = None
    since: datetime.datetime | None = None
    said: str = ""

    @property
    def text(self) -> str:
        """What a filter looks at."""
        token = f"token:{self.token}" if self.token else ""
        return " ".join((self.name, f"state:{self.state}", self.node, self.requester, self.signer, token, self.said))

    @property
    def word(self) -> str:
        """What the operator types to decide it (2)."""
        if self.node and objects.dns_subdomain(self.node) is None:
            return self.node
        if self.name.isascii() and self.name.isprintable() and " " not in self.name:
            return self.name
        return self.uid[:_UID_LETTERS]


# What rows may be sorted by.
COLUMNS: Final = {
    "name": lambda row: row.name,
    "state": lambda row: STATES.index(row.state),
    "node": lambda row: row.node,
    "requester": lambda row: row.requester,
    "created": lambda row: row.created or _EPOCH,
}


def row(request: signing_requests.Request) -> Row:
    """What the list says of a request, whatever somebody wrote into it."""
    state, condition = _state(request)
    created = ages.instant(request.metadata.creation_timestamp)
    said = "" if condition is None else ": ".join(filter(None, (condition.reason, condition.message)))
    since = None if condition is None else ages.instant(condition.last_transition_time or condition.last_update_time)
    return Row(
        name=request.metadata.name,
        uid=request.metadata.uid,
        state=state,
        purpose=_PURPOSES.get(request.spec.signer_name, request.spec.signer_name),
        signer=request.spec.signer_name,
        requester=request.spec.username,
        node=_node(request),
        token=use.token_id(request.spec.username) or "",
        created=created,
        since=since or created,
        said=said or (_fault(request) if state == PENDING else ""),
    )


def _state(request: signing_requests.Request) -> tuple[str, signing_requests.Condition | None]:
    """Its word, and the condition that says most of it."""
    for word, kind in ((DENIED, signing_requests.DENIED), (FAILED, signing_requests.FAILED)):
        if (condition := request.condition(kind)) is not None:
            return word, condition
    approved = request.condition(signing_requests.APPROVED)
    if request.status.certificate:
        return ISSUED, approved
    if approved is not None:
        return APPROVED, approved
    return PENDING, request.condition(claim.WAITING)


def _fault(request: signing_requests.Request) -> str:
    """The first check that a request fails by itself, whatever anybody may do: what depends on others, its own page asks for."""
    allowed = dict.fromkeys(kubelet.permissions(request.spec.signer_name), True)
    checks = request_explanation.explain(request, _EPOCH, answers=allowed, node_addresses=None).checks
    failed = (check for check in checks if not check.passed and check.name != kubelet.ADDRESSES)
    return next((f"{check.name}: {check.compared}" for check in failed), "")


def _node(request: signing_requests.Request) -> str:
    try:
        return kubelet.read(request.document()).node_name
    except errors.Refused:
        return ""


def ordered(rows: Iterable[Row]) -> list[Row]:
    """The most urgent first (1)."""
    return sorted(rows, key=_urgency)


def _urgency(each: Row) -> tuple[int, float, str]:
    # 1. who waits longest, and of what is decided the newest
    since = (each.since or _EPOCH).timestamp()
    return STATES.index(each.state), since if each.state == PENDING else -since, each.name


@dataclass(frozen=True, slots=True)
class Summary:
    """The head of the page: how many of each state, and in words."""

    counts: Mapping[str, int]
    title: str
    sentence: str


def summary(rows: Sequence[Row], now: datetime.datetime, *, sure: bool = True) -> Summary:
    """How many wait, and for how long. Not `sure`: something is in the way of reading them, so that there may be others."""
    found = collections.Counter(each.state for each in rows)
    counts = {state: found[state] for state in STATES}
    waiting = counts[PENDING]
    if not waiting and not sure:
        return Summary(counts, "Whether a request waits is not known", "The requests could not be read.")
    if not waiting:
        return Summary(counts, "No request waits", "What the rules approve by themselves never waits here.")
    oldest = min((each.created for each in rows if each.state == PENDING and each.created is not None), default=now)
    title = "1 request waits for somebody" if waiting == 1 else f"{waiting:,} requests wait for somebody"
    which = "It came" if waiting == 1 else "The oldest came"
    return Summary(
        counts, title, f"{which} {moments.relative(oldest, now)}; one that nobody decides is deleted after a day."
    )


# --- one request


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of what a request asks for. `mono`: it is a text as it was sent, not a sentence of ours."""

    name: str
    text: str
    mono: bool = True


def asked(request: signing_requests.Request) -> tuple[Fact, ...]:
    """What it asks for, and who asks; of a request that cannot be read only the latter."""
    spec = request.spec
    extra = {key: tuple(values or ()) for key, values in (spec.extra or {}).items()}
    lines = [
        Fact("asked by", spec.username),
        Fact("groups", ", ".join(spec.groups or ())),
        Fact("from", source_address.of(extra)),
        Fact("signer", spec.signer_name),
        Fact("usages", ", ".join(spec.usages or ())),
        Fact("lifetime", _lifetime(spec.expiration_seconds), mono=False),
    ]
    try:
        wanted = kubelet.read(request.document()).request
    except errors.Refused as refused:
        return (*_filled(lines), Fact("request", f"it cannot be read: {refused.message}", mono=False))
    subject = wanted.subject
    lines += [
        Fact("common name", subject.common_name),
        Fact("organizations", ", ".join(subject.organizations)),
        Fact("other attributes", ", ".join(f"{oid}={text}" for oid, text in subject.others)),
        Fact("alternative names", ", ".join(wanted.sans.texts())),
        Fact("key", str(pins.of_public_key(wanted.public_key_spki))),
    ]
    return tuple(_filled(lines))


def _filled(lines: Iterable[Fact]) -> list[Fact]:
    return [each for each in lines if each.text]


def _lifetime(seconds: int | None) -> str:
    if seconds is None:
        return ""
    return f"{moments.length(datetime.timedelta(seconds=min(seconds, _LONGEST_LIFE)))}, as asked for"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate that was issued on a request."""

    serial: str
    until: datetime.datetime


def issued(request: signing_requests.Request) -> Certificate | None:
    """The certificate of a request; None: it has none, or none that can be read."""
    try:
        ders = pem.certificates_from_pem(base64.b64decode(request.status.certificate or ""))
        leaf = certificates.read(ders[0])
    except (ValueError, IndexError, errors.Refused):
        return None
    return Certificate(leaf.serial, leaf.not_after)


_VERDICTS: Final = {
    request_explanation.ISSUED: "has its certificate",
    request_explanation.DENIED: "is denied",
    request_explanation.FAILED: "has failed",
    request_explanation.SIGNING: "is approved and waits for its signer",
    request_explanation.FAILING: "is approved and will fail",
    request_explanation.APPROVING: "will be approved by itself",
    request_explanation.PENDING: "waits for somebody",
}


def verdict(explanation: request_explanation.Explanation) -> str:
    """The verdict in words, to follow "this request"."""
    return _VERDICTS[explanation.verdict]


# --- deciding one


@dataclass(frozen=True, slots=True)
class Typed:
    """What an operator typed, and what is wrong with it, by field."""

    why: str
    wrong: Mapping[str, str]


def typed(form: Mapping[str, str], word: str, *, deny: bool) -> Typed:
    """What a form says: the word (2), and for a denial why (3)."""
    wrong: dict[str, str] = {}
    why = form.get("why", "").strip()
    # 2. what is let in, or kept out
    if form.get("word", "").strip() != word:
        wrong["word"] = f"type {word}, exactly as it stands there; nothing was done"
    # 3. a reason, in one line
    if deny and not why:
        wrong["why"] = "say why: whoever asked for the certificate reads it; nothing was done"
    elif len(why) > LONGEST_WHY:
        wrong["why"] = f"these are {len(why)} characters; at most {LONGEST_WHY} are allowed"
    elif not why.isprintable():
        wrong["why"] = "one line of characters that can be printed is allowed, and nothing else"
    return Typed(why, wrong)
