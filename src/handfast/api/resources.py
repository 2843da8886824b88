# SPDX-License-Identifier: Apache-2.0
"""The built-in resources that this program itself reads and writes: their rows in the table of kinds, by name.

Everybody who calls an API takes them from here, so that a path is written from the table and nowhere by hand. Handfast's
own kinds are in `handfast_kinds`. What is only served, and never called for, has no name here.
"""

from __future__ import annotations

from typing import Final

from handfast.api import kinds, signing_requests

CONFIG_MAPS: Final = kinds.row("configmaps")
ENDPOINTS: Final = kinds.row("endpoints")
EVENTS: Final = kinds.row("events")
NAMESPACES: Final = kinds.row("namespaces")
NODES: Final = kinds.row("nodes")
PODS: Final = kinds.row("pods")
RESOURCE_QUOTAS: Final = kinds.row("resourcequotas")
SECRETS: Final = kinds.row("secrets")
SERVICE_ACCOUNTS: Final = kinds.row("serviceaccounts")
SERVICES: Final = kinds.row("services")

VALIDATING_ADMISSION_POLICIES: Final = kinds.row("validatingadmissionpolicies", "admissionregistration.k8s.io")
VALIDATING_ADMISSION_POLICY_BINDINGS: Final = kinds.row(
    "validatingadmissionpolicybindings", "admissionregistration.k8s.io"
)
CLUSTER_ROLE_BINDINGS: Final = kinds.row("clusterrolebindings", "rbac.authorization.k8s.io")
CLUSTER_ROLES: Final = kinds.row("clusterroles", "rbac.authorization.k8s.io")
CUSTOM_RESOURCE_DEFINITIONS: Final = kinds.row("customresourcedefinitions", "apiextensions.k8s.io")
ENDPOINT_SLICES: Final = kinds.row("endpointslices", "discovery.k8s.io")
POD_DISRUPTION_BUDGETS: Final = kinds.row("poddisruptionbudgets", "policy")
LEASES: Final = kinds.row("leases", "coordination.k8s.io")
SIGNING_REQUESTS: Final = kinds.row("certificatesigningrequests", signing_requests.GROUP)
SUBJECT_ACCESS_REVIEWS: Final = kinds.row("subjectaccessreviews", "authorization.k8s.io")
