# SPDX-License-Identifier: Apache-2.0
"""May a node whose certificate expired while it was off come back by itself, and what may it do until it has?

It authenticates nobody (`apiserver.access.node_recovery` asks it), and says nothing of whether the new certificate is approved:
RBAC does, by `nodeclient` for the group `system:node-recovery`.

Whoever shows an expired client certificate, whose chain is good but for the time, is `system:node-recovery:NAME` if

1. recovery is on, and the certificate itself expired, no longer ago than the window;
2. its subject is exactly that of a node: CN `system:node:NAME`, and `system:nodes` as the one organization;
3. the Node NAME still exists, and is not younger than the end of the certificate: deleting it ends this way back, and a
   Node that was made anew since is somebody else's;
4. the node does not renew its Lease (`nodes.liveness`): one that runs has a certificate, and is somewhere else. A Lease that
   is renewed ahead of our time counts as renewed. A node without a Lease is off: it may never have had one, and only
   administrators and the node itself delete it;
5. its key is that of the newest certificate of the kubelet's signer for that node in the issuance ledger, which nodes
   cannot write. A certificate that the CA signed elsewhere is none that we know of, and one that has a successor is over:
   a renewed node, or another machine of that name, holds that. The one exception is a successor that this very certificate
   asked for on this very way back, at most ten minutes ago: the answer may have been lost.
   Revocations of the node, the key or the serial number are asked, too, on every request.

Then it may do this and nothing else, whatever RBAC gives to everybody:

6. Create CertificateSigningRequests for the signer kubernetes.io/kube-apiserver-client-kubelet with exactly the subject
   of 2, one at a time: while one is neither issued nor denied nor failed there is no other.
7. Get, list and watch its own, by name.
8. Have it approved by RBAC: on `certificatesigningrequests/nodeclient` there is no opinion here.

| who | holding | tries | stopped by | shown in tests/unit/rules/nodes/test_recovery.py |
|---|---|---|---|---|
| a thief of an old disk | a node's expired pair | come back after the window | 1 | test_who_may_recover |
| … | … | come back while the node itself runs | 4 | test_a_node_that_runs_needs_no_recovery |
| … | … | come back while the node's clock is ahead, or its Lease says zero seconds | 4 | test_a_node_that_runs_needs_no_recovery |
| … | … | come back as a node that was deleted | 3 | test_who_may_recover |
| … | … | come back as a node that was deleted and made anew | 3 | test_a_node_that_was_made_anew |
| … | an expired pair that the node has renewed since | come back | 5 | test_a_successor_ends_it |
| … | … whose answer the node has just asked for again | come back for ever | 5: ten minutes | test_an_answer_that_was_lost |
| a former administrator | an expired certificate with system:masters | come back | 2 | test_who_may_recover |
| who once held the CA's key | an expired certificate of their making | come back as a node | 5 | test_who_may_recover |
| a recovering node | its old pair | a certificate of another node, or other groups | 6 | test_what_may_be_asked_for |
| … | … | fill the store with requests | 6 | test_one_at_a_time |
| … | … | read Pods, Secrets, or the requests of others | 7 | test_what_it_may_do |
| … | a role that gives system:authenticated more | use it | 7 says no before RBAC is asked | test_what_it_may_do |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects, signer_names, signing_requests
from handfast.pki import names
from handfast.rules import access, decision, user_names
from handfast.rules.certificates import admission
from handfast.rules.ledger import entries

_RULE: Final = "NodeRecovery"
_REQUESTS: Final = "certificatesigningrequests"
_READS: Final = frozenset({"get", "list", "watch"})
# What a recovering node can ask at all; for anything else an expired certificate is just that.
VERBS: Final = _READS | {"create"}
_DONE: Final = frozenset({"Denied", "Failed"})
# 5. how long an answer may be lost
_ANSWER: Final = datetime.timedelta(minutes=10)

_NOT_MINE: Final = decision.NotMine("", "", _RULE)
_MAY_CREATE: Final = decision.Approve("RecoveringNode", "a node that recovers may ask for its certificate", _RULE)
_MAY_READ: Final = decision.Approve("OwnRequest", "a node that recovers may read its own request", _RULE)
_ONLY_THAT: Final = decision.Deny(
    "OnlyRecovery", "a node that recovers may only ask for its certificate, and read that request by name", _RULE
)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An expired certificate, whose chain was good when it expired; fingerprints are SHA-256 in hex, of DER and SPKI."""

    subject: names.Subject
    fingerprint: str
    key_fingerprint: str
    not_after: datetime.datetime

    @property
    def node(self) -> str:
        """The node it names; empty if it is none's."""
        name = self.subject.common_name.removeprefix(user_names.NODE_PREFIX)
        wanted = user_names.node_subject(name)
        return name if self.subject == wanted else ""


class Records(Protocol):
    """What is asked of the cluster, cheapest first."""

    def registered_at(self, node: str) -> datetime.datetime | None:
        """When the Node was made; None: there is none."""

    def is_running(self, node: str, now: datetime.datetime) -> bool:
        """Whether its Lease is being renewed."""

    def issued(self, node: str) -> Sequence[entries.Entry]:
        """The entries of the ledger that `is_of` this node, oldest first."""


