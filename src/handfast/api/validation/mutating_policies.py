# SPDX-License-Identifier: Apache-2.0
"""What is asked of MutatingAdmissionPolicies and their bindings. Their expressions are compiled as those of policies that judge are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from handfast.api import field_errors as fields
from handfast.api import jsonpath
from handfast.api.cel import expressions
from handfast.api.validation import policies

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_REINVOCATIONS: Final = ("IfNeeded", "Never")
# The patch types, where the expression of each is, and how it is compiled.
_PATCHES: Final = {
    "ApplyConfiguration": ("applyConfiguration", expressions.configuration),
    "JSONPatch": ("jsonPatch", expressions.patch),
}


def policy(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    has_params = isinstance(spec.get("paramKind"), Mapping)
    yield from policies.constraints(spec)
    yield from _operations(spec, "matchConstraints")
    texts = policies.Texts()
    yield from policies.conditions(spec, "spec.matchConditions", texts, has_params=has_params)
    variables: list[tuple[str, str]] = []
    for index, row in enumerate(jsonpath.mappings(spec, "variables")):
        path, text, before = f"spec.variables[{index}]", jsonpath.text(row, "expression"), tuple(variables)
        yield from policies.variable_name(path, row)
        compile_one = partial(expressions.making_variable, before=before, has_params=has_params)
        yield from texts.compiles(f"{path}.expression", text, compile_one)
        variables.append((jsonpath.text(row, "name"), text))
    rows = jsonpath.mappings(spec, "mutations")
    if not rows:
        yield fields.required("spec.mutations", "mutations must contain at least one item")
    for index, row in enumerate(rows):
        yield from _mutation(f"spec.mutations[{index}]", row, variables, texts, has_params=has_params)
    yield from fields.one_of("spec.reinvocationPolicy", spec.get("reinvocationPolicy"), _REINVOCATIONS)


def binding(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    yield from policies.bound(spec)
    yield from _operations(spec, "matchResources")


def _operations(spec: Mapping[str, Any], key: str) -> fields.Causes:
    """Only what is created or updated can be changed."""
    for rule in jsonpath.mappings(spec, key, "resourceRules"):
        for operation in jsonpath.texts(rule, "operations"):
            yield from fields.optional_one_of(f"spec.{key}.resourceRules.operations", operation, _OPERATIONS)


def _mutation(
    path: str, row: Mapping[str, Any], variables: list[tuple[str, str]], texts: policies.Texts, *, has_params: bool
) -> fields.Causes:
    chosen = row.get("patchType")
    yield from fields.one_of(f"{path}.patchType", chosen, tuple(_PATCHES))
    for name, (key, compile_one) in _PATCHES.items() if chosen in _PATCHES else ():
        there = isinstance(row.get(key), Mapping)
        if name != chosen and there:
            yield fields.invalid(f"{path}.{key}", f"{{{key}}}", f"must not be specified when patchType is {chosen}")
        elif name == chosen and not there:
            yield fields.required(f"{path}.{key}", f"must be specified when patchType is {chosen}")
        elif there:
            made = partial(compile_one, variables=variables, has_params=has_params)
            yield from texts.compiles(f"{path}.{key}.expression", jsonpath.text(row, key, "expression"), made)
