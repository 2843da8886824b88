# SPDX-License-Identifier: Apache-2.0
"""Follows Revocation objects, and refuses with 401 whom one of them names. Who that is decides `rules.revocation`.

1. The index is brought up to date in the step in which the copy of the store is: the next request is judged by it.
2. `check` is owed for every identity that a credential gave: that of a request after authentication, and that of a
   token under review. It is owed again for whom the caller acts as (`impersonation`).
3. `changed` is called when a revocation was added or names more or others than before, so that what such an identity
   has open can be ended. When one ends, nothing has to be closed.
4. A Revocation that cannot be understood in part holds in the rest; an `expires` that is no instant never comes.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_revocations.py |
|---|---|---|---|---|
| a revoked node | an open watch | go on watching | 3 | test_what_is_added_is_told |
| a revoked node | an open connection | send the next request | 1, 2 | test_the_next_request_is_refused |
| a revoked node | tokens of its Pods | act as their service accounts | 2 | test_tokens_of_pods_of_the_node |
| who is refused | the answer | learn whether the name exists, or why | an Unauthorized is silent | test_the_answer_says_nothing |
| who may write Revocations | an `expires` that is no time | revoke for a moment only | 4 | test_an_odd_expiry_never_comes |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final

import structlog

from handfast.api import handfast_kinds, jsonpath, objects
from handfast.apiserver import identity, replica, states
from handfast.rules import decision, revocation

_log = structlog.get_logger("handfast.revocations")
PREFIX: Final = "/".join((*handfast_kinds.REVOCATIONS, ""))
# Where a token says on which node its Pod runs.
_NODE_NAME: Final = identity.EXTRA + "node-name"


def read(document: objects.Document) -> revocation.Revocation:
    """What a Revocation says, as far as it can be understood."""
    # 4.
    name, spec = jsonpath.text(document, "metadata", "name"), jsonpath.mapping(document, "spec")
    return revocation.Revocation(
        name=name,
        node=jsonpath.text(spec, "node"),
        user=jsonpath.text(spec, "user"),
        serial=revocation.normal_serial(jsonpath.text(spec, "serialNumber")),
        key_fingerprint=revocation.normal_key_fingerprint(jsonpath.text(spec, "keyFingerprint")),
        reason=jsonpath.text(spec, "reason") or handfast_kinds.UNSPECIFIED,
        expires=_instant(name, jsonpath.text(spec, "expires")),
    )


def _instant(name: str, text: str) -> datetime.datetime | None:
    # 4.
    if not text:
        return None
    try:
        return objects.parse_timestamp(text)
    except (ValueError, OverflowError):
        _log.warning("a revocation's expiry is no instant: it holds until it is deleted", revocation=name, expires=text)
        return None


class Revocations:
    """The revocations of this server's copy of the store."""

    def __init__(self, copy: replica.Replica) -> None:
        self._replica = copy
        self._index = revocation.Index()
        # Called when somebody may be refused who was not before.
        self.changed: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._index)

    def load(self) -> None:
        """Take in what the copy holds, and follow it from now on. No event may have been applied in between."""
        collection = self._replica.collection(PREFIX)
        for item in collection.snapshot():
            self._index.add(read(item.document()))
        # 1.
        collection.listen(self, self._note)

    def check(self, user: identity.User, now: datetime.datetime) -> None:
        """Return if no revocation names this user, else 401."""
        # 2.
        if not self._index:
            return
        node = user.extra.get(_NODE_NAME)
        verdict = self._index.judge(user.name, user.serial, user.key_fingerprint, node[0] if node else "", now)
        if isinstance(verdict, decision.Deny):
            raise identity.Unauthorized(verdict.reason, verdict.sentence)

    def _note(self, change: states.Change) -> None:
        if change.after is None:
            gone = change.gone().name
            self._index.remove(gone)
            _log.info("a revocation has ended", revocation=gone)
            return
        found = read(change.after.document())
        before = self._index.get(found.name)
        self._index.add(found)
        # 3.
        if before is not None and _scope(before) == _scope(found):
            return
        _log.info("an identity is revoked", revocation=found.name, reason=found.reason, targets=sorted(found.targets()))
        for hook in self.changed:
            hook()


def _scope(found: revocation.Revocation) -> tuple[set[tuple[str, str]], datetime.datetime | None]:
    """Whom it refuses, and for how long."""
    return set(found.targets()), found.expires
