# SPDX-License-Identifier: Apache-2.0
"""Who is asking and may they, put together: authenticators, authorizers, admission, and what they watch.

Names concrete classes in their order and decides nothing: the order of the rows below is the order of the checks.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import msgspec

from handfast.api import kinds
from handfast.apiserver import default_policy, identity
from handfast.apiserver.access import (
    authn,
    bootstrap_cas,
    bootstrap_tokens,
    client_cas,
    legacy_token_use,
    node_feed,
    node_recovery,
    openid,
    policy,
    revocations,
    service_account_tokens,
    standing,
)
from handfast.apiserver.admission import (
    certificates,
    client_ca,
    ledger,
    limit_ranges,
    machine_settings,
    mutating_policies,
    namespace_lifecycle,
    node_restriction,
    plugin,
    pod_scheduling,
    policies,
    policy_authors,
    quotas,
    rbac,
    revoked_requests,
    runtime_class,
    service_account,
    station,
    token_limits,
    webhooks,
)
from handfast.apiserver.admission import node_recovery as recovery_admission
from handfast.apiserver.state import replica as replica_module
from handfast.apiserver.state import storage
from handfast.apiserver.verbs import token_requests
from handfast.pki import bundles, jwt, keys
from handfast.rules import access, networks
from handfast.rules.nodes import authorizer
from handfast.rules.nodes import recovery as recovering
from handfast.rules.rbac import policy as rbac_policy
from handfast.rules.rbac import scopes
from handfast.runtime import aside as aside_module
from handfast.runtime import clock as clocks


class GuardOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What authentication is told."""

    bootstrap_tokens: bool = False
    anonymous_from: str = "any"
    issuer: str = "https://kubernetes.default.svc.cluster.local"
    audiences: tuple[str, ...] = ()
    max_token_seconds: int = 0
    # How long ago a node's certificate may have expired for it to come back by itself; nothing: it may not.
    node_recovery_window: datetime.timedelta = datetime.timedelta()


def mutating(authors: policy_authors.Authors, priorities: pod_scheduling.Priorities) -> tuple[plugin.Row, ...]:
    """Admission plugins that are asked before mutating webhooks, and again when one of those changed something."""
    return (
        namespace_lifecycle.ROW,
        limit_ranges.DEFAULTS,
        service_account.ROW,
        priorities.pods,
        pod_scheduling.TOLERATIONS,
        runtime_class.ROW,
        node_restriction.ROW,
        authors.type_row,
    )


def validating(
    policy_: rbac_policy.Policy,
    store: storage.Storage,
    revoked: revocations.Revocations,
    authors: policy_authors.Authors,
    priorities: pod_scheduling.Priorities,
) -> tuple[plugin.Row, ...]:
    """Admission plugins that are asked when nothing changes the object any more."""
    return (
        authors.params_row,
        limit_ranges.BOUNDS,
        priorities.classes,
        *certificates.ROWS,
        client_ca.ROW,
        ledger.ROW,
        machine_settings.ROW,
        recovery_admission.ROW,
        revoked_requests.row(revoked),
        *rbac.rows(policy_),
        # Last: what another row refuses must not use a token up.
        token_limits.TokenLimits(store).row,
    )


def reserving(store: storage.Storage) -> tuple[plugin.Row, ...]:
    """Admission plugins that are asked after validating webhooks, and write down what a write uses."""
    return quotas.Quotas(store).rows


def _recovery(
    replica: replica_module.Replica, deny_list: revocations.Revocations, window: datetime.timedelta
) -> node_recovery.NodeRecovery | None:
    return node_recovery.NodeRecovery(replica, deny_list, window) if window else None


