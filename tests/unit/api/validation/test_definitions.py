# SPDX-License-Identifier: Apache-2.0
"""The rules for CustomResourceDefinitions."""

from __future__ import annotations

import pytest

from tests.properties.changed_documents import REMOVED, begin, created, updated

CRD = ("apiextensions.k8s.io", "customresourcedefinitions")
VERSION = "spec|versions|0"
IN = "spec.versions[0]"
COLUMN = f"{IN}.additionalPrinterColumns[0]"


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"metadata|name": "a.b"}, ['metadata.name: Invalid value: "a.b": must be spec.names.plural+"."+spec.group']),
        (
            {"spec|group": "example", "metadata|name": "widgets.example"},
            ['spec.group: Invalid value: "example": should be a domain with at least one dot'],
        ),
        (
            {"spec|group": "", "metadata|name": "widgets.x"},
            ['metadata.name: Invalid value: "widgets.x": must be', "spec.group: Required value"],
        ),
        ({"spec|scope": ""}, ["spec.scope: Required value"]),
        (
            {"spec|scope": "Galaxy"},
            ['spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"'],
        ),
        ({"spec|names|singular": "A"}, ['spec.names.singular: Invalid value: "A": a DNS-1035 label']),
        ({"spec|names|kind": ""}, ["spec.names.kind: Required value"]),
        (
            {"spec|names|kind": "Wid get"},
            ['spec.names.kind: Invalid value: "Wid get": may have mixed case, but should'],
        ),
        (
            {"spec|names|listKind": "Widget"},
            ['spec.names.listKind: Invalid value: "Widget": kind and listKind may not be'],
        ),
        ({"spec|names|shortNames": ["W"]}, ['spec.names.shortNames[0]: Invalid value: "W"']),
        ({"spec|versions": []}, ["spec.versions: Required value: must have at least one version"]),
        (
            {f"{VERSION}|storage": False},
            ['spec.versions: Invalid value: ["v1"]: must have exactly one version marked as storage version'],
        ),
        (
            {"spec|versions|1": {"name": "v1", "storage": False, "schema": {"openAPIV3Schema": {"type": "object"}}}},
            ['spec.versions: Invalid value: ["v1","v1"]: must contain unique version names'],
        ),
        ({f"{VERSION}|name": "V1"}, [f'{IN}.name: Invalid value: "V1": a DNS-1035 label']),
        ({f"{VERSION}|schema": REMOVED}, [f"{IN}.schema.openAPIV3Schema: Required value: schemas are required"]),
        (
            {f"{VERSION}|schema|openAPIV3Schema": {}},
            [f"{IN}.schema.openAPIV3Schema.type: Required value: must not be empty at the root"],
        ),
        (
            {f"{VERSION}|schema|openAPIV3Schema|type": "array"},
            [f'{IN}.schema.openAPIV3Schema.type: Invalid value: "array": must be "object" at the root'],
        ),
        (
            {f"{VERSION}|additionalPrinterColumns": [{"type": "shape", "format": "x"}]},
            [
                f"{COLUMN}.name: Required value",
                f'{COLUMN}.type: Unsupported value: "shape": supported values: "boolean", "date"',
                f'{COLUMN}.format: Unsupported value: "x"',
                f"{COLUMN}.jsonPath: Required value",
            ],
        ),
        (
            {f"{VERSION}|additionalPrinterColumns|0|jsonPath": "spec"},
            [f'{COLUMN}.jsonPath: Invalid value: "spec": jsonPath "spec" is not understood'],
        ),
        (
            {"spec|conversion|strategy": "Magic"},
            [
                'spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook"',
                'spec.conversion.webhook: Forbidden: should not be set when strategy is not set to "Webhook"',
            ],
        ),
        ({"spec|conversion": {"strategy": "None"}}, []),
        (
            {"spec|conversion": {"strategy": "Webhook"}},
            ['spec.conversion.webhookClientConfig: Required value: required when strategy is set to "Webhook"'],
        ),
        (
            {"spec|conversion|webhook": {}},
            [
                "spec.conversion.webhook.clientConfig: Required value: exactly one of url or service",
                "spec.conversion.webhook.conversionReviewVersions: Required value",
            ],
        ),
        (
            {
                "metadata|name": "leases.coordination.k8s.io",
                "spec|group": "coordination.k8s.io",
                "spec|names|plural": "leases",
                f"{VERSION}|name": "v9",
            },
            ['spec.names.plural: Forbidden: "leases" of group "coordination.k8s.io" is built into this server'],
        ),
        (
            {
                "metadata|name": "widgets.handfast.dev",
                "spec|group": "handfast.dev",
                "spec|names|kind": "Revocation",
            },
            ['spec.names.kind: Forbidden: "Revocation" of group "handfast.dev" is built into this server'],
        ),
    ],
)
def test_a_wrong_definition_has_kubernetes_causes(changes, causes):
    found = created(*CRD, changes)
    assert begin(found, causes), found


def test_what_stays_once_it_is_established():
    changes = {"spec|scope": "Cluster", "spec|names|kind": "Gadget"}
    assert updated(*CRD, changes) == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Gadget": field is immutable',
    ]
    assert updated(*CRD, changes, {"status": {}}) == []
