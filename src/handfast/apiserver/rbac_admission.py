# SPDX-License-Identifier: Apache-2.0
"""Admission: who writes roles and bindings may give away only what they hold. Who holds what is `rules.rbac_policy`'s.

Of a Role or ClusterRole, created or updated:
1. Who may `escalate` this role passes; to the authoriser, members of system:masters may everything.
2. An update that leaves rules, aggregation rule and labels as they are passes. Labels count, because by them a role's
   rules are taken into aggregated roles.
3. Every permission in the rules must be held by the caller, in the role's namespace.
4. A ClusterRole that has, or had, an aggregation rule needs a caller who holds everything: it gathers whatever comes.

Of a RoleBinding or ClusterRoleBinding, created or updated:
5. Who may `bind` the role that is named passes.
6. An update that leaves role and subjects as they are passes.
7. The role must be there.
8. Every permission of the role must be held by the caller, in the binding's namespace; of what a RoleBinding cannot
   give, which is paths, nothing is asked.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_rbac_admission.py |
|---|---|---|---|---|
| who may write roles | fewer permissions | write a role with more | 3 | test_role_with_more_than_held |
| who may write roles | fewer permissions | give a mighty role the label of an aggregated one | 2 | test_labels_are_as_good_as_rules |
| who may write ClusterRoles | not everything | write, or empty, an aggregation rule | 4 | test_aggregation_needs_everything |
| who may write bindings | fewer permissions | bind themselves to cluster-admin | 8 | test_binding_with_more_than_held |
| who may write bindings | permissions in another namespace | give them here | 8 | test_permissions_of_another_namespace_do_not_count |
| who may write bindings | nothing else | bind a name that has no role yet | 7 | test_missing_role |
| who may write roles | fewer permissions | stop the server with a huge rule | `rbac_escalation.LIMIT` | test_rules_too_broad_to_check |
"""

from __future__ import annotations

from typing import Any

from handfast.api import jsonpath, status
from handfast.apiserver import admission
from handfast.rules import access, decision, rbac, rbac_escalation, rbac_policy

_ROLE_PLUGIN, _BINDING_PLUGIN = "RBACRoleEscalation", "RBACBindingEscalation"
_WRITES = frozenset({admission.CREATE, admission.UPDATE})
_ROLES = frozenset({(rbac.GROUP, "roles"), (rbac.GROUP, "clusterroles")})
_BINDINGS = frozenset({(rbac.GROUP, "rolebindings"), (rbac.GROUP, "clusterrolebindings")})
_PLURALS = {rbac_policy.ROLE: "roles", rbac_policy.CLUSTER_ROLE: "clusterroles"}
_NEEDS_EVERYTHING = "must have cluster-admin privileges to use the aggregationRule"


def rows(policy: rbac_policy.Policy) -> tuple[admission.Row, ...]:
    """The rows of both checks: they go among those that only look."""

    def admit_role(asked: admission.Attributes, context: admission.Context) -> None:
        _check_role(policy, asked, context)

    def admit_binding(asked: admission.Attributes, context: admission.Context) -> None:
        _check_binding(policy, asked, context)

    return (
        admission.Row(_ROLE_PLUGIN, _WRITES, admit_role, _ROLES),
        admission.Row(_BINDING_PLUGIN, _WRITES, admit_binding, _BINDINGS),
    )


def _check_role(policy: rbac_policy.Policy, asked: admission.Attributes, context: admission.Context) -> None:
    document, old = asked.document or {}, asked.old
    if _may(asked, context, "escalate", asked.kind.plural, asked.name):  # 1.
        return
    if old is not None and _same(document, old, ("rules",), ("aggregationRule",), ("metadata", "labels")):  # 2.
        return
    held = policy.rules_for(asked.user.name, asked.user.groups, asked.namespace)
    _require(asked, _ROLE_PLUGIN, held, rbac.parse(document.get("rules")))  # 3.
    aggregates = document.get("aggregationRule") or (old or {}).get("aggregationRule")
    if aggregates and rbac_escalation.uncovered(held, rbac.FULL):  # 4.
        raise admission.Refusal(asked, decision.Deny("AggregationRule", _NEEDS_EVERYTHING, _ROLE_PLUGIN))


def _check_binding(policy: rbac_policy.Policy, asked: admission.Attributes, context: admission.Context) -> None:
    document, old = asked.document or {}, asked.old
    kind, name = jsonpath.text(document, "roleRef", "kind"), jsonpath.text(document, "roleRef", "name")
    plural = _PLURALS.get(kind)
    if plural is None:
        return  # names no role; validation says so, and the policy gives nothing for it
    if _may(asked, context, "bind", plural, name):  # 5.
        return
    if old is not None and _same(document, old, ("roleRef",), ("subjects",)):  # 6.
        return
    rules = policy.role_rules(kind, asked.namespace, name)
    if rules is None:  # 7.
        raise status.not_found(plural, rbac.GROUP, name)
    if asked.namespace:
        rules = tuple(rule for rule in rules if rule.resources)
    held = policy.rules_for(asked.user.name, asked.user.groups, asked.namespace)
    _require(asked, _BINDING_PLUGIN, held, rules)  # 8.


def _require(
    asked: admission.Attributes, plugin: str, held: list[rbac.PolicyRule], wanted: tuple[rbac.PolicyRule, ...]
) -> None:
    try:
        missing = rbac_escalation.uncovered(held, wanted)
    except rbac_escalation.TooBroad as error:
        raise admission.Refusal(asked, decision.Deny(error.reason, error.message, plugin)) from error
    if missing:
        why = rbac_escalation.refusal(asked.user.name, asked.user.groups, missing)
        raise admission.Refusal(asked, decision.Deny("Escalation", why, plugin))


def _may(asked: admission.Attributes, context: admission.Context, verb: str, plural: str, name: str) -> bool:
    user = asked.user
    verdict = context.decide(
        access.Attributes(
            user=user.name,
            groups=user.groups,
            verb=verb,
            is_resource=True,
            group=rbac.GROUP,
            version="*",
            plural=plural,
            namespace=asked.namespace,
            name=name,
        )
    )
    return isinstance(verdict, decision.Approve)


def _same(document: dict[str, Any], old: dict[str, Any], *paths: tuple[str, ...]) -> bool:
    """Whether all of these say the same; an empty value is no different from none."""
    return all((jsonpath.at(document, *path) or None) == (jsonpath.at(old, *path) or None) for path in paths)
