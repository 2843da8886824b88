# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.rbac import policy_rules


def rule(
    verbs: str = "", groups: str = "", resources: str = "", names: str = "", urls: str = ""
) -> policy_rules.PolicyRule:
    """Words; `core` is the empty group."""
    return policy_rules.PolicyRule(
        tuple(verbs.split()),
        tuple("" if word == "core" else word for word in groups.split()),
        tuple(resources.split()),
        tuple(names.split()),
        tuple(urls.split()),
    )


@pytest.mark.parametrize(
    "case, held, asked, allowed",
    [
        ("exact", rule("get", "core", "pods"), ("get", "", "pods", "", "x"), True),
        ("other verb", rule("get", "core", "pods"), ("list", "", "pods", "", ""), False),
        ("one of several verbs", rule("get list", "core", "pods"), ("list", "", "pods", "", ""), True),
        ("every verb", rule("*", "core", "pods"), ("anything", "", "pods", "", "x"), True),
        ("no verb", rule("", "core", "pods"), ("get", "", "pods", "", "x"), False),
        ("verbs have no pattern", rule("ge*", "core", "pods"), ("get", "", "pods", "", "x"), False),
        ("other group", rule("get", "apps", "pods"), ("get", "", "pods", "", "x"), False),
        ("core is not every group", rule("get", "core", "deployments"), ("get", "apps", "deployments", "", ""), False),
        ("every group", rule("get", "*", "deployments"), ("get", "apps", "deployments", "", "x"), True),
        ("every group is core too", rule("get", "*", "pods"), ("get", "", "pods", "", "x"), True),
        ("no group", rule("get", "", "pods"), ("get", "", "pods", "", "x"), False),
        ("other resource", rule("get", "core", "pods"), ("get", "", "secrets", "", "x"), False),
        ("a resource is not its subresource", rule("get", "core", "pods"), ("get", "", "pods", "log", "x"), False),
        ("subresource exact", rule("get", "core", "pods/log"), ("get", "", "pods", "log", "x"), True),
        ("a subresource is not its resource", rule("get", "core", "pods/log"), ("get", "", "pods", "", "x"), False),
        ("subresource of any", rule("get", "*", "*/scale"), ("get", "apps", "deployments", "scale", "x"), True),
        ("other subresource of any", rule("get", "*", "*/scale"), ("get", "apps", "deployments", "status", "x"), False),
        ("*/scale is not scale", rule("get", "*", "*/scale"), ("get", "apps", "scale", "", "x"), False),
        ("suffix of a subresource", rule("get", "*", "*/scale"), ("get", "", "pods", "upscale", "x"), False),
        ("every resource", rule("get", "*", "*"), ("get", "", "pods", "", "x"), True),
        ("every resource and subresource", rule("get", "*", "*"), ("get", "", "pods", "log", "x"), True),
        ("pods/* is no pattern", rule("get", "core", "pods/*"), ("get", "", "pods", "log", "x"), False),
        ("po* is no pattern", rule("get", "core", "po*"), ("get", "", "pods", "", "x"), False),
        ("named", rule("get", "core", "secrets", "a b"), ("get", "", "secrets", "", "b"), True),
        ("not named", rule("get", "core", "secrets", "a b"), ("get", "", "secrets", "", "c"), False),
        ("list has no name", rule("list", "core", "secrets", "a"), ("list", "", "secrets", "", ""), False),
        ("list of one name", rule("list", "core", "secrets", "a"), ("list", "", "secrets", "", "a"), True),
        ("create has no name", rule("create", "core", "secrets", "a"), ("create", "", "secrets", "", ""), False),
        ("a name is no pattern", rule("get", "core", "secrets", "*"), ("get", "", "secrets", "", "a"), False),
        ("paths are no resources", rule("get", urls="*"), ("get", "", "pods", "", "x"), False),
        ("every name is more than one", rule("get", "core", "pods", "a"), ("get", "", "pods", "", None), False),
        ("every name", rule("get", "core", "pods"), ("get", "", "pods", "", None), True),
    ],
)
def test_a_rule_allows_the_resources_that_it_names(
    case: str, held: policy_rules.PolicyRule, asked: tuple[str, str, str, str, str | None], allowed: bool
):
    verb, group, resource, subresource, name = asked
    words = policy_rules.resource_words(resource, subresource)
    assert policy_rules.allows_resource(held, verb, group, words, name) is allowed, case


