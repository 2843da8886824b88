# SPDX-License-Identifier: Apache-2.0
"""What a token's user is bound to: the Secret, the ServiceAccount, the Pod. Their watches end with it.

Requests are judged one by one; a watch is one request that goes on. When an object that its credential rests on goes, or
the data of a bootstrap token's Secret changes, the watches of that user end, and whoever is still good comes back.

The Secret of a legacy token, and a Secret or Node that a token is bound to, end no watch: the next request of such a
token is refused, and a watch goes on until its timeout. It judges nobody: `authn` does.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from handfast.apiserver import identity
from handfast.apiserver.state import items, replica
from handfast.bootstrap import tokens

_POD_UID = identity.EXTRA + "pod-uid"


class _Meta(msgspec.Struct):
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta


class _Secret(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"null")


_data = msgspec.json.Decoder(_Secret).decode
_decode = msgspec.json.Decoder(_Object).decode


def of(user: identity.User) -> tuple[str, ...]:
    """The names of what must stay as it is for this user to stay good."""
    if user.name.startswith(tokens.USER_PREFIX):
        return (user.name,)
    if user.uid:
        return (user.uid, *user.extra.get(_POD_UID, ()))
    return ()


class Bonds:
    """Tells `end_bound_to` (of the watches' hub) of bonds that no longer hold."""

    def __init__(self, copy: replica.Replica, end_bound_to: Callable[[str], None]) -> None:
        self._replica = copy
        self._end_bound_to = end_bound_to

    def load(self) -> None:
        """Follow the copy from now on."""
        self._replica.collection("core/secrets/").listen(self, self._secret)
        for prefix in ("core/serviceaccounts/", "core/pods/"):
            self._replica.collection(prefix).listen(self, self._gone)

    def _secret(self, change: items.Change) -> None:
        before, after = change.before, change.after
        if before is None or before.namespace != tokens.NAMESPACE or not before.name.startswith(tokens.NAME_PREFIX):
            return
        # What is written down beside the data (who used it, and when) takes nothing away from anybody.
        if after is None or _data(before.body).data != _data(after.body).data:
            self._end_bound_to(tokens.USER_PREFIX + before.name.removeprefix(tokens.NAME_PREFIX))

    def _gone(self, change: items.Change) -> None:
        if change.after is None and change.before is not None:
            self._end_bound_to(_decode(change.before.body).metadata.uid)
