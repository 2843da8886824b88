# SPDX-License-Identifier: Apache-2.0
"""Makes webhooks out of rules, for the tests of whatever judges them. It tests nothing."""

from __future__ import annotations

from typing import Any

from handfast.api import kinds
from handfast.rules.webhooks import configurations

PODS = kinds.row("pods")


def rule(
    operations: str = "CREATE", groups: str = "", versions: str = "v1", resources: str = "pods", scope: str = "*"
) -> dict[str, Any]:
    """A rule from comma-separated lists."""
    return {
        "operations": operations.split(","),
        "apiGroups": groups.split(","),
        "apiVersions": versions.split(","),
        "resources": resources.split(","),
        "scope": scope,
    }


def webhook(*rules: dict[str, Any], **more: Any) -> configurations.Webhook:
    document = {
        "name": "one.example.com",
        "rules": list(rules),
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://example.com"},
        **more,
    }
    return configurations.parse({"metadata": {"name": "config"}, "webhooks": [document]})[0]
