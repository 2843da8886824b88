# SPDX-License-Identifier: Apache-2.0
"""Station: who is asking? A client certificate, or nobody. Sees only the `Peer` and the Authorization header.

1. No certificate and no Authorization header: `system:anonymous`, in the group `system:unauthenticated`.
2. An Authorization header: 401, because no token is accepted here yet. A credential that is not good is never anonymous.
3. A certificate: the chain must verify as a client's against the current client-CA bundle, at this instant; then the
   subject's CN is the user and its O values are the groups, with `system:authenticated` added.

The verdict on a chain is kept by (chain, bundle); validity times are compared on every request, so that neither an
expiry nor a removed CA waits for a connection to close. What the caller may do is not asked here.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_authn.py |
|---|---|---|---|---|
| a node | a kubelet *serving* certificate | log in with it | 3: purpose client | test_serving_certificate_cannot_log_in |
| anyone | an expired certificate | use it on an open connection | 3: times on every request | test_expiry_ends_an_open_connection |
| a holder of a retired CA's key | fresh certificates of it | log in | 3: the bundle is part of the cache key | test_removed_ca |
| anyone | a guessed bearer token | be treated as anonymous | 2 | test_bearer_token_is_401 |
| a certificate's holder | a subject without a CN | be a user with an empty name | 3 | test_no_common_name |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from handfast.api import status
from handfast.apiserver import peer as peer_module
from handfast.pki import bundles, chains
from handfast.rules import access

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class User:
    """Who a request comes from, and how that was found out."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    method: str = "anonymous"
    # When the credential ends: nothing that it opened may outlive it.
    until: datetime.datetime | None = None


ANONYMOUS = User(access.ANONYMOUS, (UNAUTHENTICATED,))


class Authenticator:
    """Judges peers against a client-CA bundle that may be replaced at any time."""

    def __init__(self, client_cas: bundles.TrustBundle) -> None:
        self._bundle = client_cas
        self._verified: dict[bytes, tuple[chains.Verified, User]] = {}
        # Called when the bundle has changed.
        self.changed: list[Callable[[], None]] = []

    def trust(self, client_cas: bundles.TrustBundle) -> None:
        """Judge by another bundle from the next request on."""
        self._bundle = client_cas
        self._verified = {}
        for hook in self.changed:
            hook()

    def authenticate(self, peer: peer_module.Peer, authorization: str | None, now: datetime.datetime) -> User:
        """The user, or 401. The refusal does not tell the caller which check failed; `why` tells the log."""
        # 2. comes first: a header is a credential even beside a certificate.
        if authorization is not None:
            raise Unauthorized("UnsupportedCredential", "bearer tokens and passwords are not accepted")
        # 1.
        if not peer.chain:
            return ANONYMOUS
        # 3.
        known = self._verified.get(peer.chain_hash)
        if known is not None and known[0].valid_from <= now <= known[0].valid_until:
            return known[1]
        return self._verify(peer, now)

    def _verify(self, peer: peer_module.Peer, now: datetime.datetime) -> User:
        try:
            verified = chains.verify(peer.chain, self._bundle, chains.Client(), now)
        except chains.ChainRefused as refused:
            raise Unauthorized(refused.reason, refused.message) from None
        name = verified.subject.common_name
        if not name:
            raise Unauthorized("NoCommonName", "the certificate's subject has no common name")
        user = User(name, (*verified.subject.organizations, AUTHENTICATED), method="x509", until=verified.valid_until)
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified[peer.chain_hash] = (verified, user)
        return user


class Unauthorized(status.StatusError):
    """401 with nothing in it; `why` and `detail` are for the log and the metric."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__("Unauthorized", "Unauthorized")
        self.why = why
        self.detail = detail