def judge(
    shown: Shown, now: datetime.datetime, window: datetime.timedelta, records: Records
) -> decision.Approve | decision.Deny:
    """Whether the holder is a node on its way back."""
    node = shown.node
    # 1. expired, and not too long ago
    if now <= shown.not_after:
        return _deny("Expired", "the certificate is in force, and a CA has expired")
    if now - shown.not_after > window:
        return _deny("Expired", f"the certificate expired at {objects.timestamp(shown.not_after)}, too long ago")
    # 2. the subject of a node
    if not node:
        return _deny("Expired", f"the certificate expired, and {shown.subject} is not the subject of a node")
    # 3. of a Node that exists, and is no younger
    registered = records.registered_at(node)
    if registered is None:
        return _deny("NodeGone", f'there is no Node "{node}"')
    if registered > shown.not_after:
        return _deny("NodeReplaced", f'the Node "{node}" was made after the certificate had expired')
    # 4. which does not run
    if records.is_running(node, now):
        return _deny("NodeRunning", f'the Node "{node}" renews its Lease: it has a certificate')
    return _judge_key(shown, records.issued(node), now)


def _judge_key(
    shown: Shown, issued: Sequence[entries.Entry], now: datetime.datetime
) -> decision.Approve | decision.Deny:
    # 5. with the newest key on record
    node, newer = shown.node, []
    for entry in reversed(issued):
        if entry.key_fingerprint == shown.key_fingerprint:
            break
        newer.append(entry)
    else:
        return _deny("KeyNotOnRecord", f'the ledger has no certificate of this key for the Node "{node}"')
    if not all(_may_be_lost(entry, shown, now) for entry in newer):
        return _deny("KeySuperseded", f'the ledger has a newer certificate of another key for the Node "{node}"')
    return decision.Approve("NodeRecovery", f'the Node "{node}" recovers with the newest key on record', _RULE)


def _may_be_lost(entry: entries.Entry, shown: Shown, now: datetime.datetime) -> bool:
    asked_by = (user(shown.node), shown.fingerprint)
    return (entry.requester, entry.token_id) == asked_by and now - entry.issued_at <= _ANSWER


def is_of(entry: entries.Entry, node: str) -> bool:
    """Whether an entry of the ledger is a kubelet's client certificate of this node (5)."""
    subject = user_names.node_subject(node)
    wanted = entries.names_of(subject, names.Sans())
    return (entry.signer, entry.names) == (signer_names.KUBELET_CLIENT, wanted)


def user(node: str) -> str:
    """The user that a recovering node is."""
    return user_names.NODE_RECOVERY_PREFIX + node


def node_of(name: str, groups: tuple[str, ...]) -> str:
    """The node that a user recovers as; empty if it is none."""
    if user_names.NODE_RECOVERY not in groups or not name.startswith(user_names.NODE_RECOVERY_PREFIX):
        return ""
    return name.removeprefix(user_names.NODE_RECOVERY_PREFIX)


class Authorizer:
    """What a recovering node may do; no opinion on anybody else. `owner` tells who made a request, None: nobody."""

    def __init__(self, owner: Callable[[str], str | None]) -> None:
        self._owner = owner

    def decide(self, attributes: access.Attributes) -> decision.Decision:
        if user_names.NODE_RECOVERY not in attributes.groups:
            return _NOT_MINE
        if not attributes.is_resource or (attributes.group, attributes.plural) != (signing_requests.GROUP, _REQUESTS):
            return _ONLY_THAT
        # 8. RBAC decides the approval
        if attributes.verb == "create" and attributes.subresource == "nodeclient":
            return _NOT_MINE
        if attributes.subresource:
            return _ONLY_THAT
        # 6. it may ask for a certificate
        if attributes.verb == "create":
            return _MAY_CREATE
        # 7. and read its own request, by name
        if attributes.verb in _READS and attributes.name:
            owner = self._owner(attributes.name)
            if owner == attributes.user or (owner is None and attributes.verb == "get"):
                return _MAY_READ
        return _ONLY_THAT


def judge_request(node: str, document: Any, waiting: str | None) -> decision.Approve | decision.Deny:
    """Whether a recovering node may make this request; `waiting` is another of its that is not done."""
    # 6. for its own certificate, one at a time
    wanted = user_names.node_subject(node)
    if jsonpath.text(document, "spec", "signerName") != signer_names.KUBELET_CLIENT:
        return _deny("WrongSigner", f"a node that recovers may only ask {signer_names.KUBELET_CLIENT}")
    try:
        request = admission.parse(document)
    except errors.Refused as refused:
        return _deny(refused.reason, f"failed to parse CSR: {refused.message}")
    if request.subject != wanted or request.sans:
        return _deny("WrongSubject", f"a node that recovers may only ask for {wanted}, without alternative names")
    if waiting is not None:
        return _deny("RequestWaiting", f'the request "{waiting}" of this node is not done yet')
    return _MAY_CREATE


def is_waiting(document: Any) -> bool:
    """Whether a request is neither issued nor denied nor failed."""
    kinds = {jsonpath.text(condition, "type") for condition in jsonpath.mappings(document, "status", "conditions")}
    return not jsonpath.text(document, "status", "certificate") and not kinds & _DONE


def _deny(reason: str, sentence: str) -> decision.Deny:
    return decision.Deny(reason, sentence, _RULE)
