# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from handfast.rules.rbac import escalation, policy_rules
from handfast.rules.rbac.policy_rules import PolicyRule as R

PODS = R(("get", "list"), ("",), ("pods",))
MANY = tuple(f"w{number}" for number in range(70))


@pytest.mark.parametrize(
    "case, owner, wanted, missing",
    [
        ("equal", [PODS], [PODS], []),
        ("nothing wanted", [], [], []),
        ("nothing held", [], [PODS], [R(("get",), ("",), ("pods",)), R(("list",), ("",), ("pods",))]),
        ("one verb less", [PODS], [R(("get", "watch"), ("",), ("pods",))], [R(("watch",), ("",), ("pods",))]),
        ("every verb held", [R(("*",), ("",), ("pods",))], [PODS], []),
        ("every verb wanted", [PODS], [R(("*",), ("",), ("pods",))], [R(("*",), ("",), ("pods",))]),
        ("every group held", [R(("get", "list"), ("*",), ("pods",))], [PODS], []),
        ("other group", [R(("get", "list"), ("apps",), ("pods",))], [PODS], list(escalation.breakdown(PODS))),
        ("every group wanted", [PODS], [R(("get",), ("*",), ("pods",))], [R(("get",), ("*",), ("pods",))]),
        ("put together from several rules", [R(("get",), ("",), ("pods",)), R(("list",), ("",), ("pods",))], [PODS], []),
        ("every resource held", [R(("*",), ("*",), ("*",))], [PODS], []),
        ("every resource wanted", [PODS], [R(("get",), ("",), ("*",))], [R(("get",), ("",), ("*",))]),
        ("a subresource is more", [PODS], [R(("get",), ("",), ("pods/log",))], [R(("get",), ("",), ("pods/log",))]),
        ("subresource of any held", [R(("get",), ("*",), ("*/scale",))], [R(("get",), ("apps",), ("x/scale",))], []),
        ("subresource of any wanted", [R(("get",), ("",), ("x/scale",))], [R(("get",), ("",), ("*/scale",))], [R(("get",), ("",), ("*/scale",))]),
        ("subresource of any, equal", [R(("get",), ("",), ("*/scale",))], [R(("get",), ("",), ("*/scale",))], []),
        ("subresource of any is of all", [R(("get",), ("",), ("*",))], [R(("get",), ("",), ("*/scale",))], []),
        ("a slash at the end is another word", [PODS], [R(("get",), ("",), ("pods/",))], [R(("get",), ("",), ("pods/",))]),
        ("a name of all held", [PODS], [R(("get",), ("",), ("pods",), ("a",))], []),
        ("a name held", [R(("get",), ("",), ("pods",), ("a", "b"))], [R(("get",), ("",), ("pods",), ("a",))], []),
        ("another name", [R(("get",), ("",), ("pods",), ("a",))], [R(("get",), ("",), ("pods",), ("a", "b"))], [R(("get",), ("",), ("pods",), ("b",))]),
        ("all names of one held", [R(("get",), ("",), ("pods",), ("a",))], [R(("get",), ("",), ("pods",))], [R(("get",), ("",), ("pods",))]),
        ("the empty name is not all names", [R(("get",), ("",), ("pods",), ("",))], [R(("get",), ("",), ("pods",))], [R(("get",), ("",), ("pods",))]),
        ("path held", [R(("get",), non_resource_urls=("/api",))], [R(("get",), non_resource_urls=("/api",))], []),
        ("path below", [R(("get",), non_resource_urls=("/api/*",))], [R(("get",), non_resource_urls=("/api/v1", "/api/v1/*", "/api/*"))], []),
        ("path above", [R(("get",), non_resource_urls=("/api/*",))], [R(("get",), non_resource_urls=("/*",))], [R(("get",), non_resource_urls=("/*",))]),
        ("resources are no paths", [R(("*",), ("*",), ("*",))], [R(("get",), non_resource_urls=("/api",))], [R(("get",), non_resource_urls=("/api",))]),
        ("paths are no resources", [R(("*",), non_resource_urls=("*",))], [R(("get",), ("",), ("pods",))], [R(("get",), ("",), ("pods",))]),
        ("everything", list(policy_rules.FULL), [PODS, *policy_rules.FULL], []),
        ("everything is not half of it", [policy_rules.FULL[0]], list(policy_rules.FULL), [policy_rules.FULL[1]]),
        ("a huge rule held", [R(MANY, MANY, MANY)], [R(("w1",), ("w2",), ("w3", "x"))], [R(("w1",), ("w2",), ("x",))]),
        ("a huge rule of paths held", [R(MANY, non_resource_urls=MANY)], [R(("w1",), non_resource_urls=("w3", "x"))], [R(("w1",), non_resource_urls=("x",))]),
    ],
)  # fmt: skip
def test_what_is_not_held(case: str, owner: list[R], wanted: list[R], missing: list[R]):
    assert escalation.uncovered(owner, wanted) == missing, case


def test_rules_too_broad_to_look_at():
    broad = R(MANY, MANY, MANY)
    with pytest.raises(escalation.TooBroad, match="more than 5000 single permissions"):
        escalation.uncovered([PODS], [broad])
    # Who holds everything needs no looking.
    assert escalation.uncovered(policy_rules.FULL, [broad]) == []


def test_a_refusal_is_not_longer_than_useful():
    missing = [R(("get",), ("",), ("secrets",), (str(number),)) for number in range(escalation.SHOWN + 7)]
    lines = escalation.refusal("jane", (), missing).splitlines()
    assert len(lines) == escalation.SHOWN + 2
    assert lines[-1] == "… and 7 more"


def test_the_refusal_in_kubernetes_words():
    wanted = [
        R(("get", "list"), ("",), ("secrets", "pods")),
        R(("get",), ("apps",), ("deployments",), ("a", "b")),
        R(("get", "post"), non_resource_urls=("/x",)),
        R(("get", "watch"), ("",), ("pods",)),
    ]
    missing = escalation.uncovered([], wanted)
    assert escalation.refusal('ann "a"', ("one", "two"), missing).split("\n") == [
        r'user "ann \"a\"" (groups=["one" "two"]) is attempting to grant RBAC permissions not currently held:',
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list" "watch"]}',
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}',
        '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["a"], Verbs:["get"]}',
        '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["b"], Verbs:["get"]}',
        '{NonResourceURLs:["/x"], Verbs:["get"]}',
        '{NonResourceURLs:["/x"], Verbs:["post"]}',
    ]
    assert "(groups=[])" in escalation.refusal("u", (), missing)
    assert 'user "Jürgen" (groups=["Köche"])' in escalation.refusal("Jürgen", ("Köche",), missing)
