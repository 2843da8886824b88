# SPDX-License-Identifier: Apache-2.0
"""The claims of a service account's token: as they are signed, and read from a token whose signature is good.

It verifies no signatures (`pki.jwt`), and whether what the claims say still holds is for `tokens.service_accounts`.

Claims are read only if they have their shape:

1. They name the account and what the token is bound to, each with its UID; only the Node of a Pod's token may lack one.
2. `sub` is the user of the account that they name.
3. Times are whole numbers of seconds, and `exp` is there; a legacy token has no times.
4. `aud` is a text or a list of texts, and `jti` a text.

Whoever makes a token draws its `jti`. A legacy token has no time in it, so that only the `jti` tells the token of a Secret
that was made anew from the one before: an RSA signature of the same claims is the same. Legacy tokens of Kubernetes have
none, and are read all the same.

| who | holding | tries | check | shown by (test_claims.py) |
|---|---|---|---|---|
| a thief | a token, broken claims | `exp` as NaN, true, a text, 10^300 | 3 | test_times_of_another_shape |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from handfast import errors
from handfast.rules import user_names

LEGACY_ISSUER = "kubernetes/serviceaccount"
_PRIVATE = "kubernetes.io"
_LEGACY = "kubernetes.io/serviceaccount/"
# The last second that a datetime can name.
_LAST_SECOND = 253402300799


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
    """The claims of a token that lives in a Secret; those that others made have no `id`."""

    namespace: str
    account: Reference
    secret_name: str
    id: str = ""


Claims = Bound | Legacy


# --- to be signed


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
        **({"jti": legacy.id} if legacy.id else {}),
        f"{_LEGACY}namespace": legacy.namespace,
        f"{_LEGACY}secret.name": legacy.secret_name,
        f"{_LEGACY}service-account.name": legacy.account.name,
        f"{_LEGACY}service-account.uid": legacy.account.uid,
        "sub": user_names.service_account_user(legacy.namespace, legacy.account.name),
    }


# --- read


def read(claims: Mapping[str, Any]) -> Claims:
    """The claims of a token, which has an issuer: that decides of which kind it is."""
    return read_legacy(claims) if claims["iss"] == LEGACY_ISSUER else read_bound(claims)


def read_bound(claims: Mapping[str, Any]) -> Bound:
    """The claims of a bound token."""
    # 1. the account, by name and UID
    private = _mapping(claims, _PRIVATE)
    namespace = _text(private, "namespace", f"{_PRIVATE}.namespace")
    account = _reference(private, "serviceaccount")
    if account is None:
        raise _bad_claim(f"{_PRIVATE}.serviceaccount is missing")
    # 2. its user name
    _require_subject(claims, namespace, account.name)
    # 3. times in whole seconds, and an end
    expires = _seconds(claims, "exp")
    if expires is None:
        raise _bad_claim("exp is missing")
    # 4. texts where texts belong
    return Bound(
        namespace=namespace,
        account=account,
        audiences=_audiences(claims),
        issued_at=_seconds(claims, "iat") or 0,
        not_before=_seconds(claims, "nbf") or 0,
        expires=expires,
        id=_id(claims),
        pod=_reference(private, "pod"),
        secret=_reference(private, "secret"),
        node=_reference(private, "node", needs_uid="pod" not in private),
        warn_after=_seconds(private, "warnafter"),
    )


def read_legacy(claims: Mapping[str, Any]) -> Legacy:
    """The claims of a legacy token."""
    # 1. the account and its Secret, by name
    namespace = _text(claims, f"{_LEGACY}namespace", "namespace")
    secret = _text(claims, f"{_LEGACY}secret.name", "secretName")
    name = _text(claims, f"{_LEGACY}service-account.name", "serviceAccountName")
    uid = _text(claims, f"{_LEGACY}service-account.uid", "serviceAccountUID")
    # 2. its user name
    _require_subject(claims, namespace, name)
    # 4. texts where texts belong
    return Legacy(namespace=namespace, account=Reference(name, uid), secret_name=secret, id=_id(claims))


def _id(claims: Mapping[str, Any]) -> str:
    identity = claims.get("jti", "")
    if not isinstance(identity, str):
        raise _bad_claim("jti is not a text")
    return identity


def _require_subject(claims: Mapping[str, Any], namespace: str, name: str) -> None:
    if _text(claims, "sub", "sub") != user_names.service_account_user(namespace, name):
        raise _bad_claim("sub claim is invalid")


def _mapping(claims: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = claims.get(key)
    if not isinstance(value, dict):
        raise _bad_claim(f"{key} claim is missing")
    return value


def _text(claims: Mapping[str, Any], key: str, name: str) -> str:
    value = claims.get(key)
    if not isinstance(value, str) or not value:
        raise _bad_claim(f"{name} claim is missing")
    return value


def _reference(private: Mapping[str, Any], key: str, *, needs_uid: bool = True) -> Reference | None:
    if private.get(key) is None:
        return None
    reference = _mapping(private, key)
    name = _text(reference, "name", f"{_PRIVATE}.{key}.name")
    if not needs_uid and "uid" not in reference:
        return Reference(name, "")
    return Reference(name, _text(reference, "uid", f"{_PRIVATE}.{key}.uid"))


def _seconds(claims: Mapping[str, Any], key: str) -> int | None:
    value = claims.get(key)
    # Not isinstance: true is an int.
    if value is not None and (type(value) is not int or not 0 <= value <= _LAST_SECOND):
        raise _bad_claim(f"{key} is not a whole number of seconds from 0 to {_LAST_SECOND}")
    return value


def _audiences(claims: Mapping[str, Any]) -> tuple[str, ...]:
    value = claims.get("aud")
    # RFC 7519, 4.1.3: one audience may stand alone.
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list) or not several or not all(isinstance(one, str) for one in several):
        raise _bad_claim("aud is not a text or a list of texts")
    return tuple(several)


def _bad_claim(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadClaim")
