# SPDX-License-Identifier: Apache-2.0
"""What controllers need in a cluster whose API server is another: an account, its rights, and the kind of the ledger.

Documents only, for `handfast serve controllers --print-manifest`: whoever reads them applies them. Handfast's own API
server has all of it from the start (`rules.rbac_default_roles`, `api.handfast_kinds`).

1. Each controller has a list of its own, of what it calls and nothing else: those that are not chosen add nothing.
2. Objects with a known name are named, also where they are followed: such a watch asks for that one name.
3. Secrets are read in `kube-system` alone. RBAC cannot tell the metadata of Secrets from their content, so that tokens in
   wrong namespaces are not looked for there; the signer does without.
4. A controller without a list does what a cluster's own controller manager does already.

Who gets hold of a token of the account can do what the chosen controllers do: with signer or cleaner of tokens, read every
Secret of `kube-system`; with the approver, approve a request that a rule would not, for whoever signs there. It takes the
CA's key, which is no object, to make a certificate of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast.api import handfast_kinds, objects
from handfast.assembly import controller_names
from handfast.bootstrap import cluster_info, tokens
from handfast.rules import rbac, signers
from handfast.rules import rbac_default_roles as roles

ACCOUNT: Final = "handfast-controllers"
NAMESPACE: Final = "kube-system"
_NAME: Final = "handfast:controllers"
_EVERYWHERE: Final = ""


@dataclass(frozen=True, slots=True)
class Right:
    """A rule, and the namespace that it holds in; an empty one is the whole cluster."""

    namespace: str
    rule: rbac.PolicyRule


def _everywhere(*rules: rbac.PolicyRule) -> tuple[Right, ...]:
    return tuple(Right(_EVERYWHERE, rule) for rule in rules)


def _within(namespace: str, *rules: rbac.PolicyRule) -> tuple[Right, ...]:
    return tuple(Right(namespace, rule) for rule in rules)


_REQUESTS: Final = "certificatesigningrequests"
_LOGS: Final = handfast_kinds.ISSUANCE_LOG.plural
_FOLLOW: Final = "list watch"
_INFO: Final = _within(cluster_info.NAMESPACE, roles.on("", "configmaps", "get list update watch", cluster_info.NAME))
# What every process of controllers does: it takes turns with others, and says what it did.
_COMMON: Final = (
    *_within(
        NAMESPACE,
        roles.on(roles.COORDINATION, "leases", "create"),
        roles.on(roles.COORDINATION, "leases", "get update", controller_names.LEASE),
    ),
    *_everywhere(roles.on("", "events", "create get update")),
)

# 1.
RIGHTS: Final[Mapping[str, tuple[Right, ...]]] = {
    "cluster-info-publisher-controller": (
        *_everywhere(roles.on("", "namespaces", _FOLLOW)),
        *_INFO,
        *_within(cluster_info.NAMESPACE, roles.on("", "configmaps", "create")),
    ),
    "bootstrap-signer-controller": (*_INFO, *_within(tokens.NAMESPACE, roles.on("", "secrets", _FOLLOW))),
    "token-cleaner-controller": _within(tokens.NAMESPACE, roles.on("", "secrets", "delete get list watch")),
    "certificatesigningrequest-approving-controller": (
        *_everywhere(
            roles.on(roles.CERTIFICATES, _REQUESTS, _FOLLOW),
            roles.on(roles.CERTIFICATES, f"{_REQUESTS}/approval", "update"),
            roles.on(roles.CERTIFICATES, "signers", "approve", signers.KUBELET_CLIENT, signers.KUBELET_SERVING),
            roles.on(roles.AUTHORIZATION, "subjectaccessreviews", "create"),
            roles.on("", "nodes", "get list"),
        ),
        *_within(cluster_info.NAMESPACE, roles.on("", "configmaps", "get", cluster_info.NAME)),
        *_within("default", roles.on("", "services", "get", "kubernetes")),
    ),
    "certificatesigningrequest-signing-controller": _everywhere(
        roles.on(roles.CERTIFICATES, _REQUESTS, _FOLLOW),
        roles.on(roles.CERTIFICATES, f"{_REQUESTS}/status", "update"),
        roles.on(roles.CERTIFICATES, "signers", "sign", *sorted(signers.SIGNERS)),
        roles.on(roles.HANDFAST, _LOGS, "create get list patch"),
    ),
    "certificatesigningrequest-cleaner-controller": _everywhere(
        roles.on(roles.CERTIFICATES, _REQUESTS, f"delete {_FOLLOW}")
    ),
    "issuance-log-cleaner-controller": _everywhere(roles.on(roles.HANDFAST, _LOGS, "delete get list")),
}
_KEEPS_THE_LEDGER: Final = frozenset(
    {"certificatesigningrequest-signing-controller", "issuance-log-cleaner-controller"}
)


def without(names: Iterable[str]) -> tuple[str, ...]:
    """Those of them that nothing is said of (4.)."""
    return tuple(name for name in names if name not in RIGHTS)


def documents(names: Sequence[str]) -> list[objects.Document]:
    """The objects for these controllers, in an order in which they can be applied; nothing for those of `without`."""
    rights = [right for name in names for right in RIGHTS.get(name, ())]
    if not rights:
        return []
    ledger = [handfast_kinds.definition(handfast_kinds.ISSUANCE_LOG)] if _KEEPS_THE_LEDGER & set(names) else []
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": NAMESPACE},
    }
    by_namespace: dict[str, list[rbac.PolicyRule]] = {}
    for right in (*_COMMON, *rights):
        by_namespace.setdefault(right.namespace, []).append(right.rule)
    granted = [
        each for namespace, rules in sorted(by_namespace.items()) for each in _granted(namespace, _merged(rules))
    ]
    return [*ledger, account, *granted]


def _merged(rules: Iterable[rbac.PolicyRule]) -> list[rbac.PolicyRule]:
    """One rule for each set of objects, with the verbs of all."""
    verbs: dict[rbac.PolicyRule, set[str]] = {}
    for rule in rules:
        verbs.setdefault(msgspec.structs.replace(rule, verbs=()), set()).update(rule.verbs)
    return [msgspec.structs.replace(rule, verbs=tuple(sorted(found))) for rule, found in verbs.items()]


def _granted(namespace: str, rules: Sequence[rbac.PolicyRule]) -> tuple[objects.Document, objects.Document]:
    """A role in a namespace, or in the cluster, and its binding to the account."""
    prefix = "" if namespace else "Cluster"
    metadata = {"name": _NAME, **({"namespace": namespace} if namespace else {})}
    head = {"apiVersion": f"{rbac.GROUP}/v1"}
    role: dict[str, Any] = {**head, "kind": f"{prefix}Role", "metadata": metadata}
    binding: dict[str, Any] = {**head, "kind": f"{prefix}RoleBinding", "metadata": dict(metadata)}
    return (
        {**role, "rules": [rule.document() for rule in rules]},
        {
            **binding,
            "roleRef": {"apiGroup": rbac.GROUP, "kind": role["kind"], "name": _NAME},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        },
    )
