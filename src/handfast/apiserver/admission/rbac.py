# SPDX-License-Identifier: Apache-2.0
"""Admission: who writes roles and bindings may give away only what they hold. `rules.rbac.policy` knows who holds what.

Of a Role or ClusterRole, created or updated:
1. Who may `escalate` this role passes, and so do members of system:masters, who may do everything.
2. An update that leaves rules, aggregation rule and labels as they are passes. Labels count, because by them a role's
   rules are taken into aggregated roles.
3. Every permission in the rules must be held by the caller, in the role's namespace.
4. A ClusterRole that has, or had, an aggregation rule needs a caller who holds everything: it gathers whatever comes.

Of a RoleBinding or ClusterRoleBinding, created or updated:
5. Who may `bind` the role that is named passes.
6. An update that leaves role and subjects as they are passes.
7. The role must be there.
8. Every permission of the role must be held by the caller, in the binding's namespace. Paths in a role do not count for
   a RoleBinding: it cannot give them.

Of both, where the caller's credential has scopes:
9. `escalate` and `bind` count where the scopes include them. For 3, 4 and 8 every permission must also be in a scope out of which
   rights may be given away (`rules.rbac.scopes`): whoever is bound has no scope.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_rbac.py |
|---|---|---|---|---|
| who may write roles | fewer permissions | write a role with more | 3 | test_role_with_more_than_held |
| who may write roles | fewer permissions | give a mighty role the label of an aggregated one | 2 | test_labels_are_as_good_as_rules |
| who may write ClusterRoles | not everything | write, or empty, an aggregation rule | 4 | test_aggregation_needs_everything |
| who may write bindings | fewer permissions | bind themselves to cluster-admin | 8 | test_binding_with_more_than_held |
| who may write bindings | permissions in another namespace | give them here | 8 | test_permissions_of_another_namespace_do_not_count |
| who may write bindings | nothing else | bind a name that has no role yet | 7 | test_missing_role |
| an administrator's script | a scope to write bindings | bind cluster-admin to an accomplice | 9 | test_a_scope_is_not_shed_by_a_binding |
| an administrator's script | a scope to write roles | put into its role what the scope lacks | 9 | test_a_scope_is_not_shed_by_a_role |
| who may write roles | fewer permissions | stop the server with a huge rule | `rules.rbac.escalation.LIMIT` | test_rules_too_broad_to_check |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handfast.api import jsonpath, status
from handfast.apiserver.admission import plugin as admission
from handfast.rules import access, decision
from handfast.rules.rbac import escalation, policy_rules
from handfast.rules.rbac import policy as rbac_policy
from handfast.rules.rbac import scopes as scope_rules

_ROLE_PLUGIN, _BINDING_PLUGIN = "RBACRoleEscalation", "RBACBindingEscalation"
_WRITES = frozenset({admission.CREATE, admission.UPDATE})
_ROLES = frozenset({(policy_rules.GROUP, "roles"), (policy_rules.GROUP, "clusterroles")})
_BINDINGS = frozenset({(policy_rules.GROUP, "rolebindings"), (policy_rules.GROUP, "clusterrolebindings")})
_PLURALS = {rbac_policy.ROLE: "roles", rbac_policy.CLUSTER_ROLE: "clusterroles"}
_NEEDS_EVERYTHING = "must have cluster-admin privileges to use the aggregationRule"


def rows(policy: rbac_policy.Policy) -> tuple[admission.Row, ...]:
    """The rows of both checks: they go among those that only look."""

    def admit_role(write: admission.Write, context: admission.Context) -> None:
        _check_role(policy, write, context)

    def admit_binding(write: admission.Write, context: admission.Context) -> None:
        _check_binding(policy, write, context)

    return (
        admission.Row(_ROLE_PLUGIN, _WRITES, admit_role, _ROLES),
        admission.Row(_BINDING_PLUGIN, _WRITES, admit_binding, _BINDINGS),
    )


def _check_role(policy: rbac_policy.Policy, write: admission.Write, context: admission.Context) -> None:
    document, old = write.document or {}, write.old
    # 1. may escalate this role
    if _may(write, context, "escalate", write.kind.plural, write.name):
        return
    # 2. nothing that counts has changed
    if old is not None and _same(document, old, ("rules",), ("aggregationRule",), ("metadata", "labels")):
        return
    # 3. every permission is held
    _require(policy, write, _ROLE_PLUGIN, policy_rules.parse(document.get("rules")))
    aggregates = document.get("aggregationRule") or (old or {}).get("aggregationRule")
    # 4. an aggregation rule needs everything
    if aggregates and any(escalation.uncovered(rules, policy_rules.FULL) for rules in _limits(policy, write)):
        raise admission.Refusal(write, decision.Deny("AggregationRule", _NEEDS_EVERYTHING, _ROLE_PLUGIN))


def _check_binding(policy: rbac_policy.Policy, write: admission.Write, context: admission.Context) -> None:
    document, old = write.document or {}, write.old
    kind, name = jsonpath.text(document, "roleRef", "kind"), jsonpath.text(document, "roleRef", "name")
    plural = _PLURALS.get(kind)
    if plural is None:
        # It names no role: validation refuses it, and the policy gives nothing for it.
        return
    # 5. may bind this role
    if _may(write, context, "bind", plural, name):
        return
    # 6. role and subjects are the same
    if old is not None and _same(document, old, ("roleRef",), ("subjects",)):
        return
    rules = policy.role_rules(kind, write.namespace, name)
    # 7. the role must be there
    if rules is None:
        raise status.not_found(plural, policy_rules.GROUP, name)
    if write.namespace:
        rules = tuple(rule for rule in rules if rule.resources)
    # 8. every permission of the role is held
    _require(policy, write, _BINDING_PLUGIN, rules)


def _limits(policy: rbac_policy.Policy, write: admission.Write) -> Iterator[list[policy_rules.PolicyRule]]:
    """What is held; and, with scopes, what of it they let be given away. A permission has to be in each."""
    user = write.user
    yield policy.rules_for(user.name, user.groups, write.namespace)
    # 9. nobody gives away more than the scopes include
    scopes = user.extra.get(access.SCOPES)
    if scopes:
        judge = scope_rules.Scopes(lambda role: policy.role_rules(rbac_policy.CLUSTER_ROLE, "", role))
        yield judge.giving(scopes, write.namespace)


def _require(
    policy: rbac_policy.Policy,
    write: admission.Write,
    plugin: str,
    wanted: tuple[policy_rules.PolicyRule, ...],
) -> None:
    user = write.user
    for number, rules in enumerate(_limits(policy, write)):
        try:
            missing = escalation.uncovered(rules, wanted)
        except escalation.TooBroad as error:
            raise admission.Refusal(write, decision.Deny(error.reason, error.message, plugin)) from error
        if not missing:
            continue
        why, reason = escalation.refusal(user.name, user.groups, missing), "Escalation"
        if number:
            why, reason = f"{scope_rules.listed(user.extra[access.SCOPES])}: {why}", scope_rules.LIMITED
        raise admission.Refusal(write, decision.Deny(reason, why, plugin))


def _may(write: admission.Write, context: admission.Context, verb: str, plural: str, name: str) -> bool:
    user = write.user
    verdict = context.decide(
        access.Attributes(
            user=user.name,
            groups=user.groups,
            verb=verb,
            is_resource=True,
            group=policy_rules.GROUP,
            version="*",
            plural=plural,
            namespace=write.namespace,
            name=name,
        )
    )
    return isinstance(verdict, decision.Approve)


def _same(document: dict[str, Any], old: dict[str, Any], *paths: tuple[str, ...]) -> bool:
    """Whether all of these say the same; an empty value is no different from none."""
    return all((jsonpath.at(document, *path) or None) == (jsonpath.at(old, *path) or None) for path in paths)
