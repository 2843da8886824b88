# SPDX-License-Identifier: Apache-2.0
"""RBAC against a second implementation that knows nothing of indexes, after any sequence of changes.

Few words are drawn, so that they meet often; and most questions are put together from the words of a binding and its
role. `test_many_questions_are_allowed_and_many_refused` keeps it so: with free words alone nothing was ever allowed.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.rules import access, decision
from handfast.rules.rbac import escalation, grants, holders, policy_rules
from handfast.rules.rbac import policy as rbac_policy

# Whole lists are drawn, not word by word: it is faster, and what is drawn meets more often.
VERBS = st.sampled_from([["get"], ["*"], ["list", "get"], ["head"], ["head", "*"]])
GROUPS = st.sampled_from([[""], ["*"], ["apps"], ["apps", ""]])
RESOURCES = st.sampled_from(
    [["pods"], ["*"], ["nodes", "pods"], ["pods/log"], ["*/log"], ["pods/*"], ["pods/log", "nodes"]]
)
NAMES: st.SearchStrategy[list[str]] = st.sampled_from([[], ["a"], ["a", "b"]])
URLS = st.sampled_from([["/a"], ["*"], ["/a/*"], ["/a/b", "/c"], ["/a*"]])
SPACES = st.sampled_from(["", "one", "two"])
PLACES = st.sampled_from(["", "", "one", "two"])
ROLE_NAMES = st.sampled_from(["r1", "r2"])
BINDING_NAMES = st.sampled_from(["b1", "b2", "b3"])
WHO = st.sampled_from(["ann", "bob", "system:serviceaccount:one:ann"])
RULES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"verbs": VERBS, "apiGroups": GROUPS, "resources": RESOURCES, "resourceNames": st.just([]) | NAMES}
        ),
        st.fixed_dictionaries({"verbs": VERBS, "nonResourceURLs": URLS}),
    ),
    min_size=1,
    max_size=3,
)
ANN, BOB, ANNS = ({"kind": kind, "name": name} for kind, name in (("User", "ann"), ("User", "bob"), ("Group", "ann")))
HERE, THERE = ({"kind": "ServiceAccount", "name": "ann", "namespace": namespace} for namespace in ("", "one"))
SUBJECTS: st.SearchStrategy[list[dict[str, str]]] = st.sampled_from(
    [[ANN], [ANNS], [HERE], [THERE], [BOB, ANNS], [ANN, HERE, BOB], [THERE, ANN, ANN], []]
)
BINDINGS = st.fixed_dictionaries(
    {
        "roleRef": st.fixed_dictionaries({"kind": st.sampled_from(["ClusterRole", "Role"]), "name": ROLE_NAMES}),
        "subjects": SUBJECTS,
    }
)
Change = tuple[str, str, str, Any]
ROLE_SET = st.tuples(st.just("role"), PLACES, ROLE_NAMES, RULES.map(lambda rules: {"rules": rules}))
BINDING_SET = st.tuples(st.just("binding"), PLACES, BINDING_NAMES, BINDINGS)
ROLE_GONE = st.tuples(st.just("role"), PLACES, ROLE_NAMES, st.none())
BINDING_GONE = st.tuples(st.just("binding"), PLACES, BINDING_NAMES, st.none())


def pair(place: str, kind: str, name: str, rules: list[Any], binding: str, subjects: list[Any]) -> list[Change]:
    """A role, and a binding that finds it."""
    space = place if kind == "Role" else ""
    bound = {"roleRef": {"kind": kind if place else "ClusterRole", "name": name}, "subjects": subjects}
    return [("role", space, name, {"rules": rules}), ("binding", place, binding, bound)]


PAIRS = st.builds(pair, PLACES, st.sampled_from(["ClusterRole", "Role"]), ROLE_NAMES, RULES, BINDING_NAMES, SUBJECTS)
# Two that belong together first, then anything.
CHANGES: st.SearchStrategy[list[Change]] = st.builds(
    lambda pairs, changes: [*itertools.chain.from_iterable(pairs), *changes],
    st.lists(PAIRS, min_size=1, max_size=3),
    st.lists(ROLE_SET | BINDING_SET | ROLE_GONE | BINDING_GONE, max_size=5),
)
ASKED = st.one_of(
    st.builds(
        access.Attributes,
        user=WHO,
        groups=st.sampled_from([(), ("ann",), ("bob", "x")]),
        verb=st.sampled_from(["get", "list", "head"]),
        is_resource=st.just(True),
        group=st.sampled_from(["", "apps"]),
        plural=st.sampled_from(["pods", "nodes"]),
        subresource=st.sampled_from(["", "log"]),
        namespace=SPACES,
        name=st.sampled_from(["", "a", "c"]),
    ),
    st.builds(
        access.Attributes,
        user=WHO,
        groups=st.sampled_from([(), ("ann",)]),
        verb=st.sampled_from(["get", "head"]),
        is_resource=st.just(False),
        path=st.sampled_from(["/a", "/a/b", "/ab", "/", "/c"]),
    ),
)
Objects = dict[tuple[str, str, str], Any]


def held(objects: Objects) -> list[tuple[str, dict[str, str], dict[str, Any]]]:
    """A binding's namespace, one of its subjects, and one rule of a role that is called as it says, here or elsewhere."""
    return [
        (namespace, subject, rule)
        for (kind, namespace, _), bound in objects.items()
        if kind == "binding"
        for space in ("", "one", "two")
        for subject in bound["subjects"]
        for rule in objects.get(("role", space, bound["roleRef"]["name"]), {"rules": ()})["rules"]
    ]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Change], list[access.Attributes]]:
    """Changes, and questions: most of them in the words of a binding and a rule, half of these with one word changed."""
    changes = draw(CHANGES)
    choices = held(remaining(changes))
    questions = []
    for _ in range(draw(st.integers(3, 6))):
        asked = draw(ASKED)
        if choices and draw(st.sampled_from([True, True, True, False])):
            asked = draw(aimed(asked, *draw(st.sampled_from(choices))))
        questions.append(asked)
    return changes, questions


