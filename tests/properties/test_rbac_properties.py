# SPDX-License-Identifier: Apache-2.0
"""RBAC against a second implementation that knows nothing of indexes, after any sequence of changes.

Few words are drawn, so that they meet often.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.rules import access, decision, rbac, rbac_escalation, rbac_grants, rbac_holders, rbac_policy

VERBS = st.sampled_from(["get", "list", "head", "*"])
GROUPS = st.sampled_from(["", "apps", "*"])
RESOURCES = st.sampled_from(["pods", "pods/log", "*/log", "*", "pods/*", "nodes"])
NAMES = st.sampled_from(["a", "b"])
URLS = st.sampled_from(["/a", "/a/*", "*", "/a/b", "/a*"])
SPACES = st.sampled_from(["", "one", "two"])
ROLE_NAMES = st.sampled_from(["r1", "r2", "r3"])
WHO = st.sampled_from(["ann", "bob", "system:serviceaccount:one:ann"])


def some(words: st.SearchStrategy[str], least: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(words, min_size=least, max_size=3)


RULES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "verbs": some(VERBS),
                "apiGroups": some(GROUPS),
                "resources": some(RESOURCES),
                "resourceNames": some(NAMES, 0),
            }
        ),
        st.fixed_dictionaries({"verbs": some(VERBS), "nonResourceURLs": some(URLS)}),
    ),
    max_size=3,
)
SUBJECTS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"kind": st.sampled_from(["User", "Group"]), "name": st.sampled_from(["ann", "bob"])}),
        st.fixed_dictionaries({"kind": st.just("ServiceAccount"), "name": st.just("ann"), "namespace": SPACES}),
    ),
    max_size=3,
)
BINDINGS = st.fixed_dictionaries(
    {
        "roleRef": st.fixed_dictionaries({"kind": st.sampled_from(["Role", "ClusterRole"]), "name": ROLE_NAMES}),
        "subjects": SUBJECTS,
    }
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("role"), SPACES, ROLE_NAMES, st.none() | RULES.map(lambda rules: {"rules": rules})),
        st.tuples(st.just("binding"), SPACES, st.sampled_from(["b1", "b2", "b3"]), st.none() | BINDINGS),
    ),
    max_size=12,
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


def allows(rule: dict[str, Any], asked: access.Attributes) -> bool:
    """What one rule allows, word by word."""
    if asked.verb not in rule["verbs"] and "*" not in rule["verbs"]:
        return False
    if not asked.is_resource:
        return any(
            url == asked.path or (url.endswith("*") and asked.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs", ())
        )
    combined = f"{asked.plural}/{asked.subresource}" if asked.subresource else asked.plural
    means = {combined, "*"} | ({f"*/{asked.subresource}"} if asked.subresource else set())
    names = rule.get("resourceNames")
    return (
        bool({asked.group, "*"} & set(rule.get("apiGroups", ())))
        and bool(means & set(rule.get("resources", ())))
        and (not names or asked.name in names)
    )


def applies(subject: dict[str, str], namespace: str, asked: access.Attributes) -> bool:
    if subject["kind"] == "User":
        return subject["name"] == asked.user
    if subject["kind"] == "Group":
        return subject["name"] in asked.groups
    space = subject["namespace"] or namespace
    return bool(space) and asked.user == f"system:serviceaccount:{space}:{subject['name']}"


def granted(objects: Objects, asked: access.Attributes) -> Iterator[str]:
    """The bindings that allow this, found by looking at all of them."""
    for (kind, namespace, name), bound in objects.items():
        reached = not namespace or (asked.is_resource and namespace == asked.namespace)
        if kind != "binding" or not reached:
            continue
        reference = bound["roleRef"]
        space = namespace if reference["kind"] == "Role" else ""
        if reference["kind"] == "Role" and not namespace:
            continue
        role = objects.get(("role", space, reference["name"]))
        if role is None or not any(applies(subject, namespace, asked) for subject in bound["subjects"]):
            continue
        if any(allows(rule, asked) for rule in role["rules"]):
            yield f'RoleBinding "{name}/{namespace}"' if namespace else f'ClusterRoleBinding "{name}"'


def follow(changes: list[tuple[str, str, str, Any]]) -> tuple[rbac_policy.Policy, Objects]:
    policy = rbac_policy.Policy()
    objects: Objects = {}
    for kind, namespace, name, document in changes:
        key = (kind, namespace, name)
        if document is None:
            objects.pop(key, None)
            (policy.remove_role if kind == "role" else policy.remove_binding)(namespace, name)
        else:
            objects[key] = document
            (policy.set_role if kind == "role" else policy.set_binding)(namespace, name, document)
    return policy, objects


@settings(max_examples=80)
@given(
    changes=CHANGES,
    questions=st.lists(ASKED, min_size=1, max_size=6),
    budget=st.sampled_from([0, 4, 4096]),
    crowd=st.sampled_from([0, 1, 64]),
)
def test_the_index_says_what_looking_at_everything_says(
    changes: list[tuple[str, str, str, Any]], questions: list[access.Attributes], budget: int, crowd: int
):
    with mock.patch.object(rbac_grants, "BUDGET", budget), mock.patch.object(rbac_holders, "CROWD", crowd):
        policy, objects = follow(changes)
        for asked in questions:
            verdict = policy.decide(asked)
            bindings = list(granted(objects, asked))
            assert isinstance(verdict, decision.Approve) is bool(bindings)
            if bindings:
                assert any(verdict.sentence.startswith(f"RBAC: allowed by {binding} of ") for binding in bindings)
        # Nothing is left over when everything has gone.
        for kind, namespace, name in objects:
            (policy.remove_role if kind == "role" else policy.remove_binding)(namespace, name)
        assert vars(vars(policy).pop("_grants")) == vars(rbac_grants.Grants())
        assert not any(vars(policy).values())


@settings(max_examples=50)
@given(changes=CHANGES, namespace=SPACES, document=BINDINGS, asked=ASKED)
def test_another_binding_never_takes_away(
    changes: list[tuple[str, str, str, Any]], namespace: str, document: Any, asked: access.Attributes
):
    policy, _ = follow(changes)
    before = policy.decide(asked)
    policy.set_binding(namespace, "one more", document)
    if isinstance(before, decision.Approve):
        assert isinstance(policy.decide(asked), decision.Approve)


@settings(max_examples=50)
@given(changes=CHANGES, asked=ASKED)
def test_the_rules_listed_are_the_rules_that_decide(changes: list[tuple[str, str, str, Any]], asked: access.Attributes):
    policy, _ = follow(changes)
    rules = policy.rules_for(asked.user, asked.groups, asked.namespace)
    listed = any(allows({"apiGroups": [], "resources": [], **rule.document()}, asked) for rule in rules)
    assert isinstance(policy.decide(asked), decision.Approve) is listed


@settings(max_examples=60)
@given(owner=RULES, wanted=RULES, questions=st.lists(ASKED, min_size=1, max_size=6))
def test_who_gives_only_what_they_hold_gives_nothing_new(
    owner: list[dict[str, Any]], wanted: list[dict[str, Any]], questions: list[access.Attributes]
):
    held, given_away = rbac.parse(owner), rbac.parse(wanted)
    missing = rbac_escalation.uncovered(held, given_away)
    # With what is missing added, everything is held.
    assert rbac_escalation.uncovered([*held, *rbac_escalation.compact(missing)], given_away) == []
    if missing:
        return
    for asked in questions:
        if any(allows(rule, asked) for rule in wanted):
            assert any(allows(rule, asked) for rule in owner)
