# SPDX-License-Identifier: Apache-2.0
"""Validation: everything wrong with a document that is to be created or to replace another, in Kubernetes' words.

The document is decoded, checked against the schema's types and defaulted before. An empty list means it may be
stored; nothing is changed here. The metadata rules are those of all kinds, the rest is one row per kind below. The
subresources (status, scale, approval) have their own rules elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handfast.api import field_errors as fields
from handfast.api import kinds, status
from handfast.api.validation import (
    access,
    autoscaling,
    core,
    definitions,
    metadata,
    mutating_policies,
    network,
    pods,
    policies,
    quotas,
    scheduling,
    storage,
    traffic,
    workloads,
)

_Create = Callable[[dict[str, Any]], fields.Causes]
_Update = Callable[[dict[str, Any], dict[str, Any]], fields.Causes]
_RBAC = "rbac.authorization.k8s.io"
_NETWORKING = "networking.k8s.io"
_WEBHOOKS = "admissionregistration.k8s.io"

# What a document of the kind has to be like, whether it is new or not.
_CREATE: Mapping[tuple[str, str], _Create] = {
    ("", "secrets"): core.secret,
    ("", "configmaps"): core.configmap,
    ("", "namespaces"): core.namespace,
    ("", "nodes"): core.node,
    ("", "events"): core.event,
    ("events.k8s.io", "events"): core.new_event,
    ("", "services"): network.service,
    ("", "endpoints"): network.endpoints,
    ("discovery.k8s.io", "endpointslices"): network.endpointslice,
    ("", "pods"): pods.pod,
    ("", "persistentvolumes"): storage.persistentvolume,
    ("", "persistentvolumeclaims"): storage.persistentvolumeclaim,
    ("storage.k8s.io", "storageclasses"): storage.storageclass,
    ("storage.k8s.io", "csinodes"): storage.csinode,
    ("storage.k8s.io", "csidrivers"): storage.csidriver,
    ("storage.k8s.io", "volumeattachments"): storage.volumeattachment,
    ("node.k8s.io", "runtimeclasses"): storage.runtimeclass,
    ("apps", "deployments"): workloads.deployment,
    ("apps", "replicasets"): workloads.replicaset,
    ("apps", "statefulsets"): workloads.statefulset,
    ("apps", "daemonsets"): workloads.daemonset,
    ("", "replicationcontrollers"): workloads.replicationcontroller,
    ("", "podtemplates"): scheduling.podtemplate,
    ("", "resourcequotas"): quotas.resourcequota,
    ("", "limitranges"): quotas.limitrange,
    ("apps", "controllerrevisions"): scheduling.controllerrevision,
    ("autoscaling", "horizontalpodautoscalers"): autoscaling.horizontalpodautoscaler,
    ("batch", "jobs"): workloads.job,
    ("batch", "cronjobs"): workloads.cronjob,
    (_NETWORKING, "ingresses"): traffic.ingress,
    (_NETWORKING, "ingressclasses"): traffic.ingressclass,
    (_NETWORKING, "networkpolicies"): traffic.networkpolicy,
    ("policy", "poddisruptionbudgets"): scheduling.poddisruptionbudget,
    ("scheduling.k8s.io", "priorityclasses"): scheduling.priorityclass,
    ("storage.k8s.io", "csistoragecapacities"): storage.csistoragecapacity,
    (_NETWORKING, "ipaddresses"): traffic.ip_address,
    (_NETWORKING, "servicecidrs"): traffic.servicecidr,
    ("storage.k8s.io", "volumeattributesclasses"): storage.volumeattributesclass,
    (_RBAC, "roles"): access.role,
    (_RBAC, "clusterroles"): access.clusterrole,
    (_RBAC, "rolebindings"): access.rolebinding,
    (_RBAC, "clusterrolebindings"): access.clusterrolebinding,
    ("coordination.k8s.io", "leases"): access.lease,
    ("certificates.k8s.io", "certificatesigningrequests"): access.certificatesigningrequest,
    (_WEBHOOKS, "mutatingwebhookconfigurations"): policies.mutating_webhooks,
    (_WEBHOOKS, "validatingwebhookconfigurations"): policies.validating_webhooks,
    (_WEBHOOKS, "mutatingadmissionpolicies"): mutating_policies.policy,
    (_WEBHOOKS, "mutatingadmissionpolicybindings"): mutating_policies.binding,
    (_WEBHOOKS, "validatingadmissionpolicies"): policies.policy,
    (_WEBHOOKS, "validatingadmissionpolicybindings"): policies.binding,
    ("apiextensions.k8s.io", "customresourcedefinitions"): definitions.definition,
}

# What is asked of new documents only, beside that.
_NEW: Mapping[tuple[str, str], _Create] = {
    ("", "services"): network.new_service,
    (_NETWORKING, "ingresses"): traffic.new_ingress,
}

# What may not change, beside the metadata.
_UPDATE: Mapping[tuple[str, str], _Update] = {
    ("", "secrets"): core.secret_update,
    ("", "configmaps"): core.configmap_update,
    ("", "nodes"): core.node_update,
    ("", "services"): network.service_update,
    ("discovery.k8s.io", "endpointslices"): network.endpointslice_update,
    ("", "pods"): pods.pod_update,
    ("", "persistentvolumes"): storage.persistentvolume_update,
    ("", "persistentvolumeclaims"): storage.persistentvolumeclaim_update,
    ("storage.k8s.io", "storageclasses"): storage.storageclass_update,
    ("storage.k8s.io", "volumeattachments"): storage.volumeattachment_update,
    ("node.k8s.io", "runtimeclasses"): storage.runtimeclass_update,
    ("apps", "deployments"): workloads.selector_update,
    ("apps", "replicasets"): workloads.selector_update,
    ("apps", "daemonsets"): workloads.selector_update,
    ("apps", "statefulsets"): workloads.statefulset_update,
    ("batch", "jobs"): workloads.job_update,
    ("", "resourcequotas"): quotas.resourcequota_update,
    ("apps", "controllerrevisions"): scheduling.controllerrevision_update,
    (_NETWORKING, "ingressclasses"): traffic.ingressclass_update,
    ("scheduling.k8s.io", "priorityclasses"): scheduling.priorityclass_update,
    ("storage.k8s.io", "csistoragecapacities"): storage.csistoragecapacity_update,
    (_NETWORKING, "ipaddresses"): traffic.ip_address_update,
    (_NETWORKING, "servicecidrs"): traffic.servicecidr_update,
    ("storage.k8s.io", "volumeattributesclasses"): storage.volumeattributesclass_update,
    (_RBAC, "rolebindings"): access.binding_update,
    (_RBAC, "clusterrolebindings"): access.binding_update,
    ("certificates.k8s.io", "certificatesigningrequests"): access.certificatesigningrequest_update,
    ("apiextensions.k8s.io", "customresourcedefinitions"): definitions.definition_update,
}


def create(kind: kinds.Kind, document: dict[str, Any]) -> list[status.Cause]:
    """Everything wrong with a new document."""
    return [
        *metadata.create(kind, document),
        *_CREATE.get(kind.resource, _nothing)(document),
        *_NEW.get(kind.resource, _nothing)(document),
    ]


def update(kind: kinds.Kind, document: dict[str, Any], old: dict[str, Any]) -> list[status.Cause]:
    """Everything wrong with a document that is to replace `old`."""
    return [
        *metadata.update(kind, document, old),
        *_CREATE.get(kind.resource, _nothing)(document),
        *_UPDATE.get(kind.resource, _unchanged)(document, old),
    ]


def _nothing(_document: dict[str, Any]) -> fields.Causes:
    return iter(())


def _unchanged(_document: dict[str, Any], _old: dict[str, Any]) -> fields.Causes:
    return iter(())
