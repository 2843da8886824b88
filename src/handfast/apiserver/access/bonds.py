# SPDX-License-Identifier: Apache-2.0
"""What a token's user is bound to: the Secret, the ServiceAccount, the Pod, the Node. Their watches end with it.

Requests are judged one by one; a watch is one request that goes on. It ends in the moment in which this server learns that
its credential no longer counts:

1. The Secret of a bootstrap token is gone, or its data are others.
2. The Secret of a legacy token is gone or being deleted, holds another token, or is marked as invalid; or the account is
   being deleted. Only watches of the token from that Secret end; other tokens of the account go on.
3. The ServiceAccount, Pod, Secret or Node that a token is bound to is gone. The Node of a Pod's token is not one of them.
4. What cannot be decoded counts as nothing at all: it ends what rested on it.

Whoever is still good comes back, and is judged anew. It judges nobody: `authn` does. While a finalizer or a grace period keeps
the object of a bound token, its requests are refused a minute after the deletion, and its watch ends when the object is gone.

| who | holding | tries | stopped by | shown in tests/scenarios/test_service_account_tokens_live.py |
|---|---|---|---|---|
| a thief | a token from a Secret that was deleted or refilled, and an open watch | go on reading | 2 | test_watches_end_with_the_secret |
| a thief | the same, and a Secret that a finalizer keeps | … | 2 | test_watches_end_with_the_secret |
| a former owner | a token bound to a Secret or Node that is gone, and an open watch | … | 3 | test_what_it_is_bound_to_goes |
| a thief | a watch as somebody else (impersonation) | … | the caller's bonds count, too | test_a_watch_as_somebody_else_ends_with_the_callers_secret |
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from handfast.apiserver import identity
from handfast.apiserver.state import items
from handfast.apiserver.state import replica as replica_module
from handfast.bootstrap import tokens
from handfast.rules.tokens import service_accounts

_POD_UID = identity.EXTRA + "pod-uid"


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str | None] | None = None


class _Object(msgspec.Struct):
    metadata: _Meta


class _Data(msgspec.Struct):
    token: str = ""


class _TokenSecret(_Object):
    data: _Data | None = None


class _Secret(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"null")


_objects = msgspec.json.Decoder(_Object)
_token_secrets = msgspec.json.Decoder(_TokenSecret)
_secrets = msgspec.json.Decoder(_Secret)


def of(user: identity.User) -> tuple[str, ...]:
    """The names of what must stay as it is for this user to stay good."""
    if user.name.startswith(tokens.USER_PREFIX):
        return (user.name,)
    if user.uid:
        return (user.uid, *user.extra.get(_POD_UID, ()), *user.bonds)
    return ()


def of_legacy(namespace: str, secret: str, account_uid: str) -> tuple[str, ...]:
    """… of a legacy token, besides the account: its Secret, and that the account is not being deleted."""
    return _token_in(namespace, secret), _end_of(account_uid)


def _token_in(namespace: str, secret: str) -> str:
    return f"token in {namespace}/{secret}"


def _end_of(uid: str) -> str:
    return f"end of {uid}"


class Bonds:
    """Tells `end_bound_to` (of the watches' hub) of bonds that no longer hold."""

    def __init__(self, replica: replica_module.Replica, end_bound_to: Callable[[str], None]) -> None:
        self._replica = replica
        self._end_bound_to = end_bound_to

    def load(self) -> None:
        """Follow the copy from now on."""
        self._replica.collection("core/secrets/").listen(self, self._secret)
        self._replica.collection("core/serviceaccounts/").listen(self, self._account)
        for prefix in ("core/pods/", "core/nodes/"):
            self._replica.collection(prefix).listen(self, self._gone)

    def _secret(self, change: items.Change) -> None:
        before, after = change.before, change.after
        if before is None:
            return
        # 1. of a bootstrap token; what is written beside the data (who used it, and when) takes nothing away
        bootstraps = before.namespace == tokens.NAMESPACE and before.name.startswith(tokens.NAME_PREFIX)
        if bootstraps and (after is None or _data(before) != _data(after)):
            self._end_bound_to(tokens.USER_PREFIX + before.name.removeprefix(tokens.NAME_PREFIX))
        # 2. of a legacy token, whatever its name is
        if after is None or _held(before) != _held(after):
            self._end_bound_to(_token_in(before.namespace, before.name))
        # 3. what a token is bound to is gone
        self._gone(change)

    def _account(self, change: items.Change) -> None:
        if change.before is not None and change.after is not None and _meta(change.after).deletion_timestamp:
            # 2. a legacy token ends at once
            self._end_bound_to(_end_of(_meta(change.before).uid))
        self._gone(change)

    def _gone(self, change: items.Change) -> None:
        if change.after is None and change.before is not None:
            self._end_bound_to(_meta(change.before).uid)


def _meta(item: items.Item) -> _Meta:
    # 4. what cannot be decoded is nothing
    try:
        return _objects.decode(item.body).metadata
    except msgspec.DecodeError:
        return _Meta()


def _data(item: items.Item) -> bytes:
    try:
        return bytes(_secrets.decode(item.body).data)
    except msgspec.DecodeError:
        return b""


def _held(item: items.Item) -> tuple[str, bool, str] | None:
    """What a legacy token of this Secret rests on: the token, and that neither an end nor a mark is set."""
    try:
        secret = _token_secrets.decode(item.body)
    except msgspec.DecodeError:
        return None
    meta = secret.metadata
    mark = (meta.labels or {}).get(service_accounts.INVALID_SINCE) or ""
    return "" if secret.data is None else secret.data.token, meta.deletion_timestamp is not None, mark
