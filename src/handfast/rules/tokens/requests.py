# SPDX-License-Identifier: Apache-2.0
"""What a TokenRequest may ask for, and how long the token lives that it is granted.

It looks nothing up: the caller finds objects. Who may ask is decided before (authorisation, and for nodes admission).

A TokenRequest is granted when

1. name and namespace, where given, are those of the URL; the ServiceAccount exists, with the UID if one is given;
2. it asks for 10 minutes to 2^32 seconds; the server's maximum shortens that, and a warning tells;
3. the object to bind to is a Pod that runs as this ServiceAccount, a Secret or a Node; it exists, with the UID if one
   is given.

| who                | holding               | tries                             | check | shown by (test_requests.py)       |
| ------------------ | --------------------- | --------------------------------- | ----- | --------------------------------- |
| a holder of create | serviceaccounts/token | a token that never ends           | 2     | test_lifetimes_asked_for          |
| a node             | serviceaccounts/token | binds to a Pod of another account | 3     | test_pods_of_another_account      |
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from handfast.api import field_errors as fields
from handfast.api import objects, status
from handfast.rules.tokens import claims, service_accounts

DEFAULT_SECONDS = 3600
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
# What the ServiceAccount admission asks for on a Pod's behalf; such tokens live a year, and old ones are told of.
TRANSITION_SECONDS = 3607
EXTENDED_SECONDS = 365 * 24 * 3600
_AUTHENTICATION = "authentication.k8s.io"
# kind -> plural, of what a token can be bound to
_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class BoundObject(msgspec.Struct, frozen=True):
    """`spec.boundObjectRef` of a TokenRequest."""

    kind: str
    name: str
    uid: str


class Request(msgspec.Struct, frozen=True):
    """What a TokenRequest asks for, with its defaults."""

    account: claims.Reference
    audiences: tuple[str, ...]
    seconds: int
    bound: BoundObject | None


class Lifetime(msgspec.Struct, frozen=True):
    """How long a token is said to live, and how long it does; `warn_after` is for tokens that live longer than said."""

    seconds: int
    real: int
    warn_after: int | None = None
    warning: str = ""


def read_request(
    document: objects.Document,
    namespace: str,
    name: str,
    account: service_accounts.Stored | None,
    api_audiences: Sequence[str],
) -> Request:
    """What the document asks for. Its fields have the types of a TokenRequest; any may be missing."""
    # 1. for the account of the URL, which exists
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
    # 2. for 10 minutes to 2^32 seconds
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
    return Request(claims.Reference(name, account.uid), audiences, seconds, _bound_object(spec.get("boundObjectRef")))


def _bound_object(reference: Mapping[str, Any] | None) -> BoundObject | None:
    # 3. bound to a Pod, a Secret or a Node
    if reference is None:
        return None
    kind, api_version = reference.get("kind") or "", reference.get("apiVersion") or ""
    if kind not in _BINDABLE or api_version not in {"", "v1"}:
        group, _, version = api_version.rpartition("/")
        raise status.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    return BoundObject(kind, reference.get("name") or "", reference.get("uid") or "")


def judge_binding(wanted: BoundObject, uid: str | None) -> claims.Reference:
    """The object to bind to. `uid` is that of the object that is there; None: there is none."""
    # 3. which is there, and the same
    if uid is None:
        raise status.not_found(_BINDABLE[wanted.kind], "", wanted.name)
    if wanted.uid and wanted.uid != uid:
        why = (
            f"the UID in the bound object reference ({wanted.uid}) does not match the UID in record. The object might "
            "have been deleted and then recreated"
        )
        raise status.conflict(wanted.kind, "", wanted.name, why)
    return claims.Reference(wanted.name, uid)


def judge_pod(
    wanted: BoundObject, account: str, pod: service_accounts.StoredPod | None
) -> tuple[claims.Reference, str]:
    """The Pod to bind to, which must run as this account; and the name of its Node, if it has one."""
    if pod is None:
        return judge_binding(wanted, None), ""
    if pod.account != account:
        shown = json.dumps(account)
        raise status.bad_request(
            f"cannot bind token for serviceaccount {shown} to pod running with different serviceaccount name."
        )
    return judge_binding(wanted, pod.uid), pod.node


def lifetime(request: Request, maximum: int | None, transition_audiences: Collection[str]) -> Lifetime:
    """How long the token lives. Empty `transition_audiences`: no token lives longer than it says."""
    # 2. shortened to the server's maximum
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
