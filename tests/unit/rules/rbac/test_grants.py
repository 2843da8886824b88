# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Collection, Iterable

from handfast.rules.rbac import grants as rbac_grants
from handfast.rules.rbac import policy_rules

PODS = policy_rules.PolicyRule(("get", "list"), ("",), ("pods", "pods/log"))
NAMED = policy_rules.PolicyRule(("get",), ("",), ("secrets",), ("a", "b"))
PATHS = policy_rules.PolicyRule(("get",), non_resource_urls=("/healthz", "/api/*", "*"))


def roles(found: Iterable[Collection[str]]) -> list[str]:
    return sorted({role for one in found for role in one})


def resource(grants: rbac_grants.Grants, verb: str, resource: str, name: str | None = "", sub: str = "") -> list[str]:
    return roles(grants.on_resource(verb, "", policy_rules.resource_words(resource, sub), name))


def test_roles_are_found_by_what_they_allow():
    grants = rbac_grants.Grants()
    grants.add("reader", (PODS,))
    grants.add("named", (NAMED, PATHS))
    grants.add("everything", policy_rules.FULL)
    assert resource(grants, "get", "pods") == ["everything", "reader"]
    assert resource(grants, "get", "pods", sub="log") == ["everything", "reader"]
    assert resource(grants, "get", "pods", sub="exec") == ["everything"]
    assert resource(grants, "get", "secrets", "a") == ["everything", "named"]
    assert resource(grants, "get", "secrets", "c") == ["everything"]
    assert resource(grants, "get", "secrets", None) == ["everything"]
    assert roles(grants.on_path("get", "/healthz")) == ["everything", "named"]
    assert roles(grants.on_path("head", "/healthz")) == ["everything"]


def test_nothing_is_left_of_roles_that_went():
    grants = rbac_grants.Grants()
    fresh = rbac_grants.Grants()
    # The same permission twice in one role, and in another role.
    first = (
        PODS,
        NAMED,
        PATHS,
        policy_rules.PolicyRule(("get",), ("",), ("pods",)),
        policy_rules.PolicyRule(("get", "head"), non_resource_urls=("/healthz", "*")),
    )
    second = (
        *first,
        policy_rules.PolicyRule(("get",), ("",), ("secrets",)),
        policy_rules.PolicyRule(("get",), ("",), ("secrets",), ("a",)),
    )
    grants.add("first", first)
    grants.add("second", second)
    grants.remove("first", first)
    assert resource(grants, "get", "pods") == ["second"]
    assert resource(grants, "get", "secrets", "a") == ["second"]
    assert roles(grants.on_path("get", "/api/v1")) == ["second"]
    grants.remove("second", second)
    assert vars(grants) == vars(fresh)


def test_short_paths_do_not_meet_long_prefixes():
    grants = rbac_grants.Grants()
    grants.add("role", (policy_rules.PolicyRule(("get",), non_resource_urls=("/api/v1/*",)),))
    assert roles(grants.on_path("get", "/api")) == []
    assert roles(grants.on_path("get", "/api/v1/")) == ["role"]


def test_over_the_budget_rules_stay_whole():
    many = tuple(f"r{number}" for number in range(rbac_grants.BUDGET + 1))
    huge = policy_rules.PolicyRule(("get",), ("",), many)
    grants = rbac_grants.Grants()
    grants.add("huge", (huge, PODS))
    assert resource(grants, "get", "r1") == []
    assert resource(grants, "get", "pods") == ["huge"]
    (whole,) = grants.whole["huge"]
    assert policy_rules.allows_resource(whole, "get", "", ("r1", "*"), "x")
    assert not policy_rules.allows_resource(whole, "list", "", ("r1", "*"), "x")
    grants.remove("huge", (huge, PODS))
    assert vars(grants) == vars(rbac_grants.Grants())
    # The budget is the role's, not the rule's.
    half = policy_rules.PolicyRule(("get",), ("",), many[: rbac_grants.BUDGET // 2 + 1])
    other = policy_rules.PolicyRule(("list",), ("",), many[: rbac_grants.BUDGET // 2 + 1])
    grants.add("two", (half, other))
    assert len(grants.whole["two"]) == 1
