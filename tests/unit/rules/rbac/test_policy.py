# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from handfast.rules import access, decision
from handfast.rules.rbac import grants, holders, policy_rules
from handfast.rules.rbac import policy as rbac_policy

READ_PODS = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
METRICS = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}


def binding(kind: str, name: str, *subjects: Any) -> dict[str, Any]:
    return {"roleRef": {"apiGroup": policy_rules.GROUP, "kind": kind, "name": name}, "subjects": list(subjects)}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "name": name}


def account(name: str, namespace: str = "") -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": name, **({"namespace": namespace} if namespace else {})}


def asked(who: str = "u", groups: tuple[str, ...] = (), **more: Any) -> access.Attributes:
    facts: dict[str, Any] = {
        "verb": "get",
        "is_resource": True,
        "plural": "pods",
        "name": "x",
        "namespace": "ns",
        **more,
    }
    return access.Attributes(user=who, groups=groups, **facts)


def path(who: str = "u", at: str = "/metrics", **more: Any) -> access.Attributes:
    return access.Attributes(user=who, groups=(), verb="get", is_resource=False, path=at, **more)


def allowed(policy: rbac_policy.Policy, question: access.Attributes) -> bool:
    return isinstance(policy.decide(question), decision.Approve)


@pytest.fixture
def policy() -> rbac_policy.Policy:
    made = rbac_policy.Policy()
    made.set_role("", "reader", {"rules": [READ_PODS, METRICS]})
    made.set_role("ns", "local", {"rules": [READ_PODS]})
    return made


def test_nobody_may_anything_at_first(policy: rbac_policy.Policy):
    assert policy.decide(asked()) == decision.NotMine("NoRuleAllows", "", "rbac")


@pytest.mark.parametrize(
    "namespace, document, question, sentence",
    [
        (
            "",
            binding("ClusterRole", "reader", user("u")),
            asked(),
            'ClusterRoleBinding "b" of ClusterRole "reader" to User "u"',
        ),
        (
            "",
            binding("ClusterRole", "reader", user("v"), group("g")),
            asked(groups=("f", "g"), namespace=""),
            'ClusterRoleBinding "b" of ClusterRole "reader" to Group "g"',
        ),
        (
            "",
            binding("ClusterRole", "reader", account("app", "ns")),
            asked("system:serviceaccount:ns:app"),
            'ClusterRoleBinding "b" of ClusterRole "reader" to ServiceAccount "app/ns"',
        ),
        ("ns", binding("Role", "local", user("u")), asked(), 'RoleBinding "b/ns" of Role "local" to User "u"'),
        (
            "ns",
            binding("ClusterRole", "reader", user("u")),
            asked(),
            'RoleBinding "b/ns" of ClusterRole "reader" to User "u"',
        ),
        (
            "ns",
            binding("Role", "local", account("app")),
            asked("system:serviceaccount:ns:app"),
            'RoleBinding "b/ns" of Role "local" to ServiceAccount "app/ns"',
        ),
        (
            "ns",
            binding("Role", "local", account("app", "other")),
            asked("system:serviceaccount:other:app"),
            'RoleBinding "b/ns" of Role "local" to ServiceAccount "app/other"',
        ),
        (
            "",
            binding("ClusterRole", "reader", user("u")),
            path(),
            'ClusterRoleBinding "b" of ClusterRole "reader" to User "u"',
        ),
    ],
)
def test_the_binding_that_allows_is_named(
    policy: rbac_policy.Policy, namespace: str, document: Any, question: access.Attributes, sentence: str
):
    policy.set_binding(namespace, "b", document)
    assert policy.decide(question) == decision.Approve("Allowed", f"RBAC: allowed by {sentence}", "rbac")
    policy.remove_binding(namespace, "b")
    assert not allowed(policy, question)
    assert vars(policy)["_scopes"] == {}


def test_role_bindings_count_in_their_namespace_only(policy: rbac_policy.Policy):
    policy.set_binding("ns", "b", binding("ClusterRole", "reader", user("u")))
    assert allowed(policy, asked())
    assert not allowed(policy, asked(namespace="other"))
    assert not allowed(policy, asked(namespace=""))


