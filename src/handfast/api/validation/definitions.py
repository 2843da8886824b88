# SPDX-License-Identifier: Apache-2.0
"""What is asked of CustomResourceDefinitions: group, names, scope, versions and printer columns.

Of a version's schema only the root is looked at here. Whether two definitions want one name is decided where
definitions take effect (`custom.definitions`).

1. metadata.name is `<plural>.<group>`.
2. group: a domain; scope: Cluster or Namespaced; names: plural, singular, kind and listKind.
3. versions: at least one, unique names, exactly one stored.
4. each version: a schema whose root is an object, and columns with known types and readable paths.
5. conversion: None, or a webhook.
6. plural and kind are not those of a built-in kind of the group, in whatever version.
On update: 7. once established, group, scope, kind and plural stay.
"""

from __future__ import annotations

from typing import Any

from handfast import errors
from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects
from handfast.api.custom import definitions
from handfast.api.validation.webhooks import client_config

_SCOPES = ("Cluster", "Namespaced")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "name", "password", "uri")


def definition(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    group, names = jsonpath.text(spec, "group"), jsonpath.mapping(spec, "names")
    wanted, name = f"{jsonpath.text(names, 'plural')}.{group}", jsonpath.text(document, "metadata", "name")
    if name != wanted:  # 1. the name is plural and group
        yield fields.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from fields.named("spec.group", group, objects.dns_subdomain)  # 2. group, scope, names
    if group and "." not in group:
        yield fields.invalid("spec.group", group, "should be a domain with at least one dot")
    yield from fields.one_of("spec.scope", spec.get("scope"), _SCOPES)
    yield from _names(names)
    yield from _versions(jsonpath.mappings(spec, "versions"))  # 3. and 4. the versions, and each of them
    yield from _conversion(jsonpath.mapping(spec, "conversion"))  # 5. None, or a webhook
    yield from _not_builtin(group, names)  # 6. not the names of a built-in kind


def _names(names: dict[str, Any]) -> fields.Causes:
    for key in ("plural", "singular"):
        yield from fields.named(f"spec.names.{key}", jsonpath.text(names, key), objects.dns_1035_label)
    for key in ("kind", "listKind"):
        name = jsonpath.text(names, key)
        wrong = objects.dns_1035_label(name.lower())
        if not name:
            yield fields.required(f"spec.names.{key}")
        elif wrong is not None:
            yield fields.invalid(f"spec.names.{key}", name, f"may have mixed case, but should otherwise match: {wrong}")
    for key in ("shortNames", "categories"):
        for index, name in enumerate(jsonpath.texts(names, key)):
            yield from fields.named(f"spec.names.{key}[{index}]", name, objects.dns_1035_label)
    kind = jsonpath.text(names, "kind")
    if kind and kind == names.get("listKind"):
        yield fields.invalid("spec.names.listKind", kind, "kind and listKind may not be the same")


def _not_builtin(group: str, names: dict[str, Any]) -> fields.Causes:
    plural, kind = jsonpath.text(names, "plural"), jsonpath.text(names, "kind")
    if definitions.is_builtin_resource(group, plural):
        yield fields.forbidden("spec.names.plural", f'"{plural}" of group "{group}" is built into this server')
    if definitions.is_builtin_kind(group, kind):
        yield fields.forbidden("spec.names.kind", f'"{kind}" of group "{group}" is built into this server')


def _versions(versions: list[dict[str, Any]]) -> fields.Causes:
    if not versions:
        yield fields.required("spec.versions", "must have at least one version")
        return
    names = [jsonpath.text(version, "name") for version in versions]
    if len(set(names)) != len(names):
        yield fields.invalid("spec.versions", names, "must contain unique version names")
    if [version.get("storage") for version in versions].count(True) != 1:
        yield fields.invalid("spec.versions", names, "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        yield from _version(f"spec.versions[{index}]", version)


def _version(path: str, version: dict[str, Any]) -> fields.Causes:
    yield from fields.named(f"{path}.name", jsonpath.text(version, "name"), objects.dns_1035_label)
    root, place = jsonpath.at(version, "schema", "openAPIV3Schema"), f"{path}.schema.openAPIV3Schema"
    if not isinstance(root, dict):
        yield fields.required(place, "schemas are required")
    elif not root.get("type"):
        yield fields.required(f"{place}.type", "must not be empty at the root")
    elif root["type"] != "object":
        yield fields.invalid(f"{place}.type", root["type"], 'must be "object" at the root')
    for index, column in enumerate(jsonpath.mappings(version, "additionalPrinterColumns")):
        yield from _column(f"{path}.additionalPrinterColumns[{index}]", column)


def _column(path: str, column: dict[str, Any]) -> fields.Causes:
    if not jsonpath.text(column, "name"):
        yield fields.required(f"{path}.name")
    yield from fields.one_of(f"{path}.type", column.get("type"), _COLUMN_TYPES)
    yield from fields.optional_one_of(f"{path}.format", column.get("format"), _COLUMN_FORMATS)
    expression = jsonpath.text(column, "jsonPath")
    if not expression:
        yield fields.required(f"{path}.jsonPath")
        return
    try:
        jsonpath.parse(expression)
    except errors.Refused as error:
        yield fields.invalid(f"{path}.jsonPath", expression, error.message)


def _conversion(conversion: dict[str, Any]) -> fields.Causes:
    strategy, webhook = conversion.get("strategy"), conversion.get("webhook")
    yield from fields.one_of("spec.conversion.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook":
        if not isinstance(webhook, dict):
            yield fields.required("spec.conversion.webhookClientConfig", 'required when strategy is set to "Webhook"')
            return
        yield from client_config("spec.conversion.webhook.clientConfig", jsonpath.mapping(webhook, "clientConfig"))
        if not jsonpath.sequence(webhook, "conversionReviewVersions"):
            yield fields.required("spec.conversion.webhook.conversionReviewVersions")
    elif webhook is not None:
        yield fields.forbidden("spec.conversion.webhook", 'should not be set when strategy is not set to "Webhook"')


def definition_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    established = any(
        row.get("type") == "Established" and row.get("status") == "True"
        for row in jsonpath.mappings(old, "status", "conditions")
    )
    if not established:
        return
    for path in ("group", "scope", "names.kind", "names.plural"):  # 7. stay once established
        keys = ("spec", *path.split("."))
        yield from fields.immutable(f"spec.{path}", jsonpath.at(document, *keys), jsonpath.at(old, *keys))