@st.composite
def aimed(
    draw: st.DrawFn, attributes: access.Attributes, namespace: str, subject: dict[str, str], rule: dict[str, Any]
) -> access.Attributes:
    """What the rule speaks of, asked by the subject; where a word is `*`, and in one other place, as `asked` has it."""
    words: dict[str, Any] = {
        "namespace": namespace or attributes.namespace,
        "verb": draw(st.sampled_from(rule["verbs"])),
    }
    if subject["kind"] == "Group":
        words["groups"] = ("x", subject["name"])
    elif subject["kind"] == "User":
        words["user"] = subject["name"]
    else:
        words["user"] = f"system:serviceaccount:{subject['namespace'] or namespace}:{subject['name']}"
    if "nonResourceURLs" in rule:
        words |= {"is_resource": False, "path": draw(st.sampled_from(rule["nonResourceURLs"])).replace("/a*", "/ab")}
    else:
        plural, _, subresource = draw(st.sampled_from(rule["resources"])).partition("/")
        words |= {"is_resource": True, "group": draw(st.sampled_from(rule["apiGroups"])), "plural": plural}
        words |= {"subresource": subresource, "name": draw(st.sampled_from([*rule["resourceNames"], attributes.name]))}
    if draw(st.booleans()):
        words.pop(draw(st.sampled_from([*words])))
    return msgspec.structs.replace(attributes, **{key: word for key, word in words.items() if word != "*"})


