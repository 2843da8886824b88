# SPDX-License-Identifier: Apache-2.0
"""Station: who is asking? A client certificate, a bearer token, or nobody. Sees only the `Peer` and one header.

1. A certificate is looked at first: the chain must verify as a client's against the current client-CA bundle, at this
   instant; then the subject's CN is the user and its O values are the groups. The server's own groups, those of 4 and 5,
   and that of nodes that recover, are dropped from them.
2. Then an Authorization header, which must be a bearer token that one of the token authenticators knows, presented from
   where it is accepted. A certificate that is refused does not spoil a good token, nor the other way round; the
   certificate wins when both are good. With no token beside it, a node's expired certificate may still be good for
   asking for the next one, and for nothing else: see `node_recovery`.
3. Whoever presented something and was not believed gets 401. A credential that is not good is never anonymous.
4. Nothing presented: `system:anonymous`, in the group `system:unauthenticated`, from the networks where that is allowed.
   This machine (loopback) always counts as one of them.
5. `system:authenticated` is added to the groups; then the deny list is asked, on every request.
6. Only a chain that is not good under that bundle is judged by the CAs of bootstrap credentials, and then it is good for that
   identity alone (`rules.machines.client_cas`). Such a CA gives the bootstrap identity and nothing else, even if it shares a name
   or a key with another CA. A chain that is also good under the bundle keeps what the bundle gives it. Nothing else here looks
   at these CAs. One with an end of its own (`rules.machines.credential_end`) is good until then, however long its
   certificates are.

The verdict on a chain is kept until a bundle that it was judged by changes; validity times are compared on every request, so
that neither an expiry nor a removed CA waits for a connection to close. What the caller may do is not asked here.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_authn.py |
|---|---|---|---|---|
| a node | a kubelet *serving* certificate | log in with it | 1: purpose client | test_serving_certificate_cannot_log_in |
| anyone | an expired certificate | use it on an open connection | 1: times on every request | test_expiry_ends_an_open_connection |
| a holder of a retired CA's key | fresh certificates of it | log in | 1: the bundle is part of the cache key | test_removed_ca |
| anyone | a guessed bearer token | be treated as anonymous | 3 | test_unknown_token_is_401 |
| a certificate's holder | a subject without a CN | be a user with an empty name | 1 | test_no_common_name |
| a certificate's holder | O = system:unauthenticated | pass for nobody, or the reverse | 1: such groups are dropped | test_groups_of_the_server_are_not_taken |
| a revoked node | a certificate still in force | go on over an open connection | 5 | test_revoked_on_an_open_connection |
| anyone far away | nothing | read what anonymous may | 4 | test_anonymous_only_from_its_networks |
| a holder of a bootstrap CA's key | a certificate with O=system:masters | be an administrator | 6 | test_a_bootstrap_ca_vouches_for_nobody_else |
| … | … for a node, of this CA | be that node, without any Machine | 6 | test_a_bootstrap_ca_vouches_for_nobody_else |
| … | a further CA signed by it | … | 6 | test_an_intermediate_of_a_bootstrap_ca_has_its_limit |
| … | a CA with the subject of the administrators' | have the path go through that one | 6 | test_a_bootstrap_ca_of_the_same_name |
| … | a node's expired certificate of it | recover as that node | 6 | test_a_bootstrap_ca_recovers_nobody |
| … | the bootstrap identity on an open connection | go on after it was revoked | 6: the bundle is part of the verdict | test_a_revoked_bootstrap_ca |
| … | … | go on after the end that was set for it | 6: times on every request | test_the_end_of_a_bootstrap_ca |
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec

from handfast import errors
from handfast.apiserver import identity, request
from handfast.apiserver.access import bootstrap_credentials, bootstrap_tokens, node_recovery
from handfast.pki import bundles, chains
from handfast.rules import decision, networks, user_names
from handfast.rules.machines import bootstrapper, client_cas, credential_end
from handfast.serving import peer as peer_module

_REMEMBERED = 4096
# Bounds what is looked at, before anything is hashed or parsed.
TOKEN_BYTES = 16 << 10
_LOOPBACK = networks.Networks.parse("127.0.0.0/8,::1/128")
_CERTIFICATE = "x509"
_UNKNOWN = "UnknownAuthority"
# Only the server itself puts callers into these.
_SERVERS_OWN = frozenset({identity.AUTHENTICATED, identity.UNAUTHENTICATED, user_names.NODE_RECOVERY})


class DenyList(Protocol):
    """Identities that were revoked one by one."""

    def check(self, user: identity.User, now: datetime.datetime) -> None:
        """Returns, or raises Unauthorized."""


class TokenRow(msgspec.Struct, frozen=True):
    """One kind of bearer token. With `explains`, a TokenReview of such a token says why it was refused."""

    judge: identity.TokenAuthenticator
    explains: bool = False


class Authenticator:
    """Judges callers by their certificate or token. The client-CA bundle may be replaced at any time."""

    def __init__(
        self,
        bundle: bundles.TrustBundle,
        tokens: Sequence[TokenRow] = (),
        *,
        audiences: tuple[str, ...] = (),
        deny_list: DenyList | None = None,
        anonymous_from: networks.Networks | None = None,
        recovery: node_recovery.NodeRecovery | None = None,
    ) -> None:
        self._bundle = bundle
        self._bootstrap_cas = bundles.TrustBundle.of(())
        self._bootstrap_ca_ends: Mapping[str, datetime.datetime] = {}
        self._tokens = tuple(tokens)
        self.audiences = audiences
        self._deny_list = deny_list
        self._anonymous_from = anonymous_from
        self._recovery = recovery
        self._verified: dict[bytes, tuple[chains.Verified, identity.User]] = {}
        # Called when the bundle has changed.
        self.changed: list[Callable[[], None]] = []
        # Called when the CAs of bootstrap credentials have.
        self.bootstrap_cas_changed: list[Callable[[], None]] = []

    def trust(self, bundle: bundles.TrustBundle) -> None:
        """Judge by another bundle from the next request on."""
        self._bundle = bundle
        self._verified = {}
        for hook in self.changed:
            hook()

    def trust_bootstrap_cas(
        self, bundle: bundles.TrustBundle, until: Mapping[str, datetime.datetime] = MappingProxyType({})
    ) -> None:
        """Judge bootstrap credentials by these CAs from the next request on; `until` are ends, by SHA-256 of the CA."""
        gone = {anchor.fingerprint for anchor in self._bootstrap_cas.anchors}
        self._bootstrap_cas, self._bootstrap_ca_ends = bundle, until
        self._verified = {key: known for key, known in self._verified.items() if known[0].anchor not in gone}
        for hook in self.bootstrap_cas_changed:
            hook()

    def require_no_bootstrap_credential(self, user: identity.User) -> None:
        """What an open watch is asked when these CAs have changed: it is no bootstrap credential's, else it is judged anew."""
        if user.method == _CERTIFICATE and user.name == bootstrapper.USER:
            raise identity.Unauthorized("CredentialsChanged", "the CAs of bootstrap credentials have changed")

    def remembers(self, peer: peer_module.Peer, authorization: str | None) -> bool:
        """Whether judging these costs little: they were good before, or nothing was presented."""
        if peer.chain_hash in self._verified:
            return True
        if authorization is None:
            return not peer.chain
        token = authorization.partition(" ")[2]
        return len(token) <= TOKEN_BYTES and any(row.judge.remembers(token) for row in self._tokens)

    def authenticate(
        self,
        peer: peer_module.Peer,
        authorization: str | None,
        now: datetime.datetime,
        info: request.RequestInfo | None = None,
    ) -> identity.User:
        """The user, or 401. The refusal does not tell the caller which check failed; `why` tells the log.

        `info` is what the request is about. Without it, an expired certificate is good for nothing.
        """
        # 1. a certificate, whose times count on every request
        known = self._verified.get(peer.chain_hash) if peer.chain else None
        if known is not None and known[0].valid_from <= now <= known[0].valid_until:
            user = known[1]
        elif peer.chain or authorization is not None:
            user = self._credential(peer, authorization, now, info)
        else:
            # 4. nothing was presented
            return self._nobody(peer.address)
        # 5. the deny list, on every request
        self.require_not_denied(user, now)
        return user

    def _credential(
        self,
        peer: peer_module.Peer,
        authorization: str | None,
        now: datetime.datetime,
        info: request.RequestInfo | None,
    ) -> identity.User:
        refusal: identity.Unauthorized | None = None
        if peer.chain:
            try:
                return self._certificate(peer, now)
            except identity.Unauthorized as refused:
                refusal = refused
        # 2. a bearer token, or an expired certificate that asks for the next one
        if authorization is not None:
            try:
                return self.token(_bearer(authorization), self.audiences, now, peer.address)[0]
            except identity.Unauthorized as refused:
                refusal = refusal or refused
        elif self._recovery is not None and refusal is not None and _is_recovering(refusal, info):
            return self._recovery.authenticate(peer, self._bundle, now)
        # 3. something was presented, and not believed
        try:
            raise refusal or identity.Unauthorized("NoCredential", "nothing was presented")
        finally:
            # Its traceback holds this frame, and so the request: a cycle that only the garbage collector frees.
            refusal = None

    def _certificate(self, peer: peer_module.Peer, now: datetime.datetime) -> identity.User:
        try:
            verified = self._verify(peer, now)
        except errors.Refused as refused:
            unauthorized = identity.Unauthorized(refused.reason, refused.message)
            unauthorized.bearer = bootstrap_credentials.of_chain(peer.chain)
            raise unauthorized from None
        name = verified.subject.common_name
        if not name:
            raise identity.Unauthorized("NoCommonName", "the certificate's subject has no common name")
        groups = tuple(group for group in verified.subject.organizations if group not in _SERVERS_OWN)
        user = identity.User(
            name,
            (*groups, identity.AUTHENTICATED),
            extra={user_names.CREDENTIAL_ID: (user_names.CERTIFICATE_ID_PREFIX + verified.fingerprint,)},
            method=_CERTIFICATE,
            until=verified.valid_until,
            serial=verified.serial,
            key_fingerprint=verified.key_fingerprint,
        )
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified[peer.chain_hash] = (verified, user)
        return user

    def _verify(self, peer: peer_module.Peer, now: datetime.datetime) -> chains.Verified:
        try:
            return chains.verify(peer.chain, self._bundle, chains.Client(), now)
        except chains.ChainRefused as refused:
            if not self._bootstrap_cas.anchors:
                raise
            reason, message = refused.reason, refused.message
        # 6. not good under the bundle: it may be a bootstrap credential, and nothing else
        try:
            verified = chains.verify(peer.chain, self._bootstrap_cas, chains.Client(), now)
        except chains.ChainRefused:
            if reason == _UNKNOWN:
                raise
            raise chains.ChainRefused(message, reason=reason) from None
        client_cas.require_in_scope(verified.subject)
        end = self._bootstrap_ca_ends.get(verified.anchor)
        if end is None:
            return verified
        if credential_end.is_over(end, now):
            raise chains.ChainRefused(credential_end.sentence(end), reason=credential_end.ENDED)
        last = end - datetime.timedelta.resolution
        return dataclasses.replace(verified, valid_until=min(verified.valid_until, last))

    def token(
        self, token: str, audiences: tuple[str, ...], now: datetime.datetime, source: str = ""
    ) -> tuple[identity.User, tuple[str, ...]]:
        """The user of a bearer token, and for which of the audiences it is good; or Unauthorized.

        `source` is the address that presented it. Without one, a token with limits on its source is refused.
        """
        if not token or len(token) > TOKEN_BYTES:
            raise identity.Unauthorized("MalformedToken", f"a bearer token of {len(token)} characters")
        for row in self._tokens:
            try:
                verdict = row.judge.authenticate(token, audiences, now)
                # 2. presented from where it is accepted
                if verdict is not None and verdict.sources is not None:
                    bootstrap_tokens.require_source(
                        verdict.user, verdict.sources, source, tell_bearer=verdict.tells_bearer
                    )
            except identity.Unauthorized as refused:
                refused.explained = row.explains
                raise
            if verdict is not None:
                return verdict.user.authenticated(source), verdict.audiences
        raise identity.Unauthorized("UnknownToken", "no authenticator knows this kind of token")

    def _nobody(self, address: str) -> identity.User:
        if self._anonymous_from is not None:
            verdict = self._anonymous_from.holds(address)
            # This machine always counts: the supervisor's own probes come from here.
            if isinstance(verdict, decision.Deny) and isinstance(_LOOPBACK.holds(address), decision.Deny):
                raise identity.Unauthorized("AnonymousElsewhere", verdict.sentence)
        return identity.ANONYMOUS

    def require_not_denied(self, user: identity.User, now: datetime.datetime) -> None:
        """Ask the deny list."""
        if self._deny_list is None:
            return
        try:
            self._deny_list.check(user, now)
        except identity.Unauthorized as refused:
            refused.bearer = bootstrap_credentials.bearer(user)
            raise

    def reviewed(
        self, token: str, audiences: tuple[str, ...], now: datetime.datetime
    ) -> tuple[identity.User, tuple[str, ...]]:
        """What a TokenReview answers: as `token`, and then the deny list. The source of that token is not known."""
        user, good_for = self.token(token, audiences, now)
        self.require_not_denied(user, now)
        return user, good_for


def _is_recovering(refusal: identity.Unauthorized, info: request.RequestInfo | None) -> bool:
    return refusal.why == "Expired" and info is not None and node_recovery.concerns(info)


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise identity.Unauthorized("UnsupportedCredential", "only bearer tokens are accepted in Authorization")
    return token.strip(" ")
