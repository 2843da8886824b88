# SPDX-License-Identifier: Apache-2.0
"""What is asked of ValidatingAdmissionPolicies, their bindings, and the match conditions of webhooks.

Expressions are compiled, where the evaluator is there (the extra `cel`): what does not compile, names something that is not there, or
costs too much for a small object already is refused here, and not at the first write that it would judge. Without the evaluator
their form is checked, and whoever writes them is warned elsewhere. Nothing is evaluated.

All expressions of an object have at most `expressions.MAX_TOTAL` characters, each counted with the variables in it: a short one can
name a long variable. What comes after is not compiled any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects
from handfast.api.cel import engine, estimate, expressions
from handfast.api.validation import webhooks
from handfast.api.validation.workloads import label_selector

MAX_CONDITIONS: Final = 64
_MAX_ANNOTATIONS: Final = 20
_MAX_VALUE: Final = 5 << 10
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_TOO_LONG: Final = (
    f"all expressions together may have {expressions.MAX_TOTAL} characters, each with the variables that it names; "
    f"one that does not compile counts as {engine.MAX_TEXT}"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


def policy(document: dict[str, Any]) -> fields.Causes:
    """A ValidatingAdmissionPolicy."""
    spec = jsonpath.mapping(document, "spec")
    has_params = isinstance(spec.get("paramKind"), Mapping)
    yield from constraints(spec)
    texts = Texts()
    yield from conditions(spec, "spec.matchConditions", texts, has_params=has_params)
    yield from _expressions(document, spec, texts, has_params=has_params)


def constraints(spec: dict[str, Any]) -> fields.Causes:
    """What policies of both sorts say of the writes that they are about, of their params, and of failures."""
    yield from fields.one_of("spec.failurePolicy", spec.get("failurePolicy"), ("Fail", "Ignore"))
    if isinstance(spec.get("paramKind"), Mapping):
        yield from param_kind(jsonpath.mapping(spec, "paramKind"), "spec.paramKind")
    if not isinstance(spec.get("matchConstraints"), Mapping):
        yield fields.required("spec.matchConstraints")
    else:
        match = jsonpath.mapping(spec, "matchConstraints")
        yield from resources(match, "spec.matchConstraints")
        if not jsonpath.sequence(match, "resourceRules"):
            yield fields.required("spec.matchConstraints.resourceRules")


def binding(document: dict[str, Any]) -> fields.Causes:
    """A ValidatingAdmissionPolicyBinding."""
    spec = jsonpath.mapping(document, "spec")
    yield from bound(spec)
    actions = jsonpath.texts(spec, "validationActions")
    if not actions:
        yield fields.required("spec.validationActions", "at least one validation action is required")
    for index, action in enumerate(actions):
        yield from fields.one_of(f"spec.validationActions[{index}]", action, _ACTIONS)
        if action in actions[:index]:
            yield fields.duplicate(f"spec.validationActions[{index}]", action)
    if {"Deny", "Warn"} <= set(actions):
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response "
            "and headers serves no purpose)"
        )
        yield fields.invalid("spec.validationActions", actions, detail)


def bound(spec: dict[str, Any]) -> fields.Causes:
    """What bindings of both sorts say."""
    yield from fields.named("spec.policyName", jsonpath.text(spec, "policyName"), objects.dns_subdomain)
    if isinstance(spec.get("paramRef"), Mapping):
        yield from param_ref(jsonpath.mapping(spec, "paramRef"), "spec.paramRef")
    if isinstance(spec.get("matchResources"), Mapping):
        yield from resources(jsonpath.mapping(spec, "matchResources"), "spec.matchResources")


def validating_webhooks(document: dict[str, Any]) -> fields.Causes:
    """A ValidatingWebhookConfiguration, with its match conditions."""
    yield from webhooks.validating(document)
    yield from _webhook_conditions(document)


def mutating_webhooks(document: dict[str, Any]) -> fields.Causes:
    """A MutatingWebhookConfiguration, with its match conditions."""
    yield from webhooks.mutating(document)
    yield from _webhook_conditions(document)


def _webhook_conditions(document: dict[str, Any]) -> fields.Causes:
    texts = Texts()
    for index, webhook in enumerate(jsonpath.mappings(document, "webhooks")):
        yield from conditions(webhook, f"webhooks[{index}].matchConditions", texts)


class Texts:
    """Compiles the expressions of one object, up to so many characters in all."""

    def __init__(self) -> None:
        self._left = expressions.MAX_TOTAL

    def compiles(self, path: str, text: str, compile_one: Callable[[str], expressions.Expression]) -> fields.Causes:
        if not text.strip():
            yield fields.required(path, "expression is not specified")
        elif engine.is_available() and self._left >= 0:
            try:
                self._left -= len(compile_one(text).program.text)
            except estimate.InvalidExpression as error:
                self._left -= engine.MAX_TEXT
                yield fields.invalid(path, text, f"compilation failed: {error.message}")
            if self._left < 0:
                yield fields.forbidden(path, _TOO_LONG)


def conditions(holder: Mapping[str, Any], path: str, texts: Texts, *, has_params: bool = False) -> fields.Causes:
    """Match conditions, of a policy or of a webhook."""
    rows = jsonpath.mappings(holder, "matchConditions")
    if len(rows) > MAX_CONDITIONS:
        yield fields.too_many(path, len(rows), MAX_CONDITIONS)
        return
    names = set()
    for index, row in enumerate(rows):
        name = jsonpath.text(row, "name")
        yield from fields.named(f"{path}[{index}].name", name, objects.qualified_name)
        if name and name in names:
            yield fields.duplicate(f"{path}[{index}].name", name)
        names.add(name)
        yield from texts.compiles(
            f"{path}[{index}].expression",
            jsonpath.text(row, "expression"),
            lambda text: expressions.compiled(text, has_params=has_params),
        )


def param_kind(kind: Mapping[str, Any], path: str) -> fields.Causes:
    group, _, version = jsonpath.text(kind, "apiVersion").rpartition("/")
    if not jsonpath.text(kind, "apiVersion"):
        yield fields.required(f"{path}.apiVersion")
    else:
        yield from fields.optional_name(f"{path}.apiVersion", group, objects.dns_subdomain)
        yield from fields.named(f"{path}.apiVersion", version, objects.dns_1035_label)
    yield from fields.named(f"{path}.kind", jsonpath.text(kind, "kind").lower(), objects.dns_1035_label)


def param_ref(reference: Mapping[str, Any], path: str) -> fields.Causes:
    name, selector = jsonpath.text(reference, "name"), reference.get("selector")
    if name and selector is not None:
        yield fields.forbidden(f"{path}.name", "name and selector are mutually exclusive")
    elif not name and selector is None:
        yield fields.required(path, "one of name or selector must be specified")
    yield from label_selector(f"{path}.selector", selector)
    action = reference.get("parameterNotFoundAction")
    yield from fields.one_of(f"{path}.parameterNotFoundAction", action, ("Allow", "Deny"))


def resources(match: Mapping[str, Any], path: str) -> fields.Causes:
    yield from fields.one_of(f"{path}.matchPolicy", match.get("matchPolicy"), ("Equivalent", "Exact"))
    for key in ("namespaceSelector", "objectSelector"):
        yield from label_selector(f"{path}.{key}", match.get(key))
    for key in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(jsonpath.mappings(match, key)):
            yield from webhooks.rule(f"{path}.{key}[{index}]", rule)
            names = jsonpath.texts(rule, "resourceNames")
            for place, name in enumerate(names):
                if name in names[:place]:
                    yield fields.duplicate(f"{path}.{key}[{index}].resourceNames[{place}]", name)


def _expressions(
    document: Mapping[str, Any], spec: Mapping[str, Any], texts: Texts, *, has_params: bool
) -> fields.Causes:
    variables: list[tuple[str, str]] = []
    for index, row in enumerate(jsonpath.mappings(spec, "variables")):
        path, text, before = f"spec.variables[{index}]", jsonpath.text(row, "expression"), tuple(variables)
        yield from variable_name(path, row)
        yield from texts.compiles(
            f"{path}.expression", text, partial(expressions.variable, before=before, has_params=has_params)
        )
        variables.append((jsonpath.text(row, "name"), text))
    validations, notes = jsonpath.mappings(spec, "validations"), jsonpath.mappings(spec, "auditAnnotations")
    if not validations and not notes:
        for key in ("validations", "auditAnnotations"):
            yield fields.required(f"spec.{key}", "validations or auditAnnotations must contain at least one item")
    for index, row in enumerate(validations):
        yield from _validation(f"spec.validations[{index}]", row, variables, texts, has_params=has_params)
    if len(notes) > _MAX_ANNOTATIONS:
        detail = f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations"
        yield fields.invalid("spec.auditAnnotations", len(notes), detail)
    keys = set()
    for index, row in enumerate(notes[:_MAX_ANNOTATIONS]):
        path, key = f"spec.auditAnnotations[{index}]", jsonpath.text(row, "key")
        name = f"{jsonpath.text(document, 'metadata', 'name')}/{key}"
        yield from fields.named(f"{path}.key", name, objects.qualified_name)
        if key in keys:
            yield fields.duplicate(f"{path}.key", key)
        keys.add(key)
        text = jsonpath.text(row, "valueExpression")
        if len(text) > _MAX_VALUE:
            yield fields.required(f"{path}.valueExpression", f"must not exceed {_MAX_VALUE} bytes in length")
        else:
            yield from texts.compiles(
                f"{path}.valueExpression",
                text,
                lambda text: expressions.annotation(text, variables, has_params=has_params),
            )


def variable_name(path: str, row: Mapping[str, Any]) -> fields.Causes:
    name = jsonpath.text(row, "name")
    if not name.strip():
        yield fields.required(f"{path}.name", "name is not specified")
    elif not _NAME.match(name):
        yield fields.invalid(f"{path}.name", name, "must be a valid CEL identifier")


def _validation(
    path: str, row: Mapping[str, Any], variables: list[tuple[str, str]], texts: Texts, *, has_params: bool
) -> fields.Causes:
    yield from texts.compiles(
        f"{path}.expression",
        jsonpath.text(row, "expression"),
        lambda text: expressions.compiled(text, variables, has_params=has_params),
    )
    words, message = jsonpath.text(row, "messageExpression"), jsonpath.text(row, "message")
    if words and not words.strip():
        yield fields.invalid(f"{path}.messageExpression", words, "must be non-empty if specified")
    elif words:
        yield from texts.compiles(
            f"{path}.messageExpression",
            words,
            lambda text: expressions.compiled(text, variables, has_params=has_params, kind="string"),
        )
    if message and not message.strip():
        yield fields.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield fields.invalid(f"{path}.message", message, "must not contain line breaks")
    yield from fields.optional_one_of(f"{path}.reason", row.get("reason"), _REASONS)
