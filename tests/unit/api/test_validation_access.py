# SPDX-License-Identifier: Apache-2.0
"""The rules for roles, bindings, leases and certificate signing requests."""

from __future__ import annotations

import pytest

from tests.properties.changed_documents import REMOVED, begin, created, updated
from tests.properties.sample_documents import encoded

RBAC = "rbac.authorization.k8s.io"
ROLE, CLUSTER_ROLE = (RBAC, "roles"), (RBAC, "clusterroles")
BINDING, CLUSTER_BINDING = (RBAC, "rolebindings"), (RBAC, "clusterrolebindings")
LEASE = ("coordination.k8s.io", "leases")
CSR = ("certificates.k8s.io", "certificatesigningrequests")
KEY = encoded("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
SIGNER = "spec.signerName"


@pytest.mark.parametrize(
    ("resource", "changes", "causes"),
    [
        (ROLE, {"rules": REMOVED}, []),
        (ROLE, {"rules|0|verbs": []}, ["rules[0].verbs: Required value: verbs must contain at least one value"]),
        (
            ROLE,
            {"rules": [{"verbs": ["get"]}]},
            [
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ],
        ),
        (
            ROLE,
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
            ['rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs'],
        ),
        (
            CLUSTER_ROLE,
            {"rules|0|resources": ["pods"]},
            ['rules[0].nonResourceURLs: Invalid value: ["/healthz"]: rules cannot apply to both regular resources and'],
        ),
        (CLUSTER_ROLE, {"aggregationRule": REMOVED}, []),
        (
            CLUSTER_ROLE,
            {"aggregationRule": {}},
            ["aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if"],
        ),
        (
            CLUSTER_ROLE,
            {"aggregationRule|clusterRoleSelectors": [{"matchLabels": {"a b": ""}}]},
            ['aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: "a b"'],
        ),
        (
            BINDING,
            {"roleRef": {}},
            [
                f'roleRef.apiGroup: Unsupported value: "": supported values: "{RBAC}"',
                'roleRef.kind: Unsupported value: "": supported values: "Role", "ClusterRole"',
                "roleRef.name: Required value",
            ],
        ),
        (
            CLUSTER_BINDING,
            {"roleRef|kind": "Role"},
            ['roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'],
        ),
        (BINDING, {"subjects": REMOVED}, []),
        (BINDING, {"subjects|2|namespace": REMOVED}, []),
        (CLUSTER_BINDING, {"subjects|2|namespace": REMOVED}, ["subjects[2].namespace: Required value"]),
        (
            BINDING,
            {"subjects": [{"kind": "ServiceAccount", "name": "A", "apiGroup": "x"}, {"kind": "Robot"}]},
            [
                'subjects[0].name: Invalid value: "A": a lowercase RFC 1123 subdomain',
                'subjects[0].apiGroup: Unsupported value: "x": supported values: ""',
                "subjects[1].name: Required value",
                'subjects[1].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"',
            ],
        ),
        (
            BINDING,
            {"subjects|0|apiGroup": ""},
            [f'subjects[0].apiGroup: Unsupported value: "": supported values: "{RBAC}"'],
        ),
        (
            LEASE,
            {"spec|leaseDurationSeconds": 0},
            ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
        ),
        (
            LEASE,
            {"spec|leaseTransitions": -1},
            ["spec.leaseTransitions: Invalid value: -1: must be greater than or eq"],
        ),
        (CSR, {"spec|request": ""}, ["spec.request: Required value"]),
        (CSR, {"spec|request": "%%"}, ['spec.request: Invalid value: "": PEM block type must be CERTIFICATE REQUEST']),
        (
            CSR,
            {"spec|request": KEY},
            ['spec.request: Invalid value: "PRIVATE KEY": PEM block type must be CERTIFICATE RE'],
        ),
        (CSR, {"spec|usages": []}, ["spec.usages: Required value"]),
        (
            CSR,
            {"spec|usages": ["client auth", "client auth", "flying"]},
            [
                'spec.usages[1]: Duplicate value: "client auth"',
                'spec.usages[2]: Unsupported value: "flying": supported values: "any", "cert sign", "client auth"',
            ],
        ),
        (CSR, {"spec|expirationSeconds": 600}, []),
        (
            CSR,
            {"spec|expirationSeconds": 599},
            [
                "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)"
            ],
        ),
        (CSR, {"spec|signerName": ""}, [f"{SIGNER}: Required value"]),
        (CSR, {"spec|signerName": "example.com/a.b"}, []),
        (
            CSR,
            {"spec|signerName": "kubernetes.io/legacy-unknown"},
            [f'{SIGNER}: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this'],
        ),
        (
            CSR,
            {"spec|signerName": "plain"},
            [f'{SIGNER}: Invalid value: "plain": must be a fully qualified domain and'],
        ),
        (CSR, {"spec|signerName": "a.b/"}, [f'{SIGNER}: Invalid value: "a.b/": must be a fully qualified domain and']),
        (
            CSR,
            {"spec|signerName": "local/x"},
            [f'{SIGNER}: Invalid value: "local": should be a domain with at least two'],
        ),
        (CSR, {"spec|signerName": "a.b/c/d"}, [f'{SIGNER}: Invalid value: "c/d": validating label "c/d": a lowercase']),
        (
            CSR,
            {"spec|signerName": "a.b/" + ".".join(["x"] * 300)},
            [f"{SIGNER}: Too long: must have at most 571 bytes"],
        ),
    ],
)
def test_create(resource, changes, causes):
    found = created(resource[0], resource[1], changes)
    assert begin(found, causes), found


def test_a_binding_keeps_its_role():
    for resource in (BINDING, CLUSTER_BINDING):
        found = updated(*resource, {"roleRef|name": "other"})
        assert begin(found, ["roleRef: Invalid value: {"])
        assert found[0].endswith(": cannot change roleRef")
    assert updated(*BINDING, {"subjects": []}) == []


def test_a_request_keeps_its_spec():
    assert updated(*CSR, {"spec|username": "other"}) == ["spec: Forbidden: field is immutable"]
    assert updated(*CSR, {"metadata|labels": {"a": "b"}}) == []
