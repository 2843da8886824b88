# SPDX-License-Identifier: Apache-2.0
"""The page of bootstrap tokens: what each is good for, who used it and who was refused.

It never sees the secret half of a token: what it is given has none. So whether that half is well formed is not said here, but by
`handfast token explain`. What a form for a new one says is read in `token_forms`.

1. A token that needs a look comes first: one whose Secret cannot be read, one that is still tried after its end, one that never ends. Then the
   others by their end, the nearest first; those that are over come last.
2. A refusal belongs to the token whose id it names. Those with ids that no token has are told together: they may be made up.

| who | holding | tries | stopped by | shown in tests/unit/rules/console/test_tokens.py |
|---|---|---|---|---|
| a reader of a page, a stream or a log | what is shown | find the secret half | no type here has a field for it | test_nothing_here_has_a_place_for_a_secret |
| who may write Secrets | limits that cannot be read | have a token look harmless | 1: it is told | test_limits_that_cannot_be_read_are_told |
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from handfast import errors
from handfast.api import jsonpath, objects, signing_requests
from handfast.api.printing import ages
from handfast.bootstrap import token_limits, token_secrets, tokens
from handfast.rules.console import moments, requests
from handfast.rules.nodes import join_failures
from handfast.rules.tokens import maker

UNREADABLE: Final = "unreadable"
DELETING: Final = "being deleted"
EXPIRED: Final = "expired"
USED_UP: Final = "used up"
ENDLESS: Final = "never ends"
GOOD: Final = "good"
STATES: Final = (UNREADABLE, ENDLESS, GOOD, USED_UP, EXPIRED, DELETING)
_OVER: Final = frozenset({USED_UP, EXPIRED, DELETING})
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST: Final = datetime.datetime.max.replace(tzinfo=datetime.UTC)
# Stands where the half would be that nobody here knows: it has the form of one.
_UNKNOWN: Final = base64.b64encode(b"0" * 16).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Joins that were refused with one token."""

    count: int = 0
    last: datetime.datetime | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One token, without its secret half. `fault` is what is wrong with its Secret, `maker` who made it; what is not known is empty."""

    id: str
    state: str
    description: str = ""
    created: datetime.datetime | None = None
    expires: datetime.datetime | None = None
    usages: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    limits: token_limits.Limits = field(default_factory=token_limits.Limits)
    used: int = 0
    uses: tuple[token_limits.Use, ...] = ()
    maker: str = ""
    fault: str = ""
    refusals: Refusals = field(default_factory=Refusals)

    @property
    def joins(self) -> bool:
        """Whether it is one that machines log in with."""
        return tokens.AUTHENTICATION in self.usages

    @property
    def needs_a_look(self) -> bool:
        """Whether somebody should know of it (1)."""
        return self.state in {UNREADABLE, ENDLESS} or self.refusals.count > 0

    def at(self, now: datetime.datetime) -> Row:
        """As it is at an instant: a token expires without anybody's doing."""
        if self.state in {UNREADABLE, DELETING}:
            return self
        if self.expires is not None and self.expires <= now:
            return dataclasses.replace(self, state=EXPIRED)
        if self.limits.max_uses is not None and self.used >= self.limits.max_uses:
            return dataclasses.replace(self, state=USED_UP)
        return dataclasses.replace(self, state=ENDLESS) if self.expires is None and self.joins else self

    def refused(self, refusals: Refusals | None) -> Row:
        """With the refusals that name it."""
        return self if refusals is None else dataclasses.replace(self, refusals=refusals)

    @property
    def text(self) -> str:
        """What a filter looks at."""
        nodes = (each.node for each in self.uses)
        return " ".join(
            (self.id, f"state:{self.state}", self.description, self.maker, *self.groups, *self.limits.nodes, *nodes)
        )

    @property
    def used_words(self) -> str:
        """`2 of 5`, or `2`."""
        return f"{self.used}" if self.limits.max_uses is None else f"{self.used} of {self.limits.max_uses}"

    @property
    def bounds(self) -> tuple[tuple[str, str], ...]:
        """What it is limited to, in words: which limit, and to what."""
        wide = (
            ("nodes", ", ".join(self.limits.nodes)),
            ("from", ", ".join(map(str, self.limits.cidrs))),
        )
        return tuple((name, text) for name, text in wide if text)