def allows(rule: dict[str, Any], attributes: access.Attributes) -> bool:
    """What one rule allows, word by word."""
    if attributes.verb not in rule["verbs"] and "*" not in rule["verbs"]:
        return False
    if not attributes.is_resource:
        return any(
            url == attributes.path or (url.endswith("*") and attributes.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs", ())
        )
    combined = f"{attributes.plural}/{attributes.subresource}" if attributes.subresource else attributes.plural
    means = {combined, "*"} | ({f"*/{attributes.subresource}"} if attributes.subresource else set())
    names = rule.get("resourceNames")
    return (
        bool({attributes.group, "*"} & set(rule.get("apiGroups", ())))
        and bool(means & set(rule.get("resources", ())))
        and (not names or attributes.name in names)
    )


def applies(subject: dict[str, str], namespace: str, attributes: access.Attributes) -> bool:
    if subject["kind"] == "User":
        return subject["name"] == attributes.user
    if subject["kind"] == "Group":
        return subject["name"] in attributes.groups
    space = subject["namespace"] or namespace
    return bool(space) and attributes.user == f"system:serviceaccount:{space}:{subject['name']}"


def granted(objects: Objects, attributes: access.Attributes) -> Iterator[str]:
    """The bindings that allow this, found by looking at all of them."""
    for (kind, namespace, name), bound in objects.items():
        reached = not namespace or (attributes.is_resource and namespace == attributes.namespace)
        if kind != "binding" or not reached:
            continue
        reference = bound["roleRef"]
        space = namespace if reference["kind"] == "Role" else ""
        if reference["kind"] == "Role" and not namespace:
            continue
        role = objects.get(("role", space, reference["name"]))
        if role is None or not any(applies(subject, namespace, attributes) for subject in bound["subjects"]):
            continue
        if any(allows(rule, attributes) for rule in role["rules"]):
            yield f'RoleBinding "{name}/{namespace}"' if namespace else f'ClusterRoleBinding "{name}"'


def remaining(changes: list[Change]) -> Objects:
    """What is there in the end."""
    last = {(kind, namespace, name): document for kind, namespace, name, document in changes}
    return {key: document for key, document in last.items() if document is not None}


def follow(changes: list[Change]) -> rbac_policy.Policy:
    policy = rbac_policy.Policy()
    for kind, namespace, name, document in changes:
        if document is None:
            (policy.remove_role if kind == "role" else policy.remove_binding)(namespace, name)
        else:
            (policy.set_role if kind == "role" else policy.set_binding)(namespace, name, document)
    return policy


@settings(max_examples=80)
@given(world=worlds(), budget=st.sampled_from([0, 4, 4096]), crowd=st.sampled_from([0, 1, 64]))
def test_the_index_says_what_looking_at_everything_says(
    world: tuple[list[Change], list[access.Attributes]], budget: int, crowd: int
):
    changes, questions = world
    with mock.patch.object(grants, "BUDGET", budget), mock.patch.object(holders, "CROWD", crowd):
        policy, objects = follow(changes), remaining(changes)
        for asked in questions:
            verdict = policy.decide(asked)
            bindings = list(granted(objects, asked))
            assert isinstance(verdict, decision.Approve) is bool(bindings)
            if bindings:
                assert any(verdict.sentence.startswith(f"RBAC: allowed by {binding} of ") for binding in bindings)
        # Nothing is left over when everything has gone.
        for kind, namespace, name in objects:
            (policy.remove_role if kind == "role" else policy.remove_binding)(namespace, name)
        assert vars(vars(policy).pop("_grants")) == vars(grants.Grants())
        assert not any(vars(policy).values())


@settings(max_examples=50)
@given(world=worlds(), namespace=SPACES, document=BINDINGS)
def test_another_binding_never_takes_away(
    world: tuple[list[Change], list[access.Attributes]], namespace: str, document: Any
):
    changes, questions = world
    policy = follow(changes)
    before = [asked for asked in questions if isinstance(policy.decide(asked), decision.Approve)]
    policy.set_binding(namespace, "one more", document)
    assert all(isinstance(policy.decide(asked), decision.Approve) for asked in before)


@settings(max_examples=50)
@given(world=worlds())
def test_the_rules_listed_are_the_rules_that_decide(world: tuple[list[Change], list[access.Attributes]]):
    changes, questions = world
    policy = follow(changes)
    for asked in questions:
        # A path is of no namespace, whatever the question says.
        rules = policy.rules_for(asked.user, asked.groups, asked.namespace if asked.is_resource else "")
        listed = any(allows({"apiGroups": [], "resources": [], **rule.document()}, asked) for rule in rules)
        assert isinstance(policy.decide(asked), decision.Approve) is listed


def test_many_questions_are_allowed_and_many_refused():
    """The same draws each time. Where every answer is no, the properties above hold for a policy that gives nothing."""
    count: collections.Counter[str] = collections.Counter()

    @settings(max_examples=80, derandomize=True, database=None)
    @given(worlds())
    def ask(world: tuple[list[Change], list[access.Attributes]]) -> None:
        changes, questions = world
        objects = remaining(changes)
        for asked in questions:
            bindings = list(granted(objects, asked))
            answer = ("allowed" if asked.is_resource else "allowed path") if bindings else "refused"
            count.update([answer, *{binding.partition(" ")[0] for binding in bindings}])

    ask()
    total = count["allowed"] + count["allowed path"] + count["refused"]
    assert total > 250
    assert count["refused"] > 0.3 * total
    assert count["allowed"] > 0.1 * total
    assert count["allowed path"] > 0.02 * total
    assert count["RoleBinding"] > 0.05 * total
    assert count["ClusterRoleBinding"] > 0.05 * total


@settings(max_examples=60)
@given(owner=RULES, wanted=RULES, questions=st.lists(ASKED, min_size=1, max_size=6))
def test_who_gives_only_what_they_hold_gives_nothing_new(
    owner: list[dict[str, Any]], wanted: list[dict[str, Any]], questions: list[access.Attributes]
):
    held, given_away = policy_rules.parse(owner), policy_rules.parse(wanted)
    missing = escalation.uncovered(held, given_away)
    # With what is missing added, everything is held.
    assert escalation.uncovered([*held, *escalation.compact(missing)], given_away) == []
    if missing:
        return
    for asked in questions:
        if any(allows(rule, asked) for rule in wanted):
            assert any(allows(rule, asked) for rule in owner)
