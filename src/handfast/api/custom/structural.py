# SPDX-License-Identifier: Apache-2.0
"""Give a custom object the shape of its structural schema: drop fields it does not have, fill in its defaults.

Both change a document the caller owns, and change nothing when run a second time. Whether the values are right is
`structural_values`, whether the schema itself is one is `structural_schema`.

1. A field that neither `properties` nor `additionalProperties` names is dropped and reported, unless the place has
   `x-kubernetes-preserve-unknown-fields`.
2. At the root, and where the schema says `x-kubernetes-embedded-resource`, there are always apiVersion, kind and
   metadata, and the metadata has the fields of every object's.
3. A null that is not allowed counts as absent; what is absent gets the default of its schema.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from handfast.api.field_path import Path
from handfast.api.schema import structs

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
IMPLICIT: Final = ("apiVersion", "kind", "metadata")
OBJECT_META: Final = "meta.v1.ObjectMeta"
# A refusal should not outgrow the request.
MAX_UNKNOWN: Final = 100
# Bytes of defaults after which no more are filled in: the store refuses the object then anyway.
MAX_FILLED: Final = 4 << 20
_encode = msgspec.json.Encoder().encode

Schema = Mapping[str, Any]
# Of a kind that brings no schema: it keeps whatever it is sent.
FREE: Final[Schema] = {"type": "object", PRESERVE: True}


def properties(schema: Schema) -> Mapping[str, Any]:
    """The declared fields of an object."""
    return _schema(schema.get("properties")) or {}


def field(schema: Schema, key: str) -> Schema | None:
    """The schema of one field: its own, or that of fields which are not declared."""
    declared = properties(schema)
    return _schema(declared[key] if key in declared else schema.get("additionalProperties"))


def fields(schema: Schema) -> tuple[Mapping[str, Any], Schema | None]:
    """The declared fields of an object, and the schema of all others, for those who look at each: `field` looks both up for every one."""
    return properties(schema), _schema(schema.get("additionalProperties"))


def items(schema: Schema) -> Schema | None:
    return _schema(schema.get("items"))


def _schema(value: Any) -> Schema | None:
    # Nearly always a dict: asking for a dict is ten times faster than asking for a Mapping.
    return value if isinstance(value, dict) or isinstance(value, Mapping) else None  # noqa: SIM101


def prune(schema: Schema, document: dict[str, Any]) -> list[str]:
    """Drop what the schema does not know; the paths of it, such as `spec.colour`, at most `MAX_UNKNOWN`."""
    pruner = _Pruner()
    pruner.fields(schema, document, None, resource=True)
    return pruner.unknown


class _Pruner:
    """Walks a document beside its schema."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def value(self, schema: Schema, value: dict[str, Any] | list[Any], path: Path) -> None:
        if isinstance(value, dict):
            self.fields(schema, value, path, resource=schema.get(EMBEDDED) is True)
        elif (below := items(schema)) is not None:
            for index, element in enumerate(value):
                # Of long lists of texts or numbers nothing is dropped.
                if isinstance(element, dict | list):
                    self.value(below, element, Path(index, path))

    def fields(self, schema: Schema, value: dict[str, Any], path: Path | None, *, resource: bool) -> None:
        keep = schema.get(PRESERVE) is True or schema.get("additionalProperties") is True
        declared, rest = fields(schema)
        for key, child in tuple(value.items()):
            # 2. apiVersion, kind and metadata are always known
            if resource and key in IMPLICIT:
                if key == "metadata":
                    self._metadata(child, Path(key, path))
            elif (below := _schema(declared[key]) if key in declared else rest) is not None:
                if isinstance(child, dict | list):
                    self.value(below, child, Path(key, path))
            # 1. no schema names it, and the place does not keep what it does not know
            elif not keep:
                del value[key]
                self._report(str(Path(key, path)))

    def _metadata(self, metadata: Any, path: Path) -> None:
        if not isinstance(metadata, dict):
            return
        findings = structs.check(OBJECT_META, metadata)
        for unknown in findings.unknown:
            self._report(f"{path}.{unknown}")
        structs.drop_unknown(findings)

    def _report(self, path: str) -> None:
        if len(self.unknown) < MAX_UNKNOWN:
            self.unknown.append(path)


def fill(schema: Schema, document: dict[str, Any]) -> None:
    """Fill in the defaults of the schema, below what is there."""
    _Filler().fields(schema, document, IMPLICIT)


class _Filler:
    """Walks a document beside its schema; stops once the defaults alone are more than any object may hold."""

    def __init__(self) -> None:
        self._left = MAX_FILLED
        # By identity, because schemas have no hash: the fields with a default, and what each costs.
        self._defaults: dict[int, list[tuple[str, Any, int]]] = {}

    def value(self, schema: Schema, value: dict[str, Any] | list[Any]) -> None:
        if isinstance(value, dict):
            self.fields(schema, value)
        elif (below := items(schema)) is not None:
            for element in value:
                if isinstance(element, dict | list):
                    self.value(below, element)

    def fields(self, schema: Schema, value: dict[str, Any], but: Collection[str] = ()) -> None:
        # 3. a null that is not allowed counts as absent
        for key in [key for key, child in value.items() if child is None and key not in but]:
            below = field(schema, key)
            if below is not None and below.get("nullable") is not True:
                del value[key]
        # 3. what is absent gets its default
        for key, default, cost in self._of(schema) if self._left > 0 else ():
            if key not in value and key not in but:
                self._left -= cost
                value[key] = copy.deepcopy(default)
        for key, child in value.items():
            if isinstance(child, dict | list) and key not in but and (below := field(schema, key)) is not None:
                self.value(below, child)

    def _of(self, schema: Schema) -> list[tuple[str, Any, int]]:
        defaults = self._defaults.get(id(schema))
        if defaults is None:
            declared = [(key, below["default"]) for key, below in properties(schema).items() if _has_default(below)]
            defaults = [(key, default, len(_encode(default)) + len(key)) for key, default in declared]
            self._defaults[id(schema)] = defaults
        return defaults


def correlated(schema: Schema, new: Any, old: Any) -> Any:
    """`old`, as far as its parts can be told again in `new`: of a list that has changed only the items of a map can."""
    if isinstance(new, dict) and isinstance(old, dict):
        # What is gone stays: that it is missing in `new` must not look as if it had been missing before.
        return {key: correlated(field(schema, key) or {}, new.get(key), value) for key, value in old.items()}
    if isinstance(new, list) and isinstance(old, list) and schema.get("x-kubernetes-list-type") != "map":
        return old if new == old else []
    return old


def has_defaults(schema: Schema) -> bool:
    """Whether anything below could be filled in."""
    below = [*properties(schema).values(), items(schema), schema.get("additionalProperties")]
    return any(isinstance(each, Mapping) and (_has_default(each) or has_defaults(each)) for each in below)


def _has_default(schema: Any) -> bool:
    found = _schema(schema)
    return found is not None and found.get("default") is not None
