# SPDX-License-Identifier: Apache-2.0
"""Lets nodes back in whose certificate expired while they were off. They may ask for a new one, and do nothing else.

`rules.nodes.recovery` decides who is such a node, and what it may do. This looks up the facts.

1. Only for requests on CertificateSigningRequests, with no other credential beside the certificate. An expired
   certificate is refused for everything else, as ever.
2. The chain must be good, against the current bundle, at the instant at which the certificate expired; and every CA of
   it must be in force now. So only the node's own certificate may be out of date.
3. A copy of the store that has stopped is not believed: refused.
4. Whoever is revoked as the node (by name, key or serial number) is refused, on every request.
5. A chain that was found good is remembered; the window, the Node, its Lease and the ledger are looked at on every request.
   Which segments of the ledger name a node is kept, and only what was added since is read through again: being refused
   costs no more than being let in. What is kept is bounded by the ledger, and forgotten with its oldest segments.
   An entry about the node that cannot be read might be the newest: refused.

`admission.node_recovery` decides which of its requests for a certificate are admitted.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_node_recovery.py |
|---|---|---|---|---|
| anyone | an expired certificate | use it for anything else | 1 | test_only_for_certificate_requests |
| a holder of a retired CA's key | an expired certificate of it | come back | 2 | test_a_retired_ca |
| a node | a serving certificate that expired | log in with it | 2: purpose client | test_a_serving_certificate |
| a revoked node | its expired pair, on record | come back | 4 | test_a_revoked_node_does_not_come_back |
| a thief of an old disk | an expired pair that the node has renewed since | come back | 5 | test_a_renewed_node |
| … | an expired pair of a node that was made anew | come back | `rules.nodes.recovery`: a Node younger than that | test_a_node_made_anew |
| anyone | an expired pair that is not on record | have the ledger searched, again and again | 5 | test_the_ledger_is_read_through_once |
| a user | a certificate with O=system:node-recovery | be taken for a recovering node | `authn` drops that group | test_the_group_is_the_servers_own |
"""

from __future__ import annotations

import bisect
import datetime
import re
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec
import structlog

from handfast import errors
from handfast.api import handfast_kinds, jsonpath, objects, signing_requests
from handfast.apiserver import identity, request
from handfast.apiserver.state import items
from handfast.apiserver.state import replica as replica_module
from handfast.pki import bundles, certificates, chains
from handfast.rules import decision, user_names
from handfast.rules.ledger import entries
from handfast.rules.ledger import segments as ledger
from handfast.rules.nodes import liveness, recovery
from handfast.serving import peer as peer_module

_log = structlog.get_logger("handfast.node_recovery")

METHOD: Final = "node-recovery"
_NODES: Final = "core/nodes/"
_LEASES: Final = "coordination.k8s.io/leases/"
REQUESTS: Final = (signing_requests.GROUP, "certificatesigningrequests")
REQUEST_PREFIX: Final = "/".join((*REQUESTS, ""))
_LEDGER: Final = "/".join((*handfast_kinds.ISSUANCE_LOGS, ""))
# As the names of entries are written; that of a Node has no other characters.
_NAMED: Final = re.compile(f"CN={user_names.NODE_PREFIX}([a-z0-9.-]{{1,253}})".encode())
_REMEMBERED: Final = 4096


class DenyList(Protocol):
    """Identities that were revoked one by one."""

    def check(self, user: identity.User, now: datetime.datetime) -> None:
        """Returns, or raises Unauthorized."""


def concerns(info: request.RequestInfo) -> bool:
    """Whether a request is one that a recovering node may make at all (1)."""
    return info.verb in recovery.VERBS and (info.group, info.plural) == REQUESTS and not info.subresource


class NodeRecovery:
    """Judges expired certificates."""

    def __init__(self, replica: replica_module.Replica, deny_list: DenyList, window: datetime.timedelta) -> None:
        self._replica = replica
        self._deny_list = deny_list
        self._window = window
        self._index = _Index(replica)
        # Chains that were let in, by the bundle they were judged by.
        self._known: dict[tuple[bytes, str], tuple[certificates.Certificate, recovery.Shown]] = {}

    def authenticate(
        self, peer: peer_module.Peer, bundle: bundles.TrustBundle, now: datetime.datetime
    ) -> identity.User:
        """The node on its way back, or Unauthorized."""
        # 3. a copy that has stopped is not believed
        if self._replica.failed is not None:
            raise identity.Unauthorized("ReplicaStopped", "the server's copy of the store has stopped")
        key = (peer.chain_hash, bundle.digest)
        known = self._known.get(key)
        leaf, shown = known or _read(peer, bundle, now)
        try:
            verdict = recovery.judge(shown, now, self._window, _Records(self._replica, self._index))
        except errors.Refused as refused:
            raise identity.Unauthorized("UnreadableLedger", refused.message) from None
        if isinstance(verdict, decision.Deny):
            raise identity.Unauthorized(verdict.reason, verdict.sentence)
        self._require_not_revoked(leaf, now)
        if known is None:
            self._remember(key, leaf, shown)
        return _user(leaf, shown.node, shown.not_after + self._window)

    def _remember(self, key: tuple[bytes, str], leaf: certificates.Certificate, shown: recovery.Shown) -> None:
        # 5. the chain is remembered, within bounds
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = (leaf, shown)
        _log.warning(
            "a node recovers with an expired certificate",
            node=shown.node,
            serial=leaf.serial,
            expired=shown.not_after.isoformat(),
        )

    def _require_not_revoked(self, leaf: certificates.Certificate, now: datetime.datetime) -> None:
        # 4. revoked as the node
        as_node = identity.User(
            leaf.subject.common_name,
            (user_names.NODES,),
            serial=leaf.serial,
            key_fingerprint=leaf.public_key.fingerprint,
        )
        self._deny_list.check(as_node, now)


