# SPDX-License-Identifier: Apache-2.0
"""Station: in whose name? `Impersonate-*` headers let a caller act as somebody else, if it may act as each part of them.

1. No such header: the caller is who they are.
2. Groups, uid or extra without a user: 400. Who would they belong to? At most 256 parts (groups and keys of
   extra together) can be named, else 400.
3. The caller needs the verb `impersonate` on every part, each asked by itself: the user (or the service account, when the
   name is one), every group, the uid, every value of extra. One refusal refuses the request.
4. The new user has the named groups only; a service account without named groups gets its own ones. `system:authenticated`
   is added, unless the new user is `system:anonymous`, who gets `system:unauthenticated`, or one of the two was named.
5. The deny list is asked again, for the new user: who is revoked cannot be acted as. `pipeline` does that, right after.

The credential's end stays the caller's. What the new user may do is asked afterwards, as of anybody.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_impersonation.py |
|---|---|---|---|---|
| a user | `impersonate` on users | become system:masters by a group | 3: groups are asked by themselves | test_every_part_is_asked |
| anyone | nothing | act as an administrator | 3 | test_without_permission |
| a user | `impersonate` on one name | act as another | 3: the name is part of the question | test_only_the_named_user |
| anyone | a request with groups and no user | be the caller with more groups | 2 | test_groups_without_a_user |
| a script | `impersonate`, and scopes that leave it out | become somebody without scopes | 3: the caller's scopes count | test_a_caller_with_scopes_cannot_leave_them |
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator

from multidict import CIMultiDictProxy

from handfast.api import status
from handfast.apiserver import identity
from handfast.apiserver.access import authz
from handfast.rules import access, user_names

_USER, _GROUP, _UID, _EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "impersonate-extra-"
_LIMIT = 256


def apply(
    caller: identity.User, headers: CIMultiDictProxy[str], authorizers: access.Authorizers
) -> identity.User | None:
    """The user to act as; None: nobody else was named."""
    extra = _extra(headers)
    groups = tuple(headers.getall(_GROUP, ()))
    name, uid = headers.get(_USER, ""), headers.get(_UID, "")
    # 1. no such header
    if not name and not groups and not uid and not extra and _USER not in headers:
        return None
    # 2. a user, and not too many parts
    if not name:
        raise status.bad_request("impersonation needs a user: groups, uid or extra were named without Impersonate-User")
    if len(groups) + len(extra) > _LIMIT:
        raise status.bad_request(f"at most {_LIMIT} groups and extra keys can be impersonated")
    # 3. every part by itself
    for attributes in _questions(caller, name, groups, uid, extra):
        authz.require(authorizers, attributes)
    # 4. the named groups only
    return identity.User(
        name,
        _groups_of(name, groups),
        uid=uid,
        extra=extra,
        method=f"{caller.method} impersonation",
        until=caller.until,
    )


def named(headers: CIMultiDictProxy[str]) -> bool:
    """Whether any of the headers is there. Every request asks, so first letters are looked at first."""
    for name in headers:  # noqa: SIM110  half the cost of any()
        if name[0] in "iI" and name.lower().startswith("impersonate-"):
            return True
    return False


def _extra(headers: CIMultiDictProxy[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA):
            key = urllib.parse.unquote(header[len(_EXTRA) :]).lower()
            extra.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in extra.items()}


def _questions(
    caller: identity.User, name: str, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]
) -> Iterator[access.Attributes]:
    def ask(plural: str, value: str, *, group: str = "", namespace: str = "", sub: str = "") -> access.Attributes:
        return access.Attributes(
            user=caller.name,
            groups=caller.groups,
            verb="impersonate",
            is_resource=True,
            group=group,
            version="v1",
            plural=plural,
            subresource=sub,
            namespace=namespace,
            name=value,
            scopes=caller.extra.get(access.SCOPES, ()),
        )

    account = user_names.service_account(name)
    if account is not None:
        yield ask("serviceaccounts", account[1], namespace=account[0])
    else:
        yield ask("users", name)
    for group in groups:
        yield ask("groups", group)
    if uid:
        yield ask("uids", uid, group="authentication.k8s.io")
    for key, values in extra.items():
        for value in values:
            yield ask("userextras", value, group="authentication.k8s.io", sub=key)


def _groups_of(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    account = user_names.service_account(name)
    if account is not None and not groups:
        groups = user_names.service_account_groups(account[0])
    added = identity.UNAUTHENTICATED if name == access.ANONYMOUS else identity.AUTHENTICATED
    if identity.AUTHENTICATED in groups or identity.UNAUTHENTICATED in groups:
        return groups
    return (*groups, added)