def test_a_role_is_of_its_namespace(policy: rbac_policy.Policy):
    policy.set_binding("other", "b", binding("Role", "local", user("u")))
    assert not allowed(policy, asked(namespace="other"))
    policy.set_binding("", "b", binding("Role", "reader", user("u")))
    assert not allowed(policy, asked())
    assert policy.role_rules("Role", "", "reader") is None
    assert policy.role_rules("Role", "ns", "reader") is None
    assert policy.role_rules("Role", "ns", "local") == policy_rules.parse([READ_PODS])
    assert policy.role_rules("ClusterRole", "ns", "reader") == policy_rules.parse([READ_PODS, METRICS])


def test_paths_are_given_by_cluster_role_bindings_only(policy: rbac_policy.Policy):
    policy.set_binding("ns", "b", binding("ClusterRole", "reader", user("u")))
    assert not allowed(policy, path())
    # Even if a request for a path came with a namespace.
    assert not allowed(policy, path(namespace="ns"))
    policy.set_binding("", "b", binding("ClusterRole", "reader", user("u")))
    assert allowed(policy, path())
    assert not allowed(policy, path(at="/metrics/slis"))


def test_subjects_are_not_confused(policy: rbac_policy.Policy):
    policy.set_binding("", "users", binding("ClusterRole", "reader", user("admins")))
    assert allowed(policy, asked("admins"))
    assert not allowed(policy, asked("u", ("admins",)))
    policy.remove_binding("", "users")
    policy.set_binding("", "groups", binding("ClusterRole", "reader", group("u")))
    assert allowed(policy, asked("v", ("u",)))
    assert not allowed(policy, asked("u"))
    # An account without a namespace, bound cluster-wide, is nobody's.
    policy.set_binding("", "accounts", binding("ClusterRole", "reader", account("app")))
    assert not allowed(policy, asked("system:serviceaccount::app"))
    policy.set_binding("", "accounts", binding("ClusterRole", "reader", account("app", "ns")))
    assert allowed(policy, asked("system:serviceaccount:ns:app"))
    assert not allowed(policy, asked("app"))
    assert not allowed(policy, asked("system:serviceaccount:other:app"))


@pytest.mark.parametrize(
    "role",
    [
        None,
        [],
        {"rules": "all"},
        {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [None]}]},
        {"rules": [{"verbs": {"get": 1}, "apiGroups": [""], "resources": ["pods"]}]},
    ],
)
@pytest.mark.parametrize(
    "bound",
    [
        None,
        "binding",
        {"roleRef": "odd", "subjects": [user("u")]},
        {"roleRef": {"kind": "ClusterRole"}, "subjects": [user("u")]},
        {"roleRef": {"kind": "Everything", "name": "odd"}, "subjects": [user("u")]},
        binding(
            "ClusterRole", "odd", None, 5, {}, {"kind": "User"}, {"kind": "User", "name": 5}, {"kind": "X", "name": "u"}
        ),
        {"roleRef": {"kind": "ClusterRole", "name": "odd"}, "subjects": {"kind": "User"}},
        binding("ClusterRole", "odd", user("u")),
    ],
)
def test_malformed_objects_give_nothing(role: Any, bound: Any):
    policy = rbac_policy.Policy()
    policy.set_role("", "odd", role)
    policy.set_binding("", "b", bound)
    policy.set_binding("", "empty", {"roleRef": {"kind": "ClusterRole", "name": "odd"}})
    assert not allowed(policy, asked(groups=("",)))
    assert policy.rules_for("u", ("",), "ns") == []
    policy.remove_binding("", "b")
    policy.remove_binding("", "empty")
    policy.remove_binding("", "never there")
    policy.remove_role("", "odd")
    assert {key: value for key, value in vars(policy).items() if key != "_grants" and value} == {}


def test_a_changed_binding_counts_as_it_is_now(policy: rbac_policy.Policy):
    policy.set_binding("ns", "b", binding("Role", "local", user("u"), user("u"), user("v")))
    policy.set_binding("ns", "b", binding("Role", "local", user("v")))
    assert not allowed(policy, asked("u"))
    assert allowed(policy, asked("v"))