def _read(
    peer: peer_module.Peer, bundle: bundles.TrustBundle, now: datetime.datetime
) -> tuple[certificates.Certificate, recovery.Shown]:
    """The certificate of a chain that is good but for the time (2)."""
    try:
        leaf, *issuers = (certificates.read(der) for der in peer.chain)
        roots = bundles.TrustBundle.of(anchor.der for anchor in bundle.in_force(now))
        chains.verify(peer.chain, roots, chains.Client(), leaf.not_after)
    except errors.Refused as refused:
        raise identity.Unauthorized(refused.reason, refused.message) from None
    if not all(issuer.not_before <= now <= issuer.not_after for issuer in issuers):
        raise identity.Unauthorized("Expired", "an intermediate certificate has expired, too")
    shown = recovery.Shown(
        subject=leaf.subject,
        fingerprint=leaf.fingerprint,
        key_fingerprint=leaf.public_key.fingerprint,
        not_after=leaf.not_after,
    )
    return leaf, shown


def _user(leaf: certificates.Certificate, node: str, until: datetime.datetime) -> identity.User:
    return identity.User(
        recovery.user(node),
        (user_names.NODE_RECOVERY, identity.AUTHENTICATED),
        extra={
            user_names.CREDENTIAL_ID: (user_names.CERTIFICATE_ID_PREFIX + leaf.fingerprint,),
            # By this a revocation of the node finds its open watches.
            identity.EXTRA + "node-name": (node,),
        },
        method=METHOD,
        until=until,
        serial=leaf.serial,
        key_fingerprint=leaf.public_key.fingerprint,
    )


class _Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    creation_timestamp: str = ""


class _Created(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta


_created = msgspec.json.Decoder(_Created).decode


class _Index:
    """Which segments of the ledger name which node (5)."""

    def __init__(self, replica: replica_module.Replica) -> None:
        self._replica = replica
        self._segments: dict[str, list[str]] = {}
        self._oldest = ""
        self._newest: items.Item | None = None

    def of(self, node: str) -> list[items.Item]:
        """The segments that name a node, oldest first."""
        logs = self._replica.collection(_LEDGER)
        self._follow(logs.snapshot())
        segments = (logs.get("", name) for name in self._segments.get(node, ()))
        return [item for item in segments if item is not None]

    def _follow(self, segments: list[items.Item]) -> None:
        oldest = segments[0].name if segments else ""
        if oldest != self._oldest:
            self._segments, self._oldest, self._newest = {}, oldest, None
        if not segments or self._newest is segments[-1]:
            return
        # Those before the newest are sealed, and never change again.
        done = "" if self._newest is None else self._newest.name
        for item in segments[bisect.bisect_left(segments, done, key=lambda item: item.name) :]:
            for name in set(_NAMED.findall(item.body)):
                held = self._segments.setdefault(name.decode(), [])
                if not held or held[-1] != item.name:
                    held.append(item.name)
        self._newest = segments[-1]


class _Records:
    """The server's copy, as `rules.nodes.recovery` asks it."""

    def __init__(self, replica: replica_module.Replica, index: _Index) -> None:
        self._replica = replica
        self._index = index

    def registered_at(self, node: str) -> datetime.datetime | None:
        item = self._replica.collection(_NODES).get("", node)
        return None if item is None else objects.parse_timestamp(_created(item.body).metadata.creation_timestamp)

    def is_running(self, node: str, now: datetime.datetime) -> bool:
        lease = self._replica.collection(_LEASES).get(liveness.NAMESPACE, node)
        return lease is not None and liveness.is_fresh(lease.document(), now)

    def issued(self, node: str) -> list[entries.Entry]:
        return [entry for item in self._index.of(node) for entry in _entries(item, node)]


def _entries(item: items.Item, node: str) -> Iterator[entries.Entry]:
    name = f'"CN={user_names.node_user(node)}"'
    for stored in ledger.read(item.document()).entries:
        # Cheap test first: nearly every entry is about another node.
        if name in stored:
            entry = entries.decode_stored(stored)
            if recovery.is_of(entry, node):
                yield entry


def owner_of(replica: replica_module.Replica) -> Callable[[str], str | None]:
    """Who made a CertificateSigningRequest, by its name; None: there is none."""

    def owner(name: str) -> str | None:
        item = replica.collection(REQUEST_PREFIX).get("", name)
        return None if item is None else jsonpath.text(item.document(), "spec", "username")

    return owner
