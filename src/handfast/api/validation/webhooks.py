# SPDX-License-Identifier: Apache-2.0
"""What is asked of webhook configurations: names, rules and where to call.

No webhook is called and no certificate opened. Match conditions are judged by `validation.policies`.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects
from handfast.api.validation.workloads import label_selector

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_VERSIONS = ("v1", "v1beta1")
_WORDS = {"apiGroups": "API groups", "apiVersions": "API versions"}


def validating(document: dict[str, Any]) -> fields.Causes:
    names: set[str] = set()
    for index, webhook in enumerate(jsonpath.mappings(document, "webhooks")):
        yield from _webhook(f"webhooks[{index}]", webhook, names)


def mutating(document: dict[str, Any]) -> fields.Causes:
    yield from validating(document)
    for index, webhook in enumerate(jsonpath.mappings(document, "webhooks")):
        yield from fields.optional_one_of(
            f"webhooks[{index}].reinvocationPolicy", webhook.get("reinvocationPolicy"), ("IfNeeded", "Never")
        )


def _webhook(path: str, webhook: dict[str, Any], names: set[str]) -> fields.Causes:
    name = jsonpath.text(webhook, "name")
    yield from _qualified(f"{path}.name", name)
    if name in names:
        yield fields.duplicate(f"{path}.name", name)
    names.add(name)
    for index, row in enumerate(jsonpath.mappings(webhook, "rules")):
        yield from rule(f"{path}.rules[{index}]", row)
    yield from fields.optional_one_of(f"{path}.failurePolicy", webhook.get("failurePolicy"), ("Fail", "Ignore"))
    yield from fields.optional_one_of(f"{path}.matchPolicy", webhook.get("matchPolicy"), ("Equivalent", "Exact"))
    if webhook.get("sideEffects") is None:
        yield fields.required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    yield from fields.optional_one_of(f"{path}.sideEffects", webhook.get("sideEffects"), ("None", "NoneOnDryRun"))
    timeout = webhook.get("timeoutSeconds")
    if isinstance(timeout, int) and not 1 <= timeout <= 30:
        yield fields.invalid(f"{path}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
    for key in ("namespaceSelector", "objectSelector"):
        yield from label_selector(f"{path}.{key}", webhook.get(key))
    yield from _review_versions(f"{path}.admissionReviewVersions", webhook.get("admissionReviewVersions"))
    yield from client_config(f"{path}.clientConfig", jsonpath.mapping(webhook, "clientConfig"))


def _qualified(path: str, name: str) -> fields.Causes:
    yield from fields.named(path, name, objects.dns_subdomain)
    if name and objects.dns_subdomain(name) is None and name.count(".") < 2:
        yield fields.invalid(path, name, "should be a domain with at least three segments separated by dots")


def rule(path: str, row: Mapping[str, Any]) -> fields.Causes:
    """Which writes are meant, by a webhook or by a policy."""
    operations = jsonpath.sequence(row, "operations")
    if not operations:
        yield fields.required(f"{path}.operations")
    if "*" in operations and len(operations) > 1:
        yield fields.invalid(f"{path}.operations", operations, "if '*' is present, must not specify other operations")
    for index, operation in enumerate(operations):
        yield from fields.one_of(f"{path}.operations[{index}]", operation, _OPERATIONS)
    for key in ("apiGroups", "apiVersions", "resources"):
        values = jsonpath.sequence(row, key)
        if not values:
            yield fields.required(f"{path}.{key}")
        if key != "resources" and "*" in values and len(values) > 1:
            yield fields.invalid(f"{path}.{key}", values, f"if '*' is present, must not specify other {_WORDS[key]}")
    yield from fields.optional_one_of(f"{path}.scope", row.get("scope"), ("*", "Cluster", "Namespaced"))


def _review_versions(path: str, versions: Any) -> fields.Causes:
    if not isinstance(versions, list) or not versions:
        yield fields.required(path, "must specify one of v1, v1beta1")
        return
    seen = set()
    for index, version in enumerate(versions):
        if str(version) in seen:
            yield fields.invalid(f"{path}[{index}]", version, "duplicate version")
        seen.add(str(version))
        yield from fields.named(f"{path}[{index}]", str(version), objects.dns_1035_label)
    if not any(version in _VERSIONS for version in versions):
        yield fields.invalid(path, versions, "must include at least one of v1, v1beta1")


def client_config(path: str, config: dict[str, Any]) -> fields.Causes:
    """Where to call: a URL or a service, and not both."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield fields.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url(f"{path}.url", url if isinstance(url, str) else "")
    else:
        yield from _service(f"{path}.service", jsonpath.mapping(config, "service"))


def _url(path: str, url: str) -> fields.Causes:
    form = "; desired format: https://host[/path]"
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        yield fields.required(path, f"url must be a valid URL{form}")
        return
    if parts.scheme != "https":
        yield fields.invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{form}")
    if not parts.hostname:
        yield fields.invalid(path, parts.netloc, f"host must be specified{form}")
    if "@" in parts.netloc:
        # What stands before the @ may be a password.
        yield fields.invalid(path, parts.netloc.rpartition("@")[2], "user information is not permitted in the URL")
    if parts.query:
        yield fields.invalid(path, parts.query, "query parameters are not permitted in the URL")
    if parts.fragment:
        yield fields.invalid(path, parts.fragment, "fragments are not permitted in the URL")


def _service(path: str, service: dict[str, Any]) -> fields.Causes:
    for key in ("name", "namespace"):
        if not jsonpath.text(service, key):
            yield fields.required(f"{path}.{key}", f"service {key} is required")
    where = jsonpath.text(service, "path")
    if where and not where.startswith("/"):
        yield fields.invalid(f"{path}.path", where, "must start with a '/'")
    port = service.get("port")
    if isinstance(port, int) and not 1 <= port <= 65535:
        yield fields.invalid(f"{path}.port", port, f"port is not valid: {fields.PORT_RANGE}")
