# SPDX-License-Identifier: Apache-2.0
"""What scopes leave of a credential, with the roles of OpenShift's own tests of them. The table of `scopes.py` is here."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules import access, decision
from handfast.rules.rbac import policy_rules, scopes

Rule = policy_rules.PolicyRule
READ = ("get", "list", "watch")
ROLES = {
    "view": (Rule(READ, ("",), ("configmaps", "pods", "secrets")), Rule(("get",), non_resource_urls=("/metrics",))),
    "edit": (
        Rule((*READ, "create"), ("",), ("pods", "secrets", "serviceaccounts/token")),
        Rule(("impersonate",), ("",), ("serviceaccounts",)),
        Rule((*READ, "create", "bind"), ("rbac.authorization.k8s.io",), ("roles", "rolebindings")),
        Rule(("approve", "sign", "attest"), ("certificates.k8s.io",), ("signers",)),
        Rule(("create", "update"), ("certificates.k8s.io",), ("certificatesigningrequests",)),
        Rule(
            ("create", "update"),
            ("certificates.k8s.io",),
            tuple(f"certificatesigningrequests/{word}" for word in ("approval", "nodeclient", "selfnodeserver")),
        ),
        Rule(("create",), ("admissionregistration.k8s.io",), ("mutatingwebhookconfigurations",)),
    ),
    "system:node:reader": (Rule(READ, ("",), ("nodes",)),),
    "cluster-admin": policy_rules.FULL,
    "stars": (
        Rule(("*",), ("",), ("pods",)),
        Rule(("get",), ("*",), ("nodes",)),
        Rule(("get",), ("apps",), ("*/scale",)),
        Rule(("get",), ("",), ("events",)),
    ),
}
JUDGE = scopes.Scopes(ROLES.get)


def ask(verb: str, what: str, namespace: str = "", *held: str) -> decision.Decision:
    """As in `get apps/deployments/scale`: the group comes first, and is `core` for none."""
    facts: dict[str, Any] = {"user": "jane", "groups": (access.MASTERS,), "verb": verb, "scopes": held}
    if what.startswith("/"):
        return JUDGE.decide(access.Attributes(is_resource=False, path=what, **facts))
    group, plural, *rest = what.split("/")
    facts |= {"group": "" if group == "core" else group, "plural": plural, "subresource": "".join(rest)}
    return JUDGE.decide(access.Attributes(is_resource=True, namespace=namespace, name="~", **facts))


def within(verb: str, what: str, namespace: str = "", *held: str) -> bool:
    verdict = ask(verb, what, namespace, *held)
    assert isinstance(verdict, decision.Deny | decision.NotMine)
    return isinstance(verdict, decision.NotMine)


def why(*question: str) -> str:
    verdict = ask(*question)
    assert isinstance(verdict, decision.Deny)
    assert verdict.reason == "ScopeLimited"
    return verdict.sentence


@pytest.mark.parametrize("verb", ["get", "head"])
@pytest.mark.parametrize(
    "path",
    ["/", "/api", "/api/v1", "/apis", "/apis/apps/v1", "/version", "/openapi/v2", "/openapi/v3/api/v1", "/healthz"],
)
def test_what_tells_of_the_server_is_always_in_scope(verb: str, path: str):
    assert within(verb, path, "", "user:info")
    assert within(verb, path, "", "nonsense")


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        *(("get", path) for path in ("/metrics", "/healthz/../metrics", "/logs", "/debug/pprof", "/openid/v1/jwks")),
        *((verb, "/api") for verb in ("post", "delete", "list", "*")),
        ("post", "/healthz"),
    ],
)
def test_other_paths_are_not(verb: str, path: str):
    assert not within(verb, path, "", "user:info")
    assert within(verb, path, "", "user:full")


@pytest.mark.parametrize(
    ("scope", "verb", "what", "namespace", "expected"),
    [
        ("user:full", "delete", "core/nodes", "", True),
        ("user:full", "impersonate", "core/users", "", True),
        ("user:info", "get", "user.openshift.io/users", "", True),
        ("user:info", "create", "authentication.k8s.io/selfsubjectreviews", "", True),
        ("user:info", "create", "authorization.k8s.io/selfsubjectaccessreviews", "", False),
        ("user:info", "list", "user.openshift.io/users", "", False),
        ("user:info", "get", "core/pods", "a", False),
        ("user:check-access", "create", "authorization.k8s.io/selfsubjectaccessreviews", "", True),
        ("user:check-access", "create", "authorization.k8s.io/selfsubjectrulesreviews", "", True),
        ("user:check-access", "create", "authorization.k8s.io/subjectaccessreviews", "", False),
        ("user:check-access", "create", "authentication.k8s.io/selfsubjectreviews", "", False),
        ("user:list-projects", "list", "project.openshift.io/projects", "", True),
        ("user:list-projects", "get", "core/namespaces", "a", True),
        ("user:list-scoped-projects", "get", "core/namespaces", "a", False),
    ],
)
def test_scopes_of_the_user(scope: str, verb: str, what: str, namespace: str, expected: bool):
    assert within(verb, what, namespace, scope) is expected


@pytest.mark.parametrize(
    ("scope", "namespace", "expected"),
    [
        ("role:view:a", "a", True),
        ("role:view:a", "b", False),
        ("role:view:a", "", False),
        ("role:view:*", "b", True),
        ("role:view:*", "", True),
        ("role:system:node:reader:a", "a", False),
    ],
)
def test_a_role_counts_in_its_namespace(scope: str, namespace: str, expected: bool):
    assert within("get", "core/pods", namespace, scope) is expected


def test_names_of_roles_may_hold_colons():
    assert within("get", "core/nodes", "", "role:system:node:reader:*")


def test_the_rules_of_a_role_count_for_paths_too():
    assert within("get", "/metrics", "", "role:view:*")
    assert not within("get", "/metrics", "", "role:view:a")


ESCALATING = [
    ("get", "core/secrets"),
    ("create", "core/serviceaccounts/token"),
    ("impersonate", "core/serviceaccounts"),
    ("create", "rbac.authorization.k8s.io/rolebindings"),
    ("bind", "rbac.authorization.k8s.io/roles"),
    ("approve", "certificates.k8s.io/signers"),
    ("sign", "certificates.k8s.io/signers"),
    ("attest", "certificates.k8s.io/signers"),
    ("update", "certificates.k8s.io/certificatesigningrequests/approval"),
    ("create", "certificates.k8s.io/certificatesigningrequests/nodeclient"),
    ("create", "certificates.k8s.io/certificatesigningrequests/selfnodeserver"),
    ("create", "admissionregistration.k8s.io/mutatingwebhookconfigurations"),
]


@pytest.mark.parametrize(("verb", "what"), ESCALATING)
def test_what_leads_out_of_the_scope_is_left_out(verb: str, what: str):
    assert why(verb, what, "a", "role:edit:a") == (
        "scopes [role:edit:a] prevent this action: role:edit:a leaves out what leads to more rights, unless it ends with :!"
    )
    assert within(verb, what, "a", "role:edit:a:!")
    assert not within(verb, what, "b", "role:edit:a:!")
    assert within("create", "core/pods", "a", "role:edit:a")
    assert within("create", "certificates.k8s.io/certificatesigningrequests", "a", "role:edit:a")


@pytest.mark.parametrize(
    ("held", "namespace", "role"),
    [
        (("user:full",), "", "cluster-admin"),
        (("role:view:*:!",), "", "view"),
        (("role:view:a:!",), "a", "view"),
        (("user:info", "role:gone:*:!", "role:view:a:!"), "a", "view"),
        (("role:view:a:!",), "b", ""),
        (("role:view:a:!",), "", ""),
        (("role:view:*", "role:view:!", "user:info"), "a", ""),
        (("role:view:a:!",) * 17, "a", ""),
        ((), "a", ""),
    ],
)
def test_only_marked_scopes_give_rights_away(held: tuple[str, ...], namespace: str, role: str):
    assert tuple(JUDGE.giving(held, namespace)) == ROLES.get(role, ())


@pytest.mark.parametrize(
    ("verb", "what"), [("get", "core/pods"), ("get", "core/nodes"), ("get", "apps/deployments/scale")]
)
def test_rules_with_a_star_need_the_mark(verb: str, what: str):
    assert "leaves out rules with *, unless it ends with :!" in why(verb, what, "a", "role:stars:*")
    assert within(verb, what, "a", "role:stars:*:!")
    assert not within(verb, what, "a", "role:cluster-admin:*")
    assert within("delete", "core/secrets", "a", "role:cluster-admin:*:!")
    assert within("get", "core/events", "a", "role:stars:*")


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("", " is no known scope"),
        ("user:ful", "user:ful is no known scope"),
        ("user:", "user: is no known scope"),
        ("User:full", "User:full is no known scope"),
        ("*", "* is no known scope"),
        ("cluster:get:pods", "cluster:get:pods is no known scope"),
        ("role:", "role: is malformed: it is to be role:ROLE:NAMESPACE"),
        ("role:view", "role:view is malformed: it is to be role:ROLE:NAMESPACE"),
        ("role:view:", "role:view: is malformed: it is to be role:ROLE:NAMESPACE"),
        ("role::a", "role::a is malformed: it is to be role:ROLE:NAMESPACE"),
        ("role:!", "role:! is malformed: it is to be role:ROLE:NAMESPACE"),
        ("role:view:!", "role:view:! is malformed: it is to be role:ROLE:NAMESPACE"),
        ("role:gone:a", 'role:gone:a names a ClusterRole that is not there, "gone"'),
        ("role:view:b", "role:view:b counts in the namespace b only"),
        ("role:system:node:reader:a", "role:system:node:reader:a does not include it"),
        ("user:\n", "'user:\\n' is no known scope"),
    ],
)
def test_unknown_scopes_allow_nothing(scope: str, said: str):
    sentence = why("get", "core/pods", "a", scope)
    assert sentence.startswith("scopes [")
    assert sentence.endswith(f"] prevent this action: {said}")


def test_one_scope_that_allows_it_is_enough():
    held = ("nonsense", "role:gone:a", "role:view:a", "user:info")
    assert within("get", "core/pods", "a", *held)
    assert why("create", "core/pods", "a", *held).count(";") == 3


def test_too_many_scopes_allow_nothing():
    many = [f"role:view:n{number}" for number in range(16)]
    assert within("get", "core/pods", "n15", *many)
    assert why("get", "core/pods", "n15", *many, "user:full") == (
        "17 scopes are more than the 16 that a credential may have"
    )


def test_a_long_scope_is_not_repeated_whole():
    assert len(why("get", "core/pods", "a", "x" * 100_000)) < 300
