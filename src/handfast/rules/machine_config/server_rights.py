# SPDX-License-Identifier: Apache-2.0
"""What the machine-config server may read in a cluster, as roles and bindings. Documents only: who applies them is the caller's.

1. It may list and watch what it follows, and nothing else: it writes nothing.
2. Secrets in one namespace, that of the bootstrap credentials, since it hands them out. ConfigMaps by their names.
3. All Machines, Nodes, pools, MachineConfigs and Revocations: any of them may ask, or be asked for.

Whoever takes over the server has the bootstrap credential of every pool, since it hands them out. They have no node's certificate, and no
right to approve one.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_server_rights.py |
|---|---|---|---|---|
| who took over the server | its kubeconfig | change an object | 1 | test_it_may_write_nothing |
| … | … | read Secrets of other namespaces | 2 | test_secrets_are_read_in_one_namespace |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handfast.api import handfast_kinds, machine_config_kinds, objects
from handfast.bootstrap import first_objects
from handfast.rules import user_names
from handfast.rules.machine_config import credential
from handfast.rules.machines import bootstrapper, inventory
from handfast.rules.rbac import default_roles as roles
from handfast.rules.rbac import policy_rules

ACCOUNT: Final = "handfast-machine-config-server"
ACCOUNT_NAMESPACE: Final = "kube-system"
_NAME: Final = user_names.MACHINE_CONFIG_SERVER
_FOLLOW: Final = "list watch"
_CLUSTER: Final = ""


def _rules() -> dict[str, list[policy_rules.PolicyRule]]:
    """The rules by the namespace that they hold in; an empty one is the whole cluster."""
    by_namespace = {
        # 3. any of them may ask, or be asked for
        _CLUSTER: [
            roles.on("", "nodes", _FOLLOW),
            roles.on(machine_config_kinds.GROUP, "machineconfigpools machineconfigs", _FOLLOW),
            *(roles.on(group, "machines", _FOLLOW) for group in inventory.GROUPS),
            roles.on(roles.HANDFAST, handfast_kinds.REVOCATION.plural, _FOLLOW),
        ],
        # 2. the Secrets of one namespace
        bootstrapper.NAMESPACE: [roles.on("", "secrets", _FOLLOW)],
    }
    for namespace, name in credential.CONFIG_MAPS:
        by_namespace.setdefault(namespace, []).append(roles.on("", "configmaps", _FOLLOW, name))
    return by_namespace


def first() -> tuple[first_objects.FirstObject, ...]:
    """For this program's own server, whose user is known by its certificate."""
    user = {"apiGroup": policy_rules.GROUP, "kind": "User", "name": user_names.MACHINE_CONFIG_SERVER}
    return tuple(
        first_objects.FirstObject(
            policy_rules.GROUP,
            "v1",
            f"{document['kind'].lower()}s",
            "namespace" in document["metadata"],
            document,
        )
        for document in _granted(user)
    )


def manifest() -> list[objects.Document]:
    """For a cluster with another API server: an account, and its rights."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": ACCOUNT_NAMESPACE},
    }
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in sorted(_rules()) if name
    ]
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": ACCOUNT_NAMESPACE}
    return [account, *namespaces, *_granted(subject)]


def _granted(subject: Mapping[str, str]) -> list[objects.Document]:
    documents = []
    for namespace, rules in _rules().items():
        role = "Role" if namespace else "ClusterRole"
        reference = {"apiGroup": policy_rules.GROUP, "kind": role, "name": _NAME}
        documents += [
            _document(role, namespace, rules=[rule.document() for rule in rules]),
            _document(f"{role}Binding", namespace, roleRef=reference, subjects=[dict(subject)]),
        ]
    return documents


def _document(kind: str, namespace: str, **body: Any) -> objects.Document:
    metadata = {"name": _NAME, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{policy_rules.GROUP}/v1", "kind": kind, "metadata": metadata, **body}
