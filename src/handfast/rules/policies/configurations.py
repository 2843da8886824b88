# SPDX-License-Identifier: Apache-2.0
"""What an admission policy and its binding say, and which writes they match: those that judge objects, and those that change them.

1. Policies and bindings, and webhook configurations, are never judged by a policy: nobody may lock these against repair. Nor are new
   Revocations, by which somebody is put out.
2. One of the rules covers the write, by operation, group, version, resource, scope and name, and none of the excluding ones does.
   Under the match policy Equivalent, the same object under another of its names will do.
3. The selectors select the namespace and the object, as for webhooks.
4. A binding without rules of its own matches what its policy does; both have to match.

Validation has refused what is malformed. What it let pass and cannot be used all the same is `wrong`: then the failure policy
decides. Expressions are not looked at here (`expressions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from handfast.api import jsonpath, kinds, objects, selectors
from handfast.rules.webhooks import configurations, matching

JSON_PATCH: Final = "JSONPatch"


class NamedRule(msgspec.Struct, frozen=True):
    """Writes, perhaps to objects of certain names only."""

    rule: configurations.Rule
    names: frozenset[str]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Which writes are looked at."""

    rules: tuple[NamedRule, ...]
    excluded: tuple[NamedRule, ...]
    exact: bool
    namespace_selector: selectors.LabelSelector
    object_selector: selectors.LabelSelector
    wrong: str = ""

    def about(self, operation: str, names: Sequence[kinds.Kind], subresource: str) -> kinds.Kind | None:
        """The same, whatever the object is called."""
        if matching.is_exempt(names[0], operation):
            return None
        rules = [named.rule for named in self.rules]
        kinds_seen = names[:1] if self.exact else names
        return next(
            (kind for kind in kinds_seen if any(matching.covers(rule, operation, kind, subresource) for rule in rules)),
            None,
        )

    def matched(self, operation: str, names: Sequence[kinds.Kind], subresource: str, name: str) -> kinds.Kind | None:
        """The kind under which the object is seen; None: not at all. `names` as in `webhooks.matching.matched`."""
        if matching.is_exempt(names[0], operation):  # 1. nobody locks policies against repair
            return None
        # 2. a rule covers it, and no excluding one does
        for kind in names[:1] if self.exact else names:
            if any(_covers(rule, operation, kind, subresource, name) for rule in self.excluded):
                return None
            if not self.rules or any(_covers(rule, operation, kind, subresource, name) for rule in self.rules):
                return kind
        return None

    def selects(self, namespace: Mapping[str, str] | None, documents: Iterable[objects.Document | None]) -> bool:
        """Whether the selectors do (3); `namespace` is its labels, None for an object that is in none."""
        return matching.selects(self, namespace, documents)


def _covers(named: NamedRule, operation: str, kind: kinds.Kind, subresource: str, name: str) -> bool:
    return (not named.names or name in named.names) and matching.covers(named.rule, operation, kind, subresource)


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """One expression that has to be true, and what is said if it is not."""

    text: str
    message: str
    words: str
    reason: str


class Mutation(NamedTuple):
    """One expression that makes a patch: of the type `ApplyConfiguration`, or `JSONPatch`."""

    patch_type: str
    text: str


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy. `param_kind` is an apiVersion and a kind, or None; pairs are a name and an expression.

    One that changes objects has mutations, and is asked again (`reinvoked`) when another changed them after it; one that judges
    them has validations.
    """

    name: str
    match: Match
    fails_open: bool
    param_kind: tuple[str, str] | None
    conditions: tuple[tuple[str, str], ...]
    variables: tuple[tuple[str, str], ...]
    validations: tuple[Validation, ...]
    annotations: tuple[tuple[str, str], ...]
    mutations: tuple[Mutation, ...] = ()
    reinvoked: bool = False


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a policy counts, with which params, and what follows where it does not hold."""

    name: str
    policy: str
    match: Match
    actions: tuple[str, ...]
    has_params: bool
    param_name: str
    param_namespace: str
    param_selector: selectors.LabelSelector | None
    denies_missing: bool


def policy(document: objects.Document) -> Policy:
    """A ValidatingAdmissionPolicy, or a MutatingAdmissionPolicy."""
    spec = jsonpath.mapping(document, "spec")
    kind = jsonpath.mapping(spec, "paramKind")
    return Policy(
        name=jsonpath.text(document, "metadata", "name"),
        match=_match(jsonpath.mapping(spec, "matchConstraints")),
        fails_open=spec.get("failurePolicy") == "Ignore",
        param_kind=(jsonpath.text(kind, "apiVersion"), jsonpath.text(kind, "kind")) if kind else None,
        conditions=_pairs(spec, "matchConditions", "name", "expression"),
        variables=_pairs(spec, "variables", "name", "expression"),
        validations=tuple(_validation(row) for row in jsonpath.mappings(spec, "validations")),
        annotations=_pairs(spec, "auditAnnotations", "key", "valueExpression"),
        mutations=tuple(_mutation(row) for row in jsonpath.mappings(spec, "mutations")),
        reinvoked=spec.get("reinvocationPolicy") == "IfNeeded",
    )


def binding(document: objects.Document) -> Binding:
    """The binding of one of them."""
    spec = jsonpath.mapping(document, "spec")
    reference = jsonpath.mapping(spec, "paramRef")
    chosen = reference.get("selector")
    return Binding(
        name=jsonpath.text(document, "metadata", "name"),
        policy=jsonpath.text(spec, "policyName"),
        match=_match(jsonpath.mapping(spec, "matchResources")),
        actions=tuple(jsonpath.texts(spec, "validationActions")),
        has_params=bool(reference),
        param_name=jsonpath.text(reference, "name"),
        param_namespace=jsonpath.text(reference, "namespace"),
        param_selector=_selector(chosen, []) if isinstance(chosen, Mapping) else None,
        denies_missing=reference.get("parameterNotFoundAction") == "Deny",
    )


def _pairs(spec: Mapping[str, Any], key: str, name: str, text: str) -> tuple[tuple[str, str], ...]:
    return tuple((jsonpath.text(row, name), jsonpath.text(row, text)) for row in jsonpath.mappings(spec, key))


def _validation(row: Mapping[str, Any]) -> Validation:
    return Validation(
        text=jsonpath.text(row, "expression"),
        message=jsonpath.text(row, "message").strip(),
        words=jsonpath.text(row, "messageExpression"),
        reason=jsonpath.text(row, "reason") or "Invalid",
    )


def _mutation(row: Mapping[str, Any]) -> Mutation:
    patch_type = jsonpath.text(row, "patchType")
    key = "jsonPatch" if patch_type == JSON_PATCH else "applyConfiguration"
    return Mutation(patch_type, jsonpath.text(row, key, "expression"))


def _match(document: Mapping[str, Any]) -> Match:
    wrong: list[str] = []
    return Match(
        rules=_rules(document, "resourceRules"),
        excluded=_rules(document, "excludeResourceRules"),
        exact=document.get("matchPolicy") == "Exact",
        namespace_selector=_selector(document.get("namespaceSelector"), wrong),
        object_selector=_selector(document.get("objectSelector"), wrong),
        wrong="; ".join(wrong),
    )


def _rules(document: Mapping[str, Any], key: str) -> tuple[NamedRule, ...]:
    return tuple(
        NamedRule(configurations.rule(row), frozenset(jsonpath.texts(row, "resourceNames")))
        for row in jsonpath.mappings(document, key)
    )


def _selector(value: Any, wrong: list[str]) -> selectors.LabelSelector:
    return configurations.selector({"selector": value}, "selector", wrong)
