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
        (LEASE, {"spec|leaseDurationSeconds": None}, []),
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
    ],
)
def test_a_wrong_role_binding_lease_or_request_has_kubernetes_causes(resource, changes, causes):
    found = created(resource[0], resource[1], changes)
    assert begin(found, causes), found


LABEL = "a" * 63
DOMAIN = f"{LABEL}.{LABEL}.{LABEL}.{'a' * 61}"
NOT_QUALIFIED = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
ONE_LABEL = "should be a domain with at least two segments separated by dots"


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        pytest.param("", [f"{SIGNER}: Required value"], id="no name"),
        pytest.param("example.com/something", [], id="a domain and a path"),
        pytest.param("example.com/a.b", [], id="a path with a dot"),
        pytest.param("example.com/9", [], id="a digit"),
        pytest.param("abc.example.com.io/my-signer", [], id="a long domain"),
        pytest.param(
            "kubernetes.io/legacy-unknown",
            ["the legacy signerName is not allowed via this API version"],
            id="the legacy signer",
        ),
        pytest.param("noslash", [f'{SIGNER}: Invalid value: "noslash": {NOT_QUALIFIED}'], id="no slash"),
        pytest.param("a.b/c/d", [f'{SIGNER}: Invalid value: "a.b/c/d": {NOT_QUALIFIED}'], id="two slashes"),
        pytest.param("notqualified/x", [f'{SIGNER}: Invalid value: "notqualified": {ONE_LABEL}'], id="one label"),
        pytest.param("example.com/", ['"": validating label "": a lowercase RFC 1123 subdomain'], id="empty path"),
        pytest.param(
            "/x",
            [f'"": {ONE_LABEL}', f'{SIGNER}: Invalid value: "": validating label "": a lowercase RFC 1123 label'],
            id="empty domain",
        ),
        pytest.param(
            "example.com/something-", ['"something-": validating label "something-": '], id="a dash at the end"
        ),
        pytest.param("example.com/.", ['".": validating label "": '], id="a dot alone"),
        pytest.param("example.com/a..b", ['"a..b": validating label "": '], id="two dots"),
        pytest.param("example.com/A", ['"A": validating label "A": '], id="capitals in the path"),
        pytest.param("Example.com/a", ['"Example.com": validating label "Example": '], id="capitals in the domain"),
        pytest.param(f"a{LABEL}.com/a", [f'validating label "a{LABEL}": '], id="a label of 64"),
        pytest.param(f"{DOMAIN}/a", [], id="a domain of 253"),
        pytest.param(f"{DOMAIN}a/a", ["Too long: must have at most 253 bytes"], id="a domain of 254"),
        pytest.param(f"{DOMAIN}/{'a' * 253}.{LABEL}", [], id="571 in all"),
        pytest.param(f"{DOMAIN}/{'a' * 253}.{LABEL}a", ["Too long: must have at most 571 bytes"], id="572 in all"),
        pytest.param(f"example.com/{'a' * 254}", ["must be no more than 253"], id="a part of the path of 254"),
    ],
)
def test_signer_names(name, causes):
    found = created(*CSR, {"spec|signerName": name})
    assert len(found) == len(causes), found
    assert all(text.startswith(SIGNER) and part in text for text, part in zip(found, causes, strict=True)), found


@pytest.mark.parametrize(("seconds", "good"), [(-1, False), (0, False), (1, False), (599, False), (600, True)])
def test_the_shortest_duration(seconds, good):
    detail = "may not specify a duration less than 600 seconds (10 minutes)"
    wrong = [f"spec.expirationSeconds: Invalid value: {seconds}: {detail}"]
    assert created(*CSR, {"spec|expirationSeconds": seconds}) == ([] if good else wrong)


def test_a_binding_keeps_its_role():
    for resource in (BINDING, CLUSTER_BINDING):
        found = updated(*resource, {"roleRef|name": "other"})
        assert begin(found, ["roleRef: Invalid value: {"])
        assert found[0].endswith(": cannot change roleRef")
    assert updated(*BINDING, {"subjects": []}) == []


def test_a_request_keeps_its_spec():
    assert updated(*CSR, {"spec|username": "other"}) == ["spec: Forbidden: field is immutable"]
    assert updated(*CSR, {"metadata|labels": {"a": "b"}}) == []
