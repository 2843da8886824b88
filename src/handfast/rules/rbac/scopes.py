# SPDX-License-Identifier: Apache-2.0
"""What a credential is limited to by its scopes, as in OpenShift: it never gives a right, and takes those that are not in scope.

Scopes are the values of the user's extra `scopes.authorization.openshift.io`. A user without any is not limited.

1. There are at most `MOST` scopes; with more nothing is allowed.
2. What tells of the server itself is always allowed: discovery, versions, health.
3. `user:full` allows everything; `user:info` to ask who one is; `user:check-access` to ask what one may do;
   `user:list-projects` and `user:list-scoped-projects` to list projects.
4. `role:R:NS` allows what ClusterRole R says, in namespace NS; `*` is every namespace, and what has none. Names of roles may
   hold colons, names of namespaces do not: the last colon counts.
5. Without `:!` at its end, such a scope leaves out what would lead out of it again: rules with `*`, Secrets, roles and bindings,
   tokens of service accounts, approvals of certificate requests, webhook configurations, and the verbs `impersonate`, `bind`,
   `escalate`, `trust`, `approve`, `sign`, `attest`.
6. One scope that allows it is enough. A scope that is unknown or malformed, or whose role is missing, allows nothing.
7. Rights are given away only out of `user:full` and of scopes with `:!`: whoever else gets them has no scope.

Where this has no opinion the other authorizers decide: also administrators are limited, and nobody gets more by a scope.
OpenShift's list for 5 has neither rbac.authorization.k8s.io, nor tokens of service accounts, nor certificate requests, nor webhooks,
nor verbs. A certificate request alone is not in it: somebody has to approve it, and the subresources that have a controller
approve (`nodeclient`, `selfnodeclient`, `selfnodeserver`) are. Nor are Pods: one runs with the rights of an account of its namespace,
never with the user's. Who is to be kept from these as well gets a role without them. OpenShift's `user:info` reads
`users/~`; there is no such kind here, so that it also allows SelfSubjectReviews. Who may set a scope is not judged here:
whoever may impersonate it (`userextras/scopes.authorization.openshift.io`). No certificate and no token carries one.

| who | holding | tries | check | shown by (test_scopes.py) |
|---|---|---|---|---|
| an administrator's script | `role:view:a` | act in another namespace, or as the administrator | 4 | test_a_role_counts_in_its_namespace |
| a script | `role:edit:a` | read Secrets, mint a token, bind a role, approve a certificate | 5 | test_what_leads_out_of_the_scope_is_left_out |
| a script | `role:binder:*:!`, to write bindings | give away what its user holds beside it | 7 | test_only_marked_scopes_give_rights_away |
| a script | `role:cluster-admin:*` | do everything | 5: rules with a star | test_rules_with_a_star_need_the_mark |
| a script | a scope with a wrong letter | be taken for one without scopes | 6 | test_unknown_scopes_allow_nothing |
| a reviewer | a review with a million scopes | hold the server | 1 | test_too_many_scopes_allow_nothing |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from handfast.rules import access, decision
from handfast.rules.rbac import policy_rules

RULE: Final = "scopes"
LIMITED: Final = "ScopeLimited"
# Each names a role at most, which may be long: together they cost a request its bounded share.
MOST: Final = 16
FULL: Final = "user:full"
_ROLE: Final = "role:"
_MARK: Final = ":!"
_EVERY_NAMESPACE: Final = "*"
_SHOWN: Final = 80
_READ: Final = frozenset({"get", "head"})
# 2. what tells of the server itself
_SERVER: Final = policy_rules.PolicyRule(
    ("get", "head"),
    non_resource_urls=(
        *("/", "/api", "/api/*", "/apis", "/apis/*", "/version", "/version/*", "/openapi/v2", "/openapi/v3"),
        *("/openapi/v3/*", "/.well-known", "/.well-known/*"),
    ),
)
_PROJECTS: Final = policy_rules.PolicyRule(("list", "watch"), ("project.openshift.io", ""), ("projects",))
# 3. scopes of the user
_USER: Final = {
    FULL: policy_rules.FULL,
    "user:info": (
        policy_rules.PolicyRule(("get",), ("user.openshift.io", ""), ("users",), ("~",)),
        policy_rules.PolicyRule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
    ),
    "user:check-access": (
        policy_rules.PolicyRule(("create",), ("authorization.k8s.io",), ("selfsubjectaccessreviews",)),
        policy_rules.PolicyRule(
            ("create",), ("authorization.k8s.io", "authorization.openshift.io", ""), ("selfsubjectrulesreviews",)
        ),
    ),
    "user:list-scoped-projects": (_PROJECTS,),
    "user:list-projects": (_PROJECTS, policy_rules.PolicyRule(("get",), ("",), ("namespaces",))),
}
# 5. what leads out of a scope. Who may approve, and whom a controller approves; a certificate carries no scope.
_APPROVING: Final = ("approval", "nodeclient", "selfnodeclient", "selfnodeserver")
_ESCALATING: Final = frozenset(
    {
        ("", "secrets"),
        ("", "serviceaccounts/token"),
        ("image.openshift.io", "imagestreams/secrets"),
        ("network.openshift.io", "service/externalips"),
        ("oauth.openshift.io", "oauthaccesstokens"),
        ("oauth.openshift.io", "oauthauthorizetokens"),
        *(("certificates.k8s.io", f"certificatesigningrequests/{word}") for word in _APPROVING),
        *(("admissionregistration.k8s.io", f"{word}webhookconfigurations") for word in ("mutating", "validating")),
        *(
            (group, plural)
            for group in (policy_rules.GROUP, "authorization.openshift.io")
            for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
        ),
    }
)
_ESCALATING_VERBS: Final = frozenset({"impersonate", "bind", "escalate", "trust", "approve", "sign", "attest"})

# The rules of a ClusterRole, by its name; None: there is none.
RoleRules = Callable[[str], Sequence[policy_rules.PolicyRule] | None]


class Scopes:
    """The limit of those whose extra has scopes."""

    def __init__(self, role_rules: RoleRules) -> None:
        self._role_rules = role_rules

    def decide(self, attributes: access.Attributes) -> decision.Deny | decision.NotMine:
        """No opinion, or no: the scopes leave this out. The sentence says what each of them lacks."""
        scopes = attributes.scopes
        # 1. not too many
        if len(scopes) > MOST:
            return _deny(f"{len(scopes)} scopes are more than the {MOST} that a credential may have")
        # 2. what tells of the server itself
        if not attributes.is_resource and _tells_of_server(attributes):
            return _WITHIN
        lacks = []
        for scope in scopes:
            lacking = self._lacking(scope, attributes)
            # 6. one that allows it is enough
            if not lacking:
                return _WITHIN
            lacks.append(f"{_shown(scope)} {lacking}")
        return _deny(f"{listed(scopes)} prevent this action: {'; '.join(lacks)}")

    def giving(self, scopes: Sequence[str], namespace: str) -> list[policy_rules.PolicyRule]:
        """The rules out of which rights may be given away in this namespace; empty: in the whole cluster."""
        # 1. not too many
        if len(scopes) > MOST:
            return []
        # 7. user:full, and roles with the mark
        rules = list(policy_rules.FULL) if FULL in scopes else []
        for scope in scopes:
            parsed = _role_scope(scope)
            if parsed is not None and parsed.marked and parsed.namespace in {_EVERY_NAMESPACE, namespace}:
                rules.extend(self._role_rules(parsed.role) or ())
        return rules

    def _lacking(self, scope: str, attributes: access.Attributes) -> str:
        """What keeps a scope from allowing this; empty if it does."""
        # 3. scopes of the user
        rules = _USER.get(scope)
        if rules is not None:
            return "" if _allow(rules, attributes) else "does not include it"
        if not scope.startswith(_ROLE):
            return "is no known scope"
        return self._lacking_role(scope, attributes)

    def _lacking_role(self, scope: str, attributes: access.Attributes) -> str:
        # 4. a role in a namespace
        parsed = _role_scope(scope)
        if parsed is None:
            return "is malformed: it is to be role:ROLE:NAMESPACE"
        if parsed.namespace not in {_EVERY_NAMESPACE, attributes.namespace}:
            return f"counts in the namespace {_shown(parsed.namespace)} only"
        rules = self._role_rules(parsed.role)
        if rules is None:
            return f"names a ClusterRole that is not there, {json.dumps(_shown(parsed.role))}"
        if not _allow(rules, attributes):
            return "does not include it"
        # 5. without what leads out of the scope
        if not parsed.marked and _escalates(attributes):
            return f"leaves out what leads to more rights, unless it ends with {_MARK}"
        if not parsed.marked and not _allow([rule for rule in rules if _is_bounded(rule)], attributes):
            return f"leaves out rules with *, unless it ends with {_MARK}"
        return ""


def listed(scopes: Sequence[str]) -> str:
    """Scopes, as a refusal names them."""
    return f"scopes [{' '.join(map(_shown, scopes[:MOST]))}]"


class _RoleScope(NamedTuple):
    role: str
    namespace: str
    marked: bool


def _role_scope(scope: str) -> _RoleScope | None:
    """What `role:ROLE:NAMESPACE` says; None: it is none, or malformed."""
    if not scope.startswith(_ROLE):
        return None
    marked = scope.endswith(_MARK)
    role, _, namespace = scope.removeprefix(_ROLE).removesuffix(_MARK if marked else "").rpartition(":")
    return _RoleScope(role, namespace, marked) if role and namespace else None


def _tells_of_server(attributes: access.Attributes) -> bool:
    if policy_rules.allows_path(_SERVER, attributes.verb, attributes.path):
        return True
    return attributes.verb in _READ and access.is_health(attributes.path)


def _allow(rules: Sequence[policy_rules.PolicyRule], attributes: access.Attributes) -> bool:
    if not attributes.is_resource:
        return any(policy_rules.allows_path(rule, attributes.verb, attributes.path) for rule in rules)
    words = policy_rules.resource_words(attributes.plural, attributes.subresource)
    return any(
        policy_rules.allows_resource(rule, attributes.verb, attributes.group, words, attributes.name) for rule in rules
    )


def _escalates(attributes: access.Attributes) -> bool:
    if attributes.verb in _ESCALATING_VERBS:
        return True
    resource = f"{attributes.plural}/{attributes.subresource}" if attributes.subresource else attributes.plural
    return attributes.is_resource and (attributes.group, resource) in _ESCALATING


def _is_bounded(rule: policy_rules.PolicyRule) -> bool:
    """Whether it names what it allows: neither `*`, nor a subresource of every kind."""
    words = (*rule.verbs, *rule.api_groups)
    return policy_rules.ALL not in words and not any(word.startswith(policy_rules.ALL) for word in rule.resources)


def _shown(text: str) -> str:
    """Another's text in a message: printable, and short."""
    printable = text if text.isprintable() else ascii(text)
    return printable if len(printable) <= _SHOWN else f"{printable[:_SHOWN]}…"


def _deny(sentence: str) -> decision.Deny:
    return decision.Deny(LIMITED, sentence, RULE)


_WITHIN: Final = decision.NotMine("", "", RULE)
