# SPDX-License-Identifier: Apache-2.0
"""Follows Revocation objects, and refuses with 401 whom one of them names. `rules.revocation` decides who that is.

1. The index is brought up to date in the step in which the copy of the store is: the next request is judged by it.
2. `check` is owed for every identity that a credential gave: that of a request after authentication, and that of a
   token under review. It is owed again for whom the caller acts as (`impersonation`).
3. `changed` is called when a revocation was added or names more or others than before, so that what such an identity
   has open can be ended. When one ends, nothing has to be closed.
4. A part of a Revocation that cannot be understood is left out, and the rest holds. An `expires` that is no instant never
   comes.

`admission.revoked_requests` sees to it that nothing is signed in the name of somebody who is revoked.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_revocations.py |
|---|---|---|---|---|
| a revoked node | an open watch | go on watching | 3 | test_what_is_added_is_told |
| a revoked node | an open connection | send the next request | 1, 2 | test_the_next_request_is_refused |
| a revoked node | tokens of its Pods | act as their service accounts | 2 | test_tokens_of_pods_of_the_node |
| who took over a Pod | the token in it | go on as its account, after that Pod was revoked | 2 | test_tokens_of_a_pod |
| who is refused | the answer | learn whether the name exists, or why | an Unauthorized is silent | test_the_answer_says_nothing |
| who may write Revocations | an `expires` that is no time | revoke for a moment only | 4 | test_an_odd_expiry_never_comes |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final

import structlog

from handfast.api import handfast_kinds, jsonpath, objects
from handfast.apiserver import identity
from handfast.apiserver.state import items
from handfast.apiserver.state import replica as replica_module
from handfast.rules import decision, revocation, user_names
from handfast.rules.certificates import kubelet

_log = structlog.get_logger("handfast.revocations")
PREFIX: Final = "/".join((*handfast_kinds.REVOCATIONS, ""))
# Where a token says on which node its Pod runs, and which Pod it is bound to.
_NODE_NAME: Final = identity.EXTRA + "node-name"
_POD_NAME: Final = identity.EXTRA + "pod-name"
_POD_UID: Final = identity.EXTRA + "pod-uid"


def _read(document: objects.Document) -> revocation.Revocation:
    """What a Revocation says, as far as it can be understood (4)."""
    revoked = revocation.read(document)
    text = jsonpath.text(document, "spec", "expires")
    if text and revoked.expires is None:
        _log.warning(
            "a revocation's expiry is no instant: it holds until it is deleted", revocation=revoked.name, expires=text
        )
    return revoked


class Revocations:
    """The revocations of this server's copy of the store."""

    def __init__(self, replica: replica_module.Replica) -> None:
        self._replica = replica
        self._index = revocation.Index()
        # Called when somebody may be refused who was not before.
        self.changed: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._index)

    def load(self) -> None:
        """Take in what the copy holds, and follow it from now on. No event may have been applied in between."""
        collection = self._replica.collection(PREFIX)
        for item in collection.snapshot():
            self._index.add(_read(item.document()))
        # 1. in the step in which the copy changes
        collection.listen(self, self._note)

    def check(self, user: identity.User, now: datetime.datetime) -> None:
        """Return if no revocation names this user, else 401."""
        # 2. every identity that a credential gave
        if not self._index:
            return
        node = user.extra.get(_NODE_NAME)
        verdict = self._index.judge(
            user.name, user.serial, user.key_fingerprint, node[0] if node else "", now, _pod_of(user)
        )
        if isinstance(verdict, decision.Deny):
            raise identity.Unauthorized(verdict.reason, verdict.sentence)

    def judge_request(self, facts: kubelet.Facts, now: datetime.datetime) -> decision.Deny | decision.NotMine:
        """Whether a certificate request is in the name, or of the key, of somebody who is revoked."""
        return self._index.judge_request(facts, now)

    def _note(self, change: items.Change) -> None:
        if change.after is None:
            gone = change.gone().name
            self._index.remove(gone)
            _log.info("a revocation has ended", revocation=gone)
            return
        revoked = _read(change.after.document())
        before = self._index.get(revoked.name)
        self._index.add(revoked)
        # 3. it names nobody new, and for no longer
        if before is not None and _scope(before) == _scope(revoked):
            return
        targets = sorted(revoked.targets())
        _log.info("an identity is revoked", revocation=revoked.name, reason=revoked.reason, targets=targets)
        for hook in self.changed:
            hook()


def _pod_of(user: identity.User) -> str:
    """The Pod that a token is bound to; empty: to none."""
    name, account = user.extra.get(_POD_NAME), user_names.service_account(user.name)
    if not name or account is None:
        return ""
    return revocation.pod_text(account[0], name[0], next(iter(user.extra.get(_POD_UID, ())), ""))


def _scope(revoked: revocation.Revocation) -> tuple[set[tuple[str, str]], datetime.datetime | None]:
    """Whom it refuses, and for how long."""
    return set(revoked.targets()), revoked.expires
