# SPDX-License-Identifier: Apache-2.0
"""What the claims of a service account's token say, whether they still hold, and what a TokenRequest may ask for.

It verifies no signatures (`pki.jwt`) and looks nothing up: the caller brings verified claims, and finds objects.

A bound token counts when all of this holds; of a token that carries no signature of ours nothing here was asked:

1. Its claims have their shape: `sub` and the names beside it agree, times are whole numbers of seconds, `exp` is there.
2. One of its audiences is wanted.
3. Now is not before `nbf` or `iat` nor after `exp`; clocks may differ by `LEEWAY`.
4. The ServiceAccount exists with the UID of the claim, and was not deleted more than `LEEWAY` ago.
5. So do the Secret, the Pod, or the Node, that the token is bound to. The Node of a Pod's token only tells where the
   Pod was: the Pod's end ends the token.

A legacy token counts when 1 holds for its claims, API audiences are wanted, and

6. its Secret exists, is not being deleted, and holds this very token;
7. its ServiceAccount exists with the UID of the claim, and is not being deleted;
8. the Secret is not marked as invalid.

A TokenRequest is granted when

9. name and namespace, where given, are those of the URL; the ServiceAccount exists, with the UID if one is given;
10. it asks for 10 minutes to 2^32 seconds; the server's maximum shortens that, and a warning tells;
11. the object to bind to is a Pod that runs as this ServiceAccount, a Secret or a Node; it exists, with the UID if one
    is given.

| who                | holding                    | tries                               | check | shown by (test_service_account_tokens.py) |
| ------------------ | -------------------------- | ----------------------------------- | ----- | ----------------------------------------- |
| a pod's owner      | a token for another server | logs in here with it                | 2     | test_audiences                            |
| a thief            | an old token               | uses it after its end               | 3     | test_times                                |
| a thief            | a token, broken claims     | `exp` as NaN, true, a text, 10^300  | 1     | test_claims_of_another_shape              |
| a former owner     | a token of a deleted SA    | waits until the name is taken again | 4     | test_the_account_must_be_the_same         |
| a former pod       | its token                  | uses it after the pod's end         | 5     | test_bound_objects_must_be_the_same       |
| a former owner     | a legacy token             | the Secret was refilled or marked   | 6, 8  | test_legacy_tokens                        |
| a holder of create | serviceaccounts/token      | a token that never ends             | 10    | test_lifetimes_asked_for                  |
| a node             | serviceaccounts/token      | binds to a Pod of another account   | 11    | test_pods_of_another_account              |
"""

from __future__ import annotations

import datetime
import hmac
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from handfast import errors
from handfast.api import objects, status
from handfast.api import validation_fields as fields
from handfast.rules import user_names

LEGACY_ISSUER = "kubernetes/serviceaccount"
LEEWAY = 60
DEFAULT_SECONDS = 3600
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
# What the ServiceAccount admission asks for on a Pod's behalf; such tokens live a year, and old ones are told of.
TRANSITION_SECONDS = 3607
EXTENDED_SECONDS = 365 * 24 * 3600

INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
LAST_USED = "kubernetes.io/legacy-token-last-used"

