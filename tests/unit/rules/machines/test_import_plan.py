# SPDX-License-Identifier: Apache-2.0
"""What an import does: create, update, leave alone, prune; and what it refuses to touch."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.rules.machines import declaration, import_plan, inventory, linking

WANTED = import_plan.Wanted(namespace="fleet", import_set="rack-4")
PRUNE = import_plan.Wanted(namespace="fleet", import_set="rack-4", prune=True)


def entry(name: str = "w1", **more: Any) -> declaration.Entry:
    return declaration.Entry(**{"line": 2, "name": name, "dns": (name,), "ip": (f"10.0.0.{name[1:]}",), **more})


def machine(one: declaration.Entry, import_set: str = "rack-4", **metadata: Any) -> dict[str, Any]:
    """As it is in the cluster after an import."""
    document = declaration.document(one, "fleet", import_set) | {"status": declaration.status(one)}
    document["metadata"] |= {"uid": "u", "resourceVersion": "7", **metadata}
    return copy.deepcopy(document)


def actions(plan: import_plan.Plan) -> list[tuple[str, str]]:
    return [(step.action, step.name) for step in plan.steps]


def test_what_is_not_there_is_created_with_its_status():
    plan = import_plan.plan([entry()], [], WANTED)
    assert actions(plan) == [("create", "w1")]
    assert plan.steps[0].document["metadata"]["namespace"] == "fleet"
    assert plan.steps[0].status["addresses"][0] == {"type": "InternalDNS", "address": "w1"}


def test_what_says_the_same_is_left_alone():
    plan = import_plan.plan([entry()], [machine(entry())], WANTED)
    assert actions(plan) == [("unchanged", "w1")]
    assert not plan.steps[0].document
    assert not plan.steps[0].status


def test_what_says_something_else_is_updated_in_the_declared_fields_alone():
    before = machine(entry(mac=("52:54:00:00:00:01",), serial="S1", provider_id="p1"))
    before["metadata"]["labels"]["mine"] = "x"
    before["status"]["addresses"].append({"type": "ExternalDNS", "address": "outside"})
    after = entry(ip=("10.0.0.99",), role="master", serial="S2")
    (step,) = import_plan.plan([after], [before], WANTED).steps
    assert step.action == "update"
    assert step.changes == (
        "role: worker → master",
        "ip: 10.0.0.1 → 10.0.0.99",
        "mac: 52:54:00:00:00:01 → none",
        "serial: S1 → S2",
        "providerID: p1 → none",
    )
    assert step.document == {
        "metadata": {
            "labels": {"machine.openshift.io/cluster-api-machine-role": "master"},
            "annotations": {inventory.MAC: None, inventory.SERIAL: "S2"},
        },
        "spec": {
            "metadata": {
                "labels": {
                    "node-role.kubernetes.io/worker": None,
                    "node-role.kubernetes.io/master": "",
                    "node-role.kubernetes.io/control-plane": "",
                }
            },
            "providerID": None,
        },
    }
    assert step.status == {
        "addresses": [
            {"type": "InternalDNS", "address": "w1"},
            {"type": "InternalIP", "address": "10.0.0.99"},
            {"type": "ExternalDNS", "address": "outside"},
        ]
    }
    assert step.machine is not None
    assert step.machine.version == "7"


def test_an_import_that_was_cut_short_is_completed():
    """Between the Machine and its status the first run ended."""
    half = machine(entry())
    del half["status"]
    (step,) = import_plan.plan([entry()], [half], WANTED).steps
    assert step.changes == ("dns: none → w1", "ip: none → 10.0.0.1")
    assert step.status == declaration.status(entry())


def test_a_machine_that_was_declared_alone_becomes_one_of_the_import():
    (step,) = import_plan.plan([entry()], [machine(entry(), "")], WANTED).steps
    assert (step.action, step.changes) == ("update", ("labels, annotations or phase",))
    assert step.document == {"metadata": {"labels": {declaration.SET_LABEL: "rack-4"}}}
    # An import without a name leaves it to the one that has it.
    (step,) = import_plan.plan([entry()], [machine(entry(), "")], import_plan.Wanted(namespace="fleet")).steps
    assert step.action == "unchanged"


@pytest.mark.parametrize(
    ("there", "wanted", "words"),
    [
        (machine(entry(), annotations={}), WANTED, "was not made by `handfast machine`, and is not changed"),
        (machine(entry(), "rack-5"), WANTED, "is of the import rack-5: say --set rack-5"),
        (machine(entry()), import_plan.Wanted(namespace="fleet", new=True), "is there already"),
    ],
)
def test_what_is_somebody_elses_is_not_changed(there, wanted, words):
    plan = import_plan.plan([entry()], [there], wanted)
    (problem,) = plan.problems
    assert problem.text.startswith("line 2: name: Machine fleet/w1 ")
    assert words in problem.sentence
    assert actions(plan) == []


@pytest.mark.parametrize(
    ("other", "field", "value"),
    [
        ({"dns": ("W1.",)}, "dns", "w1"),
        ({"ip": ("10.0.0.1",)}, "ip", "10.0.0.1"),
        ({"mac": ("52:54:00:00:00:01",)}, "mac", "52:54:00:00:00:01"),
        ({"serial": "S1"}, "serial", "S1"),
        ({"provider_id": "p1"}, "providerID", "p1"),
    ],
)
def test_nothing_may_be_that_of_another_machine_of_the_cluster(other, field, value):
    ours = entry(mac=("52:54:00:00:00:01",), serial="S1", provider_id="p1")
    theirs = machine(entry("w9", **other), annotations={})
    if field in {"mac", "serial"}:
        theirs = machine(entry("w9", **other))
    (problem,) = import_plan.plan([ours], [theirs], WANTED).problems
    assert problem.text == f'line 2: {field}: "{value}" is that of Machine fleet/w9 in the cluster'


def test_addresses_may_move_between_the_machines_of_a_file():
    before = [machine(entry("w1")), machine(entry("w2"))]
    plan = import_plan.plan([entry("w1", ip=("10.0.0.2",)), entry("w2", ip=("10.0.0.1",))], before, WANTED)
    assert plan.problems == []
    assert [(step.action, step.changes) for step in plan.steps] == [
        ("update", ("ip: 10.0.0.1 → 10.0.0.2",)),
        ("update", ("ip: 10.0.0.2 → 10.0.0.1",)),
    ]


def test_only_what_an_earlier_import_of_this_name_made_is_pruned():
    there = [
        machine(entry("w1")),
        machine(entry("w2")),
        machine(entry("w3"), "rack-5"),
        machine(entry("w4"), ""),
        machine(entry("w5"), annotations={}),
        machine(entry("w6"), namespace="other"),
    ]
    assert actions(import_plan.plan([entry("w1")], there, WANTED)) == [("unchanged", "w1")]
    plan = import_plan.plan([entry("w1")], there, PRUNE)
    assert actions(plan) == [("unchanged", "w1"), ("prune", "w2")]
    # Without a name there is no earlier import.
    alone = [machine(entry("w4"), ""), machine(entry("w7"), "")]
    nameless = import_plan.Wanted(namespace="fleet", prune=True)
    assert actions(import_plan.plan([entry("w4")], alone, nameless)) == [("unchanged", "w4")]


def test_what_is_pruned_gives_its_addresses_free():
    plan = import_plan.plan([entry("w1", ip=("10.0.0.2",))], [machine(entry("w2"))], PRUNE)
    assert (plan.problems, actions(plan)) == ([], [("create", "w1"), ("prune", "w2")])


def test_a_declared_machine_is_told_from_a_providers():
    assert import_plan.is_declared({"metadata": {"annotations": {linking.DECLARED: "true"}}})
    assert not import_plan.is_declared({"metadata": {}})