@pytest.mark.parametrize(
    "case, held, verb, path, allowed",
    [
        ("exact", rule("get", urls="/healthz"), "get", "/healthz", True),
        ("not below", rule("get", urls="/healthz"), "get", "/healthz/etcd", False),
        ("one of several", rule("get", urls="/a /b"), "get", "/b", True),
        ("below", rule("get", urls="/apis/*"), "get", "/apis/apps/v1", True),
        ("the slash is part of it", rule("get", urls="/apis/*"), "get", "/apis", False),
        ("a prefix need not end at a slash", rule("get", urls="/heal*"), "get", "/healthz", True),
        ("every path", rule("get", urls="*"), "get", "/metrics", True),
        ("a star inside is a letter", rule("get", urls="/a/*/b"), "get", "/a/x/b", False),
        ("several stars at the end", rule("get", urls="/a**"), "get", "/abc", True),
        ("head is not get", rule("get", urls="/healthz"), "head", "/healthz", False),
        ("get is not head", rule("head", urls="/healthz"), "get", "/healthz", False),
        ("every verb", rule("*", urls="/healthz"), "head", "/healthz", True),
        ("resources are no paths", rule("*", "*", "*"), "get", "/healthz", False),
    ],
)
def test_a_rule_allows_the_paths_that_it_names(
    case: str, held: policy_rules.PolicyRule, verb: str, path: str, allowed: bool
):
    assert policy_rules.allows_path(held, verb, path) is allowed, case


def test_a_document_is_read_and_given_back():
    document = {
        "verbs": ["get"],
        "apiGroups": [""],
        "resources": ["pods"],
        "resourceNames": ["a"],
        "nonResourceURLs": ["/x"],
    }
    (found,) = policy_rules.parse([document])
    assert found == policy_rules.PolicyRule(("get",), ("",), ("pods",), ("a",), ("/x",))
    assert found.document() == document
    assert policy_rules.PolicyRule(("get",), ("",), ("pods",)).document() == {
        "verbs": ["get"],
        "apiGroups": [""],
        "resources": ["pods"],
    }
    # Null is empty, as in Kubernetes, and what is said twice is said once.
    assert policy_rules.parse([{"verbs": ["get", "get"], "resourceNames": None}]) == (
        policy_rules.PolicyRule(("get",)),
    )


@pytest.mark.parametrize(
    "rules",
    [
        None,
        "rules",
        {"verbs": ["*"]},
        [None, 5, "x", []],
        [{"verbs": "get", "apiGroups": [""], "resources": ["pods"]}],
        [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [5]}],
        [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": "a"}],
    ],
)
def test_what_cannot_be_read_is_no_rule(rules: Any):
    assert policy_rules.parse(rules) == ()


def test_the_size_of_a_rule_is_its_number_of_single_permissions():
    assert rule("a b", "x y", "r s t").size == 12
    assert rule("a b", "x y", "r s t", "n m").size == 24
    assert rule("a b", urls="/x /y /z").size == 6


def role(name: str, labels: dict[str, str] | None = None, *verbs: str, **more: Any) -> dict[str, Any]:
    rules = [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]} for verb in verbs]
    return {"metadata": {"name": name, "labels": labels}, "rules": rules, **more}


def aggregated(*selectors: Any, name: str = "sum") -> dict[str, Any]:
    return role(name, {"into": "sum"}, "old", aggregationRule={"clusterRoleSelectors": list(selectors)})


OTHERS = [
    role("c", {"into": "sum"}, "get", "list"),
    role("a", {"into": "sum", "also": "x"}, "watch", "get"),
    role("b", {"into": "other"}, "delete"),
    role("d", {"also": "y"}, "create"),
    role("e", None, "update"),
    role("sum", {"into": "sum"}, "old"),
]


@pytest.mark.parametrize(
    "case, selectors, verbs",
    [
        ("no selector", [], []),
        ("sorted by name, each rule once, not itself", [{"matchLabels": {"into": "sum"}}], ["watch", "get", "list"]),
        (
            "any selector",
            [
                {"matchLabels": {"into": "other"}},
                {"matchExpressions": [{"key": "also", "operator": "In", "values": ["y"]}]},
            ],
            ["delete", "create"],
        ),
        ("all labels of a selector", [{"matchLabels": {"into": "sum", "also": "x"}}], ["watch", "get"]),
        ("the empty selector takes all", [{}], ["watch", "get", "delete", "list", "create", "update"]),
        ("a broken one takes none", [{"matchLabels": {"into": 5}}, "x", None], []),
    ],
)
def test_an_aggregated_role_has_the_rules_of_those_it_selects(case: str, selectors: list[Any], verbs: list[str]):
    found = policy_rules.aggregate(aggregated(*selectors), OTHERS)
    assert [rule["verbs"] for rule in found] == [[verb] for verb in verbs], case


def test_without_an_aggregation_rule_nothing_is_gathered():
    assert policy_rules.aggregate(role("x"), OTHERS) == []