_PRIVATE = "kubernetes.io"
_LEGACY = "kubernetes.io/serviceaccount/"
# The last second that a datetime can name.
_LAST_SECOND = 253402300799
_INVALIDATED = "service account token has been invalidated"
_AUTHENTICATION = "authentication.k8s.io"
# kind -> plural, of what a token can be bound to
_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class Reference(msgspec.Struct, frozen=True):
    """One object as claims name it; the namespace is the account's."""

    name: str
    uid: str

    def claim(self) -> dict[str, str]:
        return {"name": self.name, **({"uid": self.uid} if self.uid else {})}


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a bound token, except for its issuer. Times are seconds since 1970."""

    namespace: str
    account: Reference
    audiences: tuple[str, ...]
    issued_at: int
    not_before: int
    expires: int
    id: str
    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None
    warn_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Legacy:
    """The claims of a token that lives in a Secret."""

    namespace: str
    account: Reference
    secret_name: str


class Found(msgspec.Struct, frozen=True):
    """What there is of an object now; `deleted` is its deletionTimestamp."""

    uid: str
    deleted: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """What there is of the Secret of a legacy token."""

    token: bytes = field(repr=False)
    deleting: bool = False
    invalid_since: str = ""


@dataclass(frozen=True, slots=True)
class FoundPod:
    """What there is of a Pod that a token is to be bound to."""

    uid: str
    account: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class BoundObject:
    """`spec.boundObjectRef` of a TokenRequest."""

    kind: str
    name: str
    uid: str


class Request(msgspec.Struct, frozen=True):
    """What a TokenRequest asks for, with its defaults."""

    account: Reference
    audiences: tuple[str, ...]
    seconds: int
    bound: BoundObject | None


class Lifetime(msgspec.Struct, frozen=True):
    """How long a token is said to live, and how long it does; `warn_after` is for tokens that live longer than said."""

    seconds: int
    real: int
    warn_after: int | None = None
    warning: str = ""


# kind, namespace, name -> what there is now
Find = Callable[[str, str, str], Found | None]


# Claims out.


def bound_claims(issuer: str, bound: Bound) -> dict[str, Any]:
    """The claims to sign for a TokenRequest."""
    private: dict[str, Any] = {"namespace": bound.namespace}
    for key, reference in (("node", bound.node), ("pod", bound.pod), ("secret", bound.secret)):
        if reference is not None:
            private[key] = reference.claim()
    private["serviceaccount"] = bound.account.claim()
    if bound.warn_after is not None:
        private["warnafter"] = bound.warn_after
    return {
        "aud": bound.audiences,
        "exp": bound.expires,
        "iat": bound.issued_at,
        "iss": issuer,
        "jti": bound.id,
        _PRIVATE: private,
        "nbf": bound.not_before,
        "sub": user_names.service_account_user(bound.namespace, bound.account.name),
    }


def legacy_claims(issuer: str, legacy: Legacy) -> dict[str, Any]:
    """The claims to sign for a Secret."""
    return {
        "iss": issuer,
        f"{_LEGACY}namespace": legacy.namespace,
        f"{_LEGACY}secret.name": legacy.secret_name,
        f"{_LEGACY}service-account.name": legacy.account.name,
        f"{_LEGACY}service-account.uid": legacy.account.uid,
        "sub": user_names.service_account_user(legacy.namespace, legacy.account.name),
    }


# Claims in: check 1.


def read_bound(claims: Mapping[str, Any]) -> Bound:
    """The claims of a bound token."""
    private = _mapping(claims, _PRIVATE)
    namespace = _text(private, "namespace", f"{_PRIVATE}.namespace")
    account = _reference(private, "serviceaccount")
    if account is None:
        raise _bad_claim(f"{_PRIVATE}.serviceaccount is missing")
    _require_subject(claims, namespace, account.name)
    expires = _seconds(claims, "exp")
    if expires is None:
        raise _bad_claim("exp is missing")
    identity = claims.get("jti", "")
    if not isinstance(identity, str):
        raise _bad_claim("jti is not a text")
    return Bound(
        namespace=namespace,
        account=account,
        audiences=_audiences(claims),
        issued_at=_seconds(claims, "iat") or 0,
        not_before=_seconds(claims, "nbf") or 0,
        expires=expires,
        id=identity,
        pod=_reference(private, "pod"),
        secret=_reference(private, "secret"),
        node=_reference(private, "node", needs_uid="pod" not in private),
        warn_after=_seconds(private, "warnafter"),
    )


def read_legacy(claims: Mapping[str, Any]) -> Legacy:
    """The claims of a legacy token."""
    namespace = _text(claims, f"{_LEGACY}namespace", "namespace")
    secret = _text(claims, f"{_LEGACY}secret.name", "secretName")
    name = _text(claims, f"{_LEGACY}service-account.name", "serviceAccountName")
    uid = _text(claims, f"{_LEGACY}service-account.uid", "serviceAccountUID")
    _require_subject(claims, namespace, name)
    return Legacy(namespace=namespace, account=Reference(name, uid), secret_name=secret)


def _require_subject(claims: Mapping[str, Any], namespace: str, name: str) -> None:
    if _text(claims, "sub", "sub") != user_names.service_account_user(namespace, name):
        raise _bad_claim("sub claim is invalid")


def _mapping(claims: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = claims.get(key)
    if not isinstance(found, dict):
        raise _bad_claim(f"{key} claim is missing")
    return found


def _text(claims: Mapping[str, Any], key: str, name: str) -> str:
    found = claims.get(key)
    if not isinstance(found, str) or not found:
        raise _bad_claim(f"{name} claim is missing")
    return found


def _reference(private: Mapping[str, Any], key: str, *, needs_uid: bool = True) -> Reference | None:
    if private.get(key) is None:
        return None
    found = _mapping(private, key)
    name = _text(found, "name", f"{_PRIVATE}.{key}.name")
    if not needs_uid and "uid" not in found:
        return Reference(name, "")
    return Reference(name, _text(found, "uid", f"{_PRIVATE}.{key}.uid"))


def _seconds(claims: Mapping[str, Any], key: str) -> int | None:
    found = claims.get(key)
    # Not isinstance: true is an int.
    if found is not None and (type(found) is not int or not 0 <= found <= _LAST_SECOND):
        raise _bad_claim(f"{key} is not a whole number of seconds from 0 to {_LAST_SECOND}")
    return found


def _audiences(claims: Mapping[str, Any]) -> tuple[str, ...]:
    found = claims.get("aud")
    # RFC 7519, 4.1.3: one audience may stand alone.
    several = [found] if isinstance(found, str) else found
    if not isinstance(several, list) or not several or not all(isinstance(one, str) for one in several):
        raise _bad_claim("aud is not a text or a list of texts")
    return tuple(several)


# Claims judged: checks 2 to 8.


def judge_audiences(audiences: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of the wanted audiences that the token is for: at least one."""
    # 2.
    both = tuple(audience for audience in wanted if audience in audiences)
    if not both:
        text = f"token audiences {_quoted(audiences)} is invalid for the target audiences {_quoted(wanted)}"
        raise _refused("WrongAudience", text)
    return both


