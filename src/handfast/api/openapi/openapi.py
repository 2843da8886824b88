# SPDX-License-Identifier: Apache-2.0
"""Describe the API in OpenAPI 3: the index of group-versions, and a document for each with schemas and paths.

Made from the schema and the table of kinds, so that it says what is served and nothing else; stock kubectl reads it
for `explain`, for merge keys, and to learn that the server validates fields. It has no prose for single fields, and
it does not serve anything. Paths are in `openapi.paths`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from handfast.api import kinds
from handfast.api.openapi import paths as openapi_paths
from handfast.api.schema import schema

# Package of the schema data file -> package in the names of components; the rest is io.k8s.api.<package>.
_PACKAGES: Final = {
    "meta.v1": "io.k8s.apimachinery.pkg.apis.meta.v1",
    "intstr": "io.k8s.apimachinery.pkg.util.intstr",
    "resource": "io.k8s.apimachinery.pkg.api.resource",
    "runtime": "io.k8s.apimachinery.pkg.runtime",
    "apiextensions.v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}
_SCALARS: Final[Mapping[str, Mapping[str, Any]]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
}
_FORMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "rfc3339-seconds|null": {"type": "string", "format": "date-time"},
    "rfc3339-micros|null": {"type": "string", "format": "date-time"},
    "int|string": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "string": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "array": {"type": "array", "items": {"type": "string"}},
    # No type: a schema or something else instead. OpenAPI has no better word.
    "bool|object": {},
    "object|array": {},
}
_ANY_JSON: Final = "apiextensions.v1.JSON"
# What every document refers to from its paths.
_ALWAYS: Final = ("meta.v1.DeleteOptions", "meta.v1.Status", "meta.v1.ObjectMeta", "meta.v1.ListMeta")


def path_of(group: str, version: str) -> str:
    """`api/v1`, `apis/apps/v1`: how the index names a group-version."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def fingerprint(encoded: bytes) -> str:
    """What the index gives as the hash of an encoded document: clients cache by it, without ever asking again."""
    return hashlib.sha256(encoded).hexdigest().upper()


def index(hashes: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """The answer to /openapi/v3, from the fingerprint of each (group, version)."""
    paths = {}
    for (group, version), digest in sorted(hashes.items()):
        path = path_of(group, version)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def document(group: str, version: str, rows: Iterable[kinds.Kind]) -> dict[str, Any]:
    """The answer to /openapi/v3/<path>: every row must be of that group and version."""
    rows = tuple(rows)
    components: dict[str, Any] = {
        openapi_paths.PATCH: {"description": "A patch of one of the accepted types.", "type": "object"}
    }
    for name in _ALWAYS:
        _add(name, components)
    for row in rows:
        _add_kind(row, components)
    paths: dict[str, Any] = {}
    for row in rows:
        paths.update(openapi_paths.of_kind(row, component_of(row), _subresource_components(row)))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Handfast", "version": f"{group}/{version}" if group else version},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(components.items()))},
    }


# --- names ------------------------------------------------------------------------------------------------------------


def component_name(message_name: str) -> str:
    """`core.v1.Pod` is io.k8s.api.core.v1.Pod."""
    package, _, name = message_name.rpartition(".")
    return f"{_PACKAGES.get(package, 'io.k8s.api.' + package)}.{name}"


def component_of(row: kinds.Kind) -> str:
    """The component of a kind; a custom resource's is its group reversed, as Kubernetes has it."""
    if row.message:
        return component_name(row.message)
    return ".".join([*reversed(row.group.split(".")), row.version, row.kind])


def _subresource_components(row: kinds.Kind) -> dict[str, str]:
    """Subresource -> component of the kind it takes and gives."""
    return {
        sub.name: component_name(message) if (message := _subresource_message(row, sub)) else component_of(row)
        for sub in row.subresources
    }


def _subresource_message(row: kinds.Kind, sub: kinds.Subresource) -> str:
    """The message of a subresource that has a kind of its own, such as Scale."""
    wanted = openapi_paths.subresource_kind(row, sub)
    found = (r["message"] for r in schema.kind_rows() if (r["group"], r["version"], r["kind"]) == wanted)
    return next(found, "")


