# SPDX-License-Identifier: Apache-2.0
"""Decide whether the schema of a CustomResourceDefinition is structural, so that objects can be pruned, filled, checked.

The document around it has the types of the API already; `validation.definitions` judges the root's own type. What a
schema says of objects is applied in `structural` and `structural_values`.

1. At most `MAX_SCHEMAS` schemas, all told.
2. Every place has one of the six types, or takes integers and texts, or keeps what it does not know.
3. An array says what its elements are; an object has declared fields or others, not both.
4. Keywords that Kubernetes has no place for are not there; `uniqueItems` is off.
5. Patterns are ones that RE2 takes; what a number is to be a multiple of is above zero.
6. A list of type map names its keys, which its elements have; embedded objects are objects.
7. A default is a value that its own schema accepts as it is.
8. Inside `allOf`, `anyOf`, `oneOf` and `not` stands nothing that would shape the object.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Final

from handfast.api import field_errors as fields
from handfast.api import status
from handfast.api.custom import rules, structural, structural_values
from handfast.api.custom.structural import Schema

MAX_SCHEMAS: Final = 20_000
_KEY_SHOWN: Final = 128
TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = ("$ref", "id", "definitions", "dependencies", "patternProperties", "additionalItems")
_LIST_TYPES: Final = ("atomic", "map", "set")
_MAP_TYPES: Final = ("atomic", "granular")
# What shapes an object, and so may not depend on which alternative holds.
_SHAPING: Final = (
    "type",
    "default",
    "nullable",
    "additionalProperties",
    structural.PRESERVE,
    structural.EMBEDDED,
    structural.INT_OR_STRING,
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)
_EITHER: Final = [{"type": "integer"}, {"type": "string"}]
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")


def problems(root: Schema, path: str, budget: structural_values.Budget | None = None) -> list[status.Cause]:
    """Everything wrong with a schema that stands at `path` of its definition, at most as many as can be read."""
    count = sum(1 for _ in walk(root))
    if count > MAX_SCHEMAS:  # 1. at most so many schemas
        return [fields.too_many(path, count, MAX_SCHEMAS)]
    causes = []
    for cause in _Judge(budget or structural_values.Budget()).inside(root, path, root=True):
        causes.append(cause)
        if len(causes) == structural_values.MAX_CAUSES:
            break
    return causes


def walk(root: Schema) -> Iterator[Schema]:
    """A schema and every schema inside it, in no particular order."""
    waiting = [root]
    while waiting:
        schema = waiting.pop()
        yield schema
        candidates = [schema.get(key) for key in ("items", "additionalProperties", "not")]
        candidates += structural.properties(schema).values()
        for key in _JUNCTORS:
            candidates += schema.get(key) or ()
        waiting += [each for each in candidates if isinstance(each, Mapping)]


def _cut(key: str) -> str:
    """A key as paths show it, cut off: a key as long as the body would be copied for everything below it."""
    return key if len(key) <= _KEY_SHOWN else key[:_KEY_SHOWN] + "…"


def has_rules(root: Schema) -> bool:
    """Whether there are CEL rules anywhere."""
    return any(schema.get(rules.KEY) for schema in walk(root))


class _Judge:
    """Walks what shapes an object; the budget is for checking defaults."""

    def __init__(self, budget: structural_values.Budget) -> None:
        self._budget = budget

    def place(self, schema: Schema, path: str, where: str) -> fields.Causes:
        """One schema that shapes the object, and those below."""
        type_name = schema.get("type")
        free = schema.get(structural.INT_OR_STRING) is True or schema.get(structural.PRESERVE) is True
        # 2. one of the six types, or integers and texts, or whatever comes
        if not type_name and not free:
            yield fields.required(f"{path}.type", f"must not be empty for specified {where}")
        elif type_name and type_name not in TYPES:
            yield fields.not_supported(f"{path}.type", type_name, TYPES)
        elif type_name and schema.get(structural.INT_OR_STRING) is True:
            yield fields.invalid(f"{path}.type", type_name, "must be empty if x-kubernetes-int-or-string is true")
        if schema.get(structural.EMBEDDED) is True and type_name != "object":
            yield fields.invalid(f"{path}.type", type_name, "must be object if x-kubernetes-embedded-resource is true")
        yield from self.inside(schema, path)

    def inside(self, schema: Schema, path: str, *, root: bool = False) -> fields.Causes:
        yield from _keywords(schema, path)
        yield from _lists(schema, path)
        yield from self._default(schema, path, root=root)
        yield from _alternatives(schema, path)
        if schema.get("type") == "array" or "items" in schema:  # 3. an array says what its elements are
            below = schema.get("items")
            if isinstance(below, Mapping):
                yield from self.place(below, f"{path}.items", "array items")
            elif isinstance(below, list):
                yield fields.forbidden(f"{path}.items", "items must be a schema object and not an array")
            else:
                yield fields.required(f"{path}.items", "must be specified")
        for key, below in structural.properties(schema).items():
            if isinstance(below, Mapping):
                yield from self.place(below, f"{path}.properties[{_cut(key)}]", "object fields")
        rest = schema.get("additionalProperties")
        if isinstance(rest, Mapping):
            yield from self.place(rest, f"{path}.additionalProperties", "object fields")

    def _default(self, schema: Schema, path: str, *, root: bool) -> fields.Causes:
        # 7. a default is a value that its own schema accepts as it is
        default = schema.get("default")
        if default is None:
            return
        if root:
            yield fields.forbidden(f"{path}.default", "must not be set at the root")
            return
        # At a root some names are always known. So the default is put one level below one.
        holder = {"default": copy.deepcopy(default)}
        unknown = structural.prune({"properties": {"default": schema}}, holder)
        if unknown:
            yield fields.invalid(f"{path}.default", default, f"must not have unknown fields: {', '.join(unknown)}")
            return
        structural.fill({"properties": {"default": schema}}, holder)
        for cause in structural_values.check(schema, holder["default"], self._budget):
            place = f"{path}.default"
            yield status.Cause(cause.reason, cause.message, f"{place}.{cause.field}" if cause.field else place)


def _keywords(schema: Schema, path: str) -> fields.Causes:
    for key in _UNSUPPORTED:  # 4. no keyword that Kubernetes has no place for
        if schema.get(key):
            yield fields.forbidden(f"{path}.{key}", f"{key} is not supported")
    if schema.get("uniqueItems") is True:
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield fields.forbidden(f"{path}.uniqueItems", detail)
    rest = schema.get("additionalProperties")
    if rest is False:
        yield fields.forbidden(f"{path}.additionalProperties", "additionalProperties cannot be set to false")
    elif rest is not None and schema.get("properties"):  # 3. declared fields or others, not both
        detail = "additionalProperties and properties are mutual exclusive"
        yield fields.forbidden(f"{path}.additionalProperties", detail)
    expression = schema.get("pattern")
    if expression and structural_values.pattern(expression) is None:  # 5. patterns that RE2 takes
        yield fields.invalid(f"{path}.pattern", expression, "must be a valid regular expression of RE2, but isn't")
    factor = schema.get("multipleOf")
    if factor is not None and factor <= 0:  # 5. a factor above zero
        yield fields.invalid(f"{path}.multipleOf", factor, "must be greater than 0")


def _lists(schema: Schema, path: str) -> fields.Causes:
    # 6. a list of type map names its keys, which its elements have
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    yield from fields.optional_one_of(f"{path}.x-kubernetes-list-type", list_type, _LIST_TYPES)
    yield from fields.optional_one_of(f"{path}.x-kubernetes-map-type", schema.get("x-kubernetes-map-type"), _MAP_TYPES)
    if list_type and schema.get("type") != "array":
        yield fields.invalid(f"{path}.type", schema.get("type"), "must be array if x-kubernetes-list-type is specified")
    if list_type != "map":
        if keys:
            detail = "must be map if x-kubernetes-list-map-keys is non-empty"
            yield fields.invalid(f"{path}.x-kubernetes-list-type", list_type, detail)
        return
    if not keys:
        detail = "must not be empty if x-kubernetes-list-type is map"
        yield fields.required(f"{path}.x-kubernetes-list-map-keys", detail)
    declared = structural.properties(structural.items(schema) or {})
    for index, key in enumerate(keys):
        if key not in declared:
            detail = "entries must all be names of item properties"
            yield fields.invalid(f"{path}.x-kubernetes-list-map-keys[{index}]", key, detail)


def _alternatives(schema: Schema, path: str) -> fields.Causes:
    # 8. nothing in an alternative shapes the object
    for key in _JUNCTORS:
        for index, below in enumerate(schema.get(key) or ()):
            if isinstance(below, Mapping):
                either = schema.get(structural.INT_OR_STRING) is True and (
                    below in _EITHER or below.get("anyOf") == _EITHER
                )
                if not either:
                    yield from _alternative(below, f"{path}.{key}[{index}]")
    below = schema.get("not")
    if isinstance(below, Mapping):
        yield from _alternative(below, f"{path}.not")


def _alternative(schema: Schema, path: str) -> fields.Causes:
    for key in _SHAPING:
        if schema.get(key):
            yield fields.forbidden(f"{path}.{key}", "must be empty to be structural")
    yield from _keywords(schema, path)
    yield from _alternatives(schema, path)
    for key, below in structural.properties(schema).items():
        if isinstance(below, Mapping):
            yield from _alternative(below, f"{path}.properties[{_cut(key)}]")
    below = structural.items(schema)
    if below is not None:
        yield from _alternative(below, f"{path}.items")