def judge_times(bound: Bound, now: datetime.datetime) -> None:
    # 3., in the order of go-jose, which the texts are compared with.
    seconds = now.timestamp()
    if seconds + LEEWAY < bound.not_before:
        raise _refused("NotYetValid", "service account token is not valid yet")
    if seconds - LEEWAY > bound.expires:
        raise _refused("Expired", "service account token has expired")
    if seconds + LEEWAY < bound.issued_at:
        raise _refused("NotYetValid", "service account token is issued in the future")


def judge_bound(bound: Bound, find: Find, now: datetime.datetime) -> None:
    """That what the token was made for is still there."""
    # 4.
    namespace, account = bound.namespace, bound.account
    found = find("ServiceAccount", namespace, account.name)
    if found is None:
        raise _refused("AccountGone", f'serviceaccounts "{account.name}" not found')
    if found.uid != account.uid:
        raise _refused("AccountReplaced", f"service account UID ({found.uid}) does not match claim ({account.uid})")
    if _is_gone(found, now):
        raise _refused("AccountGone", f"service account {namespace}/{account.name} has been deleted")
    # 5.
    if bound.secret is not None:
        _judge_object("secret", bound.secret, find("Secret", namespace, bound.secret.name), now)
    if bound.pod is not None:
        _judge_object("pod", bound.pod, find("Pod", namespace, bound.pod.name), now)
    elif bound.node is not None:
        _judge_object("node", bound.node, find("Node", "", bound.node.name), now)


def _judge_object(kind: str, claimed: Reference, found: Found | None, now: datetime.datetime) -> None:
    if found is None:
        raise _refused("BoundObjectGone", _INVALIDATED)
    if found.uid != claimed.uid:
        uids = f"{kind} UID ({found.uid}) does not match service account {kind} ref claim ({claimed.uid})"
        raise _refused("BoundObjectReplaced", uids)
    if _is_gone(found, now):
        raise _refused("BoundObjectGone", _INVALIDATED)


def _is_gone(found: Found, now: datetime.datetime) -> bool:
    return found.deleted is not None and found.deleted < now - datetime.timedelta(seconds=LEEWAY)


def judge_legacy(legacy: Legacy, token: str, secret: FoundSecret | None, account: Found | None) -> None:
    """That the Secret still holds this token, for the same account."""
    # 6.
    if secret is None or secret.deleting:
        raise _refused("SecretGone", "Token has been invalidated")
    if not hmac.compare_digest(secret.token, token.encode()):
        raise _refused("TokenReplaced", "Token does not match server's copy")
    # 7.
    where = f"{legacy.namespace}/{legacy.account.name}"
    if account is None:
        raise _refused("AccountGone", f'serviceaccounts "{legacy.account.name}" not found')
    if account.deleted is not None:
        raise _refused("AccountGone", f"ServiceAccount {where} has been deleted")
    if account.uid != legacy.account.uid:
        uids = f"ServiceAccount UID ({account.uid}) does not match claim ({legacy.account.uid})"
        raise _refused("AccountReplaced", uids)
    # 8.
    if secret.invalid_since:
        raise _refused(
            "MarkedInvalid",
            f"the token in secret {legacy.namespace}/{legacy.secret_name} for service account {where} has been marked "
            "invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the "
            f"'{INVALID_SINCE}' label from the secret to temporarily allow use of this token",
        )