# --- components -------------------------------------------------------------------------------------------------------


def _add_kind(row: kinds.Kind, components: dict[str, Any]) -> None:
    name = component_of(row)
    if row.message:
        _add(row.message, components)
    else:
        components[name] = _custom_kind(row)
        for shared in ("meta.v1.ObjectMeta", "meta.v1.ListMeta"):
            _add(shared, components)
    _mark(components, name, row.group, row.version, row.kind)
    if "list" in row.verbs:
        if row.message:
            _add(row.message + "List", components)
        else:
            components[name + "List"] = _custom_list(row)
        _mark(components, name + "List", row.group, row.version, row.list_kind)
    for sub in row.subresources:
        if message := _subresource_message(row, sub):
            _add(message, components)
            _mark(components, component_name(message), *openapi_paths.subresource_kind(row, sub))


def _mark(components: dict[str, Any], name: str, group: str, version: str, kind: str) -> None:
    """Say which kind a component is, in words and for kubectl."""
    components[name] = {
        "description": f"{kind} ({group or 'core'}/{version})",
        **components[name],
        "x-kubernetes-group-version-kind": [{"group": group, "kind": kind, "version": version}],
    }


def _custom_kind(row: kinds.Kind) -> dict[str, Any]:
    """A definition's schema, with the fields every object has and definitions leave out."""
    component = {"type": "object", **(row.schema or {"x-kubernetes-preserve-unknown-fields": True})}
    implied = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": openapi_paths.reference(component_name("meta.v1.ObjectMeta")),
    }
    return {**component, "properties": {**(component.get("properties") or {}), **implied}}


def _custom_list(row: kinds.Kind) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": openapi_paths.reference(component_name("meta.v1.ListMeta")),
            "items": {"type": "array", "items": openapi_paths.reference(component_of(row))},
        },
    }


def _add(message_name: str, components: dict[str, Any]) -> None:
    """Add a message and all it refers to."""
    waiting = [message_name]
    while waiting:
        name = waiting.pop()
        component = component_name(name)
        if component not in components:
            message = schema.message(name)
            components[component] = _component(message)
            if not message.json_form:
                waiting += [field.type for field in message.fields.values() if not _is_inlined(field.type)]


def _is_inlined(type_name: str) -> bool:
    """Scalars, and bare arrays, which Kubernetes does not name either."""
    return schema.is_scalar(type_name) or schema.message(type_name).json_form == "array"


def _component(message: schema.Message) -> dict[str, Any]:
    if message.json_form == "raw":
        return {} if message.name == _ANY_JSON else {"type": "object"}
    if message.json_form:
        return dict(_FORMS[message.json_form])
    properties: dict[str, Any] = {}
    if schema.has_type_meta(message.name):
        properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    properties.update({name: _property(field) for name, field in message.fields.items()})
    component: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [name for name, field in message.fields.items() if field.required]:
        component["required"] = required
    if message.atomic:
        component["x-kubernetes-map-type"] = "atomic"
    return component


def _value(type_name: str) -> dict[str, Any]:
    if schema.is_scalar(type_name):
        return dict(_SCALARS[type_name])
    form = schema.message(type_name).json_form
    return dict(_FORMS[form]) if form == "array" else openapi_paths.reference(component_name(type_name))


def _property(field: schema.Field) -> dict[str, Any]:
    if field.is_map:
        described: dict[str, Any] = {"type": "object", "additionalProperties": _value(field.type)}
    elif field.repeated:
        described = {"type": "array", "items": _value(field.type)}
    else:
        described = _value(field.type)
    extensions = (
        ("x-kubernetes-list-type", field.list_type),
        ("x-kubernetes-list-map-keys", list(field.keys)),
        ("x-kubernetes-map-type", field.map_type),
        ("x-kubernetes-patch-strategy", field.patch),
        ("x-kubernetes-patch-merge-key", field.patch_key),
    )
    return {**described, **{key: value for key, value in extensions if value}}
