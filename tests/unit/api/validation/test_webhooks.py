# SPDX-License-Identifier: Apache-2.0
"""The rules for webhook configurations."""

from __future__ import annotations

import pytest

from tests.properties.changed_documents import REMOVED, begin, created, updated

GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
HOOK = "webhooks|0"
IN = "webhooks[0]"
CONFIG = f"{IN}.clientConfig"
ONE = "Required value: exactly one of url or service is required"


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"webhooks": []}, []),
        ({f"{HOOK}|name": ""}, [f"{IN}.name: Required value"]),
        ({f"{HOOK}|name": "a_b"}, [f'{IN}.name: Invalid value: "a_b": a lowercase RFC 1123 subdomain']),
        (
            {f"{HOOK}|name": "a.b"},
            [f'{IN}.name: Invalid value: "a.b": should be a domain with at least three segments'],
        ),
        ({f"{HOOK}|failurePolicy": "X"}, [f'{IN}.failurePolicy: Unsupported value: "X": supported values: "Fail", "I']),
        ({f"{HOOK}|matchPolicy": "X"}, [f'{IN}.matchPolicy: Unsupported value: "X"']),
        (
            {f"{HOOK}|sideEffects": REMOVED},
            [f"{IN}.sideEffects: Required value: must specify one of None, NoneOnDryRun"],
        ),
        (
            {f"{HOOK}|sideEffects": "Some"},
            [f'{IN}.sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'],
        ),
        (
            {f"{HOOK}|timeoutSeconds": 31},
            [f"{IN}.timeoutSeconds: Invalid value: 31: the timeout value must be between 1"],
        ),
        ({f"{HOOK}|objectSelector": {"matchLabels": {"a b": ""}}}, [f"{IN}.objectSelector.matchLabels: Invalid value"]),
        (
            {f"{HOOK}|admissionReviewVersions": []},
            [f"{IN}.admissionReviewVersions: Required value: must specify one of v1, v1beta1"],
        ),
        (
            {f"{HOOK}|admissionReviewVersions": ["v2", "v2", "V"]},
            [
                f'{IN}.admissionReviewVersions[1]: Invalid value: "v2": duplicate version',
                f'{IN}.admissionReviewVersions[2]: Invalid value: "V": a DNS-1035 label',
                f'{IN}.admissionReviewVersions: Invalid value: ["v2","v2","V"]: must include at least one of v1, v1beta1',
            ],
        ),
        ({f"{HOOK}|matchConditions": [{"name": "a"}]}, [f"{IN}.matchConditions[0].expression: Required value"]),
        (
            {f"{HOOK}|reinvocationPolicy": "X"},
            [f'{IN}.reinvocationPolicy: Unsupported value: "X": supported values: "IfN'],
        ),
        ({f"{HOOK}|clientConfig": {}}, [f"{CONFIG}: {ONE}"]),
        ({f"{HOOK}|clientConfig|url": "https://a"}, [f"{CONFIG}: {ONE}"]),
        (
            {f"{HOOK}|clientConfig|service": {"path": "x", "port": 0}},
            [
                f"{CONFIG}.service.name: Required value: service name is required",
                f"{CONFIG}.service.namespace: Required value: service namespace is required",
                f"{CONFIG}.service.path: Invalid value: \"x\": must start with a '/'",
                f"{CONFIG}.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            {f"{HOOK}|clientConfig": {"url": "http://a/b"}},
            [f"{CONFIG}.url: Invalid value: \"http\": 'https' is the only"],
        ),
        ({f"{HOOK}|clientConfig": {"url": "https:///b"}}, [f'{CONFIG}.url: Invalid value: "": host must be specified']),
        ({f"{HOOK}|clientConfig": {"url": "https://[a"}}, [f"{CONFIG}.url: Required value: url must be a valid URL"]),
        (
            {f"{HOOK}|clientConfig": {"url": "https://me:pw@a/b?c#d"}},
            [
                f'{CONFIG}.url: Invalid value: "a": user information is not permitted in the URL',
                f'{CONFIG}.url: Invalid value: "c": query parameters are not permitted in the URL',
                f'{CONFIG}.url: Invalid value: "d": fragments are not permitted in the URL',
            ],
        ),
        (
            {f"{HOOK}|rules": [{}]},
            [
                f"{IN}.rules[0].operations: Required value",
                f"{IN}.rules[0].apiGroups: Required value",
                f"{IN}.rules[0].apiVersions: Required value",
                f"{IN}.rules[0].resources: Required value",
            ],
        ),
        (
            {f"{HOOK}|rules|0|operations": ["*", "FLY"], f"{HOOK}|rules|0|apiGroups": ["*", "apps"]},
            [
                f'{IN}.rules[0].operations: Invalid value: ["*","FLY"]: if \'*\' is present, must not specify other oper',
                f'{IN}.rules[0].operations[1]: Unsupported value: "FLY": supported values: "*", "CONNECT"',
                f'{IN}.rules[0].apiGroups: Invalid value: ["*","apps"]: if \'*\' is present, must not specify other API g',
            ],
        ),
        ({f"{HOOK}|rules|0|scope": "X"}, [f'{IN}.rules[0].scope: Unsupported value: "X"']),
    ],
)
def test_a_wrong_webhook_has_kubernetes_causes_without_passwords(changes, causes):
    found = created(GROUP, MUTATING, changes)
    assert begin(found, causes), found
    assert "pw" not in str(found)


def test_names_are_unique():
    hook = {
        "name": "check.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://a"},
    }
    assert updated(GROUP, VALIDATING, {"webhooks|1": hook}) == [
        'webhooks[1].name: Duplicate value: "check.example.com"'
    ]
