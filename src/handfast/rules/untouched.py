# SPDX-License-Identifier: Apache-2.0
"""Which objects does no mutating policy change? Those by which the cluster decides whom to believe.

A policy acts with the rights of whoever writes the object: whoever may write policies would approve with an approver's word, sign with a
signer's, and bind roles with an administrator's. Kubernetes lets it. Here these are left as they were sent:

1. Requests for certificates, with their approval and status, and everything else of that group.
2. Roles and their bindings.
3. Reviews of tokens and of access, which are answered and not stored; Kubernetes excludes these, too.
4. Tokens: what is asked for at `serviceaccounts/token`, and Secrets of the types of bootstrap and service account tokens, of the new or the old object.
5. Handfast's own kinds: the ledger, revocations, the mesh's policies and workloads; machines and their configurations.
6. ConfigMaps that say whom to believe: those that need the verb `trust`, and `cluster-info`.
7. Webhook configurations and policies (`webhooks.matching`), so that nobody locks them against repair.

Policies that only judge see all of these but the last: they can refuse more, and never allow more. Mutating webhooks see what they see in
Kubernetes; the checks that grant something come after them.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_untouched.py |
|---|---|---|---|---|
| who may write policies | a mutation of `approval` | turn a denial into an approval | 1 | test_requests_for_certificates_are_left_alone |
| … | a mutation of bindings | have an administrator bind a role to them | 2 | test_roles_are_left_alone |
| … | a mutation of token requests or Secrets | lengthen a token, or add a group to it | 4 | test_tokens_are_left_alone |
| … | a mutation of `revocations` | have a revocation name somebody else | 5 | test_handfasts_own_kinds_are_left_alone |
| … | a mutation of ConfigMaps | add a CA to what an administrator writes | 6 | test_configmaps_of_trust_are_left_alone |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from handfast.api import handfast_kinds, jsonpath, kinds, machine_config_kinds, machine_kinds, objects, signing_requests
from handfast.bootstrap import cluster_info, tokens
from handfast.rules import client_ca_bundle
from handfast.rules.machines import client_ca_sources, settings
from handfast.rules.webhooks import configurations

_GROUPS: Final = kinds.REVIEW_GROUPS | {  # 3. reviews
    signing_requests.GROUP,  # 1. requests for certificates
    "rbac.authorization.k8s.io",  # 2. roles
    handfast_kinds.GROUP,  # 5. our own kinds
    machine_kinds.GROUP,
    machine_config_kinds.GROUP,
}
_TOKEN_TYPES: Final = frozenset({tokens.SECRET_TYPE, "kubernetes.io/service-account-token"})
_CONFIGMAPS: Final = frozenset(
    {
        (client_ca_bundle.NAMESPACE, client_ca_bundle.NAME),
        (client_ca_bundle.NAMESPACE, client_ca_bundle.HISTORY),
        (settings.NAMESPACE, settings.NAME),
        (cluster_info.NAMESPACE, cluster_info.NAME),
        *client_ca_sources.ALL,
    }
)


def is_untouched_kind(kind: kinds.Kind, subresource: str) -> bool:
    """Whether no object of a kind is changed, whatever it is."""
    return kind.group in _GROUPS or (kind.resource == ("", "serviceaccounts") and subresource == "token")


def is_untouched(
    kind: kinds.Kind, subresource: str, place: tuple[str, str], documents: Iterable[objects.Document | None]
) -> bool:
    """Whether this object is not changed: `place` is its namespace and name, `documents` the new and the old one."""
    if is_untouched_kind(kind, subresource):  # 1. to 3., 5., and tokens that are asked for
        return True
    if kind.resource == ("", "secrets"):  # 4. tokens that are stored
        return any(jsonpath.text(document, "type") in _TOKEN_TYPES for document in documents)
    return kind.resource == ("", "configmaps") and place in _CONFIGMAPS  # 6. whom to believe


def named(rules: Iterable[configurations.Rule]) -> list[str]:
    """The groups and resources that rules name, and that no policy changes: whoever writes them should know."""
    found = []
    for rule in rules:
        found += sorted(group for group in rule.groups if group in _GROUPS)
        found += (
            ["serviceaccounts/token"] if ("serviceaccounts", "token") in rule.resources and "" in rule.groups else []
        )
    return sorted(set(found))
