# SPDX-License-Identifier: Apache-2.0
"""Validation: everything wrong with a document that is to be created or to replace another, in Kubernetes' words.

The document is decoded, checked against the schema's types and defaulted before. An empty list means it may be
stored; nothing is changed here. The metadata rules are those of all kinds, the rest is one row per kind below. The
subresources (status, scale, approval) have their own rules elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handfast.api import (
    kinds,
    status,
    validation_access,
    validation_core,
    validation_definitions,
    validation_metadata,
    validation_network,
    validation_pods,
    validation_storage,
    validation_webhooks,
    validation_workloads,
)
from handfast.api import validation_fields as fields

_Create = Callable[[dict[str, Any]], fields.Causes]
_Update = Callable[[dict[str, Any], dict[str, Any]], fields.Causes]
_RBAC = "rbac.authorization.k8s.io"
_WEBHOOKS = "admissionregistration.k8s.io"

# What a document of the kind has to be like, whether it is new or not.
_CREATE: Mapping[tuple[str, str], _Create] = {
    ("", "secrets"): validation_core.secret,
    ("", "configmaps"): validation_core.configmap,
    ("", "namespaces"): validation_core.namespace,
    ("", "nodes"): validation_core.node,
    ("", "events"): validation_core.event,
    ("events.k8s.io", "events"): validation_core.new_event,
    ("", "services"): validation_network.service,
    ("", "endpoints"): validation_network.endpoints,
    ("discovery.k8s.io", "endpointslices"): validation_network.endpointslice,
    ("", "pods"): validation_pods.pod,
    ("", "persistentvolumes"): validation_storage.persistentvolume,
    ("", "persistentvolumeclaims"): validation_storage.persistentvolumeclaim,
    ("storage.k8s.io", "storageclasses"): validation_storage.storageclass,
    ("storage.k8s.io", "csinodes"): validation_storage.csinode,
    ("storage.k8s.io", "csidrivers"): validation_storage.csidriver,
    ("storage.k8s.io", "volumeattachments"): validation_storage.volumeattachment,
    ("node.k8s.io", "runtimeclasses"): validation_storage.runtimeclass,
    ("apps", "deployments"): validation_workloads.deployment,
    ("apps", "replicasets"): validation_workloads.replicaset,
    ("apps", "statefulsets"): validation_workloads.statefulset,
    ("apps", "daemonsets"): validation_workloads.daemonset,
    ("", "replicationcontrollers"): validation_workloads.replicationcontroller,
    ("batch", "jobs"): validation_workloads.job,
    ("batch", "cronjobs"): validation_workloads.cronjob,
    (_RBAC, "roles"): validation_access.role,
    (_RBAC, "clusterroles"): validation_access.clusterrole,
    (_RBAC, "rolebindings"): validation_access.rolebinding,
    (_RBAC, "clusterrolebindings"): validation_access.clusterrolebinding,
    ("coordination.k8s.io", "leases"): validation_access.lease,
    ("certificates.k8s.io", "certificatesigningrequests"): validation_access.certificatesigningrequest,
    (_WEBHOOKS, "mutatingwebhookconfigurations"): validation_webhooks.mutating,
    (_WEBHOOKS, "validatingwebhookconfigurations"): validation_webhooks.validating,
    ("apiextensions.k8s.io", "customresourcedefinitions"): validation_definitions.definition,
}

# What may not change, beside the metadata.
_UPDATE: Mapping[tuple[str, str], _Update] = {
    ("", "secrets"): validation_core.secret_update,
    ("", "configmaps"): validation_core.configmap_update,
    ("", "nodes"): validation_core.node_update,
    ("", "services"): validation_network.service_update,
    ("discovery.k8s.io", "endpointslices"): validation_network.endpointslice_update,
    ("", "pods"): validation_pods.pod_update,
    ("", "persistentvolumes"): validation_storage.persistentvolume_update,
    ("", "persistentvolumeclaims"): validation_storage.persistentvolumeclaim_update,
    ("storage.k8s.io", "storageclasses"): validation_storage.storageclass_update,
    ("storage.k8s.io", "volumeattachments"): validation_storage.volumeattachment_update,
    ("node.k8s.io", "runtimeclasses"): validation_storage.runtimeclass_update,
    ("apps", "deployments"): validation_workloads.selector_update,
    ("apps", "replicasets"): validation_workloads.selector_update,
    ("apps", "daemonsets"): validation_workloads.selector_update,
    ("apps", "statefulsets"): validation_workloads.statefulset_update,
    ("batch", "jobs"): validation_workloads.job_update,
    (_RBAC, "rolebindings"): validation_access.binding_update,
    (_RBAC, "clusterrolebindings"): validation_access.binding_update,
    ("certificates.k8s.io", "certificatesigningrequests"): validation_access.certificatesigningrequest_update,
    ("apiextensions.k8s.io", "customresourcedefinitions"): validation_definitions.definition_update,
}


def create(kind: kinds.Kind, document: dict[str, Any]) -> list[status.Cause]:
    """Everything wrong with a new document."""
    return [*validation_metadata.create(kind, document), *_CREATE.get(kind.resource, _nothing)(document)]


def update(kind: kinds.Kind, document: dict[str, Any], old: dict[str, Any]) -> list[status.Cause]:
    """Everything wrong with a document that is to replace `old`."""
    return [
        *validation_metadata.update(kind, document, old),
        *_CREATE.get(kind.resource, _nothing)(document),
        *_UPDATE.get(kind.resource, _unchanged)(document, old),
    ]


def _nothing(_document: dict[str, Any]) -> fields.Causes:
    return iter(())


def _unchanged(_document: dict[str, Any], _old: dict[str, Any]) -> fields.Causes:
    return iter(())