def test_a_changed_role_counts_as_it_is_now(policy: rbac_policy.Policy):
    policy.set_binding("", "b", binding("ClusterRole", "reader", user("u")))
    policy.set_role("", "reader", {"rules": [{**READ_PODS, "verbs": ["watch"]}]})
    assert not allowed(policy, asked())
    assert allowed(policy, asked(verb="watch"))


def test_missing_roles_are_named(policy: rbac_policy.Policy):
    policy.set_binding("", "b", binding("ClusterRole", "gone", user("u")))
    found = policy.decide(asked())
    assert found == decision.NotMine("RoleNotFound", f'RBAC: clusterrole.{policy_rules.GROUP} "gone" not found', "rbac")
    # The same role through a second binding is told once; one of another caller is not told at all.
    policy.set_binding("ns", "b", binding("ClusterRole", "gone", group("g")))
    policy.set_binding("ns", "c", binding("Role", "lost", user("u")))
    policy.set_binding("ns", "d", binding("Role", "of-someone-else", user("v")))
    assert policy.decide(asked(groups=("g",))).sentence == (
        f'RBAC: [clusterrole.{policy_rules.GROUP} "gone" not found, role.{policy_rules.GROUP} "lost" not found]'
    )
    # Others count all the same.
    policy.set_binding("ns", "e", binding("Role", "local", user("u")))
    assert allowed(policy, asked())
    assert policy.decide(asked(verb="delete", namespace="")).reason == "RoleNotFound"
    policy.set_role("", "gone", {})
    assert policy.decide(asked(verb="delete", namespace="")).sentence == ""
    policy.remove_role("", "gone")
    assert policy.decide(asked(verb="delete", namespace="")).reason == "RoleNotFound"
    policy.remove_binding("", "b")
    assert policy.decide(asked(verb="delete", namespace="")).sentence == ""


def test_no_more_than_a_few_missing_roles_are_named(policy: rbac_policy.Policy):
    for number in range(30):
        policy.set_binding("", f"b{number}", binding("ClusterRole", f"gone-{number}", user("u")))
    policy.set_binding("", "here", binding("ClusterRole", "reader", user("u")))
    assert policy.decide(asked(verb="delete")).sentence.count("not found") == 10


def test_who_holds_very_many_roles(policy: rbac_policy.Policy):
    """The same answers from a table of one's own, also when roles and bindings change under it."""
    many = holders.CROWD + 20
    for number in range(many):
        rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": [f"s{number}"]}]
        policy.set_binding("", f"b{number}", binding("ClusterRole", f"r{number}", user("u")))
        policy.set_role("", f"r{number}", {"rules": rules})
    last = asked(plural="secrets", name=f"s{many - 1}")
    assert policy.decide(last).sentence.startswith(f'RBAC: allowed by ClusterRoleBinding "b{many - 1}"')
    assert not allowed(policy, asked(plural="secrets", name="other"))
    assert not allowed(policy, asked("v", plural="secrets", name="s1"))
    policy.set_role("", "r1", {"rules": [METRICS]})
    assert allowed(policy, path())
    assert not allowed(policy, asked(plural="secrets", name="s1"))
    policy.remove_role("", "r1")
    assert not allowed(policy, path())
    # A second user with as many, and one binding more to a role that is held already.
    for number in range(many):
        policy.set_binding("", f"c{number}", binding("ClusterRole", f"r{number}", user("v"), user("u")))
        policy.remove_binding("", f"b{number}")
    assert allowed(policy, last)
    for number in range(many):
        policy.remove_binding("", f"c{number}")
    assert not allowed(policy, last)
    assert not vars(policy)["_crowded"]


def on_secret(number: int) -> dict[str, Any]:
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": [f"s{number}"]}
    return {"rules": [rule]}


def read_secret(number: int, who: str = "u", **more: Any) -> access.Attributes:
    return asked(who, plural="secrets", name=f"s{number}", **more)


@pytest.fixture
def crowded(policy: rbac_policy.Policy) -> rbac_policy.Policy:
    """Roles first, then bindings: user `u` and group `g` hold one more than it takes to have a table of their own."""
    for number in range(holders.CROWD + 1):
        policy.set_role("", f"r{number}", on_secret(number))
        policy.set_binding("", f"b{number}", binding("ClusterRole", f"r{number}", user("u"), group("g")))
    return policy