class Guard:
    """One server's judges. `load` when the copy of the store is there, `ensure` before anybody is served."""

    def __init__(
        self,
        options: GuardOptions,
        store: storage.Storage,
        clock: clocks.Clock,
        *,
        initial_cas: bytes,
        signing_key: keys.PrivateKey,
        token_keys: Sequence[keys.PublicKey],
        admit_cas: Callable[[str], None],
        table: kinds.Table,
        count: webhooks.Count,
    ) -> None:
        replica = store.replica
        self._storage = store
        self._clock = clock
        audiences = options.audiences or (options.issuer,)
        key_set = jwt.KeySet(token_keys)
        self.revocations = revocations.Revocations(replica)
        self.token_use = legacy_token_use.TokenUse(store, clock)
        self._accounts = accounts = service_account_tokens.ServiceAccountTokens(
            key_set, issuers=(options.issuer,), replica=replica, api_audiences=audiences, used=self.token_use.note
        )
        rows = [authn.TokenRow(accounts, explains=True)]
        if options.bootstrap_tokens:
            rows.append(authn.TokenRow(bootstrap_tokens.BootstrapTokens(replica, audiences, store.names_makers)))
        initial = bundles.TrustBundle.from_pem(initial_cas)
        self.authenticator = authn.Authenticator(
            initial,
            rows,
            audiences=audiences,
            deny_list=self.revocations,
            anonymous_from=networks.Networks.parse(options.anonymous_from),
            recovery=_recovery(replica, self.revocations, options.node_recovery_window),
        )
        self.client_cas = client_cas.ClientCAs(store, clock, initial, self.authenticator.trust, admit_cas)
        self.bootstrap_cas = bootstrap_cas.BootstrapCAs(
            replica, self.authenticator.trust_bootstrap_cas, self.client_cas.remember
        )
        self.policy = policy.PolicyFeed(replica)
        self._nodes = node_feed.NodeFeed(replica)
        self.authorizers = self._authorizers(replica)
        self.standing = standing.Standing(self.authenticator, self.authorizers, clock)
        self.authenticator.changed.append(self.standing.lost)
        self.authenticator.bootstrap_cas_changed.append(self.standing.lost)
        self.revocations.changed.append(self.standing.lost)
        self.webhooks = webhooks.Webhooks(replica, clock, table=table, count=count)
        self.admission_policies = policies.Policies(replica, table)
        self.mutating_policies = mutating_policies.MutatingPolicies(replica, table)
        # Where work is done that would hold the loop: that of requests, too.
        self.aside = aside_module.Aside("aside")
        self._authors = policy_authors.Authors(table, self.aside)
        self.tokens = token_requests.TokenRequests(
            jwt.Signer(signing_key),
            issuer=options.issuer,
            api_audiences=audiences,
            issued=accounts.issued,
            max_expiration=options.max_token_seconds,
            replica=replica,
            clock=clock,
        )
        self.openid = openid.OpenId(options.issuer, key_set)
        self.admitter = self._admission(plugin.Context(replica, self.authorizers.decide, clock.now))

    def _authorizers(self, replica: replica_module.Replica) -> access.Authorizers:
        rules_of = self.policy.policy.role_rules
        return access.Authorizers(
            (
                recovering.Authorizer(node_recovery.owner_of(replica)),
                authorizer.NodeAuthorizer(self._nodes.graph),
                self.policy.policy,
            ),
            scopes.Scopes(lambda role: rules_of(rbac_policy.CLUSTER_ROLE, "", role)),
        )

    def _admission(self, context: plugin.Context) -> station.Admitter:
        priorities = pod_scheduling.Priorities()
        validating_rows = validating(self.policy.policy, self._storage, self.revocations, self._authors, priorities)
        return station.Admitter(
            plugin.Chain(mutating(self._authors, priorities), context),
            plugin.Chain(validating_rows, context),
            self.webhooks,
            self.admission_policies,
            self.mutating_policies,
            plugin.Chain(reserving(self._storage), context),
        )

    def load(self) -> None:
        """Take in what is stored, and follow it from here on."""
        self.revocations.load()
        self.policy.load()
        self._nodes.load()
        self.webhooks.load()
        self.admission_policies.load()
        self.mutating_policies.load()
        self.client_cas.load()
        self.bootstrap_cas.load()
        self.standing.load(self._storage.replica)

    async def ensure(self) -> None:
        """Make what must be there before anybody can be judged."""
        await default_policy.ensure(self._storage, self._clock)
        await self.client_cas.ensure()

    def sign_with(self, signing_key: keys.PrivateKey, token_keys: Sequence[keys.PublicKey]) -> None:
        """Believe service account tokens of these keys, tell the world so, and sign with this one, from now on."""
        key_set = jwt.KeySet(token_keys)
        self._accounts.trust(key_set)
        self.standing.lost()
        self.openid.publish(key_set)
        self.tokens.sign_with(jwt.Signer(signing_key))

    def require_not_denied(self, user: identity.User) -> None:
        """What an open watch is asked again when somebody was revoked."""
        self.revocations.check(user, self._clock.now())
