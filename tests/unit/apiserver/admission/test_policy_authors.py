# SPDX-License-Identifier: Apache-2.0
"""Writes of policies and bindings: types are checked, params are for those who may read them, and authors are warned."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from handfast.api.cel import engine
from handfast.apiserver.admission import plugin, policy_authors
from handfast.rules import access, decision
from handfast.rules.policies import type_checking
from handfast.runtime import aside
from tests.unit.apiserver import admission_world

GROUP = "admissionregistration.k8s.io"
PODS = ("", "pods")
POLICIES, BINDINGS = (GROUP, "validatingadmissionpolicies"), (GROUP, "validatingadmissionpolicybindings")


def written(document: dict[str, Any], resource: tuple[str, str] = POLICIES, **more: Any) -> plugin.Write:
    operation = "CREATE" if more.get("old") is None else "UPDATE"
    return admission_world.write_of(operation, resource, document=document, user=admission_world.JANE, name="p", **more)


async def test_types_are_checked_when_a_policy_is_written():
    rule = {"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.replicas > '1'"}],
    }
    document: dict[str, Any] = {"metadata": {"name": "p"}, "spec": spec}
    authors = policy_authors.Authors()
    await authors.check_types(written(document), admission_world.World().context)
    (warning,) = document["status"]["typeChecking"]["expressionWarnings"]
    assert (warning["fieldRef"], document["status"]["observedGeneration"]) == ("spec.validations[0].expression", 1)
    after = {"metadata": {"name": "p"}, "spec": {**spec, "validations": [{"expression": "object.spec.replicas > 1"}]}}
    old = {"metadata": {"name": "p", "generation": 4}, "spec": spec}
    await authors.check_types(written(after, old=old), admission_world.World().context)
    assert after["status"] == {"observedGeneration": 5, "typeChecking": {}}
    untouched: dict[str, Any] = {"spec": spec}
    await authors.check_types(written(untouched, subresource="status"), admission_world.World().context)
    assert "status" not in untouched


async def test_types_are_checked_aside(monkeypatch):
    """Expressions may take seconds to compile and judge, for each kind that the policy is about."""
    seen: list[str] = []

    def warnings(*_: Any) -> list[Any]:
        seen.append(threading.current_thread().name)
        return []

    monkeypatch.setattr(type_checking, "warnings", warnings)
    thread = aside.Aside("types")
    try:
        document: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {}}
        await policy_authors.Authors(aside=thread).check_types(written(document), admission_world.World().context)
    finally:
        thread.close()
    assert [name.partition("_")[0] for name in seen] == ["types"]


def allowed(attributes: access.Attributes) -> decision.Decision:
    return (
        decision.Approve("Test", "yes", "test")
        if attributes.namespace == "mine"
        else decision.NotMine("Test", "no", "test")
    )


def test_params_are_for_those_who_may_read_them():
    authors, world = policy_authors.Authors(), admission_world.World(allowed)
    secret = {"apiVersion": "v1", "kind": "Secret"}
    with pytest.raises(plugin.Refusal, match="has to be able to read them"):
        authors.require_params(written({"spec": {"paramKind": secret}}), world.context)
    authors.require_params(written({"spec": {}}), world.context)
    authors.require_params(written({"spec": {"paramKind": secret}}, old={"spec": {"paramKind": secret}}), world.context)
    world.put(POLICIES, "p", spec={"paramKind": secret})
    for space, passes in (("mine", True), ("yours", False)):
        document = {"spec": {"policyName": "p", "paramRef": {"name": "x", "namespace": space}}}
        if passes:
            authors.require_params(written(document, BINDINGS), world.context)
        else:
            with pytest.raises(plugin.Refusal):
                authors.require_params(written(document, BINDINGS), world.context)
    authors.require_params(written({"spec": {"policyName": "p"}}, BINDINGS), world.context)


@pytest.mark.parametrize("resource", ["*", "secrets"])
def test_params_that_nobody_knows_are_for_those_who_may_read_all(resource):
    """A binding before its policy, or a kind before its definition: nobody asks again when they come."""

    def decide(attributes: access.Attributes) -> decision.Decision:
        may = attributes.plural == resource
        return decision.Approve("Test", "yes", "test") if may else decision.NotMine("Test", "no", "test")

    authors, world = policy_authors.Authors(), admission_world.World(decide)
    binding = written({"spec": {"policyName": "later", "paramRef": {"name": "x"}}}, BINDINGS)
    policy = written({"spec": {"paramKind": {"apiVersion": "example.com/v1", "kind": "Later"}}})
    for write in (binding, policy):
        if resource == "*":
            authors.require_params(write, world.context)
        else:
            with pytest.raises(plugin.Refusal, match="has to be able to read them"):
                authors.require_params(write, world.context)


def test_without_the_evaluator_their_authors_are_warned(monkeypatch):
    hooks = (GROUP, "validatingwebhookconfigurations")
    conditional = {"webhooks": [{"matchConditions": [{"name": "a"}]}]}
    assert policy_authors.warnings_of(written({})) == []
    monkeypatch.setattr(engine, "_cel", lambda: None)
    assert policy_authors.warnings_of(written({})) == [policy_authors.NOT_EVALUATED]
    assert policy_authors.warnings_of(written(conditional, hooks)) == [policy_authors.NOT_EVALUATED]
    assert policy_authors.warnings_of(written({"webhooks": [{}]}, hooks)) == []
    assert policy_authors.warnings_of(written({}, PODS)) == []