def test_only_who_holds_many_roles_has_a_table(policy: rbac_policy.Policy):
    for number in range(holders.CROWD + 1):
        assert not vars(policy)["_crowded"]
        policy.set_binding("ns", f"b{number}", binding("Role", f"r{number}", user("u")))
    assert len(vars(policy)["_crowded"]) == holders.CROWD + 1


def test_every_role_of_many_counts(crowded: rbac_policy.Policy):
    for number in range(holders.CROWD + 1):
        assert allowed(crowded, read_secret(number))
        assert allowed(crowded, read_secret(number, "v", groups=("g",)))
        assert not allowed(crowded, read_secret(number, "v"))
    assert not allowed(crowded, read_secret(holders.CROWD + 1))


@pytest.mark.parametrize("number", [0, 7, holders.CROWD])
def test_of_many_roles_one_goes(crowded: rbac_policy.Policy, number: int):
    crowded.remove_binding("", f"b{number}")
    assert not allowed(crowded, read_secret(number))
    assert not allowed(crowded, read_secret(number, "v", groups=("g",)))
    assert allowed(crowded, read_secret(number + 1 if number == 0 else number - 1))
    # What the role says from now on is nothing to them, until it is given again.
    crowded.set_role("", f"r{number}", on_secret(900))
    assert not allowed(crowded, read_secret(900))
    crowded.set_binding("", "again", binding("ClusterRole", f"r{number}", user("u")))
    assert allowed(crowded, read_secret(900))
    assert not allowed(crowded, read_secret(900, "v", groups=("g",)))
    assert not allowed(crowded, read_secret(number))


def test_another_binding_to_one_of_many_roles_keeps_it(crowded: rbac_policy.Policy):
    crowded.set_binding("", "twice", binding("ClusterRole", "r3", user("u")))
    crowded.remove_binding("", "b3")
    assert allowed(crowded, read_secret(3))
    assert not allowed(crowded, read_secret(3, "v", groups=("g",)))


def test_one_more_role_than_many_counts_and_changes(crowded: rbac_policy.Policy):
    crowded.set_role("", "late", on_secret(901))
    crowded.set_binding("", "late", binding("ClusterRole", "late", user("u")))
    assert allowed(crowded, read_secret(901))
    crowded.set_role("", "late", on_secret(902))
    assert not allowed(crowded, read_secret(901))
    assert allowed(crowded, read_secret(902))
    crowded.remove_role("", "late")
    assert not allowed(crowded, read_secret(902))


def test_who_holds_many_roles_is_also_in_groups_with_few(crowded: rbac_policy.Policy):
    crowded.set_role("ns", "few", on_secret(903))
    crowded.set_binding("ns", "few", binding("Role", "few", group("few")))
    assert allowed(crowded, read_secret(903, groups=("few",)))
    assert allowed(crowded, read_secret(5, groups=("few",)))
    assert not allowed(crowded, read_secret(903))
    # And the many count beside the few of somebody else.
    assert allowed(crowded, read_secret(5, "v", groups=("few", "g")))
    assert not allowed(crowded, read_secret(904, groups=("few", "g")))


def test_huge_rules_are_kept_whole(policy: rbac_policy.Policy):
    words = [f"w{number}" for number in range(200)]
    huge = {"verbs": words, "apiGroups": words, "resources": words}
    paths = {"verbs": words, "nonResourceURLs": [f"/{word}" for word in words]}
    policy.set_role("", "huge", {"rules": [huge, paths]})
    policy.set_binding("", "b", binding("ClusterRole", "huge", user("u")))
    assert len(vars(vars(policy)["_grants"])["_cells"]) < grants.BUDGET
    assert allowed(policy, asked(verb="w7", group="w8", plural="w199"))
    assert not allowed(policy, asked(verb="w7", group="w8", plural="other"))
    assert allowed(policy, access.Attributes(user="u", groups=(), verb="w1", is_resource=False, path="/w2"))
    assert not allowed(policy, asked("v", verb="w7", group="w8", plural="w199"))
    policy.remove_role("", "huge")
    assert not allowed(policy, asked(verb="w7", group="w8", plural="w199"))


