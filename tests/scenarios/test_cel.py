# SPDX-License-Identifier: Apache-2.0
"""CEL over a real server: rules of custom resources, admission policies with params, conditions, and what callers are told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from handfast.api.cel import engine
from tests.world import world as worlds

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def definition(*rules: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "type": "object",
        "properties": {"size": {"type": "integer"}, "most": {"type": "integer"}},
        "x-kubernetes-validations": list(rules),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }
            ],
        },
    }


def widget(**spec: int) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


def configmap(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def policy(**spec: Any) -> dict[str, Any]:
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "few-keys"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, **spec},
    }


def binding(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "here"},
        "spec": {"policyName": "few-keys", "validationActions": ["Deny"], **spec},
    }


LONG = " && ".join(["1 == 1"] * 400)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Where long expressions are compiled; none is known at first, as on a server that has just started."""
    seen: set[str] = set()
    compile_one: Callable[..., engine.Program] = engine.Environment.compile

    def watched(environment: engine.Environment, text: str) -> engine.Program:
        if len(text) > 2000:
            seen.add(threading.current_thread().name.partition("_")[0])
        return compile_one(environment, text)

    monkeypatch.setattr(engine.Environment, "compile", watched)
    forget(monkeypatch)
    return seen


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_programs", engine.Kept[engine.Program]())


async def test_a_long_expression_holds_nobody_up_when_it_is_written(world: worlds.World, threads: set[str]) -> None:
    condition = {"name": "a", "expression": LONG}
    answer = await world.request(
        "POST",
        f"{REGISTRATION}/validatingadmissionpolicies",
        policy(validations=[{"expression": LONG}], matchConditions=[condition]),
    )
    assert (answer.status, threads) == (201, {"aside"})


async def test_a_long_expression_holds_nobody_up_when_it_is_first_needed(
    world: worlds.World, threads: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a server that has just started, and has compiled nothing."""
    validations = [{"expression": LONG}]
    await world.request("POST", f"{REGISTRATION}/validatingadmissionpolicies", policy(validations=validations))
    await world.request("POST", f"{REGISTRATION}/validatingadmissionpolicybindings", binding())
    await world.request("POST", DEFINITIONS, definition({"rule": LONG}))
    for path, document in ((CONFIGMAPS, configmap("a")), (WIDGETS, widget(size=1))):
        forget(monkeypatch)
        threads.clear()
        answer = await world.request("POST", path, document)
        assert (answer.status, threads) == (201, {"aside"})


async def test_many_first_objects_wait_for_one_compilation(
    world: worlds.World, threads: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none of them is told that too much waits."""
    await world.request("POST", DEFINITIONS, definition({"rule": LONG}))
    documents = [{**widget(size=1), "metadata": {"name": f"first-{number}"}} for number in range(40)]
    forget(monkeypatch)
    threads.clear()
    quickly: Callable[..., engine.Program] = engine.Environment.compile

    def slowly(environment: engine.Environment, text: str) -> engine.Program:
        # So that all have come before the first is done.
        time.sleep(0.3)
        return quickly(environment, text)

    monkeypatch.setattr(engine.Environment, "compile", slowly)
    answers = await asyncio.gather(*(world.request("POST", WIDGETS, document) for document in documents))
    assert ({answer.status for answer in answers}, threads) == ({201}, {"aside"})


async def test_rules_of_custom_resources_hold(world: worlds.World) -> None:
    answer = await world.request("POST", DEFINITIONS, definition({"rule": "self.nope > 0"}))
    assert (answer.status, "undefined field 'nope'" in answer.json()["message"]) == (422, True)
    rules = (
        {"rule": "self.size <= self.most", "messageExpression": "'at most ' + string(self.most)", "fieldPath": ".size"},
        {"rule": "self.size >= oldSelf.size", "message": "it never shrinks"},
    )
    answer = await world.request("POST", DEFINITIONS, definition(*rules))
    assert (answer.status, answer.headers.getall("Warning", [])) == (201, [])
    answer = await world.request("POST", WIDGETS, widget(size=9, most=5))
    assert answer.json()["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "message": "Invalid value: at most 5", "field": "spec.size"}
    ]
    written = (await world.request("POST", WIDGETS, widget(size=4, most=5))).json()
    written["spec"]["size"] = 3
    answer = await world.request("PUT", f"{WIDGETS}/w", written)
    assert (answer.status, "it never shrinks" in answer.json()["message"]) == (422, True)
    written["spec"]["size"] = 5
    assert (await world.request("PUT", f"{WIDGETS}/w", written)).status == 200


async def test_policies_judge_writes(world: worlds.World) -> None:
    policies, bindings = (f"{REGISTRATION}/validatingadmissionpolic{end}" for end in ("ies", "ybindings"))
    judged = policy(
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        matchConditions=[
            {"name": "labelled", "expression": "has(object.metadata.labels) && 'judged' in object.metadata.labels"}
        ],
        variables=[{"name": "count", "expression": "has(object.data) ? size(object.data) : 0"}],
        validations=[
            {
                "expression": "variables.count <= int(params.data.most)",
                "messageExpression": "'at most ' + params.data.most + ' keys, not ' + string(variables.count)",
                "reason": "Forbidden",
            }
        ],
    )
    answer = await world.request("POST", policies, policy(validations=[{"expression": "object.data ="}]))
    assert (answer.status, "compilation failed" in answer.json()["message"]) == (422, True)
    answer = await world.request("POST", policies, judged)
    assert (answer.status, answer.json()["status"]["typeChecking"]) == (201, {})
    reference = {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}
    assert (await world.request("POST", CONFIGMAPS, configmap("limits", most="1"))).status == 201
    # The copy of the store is fresh before a write is judged, so what was acknowledged counts.
    assert (await world.request("POST", bindings, binding(paramRef=reference))).status == 201
    labels = {"judged": "yes"}
    answer = await world.request("POST", CONFIGMAPS, configmap("many", labels, a="1", b="2"))
    said = "ValidatingAdmissionPolicy 'few-keys' with binding 'here' denied request: at most 1 keys, not 2"
    assert (answer.status, answer.json()["message"]) == (403, f'configmaps "many" is forbidden: {said}')
    assert (await world.request("POST", CONFIGMAPS, configmap("one", labels, a="1"))).status == 201
    assert (await world.request("POST", CONFIGMAPS, configmap("free", a="1", b="2"))).status == 201
    warns = {**binding(paramRef=reference)["spec"], "validationActions": ["Warn"]}
    answer = await world.request(
        "PATCH", f"{bindings}/here", {"spec": warns}, headers={"Content-Type": "application/merge-patch+json"}
    )
    assert answer.status == 200
    answer = await world.request("POST", CONFIGMAPS, configmap("many", labels, a="1", b="2"))
    assert answer.status == 201
    assert "Validation failed for ValidatingAdmissionPolicy" in answer.headers["Warning"]
    assert (await world.request("DELETE", f"{policies}/few-keys")).status == 200
