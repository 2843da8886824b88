# SPDX-License-Identifier: Apache-2.0
"""The objects that a fleet of machines begins with. Documents only: who applies them is the caller's.

What they open, and to whom:

1. `system-bootstrap-node-bootstrapper`: the bootstrap identity files certificate requests, and sees them.
2. `system-bootstrap-node-renewal`: what a node asks for itself to go on as itself is approved without asking.
3. ConfigMap openshift-config/kubelet-bootstrap-kubeconfig: certificates of its bundle are believed, for the bootstrap identity.
4. Machines of the masters: their first requests are approved by the machine-approver, as those of any other machine. Nothing
   approves every request while a cluster is installed, as OpenShift's bootstrap host does.
5. Role `system:controller:node-bootstrapper-token`: the controllers of this program create Secrets, in the one namespace where the
   worker's token is kept. A rule cannot name what is to be created, so that a namespace is as narrow as it gets.

Nobody is given `certificatesigningrequests/nodeclient`: with it, whoever has the bootstrap credential would be approved
without a Machine.

6. The marker is written last, where few may delete it. Where it is, what was deleted since stays deleted: a start after a
   revocation must not bring the revoked credential back.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from typing import Any, Final

from handfast.api import machine_config_kinds, machine_kinds, objects
from handfast.bootstrap import first_objects
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper, credential_end, credentials, settings

NAMESPACES: Final = (
    bootstrapper.CONFIG_NAMESPACE,
    bootstrapper.MANAGED_NAMESPACE,
    bootstrapper.NAMESPACE,
    machine_kinds.NAMESPACE,
    settings.NAMESPACE,
)
# The kubeconfig with the master's credential, for whoever renders the masters' configuration.
KUBECONFIG_SECRET: Final = "kubelet-bootstrap-kubeconfig"  # noqa: S105 - the name of a Secret
KUBECONFIG_KEY: Final = "kubeconfig"
# 6. says that all of this was there once
MARKER: Final = "handfast-machines"
MARKER_NAMESPACE: Final = "kube-system"
# … and since when the machine-config server has its rights, which earlier releases did not make
CONFIGURATIONS: Final = "configurations"

_RBAC: Final = "rbac.authorization.k8s.io"
_KEEPER: Final = "system:controller:node-bootstrapper-token"
_CSR: Final = "system:certificates.k8s.io:certificatesigningrequests"


def before_machines() -> tuple[first_objects.FirstObject, ...]:
    """Namespaces, account, rights and the kinds: what has to be there before anything of a fleet (1, 2, 5)."""
    account = _core("ServiceAccount", "serviceaccounts", bootstrapper.NAMESPACE, bootstrapper.ACCOUNT, {})
    return (
        *(_object("", "v1", "namespaces", "Namespace", "", name, {}) for name in NAMESPACES),
        account,
        _binding("system-bootstrap-node-bootstrapper", "system:node-bootstrapper", _account()),
        _binding("system-bootstrap-node-renewal", f"{_CSR}:selfnodeclient", _group(user_names.NODES)),
        *_keeper(),
        *(_definition(document) for document in machine_kinds.definitions()),
    )


def pools() -> tuple[first_objects.FirstObject, ...]:
    """The two pools that every fleet has."""
    row = machine_config_kinds.MACHINE_CONFIG_POOL
    return tuple(
        first_objects.FirstObject(row.group, row.version, row.plural, False, machine_config_kinds.pool(role))
        for role in machine_config_kinds.ROLES
    )


def trust(bundle: bytes, revoke_at: datetime.datetime | None) -> first_objects.FirstObject:
    """The ConfigMap that makes the master's credential count (3)."""
    document = credentials.config_map(bundle)
    if revoke_at is not None:
        document["data"][credential_end.KEY] = objects.timestamp(revoke_at)
    return first_objects.FirstObject("", "v1", "configmaps", True, document)


def kubeconfig(text: bytes) -> first_objects.FirstObject:
    """The Secret that the masters' configuration is rendered from."""
    data = {KUBECONFIG_KEY: base64.b64encode(text).decode("ascii")}
    body = {"type": "Opaque", "data": data}
    return _core("Secret", "secrets", bootstrapper.NAMESPACE, KUBECONFIG_SECRET, body)


def marker(now: datetime.datetime) -> first_objects.FirstObject:
    """The last object (6)."""
    body = {"data": {"installed": objects.timestamp(now), CONFIGURATIONS: objects.timestamp(now)}}
    return _core("ConfigMap", "configmaps", MARKER_NAMESPACE, MARKER, body)


def _definition(document: objects.Document) -> first_objects.FirstObject:
    return first_objects.FirstObject("apiextensions.k8s.io", "v1", "customresourcedefinitions", False, document)


def _core(kind: str, plural: str, namespace: str, name: str, body: dict[str, Any]) -> first_objects.FirstObject:
    return _object("", "v1", plural, kind, namespace, name, body)


def _binding(name: str, role: str, subjects: Sequence[dict[str, str]]) -> first_objects.FirstObject:
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
    body = {"roleRef": reference, "subjects": list(subjects)}
    return _object(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", "", name, body)


def _keeper() -> tuple[first_objects.FirstObject, ...]:
    """The right to keep the worker's token (5)."""
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": _KEEPER}
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": user_names.CONTROLLERS}]
    binding = {"roleRef": reference, "subjects": subjects}
    return (
        _object(_RBAC, "v1", "roles", "Role", bootstrapper.NAMESPACE, _KEEPER, {"rules": [rule]}),
        _object(_RBAC, "v1", "rolebindings", "RoleBinding", bootstrapper.NAMESPACE, _KEEPER, binding),
    )


def _account() -> list[dict[str, str]]:
    return [{"kind": "ServiceAccount", "name": bootstrapper.ACCOUNT, "namespace": bootstrapper.NAMESPACE}]


def _group(name: str) -> list[dict[str, str]]:
    return [{"apiGroup": _RBAC, "kind": "Group", "name": name}]


def _object(
    group: str, version: str, plural: str, kind: str, namespace: str, name: str, body: dict[str, Any]
) -> first_objects.FirstObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    api_version = f"{group}/{version}" if group else version
    document = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}
    return first_objects.FirstObject(group, version, plural, bool(namespace), document)