@pytest.mark.parametrize("ends", ["remove_binding", "set_binding", "remove_role", "set_role"])
def test_a_remembered_answer_ends_with_any_change(policy: rbac_policy.Policy, ends: str):
    policy.set_binding("ns", "b", binding("Role", "local", user("u")))
    for _ in range(2):
        assert allowed(policy, asked())
    name, document = ("b", binding("Role", "local", user("v"))) if "binding" in ends else ("local", {"rules": []})
    getattr(policy, ends)("ns", name, *([document] if ends.startswith("set") else []))
    assert not allowed(policy, asked())
    # What was refused is asked anew as well.
    policy.set_role("ns", "local", {"rules": [READ_PODS]})
    policy.set_binding("ns", "b", binding("Role", "local", user("u")))
    assert allowed(policy, asked())


def test_remembered_answers_are_bounded(policy: rbac_policy.Policy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rbac_policy, "_ANSWERS", 3)
    policy.set_binding("", "b", binding("ClusterRole", "reader", user("u")))
    remembered = vars(policy)["_answers"]
    for number in range(10):
        assert allowed(policy, asked(name=f"n{number}"))
        assert len(remembered) <= 3
    before = len(remembered)
    # Whatever is long, and whoever has no right, takes no room.
    assert allowed(policy, asked(name="n" * 600))
    assert allowed(policy, asked(groups=("g",) * 40))
    assert allowed(policy, asked(fields=(("metadata.name", "x"),)))
    assert not allowed(policy, asked("v"))
    assert len(remembered) == before


def test_rules_for(policy: rbac_policy.Policy):
    writing = {"verbs": ["update"], "apiGroups": [""], "resources": ["pods"]}
    policy.set_role("", "writer", {"rules": [writing, READ_PODS, METRICS]})
    policy.set_binding("", "b", binding("ClusterRole", "reader", group("g")))
    policy.set_binding("ns", "b", binding("ClusterRole", "writer", user("u")))
    policy.set_binding("ns", "c", binding("ClusterRole", "reader", user("u")))
    policy.set_binding("ns", "d", binding("Role", "gone", user("u")))
    assert policy.rules_for("u", ("g",), "") == list(policy_rules.parse([READ_PODS, METRICS]))
    # Paths are not given in a namespace, and no rule comes twice.
    assert policy.rules_for("u", ("g",), "ns") == list(policy_rules.parse([READ_PODS, METRICS, writing]))
    assert policy.rules_for("u", (), "ns") == list(policy_rules.parse([READ_PODS, writing]))
    assert policy.rules_for("u", (), "other") == []


def test_tables_of_their_own_have_a_budget(policy: rbac_policy.Policy):
    """Who may write roles and bindings cannot have a large table made for each of many holders; the answers stay the same."""
    people = [f"u{number}" for number in range(40)]
    for number in range(holders.CROWD + 1):
        policy.set_role("", f"r{number}", on_secret(number))
        policy.set_binding("", f"b{number}", binding("ClusterRole", f"r{number}", *map(user, people)))
    assert vars(policy)["_apart"] == 40 * (holders.CROWD + 1)
    names = [f"s{number}" for number in range(4000)]
    large = {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names}]}
    # By a binding: the first twelve have room for it.
    policy.set_role("", "large", large)
    policy.set_binding("", "large", binding("ClusterRole", "large", *map(user, people)))
    assert 0 < vars(policy)["_apart"] <= holders.BUDGET
    # By a role that grows.
    policy.set_role("", "r0", large)
    assert 0 <= vars(policy)["_apart"] <= holders.BUDGET
    for who in people:
        assert allowed(policy, asked(who, plural="pods", name="s3999"))
        assert allowed(policy, read_secret(7, who))
        assert not allowed(policy, read_secret(0, who))
    for name in ("large", *(f"b{number}" for number in range(holders.CROWD + 1))):
        policy.remove_binding("", name)
    assert (vars(policy)["_apart"], vars(policy)["_crowded"]) == (0, {})
