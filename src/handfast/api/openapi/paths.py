# SPDX-License-Identifier: Apache-2.0
"""The paths of a kind in an OpenAPI document: collection, item and subresources, with their operations.

Which operations there are follows from the verbs of the row. It does not describe schemas: that is `openapi`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from handfast.api import kinds
from handfast.api.openapi import names

_STATUS: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
_DELETE_OPTIONS: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_PATCH_TYPES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_STRING: Final = {"type": "string"}
_BOOLEAN: Final = {"type": "boolean"}
_INTEGER: Final = {"type": "integer"}
_WRITE: Final = {"dryRun": _STRING, "fieldManager": _STRING, "fieldValidation": _STRING}
_DELETE: Final = {
    "dryRun": _STRING,
    "gracePeriodSeconds": _INTEGER,
    "orphanDependents": _BOOLEAN,
    "propagationPolicy": _STRING,
}
_SELECT: Final = {
    "continue": _STRING,
    "fieldSelector": _STRING,
    "labelSelector": _STRING,
    "limit": _INTEGER,
    "resourceVersion": _STRING,
    "resourceVersionMatch": _STRING,
    "timeoutSeconds": _INTEGER,
}
_LIST: Final = {**_SELECT, "allowWatchBookmarks": _BOOLEAN, "sendInitialEvents": _BOOLEAN, "watch": _BOOLEAN}


class _Verb(NamedTuple):
    """What an operation of a verb looks like; `method` is its key in a path item."""

    verb: str
    method: str
    action: str
    parameters: Mapping[str, Any]


_COLLECTION: Final = (
    _Verb("list", "get", "list", _LIST),
    _Verb("create", "post", "post", _WRITE),
    _Verb("deletecollection", "delete", "deletecollection", {**_DELETE, **_SELECT}),
)
_ITEM: Final = (
    _Verb("get", "get", "get", {}),
    _Verb("update", "put", "put", _WRITE),
    _Verb("patch", "patch", "patch", {**_WRITE, "force": _BOOLEAN}),
    _Verb("delete", "delete", "delete", _DELETE),
)
_SUBRESOURCE: Final = (*_ITEM, _COLLECTION[1])


class _Target(NamedTuple):
    """What the operations of one path work on."""

    group: str
    version: str
    kind: str
    component: str
    listed: str
    suffix: str
    strategic: bool = True


def subresource_kind(row: kinds.Kind, sub: kinds.Subresource) -> tuple[str, str, str]:
    """Group, version and kind of what a subresource takes and gives; the row's own where it names none."""
    return (sub.group if sub.version else row.group, sub.version or row.version, sub.kind)


def of_kind(row: kinds.Kind, subresource_components: Mapping[str, str]) -> dict[str, Any]:
    """Path -> path item, for all paths of one kind."""
    prefix = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
    scope = ["namespace"] if row.namespaced else []
    collection = f"{prefix}/namespaces/{{namespace}}/{row.plural}" if row.namespaced else f"{prefix}/{row.plural}"
    item = f"{collection}/{{name}}"
    infix = "Namespaced" if row.namespaced else ""
    components = (names.of_kind(row), names.of_list(row))
    target = _Target(row.group, row.version, row.kind, *components, infix + row.kind, strategic=bool(row.message))
    paths = {
        collection: _path_item(target, _COLLECTION, row.verbs, scope),
        item: _path_item(target, _ITEM, row.verbs, [*scope, "name"]),
    }
    if row.namespaced and "list" in row.verbs:
        everywhere = target._replace(suffix=f"{row.kind}ForAllNamespaces")
        paths[f"{prefix}/{row.plural}"] = _path_item(everywhere, _COLLECTION[:1], row.verbs, [])
    for sub in row.subresources:
        below = _Target(
            *subresource_kind(row, sub),
            subresource_components[sub.name],
            "",
            target.suffix + sub.name.capitalize(),
            target.strategic,
        )
        paths[f"{item}/{sub.name}"] = _path_item(below, _SUBRESOURCE, sub.verbs, [*scope, "name"])
    if "patch" not in row.verbs:
        paths[collection]["patch"] = _unserved_patch(target)
    # A path of a kind without verbs there has only parameters: it is not served.
    return {path: path_item for path, path_item in paths.items() if path_item.keys() - {"parameters"}}


def _path_item(
    target: _Target, possible: Sequence[_Verb], verbs: Sequence[str], path_parameters: Sequence[str]
) -> dict[str, Any]:
    path_item: dict[str, Any] = {verb.method: _operation(target, verb) for verb in possible if verb.verb in verbs}
    if path_parameters:
        path_item["parameters"] = [
            {"in": "path", "name": name, "required": True, "schema": {**_STRING, "uniqueItems": True}}
            for name in path_parameters
        ]
    return path_item


def _operation(target: _Target, verb: _Verb) -> dict[str, Any]:
    listed = names.reference(target.listed)
    answer = {"list": listed, "deletecollection": names.reference(_STATUS), "delete": names.reference(_STATUS)}
    operation: dict[str, Any] = {
        "operationId": verb.verb + _camel(target.group or "core") + _camel(target.version) + target.suffix,
        "parameters": _query({"pretty": _STRING, **verb.parameters}),
        "responses": {
            "201" if verb.verb == "create" else "200": {
                "description": "OK",
                "content": {"application/json": {"schema": answer.get(verb.verb, names.reference(target.component))}},
            }
        },
        "x-kubernetes-action": verb.action,
        "x-kubernetes-group-version-kind": _group_version_kind(target),
    }
    body = _request_body(target, verb)
    return {**operation, "requestBody": body} if body else operation


def _request_body(target: _Target, verb: _Verb) -> dict[str, Any] | None:
    if verb.verb == "patch":
        accepted = _PATCH_TYPES if target.strategic else _PATCH_TYPES[:-1]
        return {"required": True, "content": {media: {"schema": names.reference(names.PATCH)} for media in accepted}}
    if verb.verb in {"create", "update"}:
        return {"required": True, "content": {"*/*": {"schema": names.reference(target.component)}}}
    if verb.verb in {"delete", "deletecollection"}:
        return {"content": {"*/*": {"schema": names.reference(_DELETE_OPTIONS)}}}
    return None


def _unserved_patch(target: _Target) -> dict[str, Any]:
    """For kinds that can only be created: kubectl looks for `fieldValidation` nowhere but on a patch.

    Without one it would validate by itself, with an OpenAPI 2 document that is not served, and refuse to create.
    """
    return {
        "operationId": "patch" + _camel(target.group or "core") + _camel(target.version) + target.suffix,
        "description": "Not served. It stands here because clients look for the parameter fieldValidation on patch.",
        "parameters": _query({"fieldValidation": _STRING}),
        "responses": {"405": {"description": "Method Not Allowed"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _group_version_kind(target),
    }


def _query(parameters: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"in": "query", "name": name, "schema": {**schema, "uniqueItems": True}} for name, schema in parameters.items()
    ]


def _group_version_kind(target: _Target) -> dict[str, str]:
    return {"group": target.group, "kind": target.kind, "version": target.version}


def _camel(text: str) -> str:
    """`rbac.authorization.k8s.io` -> RbacAuthorizationK8sIo."""
    return "".join(part.capitalize() for part in text.replace("-", ".").split("."))
