# SPDX-License-Identifier: Apache-2.0
"""Warnings about expressions that could never be right."""

from __future__ import annotations

from typing import Any

from handfast.api import kinds
from handfast.api.cel import engine, expressions
from handfast.rules.policies import configurations, type_checking

CUSTOM = kinds.Kind(
    group="example.com",
    version="v1",
    kind="Widget",
    plural="widgets",
    singular="widget",
    namespaced=True,
    schema={"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}},
)


def warnings(
    *validations: dict[str, str], groups: str = "apps", plural: str = "deployments", **spec: Any
) -> list[tuple[str, str]]:
    rule = {"operations": ["*"], "apiGroups": [groups], "apiVersions": ["v1"], "resources": [plural]}
    policy = configurations.policy(
        {"spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": list(validations), **spec}}
    )
    rows = type_checking.warnings(policy, (*kinds.builtin(), CUSTOM))
    return [(row["fieldRef"], row["warning"]) for row in rows]


def test_types_that_do_not_fit_are_warned_of():
    first, second = warnings(
        {"expression": "object.spec.replicas > '1'", "messageExpression": "'got ' + object.spec.replicas"}
    )
    assert first[0] == "spec.validations[0].expression"
    assert first[1].startswith(
        "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'"
    )
    assert second[0] == "spec.validations[0].messageExpression"
    assert "found no matching overload for '_+_' applied to '(string, int)'" in second[1]


def test_what_fits_is_not():
    assert (
        warnings(
            {"expression": "variables.n > 1 && object.metadata.labels.app == 'x' && oldObject == null"},
            {"expression": "object.spec.template.spec.containers.all(c, c.image.startsWith('x') && size(c.args) < 2)"},
            {"expression": "params.x == 1 && object.kind == 'Deployment' && object.metadata.creationTimestamp != ''"},
            {"expression": "object.spec.strategy.rollingUpdate.maxSurge == 1"},
            variables=[{"name": "n", "expression": "object.spec.replicas"}],
            paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        )
        == []
    )


def test_fields_of_custom_kinds_are_known():
    ((_, text),) = warnings({"expression": "object.spec.nope == 1"}, groups="example.com", plural="widgets")
    assert "example.com/v1, Kind=Widget: ERROR: <input>:1:12: undefined field 'nope'" in text


def test_wildcards_are_not_looked_at():
    assert warnings({"expression": "object.nope"}, groups="*", plural="*") == []


def test_without_the_evaluator_there_are_none(monkeypatch):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    assert warnings({"expression": "object.nope"}) == []


def test_a_kind_without_a_schema_has_its_metadata():
    row = kinds.Kind(group="e", version="v1", kind="A", plural="as", singular="a", namespaced=True)
    assert sorted(type_checking.shape(row).fields) == ["apiVersion", "kind", "metadata"]


def test_more_than_a_policy_may_have_is_not_looked_at(monkeypatch):
    monkeypatch.setattr(expressions, "MAX_TOTAL", 100)
    said = warnings(*({"expression": f"object.nope == {index}"} for index in range(20)))
    assert len(said) == 6


def test_what_does_not_compile_is_refused_elsewhere():
    assert warnings({"expression": "object.spec ="}, {"expression": "variables.nope"}) == []
