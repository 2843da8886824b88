# SPDX-License-Identifier: Apache-2.0
"""A CustomResourceDefinition's schema with a value: the JSON `[schema, value, value before]` behind a first byte that says nothing.

1. A definition with that schema is refused or accepted.
2. Of an accepted one, values are pruned and filled once and for all, and judged, without being changed.
3. The schema is published, and columns are printed.
"""

from __future__ import annotations

import copy
import datetime
from typing import Any

import msgspec

from handfast.api import kinds
from handfast.api.custom import definitions, rule_values, structural, structural_values
from handfast.api.defaulting import defaults
from handfast.api.openapi import custom_schemas, swagger
from handfast.api.printing import printers
from handfast.api.validation import validation
from handfast.apiserver import bodies
from tests.fuzz import promises

NOW = datetime.datetime(2026, 1, 2, 4, tzinfo=datetime.UTC)
_DEFINITIONS = kinds.row("customresourcedefinitions", "apiextensions.k8s.io")


def definition(schema: Any) -> dict[str, Any]:
    column = {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [column],
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "widgets.example.com"}, "spec": spec}


def _read(data: bytes) -> None:
    try:
        parts = msgspec.json.decode(data[1:])
    except (ValueError, RecursionError):
        return
    schema, value, old = (*parts, None, None, None)[:3] if isinstance(parts, list) else (parts, None, None)
    # 1. refused or accepted
    body = msgspec.json.encode(definition(schema))
    document, _ = bodies.for_kind(body, "application/json", _DEFINITIONS, bodies.WARN)
    defaults.apply(_DEFINITIONS, document)
    if [*validation.create(_DEFINITIONS, document), *definitions.problems(document)]:
        return
    definitions.prepare(document, (), "2026-01-02T03:04:05Z")
    for row in definitions.rows(document):
        _judge(row, value, old)


def _judge(row: kinds.Kind, value: Any, old: Any) -> None:
    schema = row.schema or structural.FREE
    body = msgspec.json.encode(value if isinstance(value, dict) else {"spec": value})
    document, _ = bodies.for_kind(body, "application/json", row, bodies.WARN)
    # 2. once and for all
    structural.prune(schema, document)
    structural.fill(schema, document)
    once = copy.deepcopy(document)
    promises.require(not structural.prune(schema, document), "pruning twice is not pruning once")
    structural.fill(schema, document)
    promises.require(document == once, "filling twice is not filling once")
    before = old if isinstance(old, dict) else None
    structural.correlated(schema, document, before)
    causes = structural_values.check(schema, document) or rule_values.check(schema, document, before)
    msgspec.json.encode([cause.document() for cause in causes])
    promises.require(document == once, "judging changes the object")
    # 3. published and printed
    msgspec.json.encode(custom_schemas.kind(row))
    for form in (swagger.JSON, swagger.PROTOBUF):
        form.schema(custom_schemas.kind_v2(row))
    printers.cells(row, document, NOW)


run = promises.refusing(_read)
