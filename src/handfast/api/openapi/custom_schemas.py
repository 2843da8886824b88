# SPDX-License-Identifier: Apache-2.0
"""How the schema of a custom resource is published: with the fields that every object has, in OpenAPI 3 and in OpenAPI 2.

In both an embedded resource has the fields of every object, and needs `apiVersion` and `kind`. In OpenAPI 3 a value that is a
number or a text says so. OpenAPI 2 cannot say everything that a definition may, and what its readers misunderstand is left out:

1. `allOf`, `anyOf`, `oneOf` and `not`, which kubectl does not know;
2. of a value that may be null its type, fields and items; and that it is required;
3. where unknown fields are kept, the fields and items that are known, or kubectl would refuse all others;
4. the type of a list whose items are not described.

It checks no schema, and changes none: it makes new ones. A schema is at most half as deep as `nesting` allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handfast.api import kinds
from handfast.api.custom import structural
from handfast.api.openapi import descriptions, names

_JUNCTORS: Final = ("allOf", "anyOf", "oneOf", "not")
_NUMBER_OR_TEXT: Final = ({"type": "integer"}, {"type": "string"})


def kind(row: kinds.Kind) -> dict[str, Any]:
    """The component of a custom resource."""
    if row.schema is None:
        return {"type": "object", structural.PRESERVE: True}
    component = _published(row.schema, v2=False)
    component["properties"] = {**component.get("properties", {}), **_object_fields(v2=False)}
    return component


def kind_v2(row: kinds.Kind) -> dict[str, Any]:
    """The definition of a custom resource; of one that keeps whatever it is sent no more is said than that it is an object."""
    if row.schema is None or row.schema.get(structural.PRESERVE) is True:
        return {"type": "object"}
    definition = _published(row.schema, v2=True)
    definition["properties"] = {**definition.get("properties", {}), **_object_fields(v2=True)}
    return definition


def listed(row: kinds.Kind) -> dict[str, Any]:
    """The component of a list of custom resources."""
    items = {"type": "array", "items": names.reference(names.of_kind(row)), "description": descriptions.shared("items")}
    metadata = names.reference(names.of_message("meta.v1.ListMeta"))
    return {
        "type": "object",
        "required": ["items"],
        "properties": {**type_fields(), "metadata": metadata, "items": items},
    }


def type_fields() -> dict[str, Any]:
    """The two fields that say what an object is."""
    return {name: {"type": "string", "description": descriptions.shared(name)} for name in ("apiVersion", "kind")}


def _object_fields(*, v2: bool) -> dict[str, Any]:
    reference = names.reference_v2 if v2 else names.reference
    metadata = reference(names.of_message("meta.v1.ObjectMeta"))
    return {**type_fields(), "metadata": {**metadata, "description": descriptions.shared("metadata")}}


def _published(schema: Mapping[str, Any], *, v2: bool) -> dict[str, Any]:
    # A keyword that is null says nothing: JSON may have it, and definitions are kept as they were written.
    stated = {key: value for key, value in schema.items() if value is not None}
    level = _flattened(stated) if v2 else _unfolded(stated)
    if isinstance(fields := level.get("properties"), Mapping):
        level["properties"] = {name: _published(below, v2=v2) for name, below in fields.items()}
    for key in ("items", "additionalProperties"):
        if isinstance(below := level.get(key), Mapping):
            level[key] = _published(below, v2=v2)
    if level.get(structural.EMBEDDED) is True and not (v2 and level.get(structural.PRESERVE) is True):
        level["properties"] = {**level.get("properties", {}), **_object_fields(v2=v2)}
        level["required"] = list(dict.fromkeys([*level.get("required", ()), "kind", "apiVersion"]))
    return level


def _unfolded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A level in OpenAPI 3: what is a number or a text says so in words that others know, unless it does already."""
    level = dict(schema)
    if level.get(structural.INT_OR_STRING) is True and "anyOf" not in level and "allOf" not in level:
        level["anyOf"] = [dict(each) for each in _NUMBER_OR_TEXT]
    return level


def _flattened(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A level in OpenAPI 2."""
    # 1. without what kubectl does not know
    level = {key: value for key, value in schema.items() if key not in _JUNCTORS}
    required = _required(schema)
    level.pop("required", None)
    # 2. what may be null has no type
    if level.pop("nullable", False):
        for key in ("type", "items", "properties"):
            level.pop(key, None)
    # 3. what keeps unknown fields has no known ones
    if level.get(structural.PRESERVE) is True:
        level.pop("items", None)
        level.pop("properties", None)
        if level.get("type") == "object":
            del level["type"]
    # 4. a list of nothing known has no type
    if level.get("type") == "array" and "items" not in level:
        del level["type"]
    return {**level, "required": required} if required else level


def _required(schema: Mapping[str, Any]) -> list[str]:
    """The fields that must be there, and not be null."""
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping) and others.get("nullable"):
        return []
    fields = schema.get("properties") or {}
    return [name for name in schema.get("required") or () if not fields.get(name, {}).get("nullable")]
