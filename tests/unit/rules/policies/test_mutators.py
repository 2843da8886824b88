# SPDX-License-Identifier: Apache-2.0
"""What a mutating policy makes of an object."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from handfast.api import status
from handfast.api.cel import engine, expressions
from handfast.rules.policies import configurations, mutators, verdicts

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "a", "uid": "u", "labels": {"x": "1"}, "managedFields": [{"manager": "m"}]},
    "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"a": "b"}},
}


def apply(text: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}


def patch(text: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}


def mutate(
    *mutations: dict[str, Any],
    data: dict[str, Any] | None = None,
    budget: mutators.Budget | None = None,
    check: mutators.Check = lambda _: None,
    **spec: Any,
) -> tuple[dict[str, Any], list[str]]:
    policy = configurations.policy({"metadata": {"name": "p"}, "spec": {"mutations": list(mutations), **spec}})
    mutator = mutators.Mutator(policy)
    mutator.prepare()
    before = copy.deepcopy(POD)
    made = mutator.mutate(
        {"object": POD, "request": {"operation": "CREATE"}, **(data or {})},
        budget or mutators.Budget(),
        types="core.v1.Pod",
        check=check,
    )
    assert before == POD
    return made


def label(name: str, value: str = "'y'") -> dict[str, Any]:
    return apply(f"Object{{metadata: Object.metadata{{labels: {{'{name}': {value}}}}}}}")


def test_a_configuration_is_merged_by_the_schema():
    side = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', image: 'j'}, Object.spec.containers{name: 'd'}]}}"
    made, errors = mutate(apply(side), label("z"))
    assert errors == []
    assert made["spec"]["containers"] == [{"name": "c", "image": "j"}, {"name": "d"}]
    assert made["metadata"]["labels"] == {"x": "1", "z": "y"}


def test_each_mutation_sees_what_the_one_before_left():
    made, errors = mutate(
        label("n", "'1'"),
        label("m", "object.metadata.labels.n + variables.two"),
        variables=[{"name": "two", "expression": "'2'"}],
    )
    assert (made["metadata"]["labels"], errors) == ({"x": "1", "n": "1", "m": "12"}, [])


def test_a_patch_is_applied_unless_its_test_fails():
    remove = "JSONPatch{op: 'remove', path: '/metadata/labels/x'}"
    made, errors = mutate(patch(f"[JSONPatch{{op: 'test', path: '/metadata/name', value: 'p'}}, {remove}]"))
    assert (made["metadata"]["labels"], errors) == ({}, [])
    made, errors = mutate(patch(f"[JSONPatch{{op: 'test', path: '/metadata/name', value: 'q'}}, {remove}]"))
    assert made is POD
    assert errors == []


def test_what_changes_nothing_leaves_the_same_object():
    made, errors = mutate(label("x", "'1'"), patch("[]"))
    assert made is POD
    assert errors == []


def test_it_is_asked_where_its_conditions_are_true():
    here = [{"name": "here", "expression": "object.metadata.name == 'p' && params == null"}]
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    made, _ = mutate(label("z"), matchConditions=here, paramKind=kind)
    assert made is not POD
    made, errors = mutate(label("z"), matchConditions=[{"name": "n", "expression": "false"}])
    assert made is POD
    assert errors == []
    made, errors = mutate(label("z"), matchConditions=[{"name": "n", "expression": "object.nope"}])
    assert made is POD
    assert errors == ["expression 'object.nope' resulted in error: no such key: nope"]


@pytest.mark.parametrize(
    ("mutation", "said"),
    [
        (label("z", "object.nope"), "resulted in error: no such key: nope"),
        (apply("Object{"), "compilation error: compilation failed: "),
        (apply("Object{spec: Object.metadata{}}"), "type mismatch: unexpected type name"),
        (patch("[JSONPatch{op: 'remove', path: '/nope'}]"), "error applying patch: "),
        (patch("[JSONPatch{op: 'twist', path: '/nope'}]"), "error applying patch: "),
        (apply("Object{spec: Object.spec{nodeSelector: {'c': 'd'}}}"), "may not mutate atomic arrays, maps or structs: .spec.nodeSelector"),
        (apply("Object{spec: Object.spec{containers: [Object.spec.containers{image: 'x'}]}}"), 'omits key field "name"'),
        (apply("Object{spec: Object.spec{tolerations: []}}"), "may not mutate atomic arrays, maps or structs: .spec.tolerations"),
    ],
)  # fmt: skip
def test_what_fails_is_an_error(mutation, said):
    """And the others are done all the same: whether the write ends is not decided here."""
    made, (error,) = mutate(mutation, label("z"))
    assert said in error
    assert made["metadata"]["labels"] == {"x": "1", "z": "y"}


@pytest.mark.parametrize(
    ("path", "value"),
    [("/metadata/name", "q"), ("/metadata/namespace", "b"), ("/metadata/uid", "v"), ("/kind", "Secret"), ("/apiVersion", "v2")],
)  # fmt: skip
def test_the_object_stays_what_it_is(path, value):
    made, errors = mutate(patch(f"[JSONPatch{{op: 'replace', path: '{path}', value: '{value}'}}]"))
    assert made is POD
    assert errors == [f"a policy may not change {path[1:].replace('/', '.')}"]


def test_what_only_the_server_sets_is_put_back():
    operations = "[JSONPatch{op: 'remove', path: '/metadata/managedFields'}, JSONPatch{op: 'add', path: '/metadata/generation', value: 9}]"
    made, errors = mutate(patch(operations), label("z"))
    assert errors == []
    assert made["metadata"]["managedFields"] == [{"manager": "m"}]
    assert "generation" not in made["metadata"]
    _, (error,) = mutate(apply("Object{metadata: Object.metadata{managedFields: []}}"))
    assert "managedFields must be nil" in error


def test_what_is_not_of_the_kind_is_an_error():
    def check(document: dict[str, Any]) -> None:
        raise status.bad_request("no such field")

    made, errors = mutate(label("z"), check=check)
    assert made is POD
    assert errors == ["error applying patch: no such field"]


def test_a_patch_is_bounded():
    many = {"params": [str(number) for number in range(mutators.MAX_VALUES + 1)]}
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    made, (error,) = mutate(apply("Object{spec: Object.spec{x: params}}"), data=many, paramKind=kind)
    assert made is POD
    assert "the patch has more than" in error
    made, (error,) = mutate(patch("[JSONPatch{op: 'add', path: '/a', value: params}]"), data=many, paramKind=kind)
    assert "the patch has more than" in error


def test_objects_are_handed_over_so_often_and_no_more():
    made, errors = mutate(label("a"), label("b"), label("c"), budget=mutators.Budget(bytes_left=600))
    assert "b" not in made["metadata"]["labels"] or "c" not in made["metadata"]["labels"]
    assert verdicts.SPENT in errors[-1]
    made, errors = mutate(label("a"), budget=mutators.Budget(0))
    assert made is POD
    assert verdicts.SPENT in errors[0]


def test_it_is_compiled_ahead():
    policy = configurations.policy({"metadata": {"name": "p"}, "spec": {"mutations": [label("ahead"), patch("[]")]}})
    mutator = mutators.Mutator(policy)
    sizes = expressions.Sizes({"object": POD})
    assert mutator.price(sizes) == math.inf
    mutator.prepare()
    assert mutator.price(sizes) < verdicts.LIGHT_COST


def test_without_the_evaluator_it_is_an_error(monkeypatch):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    assert mutate(label("z")) == (POD, [verdicts.UNAVAILABLE])
