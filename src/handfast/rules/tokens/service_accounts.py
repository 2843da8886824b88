# SPDX-License-Identifier: Apache-2.0
"""Whether what a service account's token says still holds: its audience, its times, and the objects it was made for.

It verifies no signatures (`pki.jwt`) and looks nothing up: the caller brings verified claims, and finds objects. Which
tokens are made is decided by `tokens.requests`.

A bound token, whose signature is ours, counts when all of this holds:

1. Its claims have their shape (`tokens.claims`).
2. One of its audiences is wanted.
3. Now is not before `nbf` or `iat` nor after `exp`; clocks may differ by `LEEWAY`.
4. The ServiceAccount exists with the UID of the claim, and was not deleted more than `LEEWAY` ago.
5. So do the Secret, the Pod, or the Node, that the token is bound to. The Node of a Pod's token only tells where the
   Pod was: the Pod's end ends the token.

A legacy token counts when 1 holds for its claims, API audiences are wanted, and

6. its Secret exists, is not being deleted, and holds this very token;
7. its ServiceAccount exists with the UID of the claim, and is not being deleted;
8. the Secret is not marked as invalid.

| who            | holding                    | tries                               | check | shown by (test_service_accounts.py)       |
| -------------- | -------------------------- | ----------------------------------- | ----- | ----------------------------------------- |
| a pod's owner  | a token for another server | logs in here with it                | 2     | test_one_audience_at_least_is_wanted |
| a thief        | an old token               | uses it after its end               | 3     | test_a_token_counts_between_its_times_give_or_take_the_leeway |
| a former owner | a token of a deleted SA    | waits until the name is taken again | 4     | test_the_account_must_be_the_same         |
| a former pod   | its token                  | uses it after the pod's end         | 5     | test_bound_objects_must_be_the_same       |
| a former owner | a legacy token             | the Secret was refilled or marked   | 6, 8  | test_legacy_tokens                        |
"""

from __future__ import annotations

import datetime
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from handfast import errors
from handfast.rules.tokens import claims

LEEWAY = 60
# The type of a Secret that holds a token of its own.
LEGACY_TYPE = "kubernetes.io/service-account-token"
# Its annotations: whose token it is.
ACCOUNT_NAME = "kubernetes.io/service-account.name"
ACCOUNT_UID = "kubernetes.io/service-account.uid"
INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
LAST_USED = "kubernetes.io/legacy-token-last-used"
_INVALIDATED = "service account token has been invalidated"


class Stored(msgspec.Struct, frozen=True):
    """What there is of an object now; `deleted` is its deletionTimestamp."""

    uid: str
    deleted: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """What there is of the Secret of a legacy token."""

    token: bytes = field(repr=False)
    deleting: bool = False
    invalid_since: str = ""


class StoredPod(msgspec.Struct, frozen=True):
    """What there is of a Pod that a token is to be bound to."""

    uid: str
    account: str
    node: str = ""


# kind, namespace, name -> what there is now
Find = Callable[[str, str, str], Stored | None]


def judge_audiences(audiences: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of the wanted audiences that the token is for: at least one."""
    # 2. an audience that is wanted
    both = tuple(audience for audience in wanted if audience in audiences)
    if not both:
        text = f"token audiences {_quoted(audiences)} is invalid for the target audiences {_quoted(wanted)}"
        raise _refused("WrongAudience", text)
    return both


def judge_times(bound: claims.Bound, now: datetime.datetime) -> None:
    # 3. in force; in the order of go-jose, which the texts are compared with
    seconds = now.timestamp()
    if seconds + LEEWAY < bound.not_before:
        raise _refused("NotYetValid", "service account token is not valid yet")
    if seconds - LEEWAY > bound.expires:
        raise _refused("Expired", "service account token has expired")
    if seconds + LEEWAY < bound.issued_at:
        raise _refused("NotYetValid", "service account token is issued in the future")


def judge_bound(bound: claims.Bound, find: Find, now: datetime.datetime) -> None:
    """That what the token was made for is still there."""
    # 4. the account is there, and the same
    namespace, account = bound.namespace, bound.account
    stored = find("ServiceAccount", namespace, account.name)
    if stored is None:
        raise _refused("AccountGone", f'serviceaccounts "{account.name}" not found')
    if stored.uid != account.uid:
        raise _refused("AccountReplaced", f"service account UID ({stored.uid}) does not match claim ({account.uid})")
    if _is_gone(stored, now):
        raise _refused("AccountGone", f"service account {namespace}/{account.name} has been deleted")
    # 5. so is what the token is bound to
    if bound.secret is not None:
        _judge_object("secret", bound.secret, find("Secret", namespace, bound.secret.name), now)
    if bound.pod is not None:
        _judge_object("pod", bound.pod, find("Pod", namespace, bound.pod.name), now)
    elif bound.node is not None:
        _judge_object("node", bound.node, find("Node", "", bound.node.name), now)


def _judge_object(kind: str, claimed: claims.Reference, stored: Stored | None, now: datetime.datetime) -> None:
    if stored is None:
        raise _refused("BoundObjectGone", _INVALIDATED)
    if stored.uid != claimed.uid:
        uids = f"{kind} UID ({stored.uid}) does not match service account {kind} ref claim ({claimed.uid})"
        raise _refused("BoundObjectReplaced", uids)
    if _is_gone(stored, now):
        raise _refused("BoundObjectGone", _INVALIDATED)


def _is_gone(stored: Stored, now: datetime.datetime) -> bool:
    return stored.deleted is not None and stored.deleted < now - datetime.timedelta(seconds=LEEWAY)


def judge_legacy(legacy: claims.Legacy, token: str, secret: StoredSecret | None, account: Stored | None) -> None:
    """That the Secret still holds this token, for the same account."""
    # 6. the Secret holds this very token
    if secret is None or secret.deleting:
        raise _refused("SecretGone", "Token has been invalidated")
    if not hmac.compare_digest(secret.token, token.encode()):
        raise _refused("TokenReplaced", "Token does not match server's copy")
    # 7. the account is there, and the same
    where = f"{legacy.namespace}/{legacy.account.name}"
    if account is None:
        raise _refused("AccountGone", f'serviceaccounts "{legacy.account.name}" not found')
    if account.deleted is not None:
        raise _refused("AccountGone", f"ServiceAccount {where} has been deleted")
    if account.uid != legacy.account.uid:
        uids = f"ServiceAccount UID ({account.uid}) does not match claim ({legacy.account.uid})"
        raise _refused("AccountReplaced", uids)
    # 8. not marked as invalid
    if secret.invalid_since:
        raise _refused(
            "MarkedInvalid",
            f"the token in secret {legacy.namespace}/{legacy.secret_name} for service account {where} has been marked "
            "invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the "
            f"'{INVALID_SINCE}' label from the secret to temporarily allow use of this token",
        )


def _quoted(words: Sequence[str]) -> str:
    """As Go prints a list of strings with %q."""
    return "[" + " ".join(json.dumps(word) for word in words) + "]"


def _refused(reason: str, message: str) -> errors.Refused:
    return errors.Refused(message, reason=reason)