# Requests: checks 9 to 11.


def read_request(
    document: objects.Document, namespace: str, name: str, account: Found | None, api_audiences: Sequence[str]
) -> Request:
    """What the document asks for. Its fields have the types of a TokenRequest; any may be missing."""
    # 9.
    meta = objects.metadata(document)
    for key, wanted in (("name", name), ("namespace", namespace)):
        if meta.get(key) and meta[key] != wanted:
            text = f"must match the service account {key} if specified"
            raise _invalid(name, fields.invalid(f"metadata.{key}", meta[key], text))
    if account is None:
        raise status.not_found("serviceaccounts", "", name)
    uid = meta.get("uid")
    if uid and uid != account.uid:
        why = f"the UID in the token request ({uid}) does not match the UID of the service account ({account.uid})"
        raise status.conflict("TokenRequest", _AUTHENTICATION, name, why)
    # 10.
    spec = document.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    seconds = DEFAULT_SECONDS if seconds is None else seconds
    for wrong, text in (
        (seconds < MIN_SECONDS, "may not specify a duration less than 10 minutes"),
        (seconds > MAX_SECONDS, "may not specify a duration larger than 2^32 seconds"),
    ):
        if wrong:
            raise _invalid("", fields.invalid("spec.expirationSeconds", seconds, text))
    audiences = tuple(spec.get("audiences") or api_audiences)
    return Request(Reference(name, account.uid), audiences, seconds, _bound_object(spec.get("boundObjectRef")))


def _bound_object(reference: Mapping[str, Any] | None) -> BoundObject | None:
    # 11., the kind.
    if reference is None:
        return None
    kind, api_version = reference.get("kind") or "", reference.get("apiVersion") or ""
    if kind not in _BINDABLE or api_version not in {"", "v1"}:
        group, _, version = api_version.rpartition("/")
        raise status.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    return BoundObject(kind, reference.get("name") or "", reference.get("uid") or "")


def judge_binding(asked: BoundObject, uid: str | None) -> Reference:
    """The object to bind to, of which `uid` is what there is (None: nothing)."""
    # 11., that it is there and the same.
    if uid is None:
        raise status.not_found(_BINDABLE[asked.kind], "", asked.name)
    if asked.uid and asked.uid != uid:
        why = (
            f"the UID in the bound object reference ({asked.uid}) does not match the UID in record. The object might "
            "have been deleted and then recreated"
        )
        raise status.conflict(asked.kind, "", asked.name, why)
    return Reference(asked.name, uid)


def judge_pod(asked: BoundObject, account: str, pod: FoundPod | None) -> tuple[Reference, str]:
    """… where it is a Pod: it must run as this account, too. With it the name of its Node, if it has one."""
    if pod is None:
        return judge_binding(asked, None), ""
    if pod.account != account:
        shown = json.dumps(account)
        raise status.bad_request(
            f"cannot bind token for serviceaccount {shown} to pod running with different serviceaccount name."
        )
    return judge_binding(asked, pod.uid), pod.node


def lifetime(request: Request, maximum: int | None, transition_audiences: Collection[str]) -> Lifetime:
    """How long the token lives. Empty `transition_audiences`: no token lives longer than it says."""
    # 10.
    seconds, warning = request.seconds, ""
    if maximum is not None and seconds > maximum:
        warning = f"requested expiration of {seconds} seconds shortened to {maximum} seconds"
        seconds = maximum
    for_pod = request.bound is not None and request.bound.kind == "Pod"
    if for_pod and seconds == TRANSITION_SECONDS and set(request.audiences) <= set(transition_audiences):
        return Lifetime(seconds, EXTENDED_SECONDS, seconds, warning)
    return Lifetime(seconds, seconds, None, warning)


def token_too_long(limit: int) -> status.StatusError:
    """A token that nobody would accept is not given: only audiences can make it that long."""
    text = f"Too long: the token would have more than {limit} bytes"
    return _invalid("", status.Cause("FieldValueTooLong", text, "spec.audiences"))


def _invalid(name: str, cause: status.Cause) -> status.StatusError:
    return status.invalid("TokenRequest", _AUTHENTICATION, name, [cause])


def _quoted(words: Sequence[str]) -> str:
    """As Go prints a list of strings with %q."""
    return "[" + " ".join(json.dumps(word) for word in words) + "]"


def _bad_claim(message: str) -> errors.Refused:
    return _refused("BadClaim", message)


def _refused(reason: str, message: str) -> errors.Refused:
    return errors.Refused(message, reason=reason)
