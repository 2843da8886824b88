# SPDX-License-Identifier: Apache-2.0
r"""The verdict on a bootstrap token that somebody presents, by the Secret that was found under its id.

It looks nothing up and asks no clock. A token's secret half never stands in a verdict, and is compared only in constant
time. `verdict` asks what Kubernetes asks, in its order, and names the first check that fails:

 1. The text is `[a-z0-9]{6}\.[a-z0-9]{16}` (`parse`); another text is no bootstrap token. The caller does this one.
 2. There is a Secret `kube-system/bootstrap-token-<id>`. The caller looks it up by that name, so the name is not
    compared again; where there is none it gives the document of `decoy`, and says so.
 3. The Secret is not being deleted.
 4. It is a document of type `bootstrap.kubernetes.io/token` with data, and the data is base64.
 5. `token-secret` is the secret half.
 6. `token-id` is the id.
 7. `expiration` is absent or empty, or an instant that is still to come. What cannot be read has expired.
 8. `usage-bootstrap-authentication` is `true`, in these letters.
 9. Every group of `auth-extra-groups` is well formed. `auth-groups` is the same key by its first name; where both
    stand and differ, nobody can say which was meant.
10. Then the user is `system:bootstrap:<id>`, in those groups and in `system:bootstrappers`.

All checks run, whichever fails: how long the answer takes does not tell an unknown id from a wrong secret.

| who | holding | tries | stopped by | shown in tests/unit/bootstrap/test_token_verdict.py |
|---|---|---|---|---|
| anyone | an id from cluster-info | guess the secret letter by letter | 5: constant time | test_secrets_are_compared_in_constant_time |
| anyone | nothing | learn which ids exist from the time taken | all checks run | test_an_unknown_id_takes_the_steps_of_a_wrong_secret |
| anyone | this source | present the decoy's own secret | 2 | test_the_decoy_opens_nothing |
| a reader of logs | verdicts | find a secret in one | nothing prints it | test_no_repr_shows_a_secret |
| a former holder | an expired token | join again | 7 | test_the_first_check_that_fails_is_named |
| a holder | a token for signing only | log in with it | 8 | test_the_first_check_that_fails_is_named |
| who writes token Secrets | a group such as `system:masters` | make administrators | 9: one prefix, anchored | test_group_is_refused |
| who writes token Secrets | a Secret of another type, or with broken data | crash the server | 4 | test_a_broken_document_is_rejected |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from handfast import errors
from handfast.api import objects
from handfast.bootstrap import tokens


@dataclass(frozen=True, slots=True)
class _Verdict:
    def __bool__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} has no truth value: match on its type")


@dataclass(frozen=True, slots=True)
class Accepted(_Verdict):
    """The token is good for this user until then (None: it has no end)."""

    user: str
    groups: tuple[str, ...]
    until: datetime.datetime | None


@dataclass(frozen=True, slots=True)
class Rejected(_Verdict):
    """The number of the first check that failed, a stable word for it, and a sentence without the secret."""

    check: int
    reason: str
    sentence: str


def decoy() -> objects.Document:
    """The Secret that is judged where there is none: like any other, and never accepted, see check 2."""
    token = tokens.Token("0" * 6, "0" * 16)
    group = f"{tokens.DEFAULT_GROUP}:decoy"
    until = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)
    return tokens.secret_document(token, expiration=until, usages=tokens.USAGES, groups=[group])


class Evidence(msgspec.Struct, frozen=True):
    """What the checks see."""

    secret: tokens.TokenSecret
    broken: tokens.Finding | None
    presented: tokens.Token
    now: datetime.datetime
    known: bool


def _check_secret(seen: Evidence) -> tokens.Finding | None:
    same = tokens.same(seen.secret.token.secret, seen.presented.secret)
    return None if same else ("WrongTokenSecret", f"{tokens.KEY_SECRET}: not the one presented")


def _check_id(seen: Evidence) -> tokens.Finding | None:
    same = tokens.same(seen.secret.token.id, seen.presented.id)
    return None if same else ("WrongTokenID", f"{tokens.KEY_ID}: not the one in the Secret's name")


def _check_expiration(seen: Evidence) -> tokens.Finding | None:
    try:
        until = tokens.parse_expiration(seen.secret.expiration)
    except errors.Refused as refused:
        return refused.reason, refused.message
    if until is not None and until <= seen.now:
        return "TokenExpired", f"{tokens.KEY_EXPIRATION}: the token expired at {until.isoformat()}"
    return None


def _check_groups(seen: Evidence) -> tokens.Finding | None:
    try:
        tokens.parse_groups(seen.secret.extra_groups, seen.secret.old_groups)
    except errors.Refused as refused:
        return refused.reason, refused.message
    return None


_NOT_FOR_AUTHENTICATION = ("NotForAuthentication", f'{tokens.USAGE_PREFIX}{tokens.AUTHENTICATION}: must be "true"')
Check = Callable[[Evidence], tokens.Finding | None]
# Whoever is refused by a later one has shown the right secret.
SECRET_CHECK: Final = 5
CHECKS: tuple[tuple[int, Check], ...] = (
    (2, lambda seen: None if seen.known else ("UnknownToken", "there is no such token")),
    (3, lambda seen: ("TokenBeingDeleted", "its Secret is being deleted") if seen.secret.deleting else None),
    (4, lambda seen: seen.broken),
    (SECRET_CHECK, _check_secret),
    (6, _check_id),
    (7, _check_expiration),
    (8, lambda seen: None if tokens.AUTHENTICATION in seen.secret.usages else _NOT_FOR_AUTHENTICATION),
    (9, _check_groups),
)


def verdict(
    document: object, presented: tokens.Token, now: datetime.datetime, *, known: bool = True
) -> Accepted | Rejected:
    """Judge a token by the Secret found under its id; where there is none: by the decoy, with `known` false."""
    secret, broken = tokens.look(document)
    seen = Evidence(secret, broken, presented, now, known)
    # Every check runs before any is looked at: see above.
    findings = [(number, check(seen)) for number, check in CHECKS]
    for number, finding in findings:
        if finding is not None:
            return Rejected(number, *finding)
    # 10. its user and groups
    groups = tokens.parse_groups(secret.extra_groups, secret.old_groups)
    return Accepted(tokens.USER_PREFIX + presented.id, groups, tokens.parse_expiration(secret.expiration))