COLUMNS: Final[Mapping[str, Callable[[Row], object]]] = {
    "id": lambda row: row.id,
    "state": lambda row: STATES.index(row.state),
    "created": lambda row: row.created or _EPOCH,
    "expires": lambda row: row.expires or _LAST,
    "used": lambda row: row.used,
    "refused": lambda row: row.refusals.count,
}


def read(document: objects.Document) -> Row:
    """What the list says of a token's Secret that has no secret half in it, at no time; Refused: its name is none of a token."""
    metadata = objects.metadata(document)
    named = {**document, "data": {**jsonpath.mapping(document, "data"), tokens.KEY_SECRET: _UNKNOWN}}
    secret = tokens.look(named)[0]
    bare = Row(
        id=tokens.parse_secret_name(str(metadata.get("name", ""))),
        state=UNREADABLE,
        description=secret.description,
        created=ages.instant(metadata.get("creationTimestamp")),
        usages=secret.usages,
        maker=maker.of(document),
    )
    fault = token_secrets.fault(named)
    if fault is not None:
        return dataclasses.replace(bare, fault=fault.sentence)
    try:
        record, uses = token_limits.record(document), token_limits.uses(document)
    except errors.Refused as refused:
        return dataclasses.replace(bare, fault=f"nobody is let in: {refused.message}")
    return dataclasses.replace(
        bare,
        state=DELETING if secret.deleting else GOOD,
        expires=tokens.parse_expiration(secret.expiration),
        groups=tokens.parse_groups(secret.extra_groups, secret.old_groups),
        limits=record.limits,
        used=record.count,
        uses=tuple(uses),
    )


# Of a request that was made with a token: what became of it, as a refusal's reason. What was approved or issued is none.
_UNDECIDED: Final = {
    requests.PENDING: join_failures.WAITING,
    requests.DENIED: signing_requests.DENIED,
    requests.FAILED: signing_requests.FAILED,
}


def of_requests(rows: Iterable[requests.Row]) -> Iterator[join_failures.Failed]:
    """The requests that were made with a token and led to nothing so far."""
    for each in rows:
        reason, last = _UNDECIDED.get(each.state), each.since
        if reason is not None and last is not None and each.token:
            yield join_failures.Failed(
                last=last, first=each.created, reason=reason, token=each.token, node=each.node, request=each.name
            )


def refusals_by_token(failures: Iterable[join_failures.Failed]) -> dict[str, Refusals]:
    """Joins that were refused, by the token that they name; those with ids that no token has stand under the empty one (2).

    What was refused to another credential is nobody's of these.
    """
    by_token: dict[str, list[join_failures.Failed]] = {}
    for each in failures:
        if each.credential:
            continue
        by_token.setdefault(each.token if each.known else "", []).append(each)
    return {token: _together(several) for token, several in by_token.items()}


def _together(several: Sequence[join_failures.Failed]) -> Refusals:
    newest = sorted(several, key=lambda each: each.last, reverse=True)
    return Refusals(
        count=sum(each.count for each in newest),
        last=newest[0].last,
        reasons=tuple(dict.fromkeys(each.reason for each in newest)),
    )


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Those that need a look first (1)."""
    return sorted(rows, key=_urgency)


def _urgency(each: Row) -> tuple[int, float, str]:
    # 1. which need a look, then by their end, then those that are over
    over = each.state in _OVER
    looks = each.needs_a_look
    end = (each.expires or _LAST).timestamp()
    return (0 if looks and not over else 1 if looks else 3 if over else 2), -end if over else end, each.id


def title(rows: Sequence[Row], *, sure: bool = True) -> str:
    """How many there are that let somebody in. Not `sure`: something is in the way of reading them, so that there may be others."""
    good = sum(each.state not in _OVER and each.state != UNREADABLE and each.joins for each in rows)
    if not good and not sure:
        return "Whether a token lets a machine in is not known"
    if not good:
        return "No token lets a machine in"
    return "1 token lets machines in" if good == 1 else f"{good} tokens let machines in"


def sentence(rows: Sequence[Row], now: datetime.datetime, *, sure: bool = True) -> str:
    """What else there is to know of them, in one line."""
    said = [
        f"{count} {word}" for word in STATES if word != GOOD and (count := sum(each.state == word for each in rows))
    ]
    ends = [each.expires for each in rows if each.state == GOOD and each.expires is not None]
    if ends:
        said.insert(0, f"the next one ends in {moments.length(min(ends) - now)}")
    text = "; ".join(said) or ("create one to let a machine join" if sure else "the tokens could not be read")
    return f"{text[0].upper()}{text[1:]}."
