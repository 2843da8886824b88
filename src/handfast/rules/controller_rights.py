# SPDX-License-Identifier: Apache-2.0
"""What controllers need in a cluster whose API server is another: an account, its rights, and the kind of the ledger.

Documents only, for `handfast serve controllers --print-manifest`: whoever reads them applies them. Handfast's own API
server has all of it from the start (`rules.rbac.default_roles`, `api.handfast_kinds`).

1. Each controller has a list of its own, of what it calls and nothing else: those that are not chosen add nothing.
2. Objects with a known name are named, also where they are followed: such a watch asks for that one name.
3. Secrets are read in `kube-system`, and where the credentials of a fleet's workers are kept. RBAC cannot tell the metadata of
   Secrets from their content, so that tokens in wrong namespaces are not looked for there; the signer does without.
4. A controller without a list does what a cluster's own controller manager does already.
5. Namespaces that not every cluster has come with the rights in them.

Whoever gets hold of a token of the account can do what the chosen controllers do. With all of them that is nearly what the
CA's key can. They can read every Secret of `kube-system`, and every bootstrap credential of machines. With a bootstrap token from there they can file requests and approve
them, also one for a serving certificate with the API server's names, which a running signer then signs. They can sign a
`cluster-info` of their own, and delete entries of the ledger. Whoever may create Secrets in a namespace gets a token of every
account there: the keeper of the bootstrap token and the roll-out of credentials can, in the namespace of the machine-config-operator. Kubernetes' own controller
manager can do no less. To limit it, run fewer controllers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast.api import handfast_kinds, machine_config_kinds, objects, signer_names
from handfast.bootstrap import cluster_info, tokens
from handfast.rules.machine_config import credential
from handfast.rules.machine_config import names as config_names
from handfast.rules.machines import bootstrapper, client_ca_sources, inventory, serving
from handfast.rules.machines import settings as machine_settings
from handfast.rules.nodes import liveness
from handfast.rules.rbac import default_roles as roles
from handfast.rules.rbac import policy_rules

ACCOUNT: Final = "handfast-controllers"
NAMESPACE: Final = "kube-system"
# What processes of controllers take turns by.
LEASE: Final = "handfast-controllers"
_NAME: Final = "handfast:controllers"
_EVERYWHERE: Final = ""
_EVERY_CLUSTERS: Final = frozenset({_EVERYWHERE, "default", "kube-node-lease", "kube-public", NAMESPACE})


class Right(msgspec.Struct, frozen=True):
    """A rule, and the namespace that it holds in; an empty one is the whole cluster."""

    namespace: str
    rule: policy_rules.PolicyRule


def _everywhere(*rules: policy_rules.PolicyRule) -> tuple[Right, ...]:
    return tuple(Right(_EVERYWHERE, rule) for rule in rules)


def _within(namespace: str, *rules: policy_rules.PolicyRule) -> tuple[Right, ...]:
    return tuple(Right(namespace, rule) for rule in rules)


_REQUESTS: Final = "certificatesigningrequests"
_LOGS: Final = handfast_kinds.ISSUANCE_LOG.plural
_CONFIGS: Final = machine_config_kinds.MACHINE_CONFIG.plural
_POOLS: Final = machine_config_kinds.MACHINE_CONFIG_POOL.plural
# Another API server heeds no Revocations; where the kind is defined all the same, nothing is signed for whom they name.
_REVOCATIONS: Final = roles.on(roles.HANDFAST, handfast_kinds.REVOCATION.plural, "list watch")
# Events are written where their object is, and those of certificate requests, which have no namespace, in `default`.
_EVENTS: Final = roles.on("", "events", "create get update")
_INFO: Final = _within(
    cluster_info.NAMESPACE, roles.on("", "configmaps", "get list update watch", cluster_info.NAME), _EVENTS
)
# What every process of controllers does: it takes turns with others.
_COMMON: Final = _within(
    NAMESPACE,
    roles.on(roles.COORDINATION, "leases", "create"),
    roles.on(roles.COORDINATION, "leases", "get update", LEASE),
)

# 1. a list for each controller, of what it calls and nothing else
RIGHTS: Final[Mapping[str, tuple[Right, ...]]] = {
    "cluster-info-publisher-controller": (
        *_everywhere(roles.on("", "namespaces", "list watch")),
        *_INFO,
        *_within(cluster_info.NAMESPACE, roles.on("", "configmaps", "create")),
    ),
    "bootstrap-signer-controller": (*_INFO, *_within(tokens.NAMESPACE, roles.on("", "secrets", "list watch"), _EVENTS)),
    "token-cleaner-controller": _within(tokens.NAMESPACE, roles.on("", "secrets", "delete get list watch")),
    "certificatesigningrequest-approving-controller": (
        *_everywhere(
            roles.on(roles.CERTIFICATES, _REQUESTS, "list watch"),
            roles.on(roles.CERTIFICATES, f"{_REQUESTS}/approval", "update"),
            roles.on(
                roles.CERTIFICATES,
                "signers",
                "approve",
                signer_names.KUBELET_CLIENT,
                signer_names.KUBELET_SERVING,
            ),
            roles.on(roles.AUTHORIZATION, "subjectaccessreviews", "create"),
            roles.on("", "nodes", "get list"),
            _REVOCATIONS,
        ),
        *_within(liveness.NAMESPACE, roles.on(roles.COORDINATION, "leases", "get list watch")),
        *_within(cluster_info.NAMESPACE, roles.on("", "configmaps", "get", cluster_info.NAME)),
        *_within("default", roles.on("", "services", "get", "kubernetes"), _EVENTS),
    ),
    "certificatesigningrequest-signing-controller": (
        *_everywhere(
            roles.on(roles.CERTIFICATES, _REQUESTS, "list watch"),
            roles.on(roles.CERTIFICATES, f"{_REQUESTS}/status", "update"),
            roles.on(roles.CERTIFICATES, "signers", "sign", *sorted(signer_names.SIGNERS)),
            roles.on(roles.HANDFAST, _LOGS, "create get list patch"),
            _REVOCATIONS,
        ),
        *_within("default", _EVENTS),
    ),
    "certificatesigningrequest-cleaner-controller": _everywhere(
        roles.on(roles.CERTIFICATES, _REQUESTS, "delete list watch")
    ),
    "node-lifecycle-controller": (
        *_everywhere(roles.on("", "nodes", "list patch watch"), roles.on("", "nodes/status", "patch"), _REVOCATIONS),
        *_within(liveness.NAMESPACE, roles.on(roles.COORDINATION, "leases", "get list watch")),
        *_within("default", _EVENTS),
    ),
    "client-ca-controller": (
        # By its name everywhere: one in a wrong namespace is told of.
        *_everywhere(roles.on("", "configmaps", "get list watch", bootstrapper.CONFIG_MAP)),
        *(
            right
            for namespace, name in client_ca_sources.UNSCOPED
            for right in _within(namespace, roles.on("", "configmaps", "get list watch", name), _EVENTS)
        ),
        # One that has come to its end is deleted.
        *(
            right
            for namespace, name in client_ca_sources.BOOTSTRAP
            for right in _within(namespace, roles.on("", "configmaps", "delete", name))
        ),
    ),
    "node-bootstrapper-token-controller": (
        *_everywhere(roles.on("", "namespaces", "list watch", bootstrapper.NAMESPACE)),
        *_within(
            bootstrapper.NAMESPACE,
            roles.on("", "secrets serviceaccounts", "create"),
            roles.on("", "secrets", "delete get list watch", bootstrapper.TOKEN_SECRET),
            roles.on("", "serviceaccounts", "delete get list patch watch", bootstrapper.ACCOUNT),
            _EVENTS,
        ),
    ),
    "node-link-controller": (
        *_everywhere(
            roles.on("", "nodes", "list patch watch"),
            *(roles.on(group, "machines", "list watch") for group in inventory.GROUPS),
            # Cluster API links its own.
            roles.on(inventory.OPENSHIFT, "machines/status", "patch"),
        ),
        *_within("default", _EVENTS),
    ),
    "machine-approver-controller": (
        *_everywhere(
            roles.on(roles.CERTIFICATES, _REQUESTS, "list watch"),
            roles.on(roles.CERTIFICATES, f"{_REQUESTS}/approval", "update"),
            roles.on(
                roles.CERTIFICATES,
                "signers",
                "approve",
                signer_names.KUBELET_CLIENT,
                signer_names.KUBELET_SERVING,
            ),
            *(roles.on(group, "machines", "list patch watch") for group in inventory.GROUPS),
            roles.on("", "nodes", "get list watch"),
            roles.on(policy_rules.GROUP, "clusterrolebindings clusterroles", "list watch"),
            roles.on(serving.EGRESS_GROUP, serving.EGRESS_PLURAL, "list watch"),
            _REVOCATIONS,
        ),
        *_within(liveness.NAMESPACE, roles.on(roles.COORDINATION, "leases", "get list watch")),
        # What makes bootstrap credentials count: of these objects only since when they are there.
        *_within(bootstrapper.CONFIG_NAMESPACE, roles.on("", "configmaps", "list watch", bootstrapper.CONFIG_MAP)),
        # The same, and the kubelets' CA.
        *_within(
            bootstrapper.MANAGED_NAMESPACE,
            roles.on("", "configmaps", "list watch", bootstrapper.CONFIG_MAP, serving.CA_CONFIG_MAP),
        ),
        # The same, and the Secrets that tokens of machines are bound to, which hold none.
        *_within(
            bootstrapper.NAMESPACE,
            roles.on("", "secrets", "list watch", *bootstrapper.TOKEN_SECRETS),
            roles.on("", "secrets", "get"),
        ),
        *_within(
            machine_settings.NAMESPACE,
            roles.on("", "configmaps", "create"),
            roles.on("", "configmaps", "list watch", machine_settings.NAME),
            _EVENTS,
        ),
        *_within("default", _EVENTS),
    ),
    "machine-config-render-controller": (
        *_everywhere(
            roles.on(machine_config_kinds.GROUP, _CONFIGS, "create delete get list update watch"),
            roles.on(machine_config_kinds.GROUP, _POOLS, "get list patch watch"),
            roles.on(machine_config_kinds.GROUP, f"{_POOLS}/status", "patch"),
            roles.on("", "nodes", "list watch"),
            roles.on("", "namespaces", "list watch", bootstrapper.NAMESPACE),
        ),
        # The credentials that machines are configured with, of which renderings have the digest.
        *_within(
            bootstrapper.NAMESPACE,
            roles.on("", "secrets", "get list watch", *(name for _, name in credential.SECRETS)),
            roles.on("", "configmaps", "create"),
            roles.on("", "configmaps", "get list update watch", config_names.KUBECONFIG_DATA),
            _EVENTS,
        ),
        *(
            right
            for namespace, name in bootstrapper.CONFIG_MAPS
            for right in _within(namespace, roles.on("", "configmaps", "get list watch", name))
        ),
        *_within("default", _EVENTS),
    ),
    "machine-config-pool-controller": (
        *_everywhere(
            roles.on(machine_config_kinds.GROUP, f"{_CONFIGS} {_POOLS}", "list watch"),
            roles.on(machine_config_kinds.GROUP, f"{_POOLS}/status", "patch"),
            roles.on("", "nodes", "list patch watch"),
        ),
        *_within("default", _EVENTS),
    ),
    "credential-rollout-controller": (
        *_everywhere(
            roles.on("", "nodes", "list watch"),
            roles.on(machine_config_kinds.GROUP, "machineconfigpools machineconfigs", "list watch"),
            # Requests that came by what is cut are denied.
            roles.on(roles.CERTIFICATES, _REQUESTS, "get list"),
            roles.on(roles.CERTIFICATES, f"{_REQUESTS}/approval", "update"),
            roles.on(roles.CERTIFICATES, "signers", "approve", signer_names.KUBELET_CLIENT),
        ),
        *(
            right
            for namespace, name in bootstrapper.CONFIG_MAPS
            for right in _within(namespace, roles.on("", "configmaps", "delete get list patch watch", name))
        ),
        # Every Secret with a token of the account goes, whatever its name is.
        *_within(
            bootstrapper.NAMESPACE,
            roles.on("", "configmaps", "get list watch", config_names.KUBECONFIG_DATA),
            roles.on("", "secrets", "create delete get list patch watch"),
            roles.on("", "serviceaccounts", "get list patch watch", bootstrapper.ACCOUNT),
            _EVENTS,
        ),
    ),
    "issuance-log-cleaner-controller": _everywhere(roles.on(roles.HANDFAST, _LOGS, "delete get list")),
}


def unlisted(names: Iterable[str]) -> tuple[str, ...]:
    """Those of them that have no list (4)."""
    return tuple(name for name in names if name not in RIGHTS)


def documents(names: Sequence[str]) -> list[objects.Document]:
    """The objects for these controllers, in an order in which they can be applied; nothing for the `unlisted`."""
    rights = [right for name in names for right in RIGHTS.get(name, ())]
    if not rights:
        return []
    writes_ledger = any(_LOGS in right.rule.resources for right in rights)
    ledger = [handfast_kinds.definition(handfast_kinds.ISSUANCE_LOG)] if writes_ledger else []
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": NAMESPACE},
    }
    by_namespace: dict[str, list[policy_rules.PolicyRule]] = {}
    for right in (*_COMMON, *rights):
        by_namespace.setdefault(right.namespace, []).append(right.rule)
    granted = [
        each for namespace, rules in sorted(by_namespace.items()) for each in _granted(namespace, _merged(rules))
    ]
    # 5. namespaces that not every cluster has
    added = sorted(set(by_namespace) - _EVERY_CLUSTERS)
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in added]
    return [*ledger, account, *namespaces, *granted]


def _merged(rules: Iterable[policy_rules.PolicyRule]) -> list[policy_rules.PolicyRule]:
    """One rule for each set of objects, with the verbs of all."""
    verbs: dict[policy_rules.PolicyRule, set[str]] = {}
    for rule in rules:
        verbs.setdefault(msgspec.structs.replace(rule, verbs=()), set()).update(rule.verbs)
    return [msgspec.structs.replace(rule, verbs=tuple(sorted(words))) for rule, words in verbs.items()]


def _granted(namespace: str, rules: Sequence[policy_rules.PolicyRule]) -> tuple[objects.Document, objects.Document]:
    """A role in a namespace, or in the cluster, and its binding to the account."""
    role = "Role" if namespace else "ClusterRole"
    reference = {"apiGroup": policy_rules.GROUP, "kind": role, "name": _NAME}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    return (
        _access(role, namespace, rules=[rule.document() for rule in rules]),
        _access(f"{role}Binding", namespace, roleRef=reference, subjects=[subject]),
    )


def _access(kind: str, namespace: str, **body: Any) -> objects.Document:
    metadata = {"name": _NAME, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{policy_rules.GROUP}/v1", "kind": kind, "metadata": metadata, **body}
