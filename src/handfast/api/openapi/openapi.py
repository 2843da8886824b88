# SPDX-License-Identifier: Apache-2.0
"""Describe the API in OpenAPI 3: the index of group-versions, and a document for each with schemas and paths.

Made from the schema and the table of kinds, so that it says what is served and nothing else; stock kubectl reads it
for `explain`, for merge keys, and to learn that the server validates fields. Prose is in `descriptions`, paths are in
`paths`, custom resources in `custom_schemas`, and the same in OpenAPI 2 in `swagger`. It does not serve anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from handfast.api import kinds
from handfast.api.openapi import custom_schemas, descriptions, names
from handfast.api.openapi import paths as openapi_paths
from handfast.api.schema import schema

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
    return {
        "openapi": "3.0.0",
        "info": {"title": "Handfast", "version": f"{group}/{version}" if group else version},
        "paths": paths_of(rows),
        "components": {"schemas": components_of(rows)},
    }


def paths_of(rows: Iterable[kinds.Kind]) -> dict[str, Any]:
    """Path -> path item, for all paths of these kinds."""
    paths: dict[str, Any] = {}
    for row in rows:
        paths.update(openapi_paths.of_kind(row, _subresource_names(row)))
    return dict(sorted(paths.items()))


def components_of(rows: Iterable[kinds.Kind]) -> dict[str, Any]:
    """Name -> schema, for these kinds and all that they, or their paths, refer to."""
    components: dict[str, Any] = {
        names.PATCH: {"description": "A patch of one of the accepted types.", "type": "object"}
    }
    for name in _ALWAYS:
        _add(name, components)
    for row in rows:
        _add_kind(row, components)
    return dict(sorted(components.items()))


# --- kinds ------------------------------------------------------------------------------------------------------------


def _subresource_names(row: kinds.Kind) -> dict[str, str]:
    """Subresource -> component of the kind it takes and gives."""
    return {
        sub.name: names.of_message(message) if (message := _subresource_message(row, sub)) else names.of_kind(row)
        for sub in row.subresources
    }


def _subresource_message(row: kinds.Kind, sub: kinds.Subresource) -> str:
    """The message of a subresource that has a kind of its own, such as Scale."""
    wanted = openapi_paths.subresource_kind(row, sub)
    found = (r["message"] for r in schema.kind_rows() if (r["group"], r["version"], r["kind"]) == wanted)
    return next(found, "")


def _add_kind(row: kinds.Kind, components: dict[str, Any]) -> None:
    if row.message:
        _add(row.message, components)
    else:
        components[names.of_kind(row)] = custom_schemas.kind(row)
    mark(components, names.of_kind(row), row.group, row.version, row.kind)
    if "list" in row.verbs:
        if row.message:
            _add(row.message + "List", components)
        else:
            components[names.of_list(row)] = custom_schemas.listed(row)
        mark(components, names.of_list(row), row.group, row.version, row.list_kind)
    for sub in row.subresources:
        if message := _subresource_message(row, sub):
            _add(message, components)
            mark(components, names.of_message(message), *openapi_paths.subresource_kind(row, sub))


def mark(components: dict[str, Any], name: str, group: str, version: str, kind: str) -> None:
    """Say which kind a component is."""
    kind_of = [{"group": group, "kind": kind, "version": version}]
    components[name] = {**components[name], "x-kubernetes-group-version-kind": kind_of}


# --- messages ---------------------------------------------------------------------------------------------------------


def _add(message_name: str, components: dict[str, Any]) -> None:
    """Add a message and all it refers to."""
    waiting = [message_name]
    while waiting:
        name = waiting.pop()
        component = names.of_message(name)
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
        properties = custom_schemas.type_fields()
    properties.update({name: _described(message.name, field) for name, field in message.fields.items()})
    component: dict[str, Any] = {"type": "object"}
    # An empty one would be lost on the way through Go, and the stock suite compares.
    if properties:
        component["properties"] = properties
    if text := descriptions.of(message.name):
        component["description"] = text
    if required := [name for name, field in message.fields.items() if field.required]:
        component["required"] = required
    if message.atomic:
        component["x-kubernetes-map-type"] = "atomic"
    return component


def _value(type_name: str) -> dict[str, Any]:
    if schema.is_scalar(type_name):
        return dict(_SCALARS[type_name])
    form = schema.message(type_name).json_form
    return dict(_FORMS[form]) if form == "array" else names.reference(names.of_message(type_name))


def _described(message: str, field: schema.Field) -> dict[str, Any]:
    """A property, with the sentence about it; the metadata of all kinds is described alike."""
    text = descriptions.of(message, field.name)
    if field.type == "meta.v1.ObjectMeta" and schema.has_type_meta(message):
        text = text or descriptions.shared("metadata")
    return {**_property(field), "description": text} if text else _property(field)


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
