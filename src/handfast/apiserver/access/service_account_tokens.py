# SPDX-License-Identifier: Apache-2.0
"""Authenticates service accounts by their tokens: signature, claims, and whether what they name still exists.

It makes no tokens (`token_requests`), and the verdicts on claims are those of `rules.tokens.service_accounts`.

1. Whatever does not name one of our issuers is left to the next authenticator. Until then only its issuer was read.
2. A copy of the store that has stopped is not believed: refused.
3. The signature is verified by our keys. That a token has passed, and what it says, is remembered by its SHA-256.
4. Audiences, times, and the objects that the token names are judged anew each time, remembered or not: a token ends
   in the moment in which this server learns that its account, Pod, Secret or Node is gone.
5. An object that cannot be decoded is judged as none at all.
6. A refused token of the account by which machines join is a join that failed, which goes with the refusal for the operator. Only a token with our own
   signature is: what strangers write into one is not read.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_service_account_tokens.py |
|---|---|---|---|---|
| anyone | a token of another issuer | be judged by our keys | 1 | test_other_tokens_are_left_to_others |
| anyone | nothing | `alg: none`, HS256, an unknown key | 3 | test_forged_tokens |
| a holder | a remembered token | outlive its end | 4 | test_a_remembered_token_ends |
| a former owner | a remembered token of a deleted account | use it once the name is taken again | 4 | test_an_account_made_anew |
| a former pod | its remembered token | use it after the pod's end | 4 | test_a_pod_that_is_gone |
| a former holder | a legacy token whose Secret was refilled | use it again | 4 | test_a_secret_that_was_replaced |
| a holder | a bound token | the shape of a legacy one, which never ends | 1: the issuer decides | test_the_issuer_decides_the_shape |
| anyone | many good tokens | fill the memory | 3: bounded | test_memory_is_bounded |
| anyone | nothing | have a made-up token told to the operator | 6 | test_only_our_own_tokens_of_the_account_are_joins_that_failed |
| who writes the store | a value that is no document | be let in by an error | 5 | test_what_is_no_document_is_nothing |
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.apiserver import identity
from handfast.apiserver.access import bonds
from handfast.apiserver.state import replica as replica_module
from handfast.pki import jwt
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper
from handfast.rules.tokens import claims as token_claims
from handfast.rules.tokens import failed_joins
from handfast.rules.tokens import service_accounts as rules

METHOD: Final = "service-account-token"
LEGACY_METHOD: Final = "service-account-secret"
_REMEMBERED: Final = 8192
_PLACES: Final = {
    "ServiceAccount": "core/serviceaccounts/",
    "Pod": "core/pods/",
    "Secret": "core/secrets/",
    "Node": "core/nodes/",
}


class _Meta(msgspec.Struct, rename="camel", gc=False):
    uid: str
    deletion_timestamp: datetime.datetime | None = None


class _Object(msgspec.Struct, gc=False):
    metadata: _Meta


class _PodSpec(msgspec.Struct, rename="camel", gc=False):
    service_account_name: str = ""
    node_name: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _PodSpec


class _SecretMeta(_Meta, gc=False):
    labels: dict[str, str | None] | None = None


class _SecretData(msgspec.Struct, gc=False):
    token: str = ""


class _Secret(msgspec.Struct, gc=False):
    metadata: _SecretMeta
    data: _SecretData | None = None


_objects = msgspec.json.Decoder(_Object)
_pods = msgspec.json.Decoder(_Pod)
_secrets = msgspec.json.Decoder(_Secret)


class Lookups:
    """Looks up what the rules need to know of objects, from the few fields that say it."""

    def __init__(self, replica: replica_module.Replica) -> None:
        self._replica = replica

    def find(self, kind: str, namespace: str, name: str) -> rules.Stored | None:
        body = self._body(kind, namespace, name)
        try:
            meta = None if body is None else _objects.decode(body).metadata
        except msgspec.DecodeError:
            return None
        return None if meta is None else rules.Stored(meta.uid, meta.deletion_timestamp)

    def pod(self, namespace: str, name: str) -> rules.StoredPod | None:
        body = self._body("Pod", namespace, name)
        try:
            pod = None if body is None else _pods.decode(body)
        except msgspec.DecodeError:
            return None
        if pod is None:
            return None
        return rules.StoredPod(pod.metadata.uid, pod.spec.service_account_name, pod.spec.node_name)

    def token_secret(self, namespace: str, name: str) -> tuple[rules.StoredSecret, str] | None:
        """The Secret of a legacy token, and the day on which it was last used."""
        body = self._body("Secret", namespace, name)
        try:
            secret = None if body is None else _secrets.decode(body)
            token = "" if secret is None or secret.data is None else secret.data.token
            held = base64.b64decode(token, validate=True)
        except (msgspec.DecodeError, binascii.Error):
            return None
        if secret is None:
            return None
        labels = secret.metadata.labels or {}
        deleting = secret.metadata.deletion_timestamp is not None
        found = rules.StoredSecret(held, deleting, labels.get(rules.INVALID_SINCE) or "")
        return found, labels.get(rules.LAST_USED) or ""

    def _body(self, kind: str, namespace: str, name: str) -> bytes | None:
        item = self._replica.collection(_PLACES[kind]).get(namespace, name)
        return None if item is None else item.body


class ServiceAccountTokens:
    """The authenticator of bound tokens and of those that live in Secrets.

    `used(namespace, secret)` is called for an accepted legacy token whose Secret does not say yet that it was used today.
    """

    def __init__(
        self,
        keys: jwt.KeySet,
        *,
        issuers: Sequence[str],
        replica: replica_module.Replica,
        api_audiences: Sequence[str] = (),
        used: Callable[[str, str], None] | None = None,
    ) -> None:
        if token_claims.LEGACY_ISSUER in issuers:
            raise errors.Refused(
                f"the issuer {token_claims.LEGACY_ISSUER!r} is that of tokens in Secrets; bound tokens need another",
                reason="BadIssuer",
                hint="use a URL such as https://kubernetes.default.svc",
            )
        self._keys = keys
        self._issuers = frozenset((*issuers, token_claims.LEGACY_ISSUER))
        # As in Kubernetes: where none are configured, the API is known by its issuers.
        self._api_audiences = tuple(api_audiences or issuers)
        self._replica = replica
        self._lookups = Lookups(replica)
        self._verified: dict[bytes, tuple[token_claims.Claims, identity.User | None]] = {}
        self.used = used

    def remembers(self, token: str) -> bool:
        return token.isascii() and hashlib.sha256(token.encode()).digest() in self._verified

    def authenticate(
        self, token: str, audiences: tuple[str, ...], now: datetime.datetime
    ) -> identity.TokenVerdict | None:
        """Whom the token stands for, and for which of `audiences`. Without any, those of the API are meant."""
        # 1. one of our issuers, or another's token (a header may hold surrogates, which no encoder takes)
        if len(token) > jwt.MAX_TOKEN or not token.isascii():
            return None
        digest = hashlib.sha256(token.encode()).digest()
        known = self._verified.pop(digest, None)
        unverified = jwt.read(token) if known is None else None
        if known is None and (unverified is None or unverified.issuer not in self._issuers):
            return None
        # 2. a copy that has stopped is not believed
        if self._replica.failed is not None:
            raise identity.Unauthorized("ReplicaStopped", "the server's copy of the store has stopped")
        user: identity.User | None = None
        try:
            # 3. the signature, unless it was verified before
            claims, user = known or (self._verify(unverified or token), None)
            user = user or (_user(claims) if isinstance(claims, token_claims.Bound) else _legacy_user(claims))
            self._remember(digest, claims, user)
            # 4. audiences, times and objects, each time
            both = self._judge(claims, token, audiences or self._api_audiences, now)
        except errors.Refused as refused:
            unauthorized = identity.Unauthorized(refused.reason, refused.message)
            # 6. a join that failed, for the operator
            if user is not None and user.name == bootstrapper.USER:
                unauthorized.bearer = identity.Bearer(failed_joins.ACCOUNT)
            raise unauthorized from None
        return identity.TokenVerdict(user, both)

    def trust(self, keys: jwt.KeySet) -> None:
        """Judge by other keys from the next request on; nothing that was remembered counts any more."""
        self._keys = keys
        self._verified = {}

    def issued(self, token: str, bound: token_claims.Bound) -> None:
        """This server has just signed the token. So its signature need not be verified; everything else will be."""
        self._remember(hashlib.sha256(token.encode()).digest(), bound, None)

    def _verify(self, token: str | jwt.Unverified) -> token_claims.Claims:
        return token_claims.read(self._keys.verify(token))

    def _remember(self, digest: bytes, claims: token_claims.Claims, user: identity.User | None) -> None:
        """Put it last: the first in the dictionary was not seen for longest. `user` is made at the first use of the token."""
        if len(self._verified) >= _REMEMBERED:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = (claims, user)

    def _judge(
        self, claims: token_claims.Claims, token: str, wanted: Sequence[str], now: datetime.datetime
    ) -> tuple[str, ...]:
        if isinstance(claims, token_claims.Bound):
            both = rules.judge_audiences(claims.audiences, wanted)
            rules.judge_times(claims, now)
            rules.judge_bound(claims, self._lookups.find, now)
            return both
        both = rules.judge_audiences(self._api_audiences, wanted)
        held = self._lookups.token_secret(claims.namespace, claims.secret_name)
        account = self._lookups.find("ServiceAccount", claims.namespace, claims.account.name)
        secret, last_used = held or (None, "")
        rules.judge_legacy(claims, token, secret, account)
        if self.used is not None and last_used != now.date().isoformat():
            self.used(claims.namespace, claims.secret_name)
        return both


def _user(bound: token_claims.Bound) -> identity.User:
    values = {user_names.CREDENTIAL_ID: user_names.TOKEN_ID_PREFIX + bound.id if bound.id else ""}
    for key, reference in (("node", bound.node), ("pod", bound.pod)):
        if reference is not None:
            values[f"{identity.EXTRA}{key}-name"] = reference.name
            values[f"{identity.EXTRA}{key}-uid"] = reference.uid
    extra: Mapping[str, tuple[str, ...]] = {key: (value,) for key, value in values.items() if value}
    return identity.User(
        user_names.service_account_user(bound.namespace, bound.account.name),
        user_names.service_account_groups(bound.namespace),
        uid=bound.account.uid,
        extra=extra,
        method=METHOD,
        until=datetime.datetime.fromtimestamp(bound.expires, datetime.UTC),
        bonds=_bonds(bound),
    )


def _bonds(bound: token_claims.Bound) -> tuple[str, ...]:
    """The Secret or the Node. A Pod is told by extra, and its Node ends no token."""
    node = bound.node if bound.pod is None else None
    return tuple(reference.uid for reference in (bound.secret, node) if reference is not None)


def _legacy_user(legacy: token_claims.Legacy) -> identity.User:
    # No credential-id, although newer tokens have one to give: in Kubernetes such a user has none.
    return identity.User(
        user_names.service_account_user(legacy.namespace, legacy.account.name),
        user_names.service_account_groups(legacy.namespace),
        uid=legacy.account.uid,
        method=LEGACY_METHOD,
        bonds=bonds.of_legacy(legacy.namespace, legacy.secret_name, legacy.account.uid),
    )
