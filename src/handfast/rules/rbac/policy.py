# SPDX-License-Identifier: Apache-2.0
"""May this caller do this, by RBAC: every role and binding, indexed, and the decision. It reads no store: it is told.

1. A binding counts for a User by name, for a Group by membership, for a ServiceAccount as the user
   `system:serviceaccount:NAMESPACE:NAME`; without a namespace of its own it is of the RoleBinding's.
2. ClusterRoleBindings count everywhere; RoleBindings only in their namespace, and never for paths.
3. A RoleBinding may name a Role of its namespace or a ClusterRole; a ClusterRoleBinding only a ClusterRole.
4. A role that is not there gives nothing, and is named in the refusal of whoever is bound to it.
5. There is no rule that takes away.

A decision looks up the roles that allow what is asked (`rbac.grants`) and the roles that the caller holds, and sees
whether they meet: neither depends on how many bindings, namespaces or other users there are. A role that changes
touches its own permissions only, and the tables of those few holders that have one (`rbac.holders`); a binding that
changes touches its own subjects only. A yes is remembered until anything changes.

| who | holding | tries | stopped by | shown in tests/unit/rules/rbac/test_policy.py |
|---|---|---|---|---|
| a user | a RoleBinding in one namespace | act in another, or cluster-wide | 2 | test_role_bindings_count_in_their_namespace_only |
| a namespace's admin | RoleBinding to a role with paths | read /metrics | 2 | test_paths_are_given_by_cluster_role_bindings_only |
| a user | the name of a group, or a group named as a user | be taken for the other | 1 | test_subjects_are_not_confused |
| a writer of odd objects | lists with holes, subjects without names | be given more than was said | `policy_rules.parse`, 1 | test_malformed_objects_give_nothing |
| a writer of a role | a rule of a million permissions | fill the memory | `grants.BUDGET` | test_huge_rules_are_kept_whole |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from handfast.api import jsonpath
from handfast.rules import access, decision, user_names
from handfast.rules.rbac import grants as rbac_grants
from handfast.rules.rbac import holders as rbac_holders
from handfast.rules.rbac import policy_rules

ROLE, CLUSTER_ROLE = "Role", "ClusterRole"
_RULE = "rbac"
_NOTHING = decision.NotMine("NoRuleAllows", "", _RULE)
# A refusal names no more missing roles than this.
_NAMED_MISSING = 10
# Answers that are remembered, and how long a question may be for that: a review can ask anything.
_ANSWERS = 4096
_QUESTION_LENGTH = 512
_QUESTION_WORDS = 32


class _Scope:
    """Who holds what in one namespace, or in the whole cluster."""

    __slots__ = ("groups", "users")

    def __init__(self) -> None:
        self.users: dict[str, rbac_holders.Held] = {}
        self.groups: dict[str, rbac_holders.Held] = {}


class Policy:
    """Every role and binding there is. The namespace of ClusterRoles and ClusterRoleBindings is empty."""

    def __init__(self) -> None:
        self._grants = rbac_grants.Grants()
        self._roles: dict[str, tuple[policy_rules.PolicyRule, ...]] = {}
        # Binding -> its role and its subjects (is it a group?, name).
        self._bindings: dict[str, tuple[str, tuple[tuple[bool, str], ...]]] = {}
        self._scopes: dict[str, _Scope] = {}
        # Role -> how many bindings name it; and those among them that are not there, with the words that say so.
        self._named: dict[str, int] = {}
        self._missing: dict[str, str] = {}
        # Role -> those of its holders that have a table of their own.
        self._crowded: dict[str, set[rbac_holders.Held]] = {}
        # Role -> its permissions taken apart; and how many there are in all tables of that sort.
        self._sizes: dict[str, int] = {}
        self._apart = 0
        # Callers ask the same few things over and over. Any change of the policy forgets every answer.
        self._answers: dict[access.Attributes, decision.Approve] = {}

    def set_role(self, namespace: str, name: str, document: Any) -> None:
        """A Role or ClusterRole is there, and says this."""
        self._answers.clear()
        role = _role_key(namespace, name)
        self._change(role, policy_rules.parse(jsonpath.at(document, "rules")))
        self._missing.pop(role, None)

    def remove_role(self, namespace: str, name: str) -> None:
        self._answers.clear()
        role = _role_key(namespace, name)
        self._change(role, None)
        if role in self._named:
            self._missing[role] = _not_found(role)

    def _change(self, role: str, rules: tuple[policy_rules.PolicyRule, ...] | None) -> None:
        size = rbac_grants.size(rules or ())
        more = size - self._sizes.get(role, 1)
        if self._apart + len(self._crowded.get(role, ())) * more > rbac_holders.BUDGET:
            for held in tuple(self._crowded.get(role, ())):
                self._do_without(held)
        tables = [held.own for held in self._crowded.get(role, ()) if held.own is not None]
        self._apart += len(tables) * more
        before = self._roles.pop(role, ())
        self._sizes.pop(role, None)
        if rules is not None:
            self._roles[role] = rules
            self._sizes[role] = size
        for grants in (self._grants, *tables):
            grants.remove(role, before)
            grants.add(role, rules or ())

    def role_rules(self, kind: str, namespace: str, name: str) -> tuple[policy_rules.PolicyRule, ...] | None:
        """The rules of the role that a binding in this namespace names; None if there is no such role."""
        # 3. only ClusterRoles are without a namespace
        if kind == ROLE and not namespace:
            return None
        return self._roles.get(_role_key(namespace if kind == ROLE else "", name))

    def set_binding(self, namespace: str, name: str, document: Any) -> None:
        """A RoleBinding or ClusterRoleBinding is there, and says this."""
        self.remove_binding(namespace, name)
        kind, target = jsonpath.text(document, "roleRef", "kind"), jsonpath.text(document, "roleRef", "name")
        # 3. a role that such a binding may name
        if not target or not (kind == CLUSTER_ROLE or (kind == ROLE and namespace)):
            return
        role, binding = _role_key(namespace if kind == ROLE else "", target), f"{namespace}/{name}"
        subjects: dict[tuple[bool, str], decision.Approve] = {}
        for subject in jsonpath.mappings(document, "subjects"):
            parsed = _subject(subject, namespace)
            if parsed is not None:
                is_group, who, said = parsed
                place = f'RoleBinding "{name}/{namespace}"' if namespace else f'ClusterRoleBinding "{name}"'
                sentence = f'RBAC: allowed by {place} of {kind} "{target}" to {said}'
                subjects.setdefault((is_group, who), decision.Approve("Allowed", sentence, _RULE))
        for (is_group, who), verdict in subjects.items():
            scope = self._scopes.setdefault(namespace, _Scope())
            held = (scope.groups if is_group else scope.users).setdefault(who, rbac_holders.Held())
            if held.give(role, binding, verdict):
                self._hold(held, role)
        self._bindings[binding] = (role, tuple(subjects))
        self._named[role] = self._named.get(role, 0) + 1
        if role not in self._roles:
            self._missing[role] = _not_found(role)

    def remove_binding(self, namespace: str, name: str) -> None:
        self._answers.clear()
        binding = f"{namespace}/{name}"
        role, subjects = self._bindings.pop(binding, ("", ()))
        if not role:
            return
        for is_group, who in subjects:
            scope = self._scopes[namespace]
            holders = scope.groups if is_group else scope.users
            held = holders[who]
            if held.take(role, binding):
                self._drop(held, role)
            if not held.roles:
                del holders[who]
            if not scope.users and not scope.groups:
                del self._scopes[namespace]
        self._named[role] -= 1
        if not self._named[role]:
            del self._named[role]
            self._missing.pop(role, None)

    def _hold(self, held: rbac_holders.Held, role: str) -> None:
        if held.own is not None:
            new = [role]
        elif len(held.roles) > rbac_holders.CROWD:
            held.own = rbac_grants.Grants()
            new = list(held.roles)
        else:
            return
        more = sum(self._sizes.get(name, 1) for name in new)
        if self._apart + more > rbac_holders.BUDGET:
            self._do_without(held)
            return
        self._apart += more
        for name in new:
            held.own.add(name, self._roles.get(name, ()))
            self._crowded.setdefault(name, set()).add(held)

    def _drop(self, held: rbac_holders.Held, role: str) -> None:
        if held.own is None:
            return
        held.own.remove(role, self._roles.get(role, ()))
        self._leave_crowd(held, role)

    def _do_without(self, held: rbac_holders.Held) -> None:
        """Have a holder do without a table of its own: its roles are compared instead, which takes longer."""
        held.own = None
        for name in held.roles:
            if held in self._crowded.get(name, ()):
                self._leave_crowd(held, name)

    def _leave_crowd(self, held: rbac_holders.Held, role: str) -> None:
        self._apart -= self._sizes.get(role, 1)
        self._crowded[role].discard(held)
        if not self._crowded[role]:
            del self._crowded[role]

    def decide(self, attributes: access.Attributes) -> decision.Approve | decision.NotMine:
        """Yes with the binding that says so; or no opinion, whose sentence names the roles that are missing."""
        known = self._answers.get(attributes)
        if known is not None:
            return known
        answer = self._decide(attributes)
        if isinstance(answer, decision.Approve) and _is_small(attributes):
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            self._answers[attributes] = answer
        return answer

    def _decide(self, attributes: access.Attributes) -> decision.Approve | decision.NotMine:
        held = self._held(attributes.user, attributes.groups, attributes.namespace if attributes.is_resource else "")
        if not held:
            return _NOTHING
        words = policy_rules.resource_words(attributes.plural, attributes.subresource)
        few = [one for one in held if one.own is None]
        for granting in _granting(self._grants, attributes, words) if few else ():
            for one in few:
                if not one.roles.keys().isdisjoint(granting):
                    return one.answer(granting)
        for one in held:
            for granting in _granting(one.own, attributes, words) if one.own is not None else ():
                return one.answer(granting)
        if self._grants.whole:
            for one in held:
                for role in one.roles.keys() & self._grants.whole.keys():
                    if any(_allows(rule, attributes, words) for rule in self._grants.whole[role]):
                        return one.answer((role,))
        return self._refusal(held)

    def _held(self, user: str, groups: Sequence[str], namespace: str) -> list[rbac_holders.Held]:
        """What a caller holds: cluster-wide first, then in the namespace."""
        holders = []
        # 2. everywhere, then in the namespace
        for space in ("", namespace) if namespace else ("",):
            scope = self._scopes.get(space)
            if scope is None:
                continue
            held = scope.users.get(user)
            if held is not None:
                holders.append(held)
            by_group = scope.groups
            for group in groups:
                held = by_group.get(group)
                if held is not None:
                    holders.append(held)
        return holders

    def _refusal(self, held: list[rbac_holders.Held]) -> decision.NotMine:
        missing = self._missing
        if not missing or all(one.roles.keys().isdisjoint(missing) for one in held):
            return _NOTHING
        lost = (role for one in held for role in _both(one.roles, missing))
        # 4. roles that are not there are named
        texts = sorted({missing[role] for _, role in zip(range(_NAMED_MISSING), lost, strict=False)})
        said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        return decision.NotMine("RoleNotFound", f"RBAC: {said}", _RULE)

    def rules_for(self, user: str, groups: Sequence[str], namespace: str) -> list[policy_rules.PolicyRule]:
        """Every rule a caller holds cluster-wide and, if one is given, in the namespace; each once."""
        rules: dict[policy_rules.PolicyRule, None] = {}
        everywhere = {role for one in self._held(user, groups, "") for role in one.roles}
        for role in sorted(everywhere):
            rules.update(dict.fromkeys(self._roles.get(role, ())))
        local = {role for one in self._held(user, groups, namespace) for role in one.roles} - everywhere
        for role in sorted(local):
            for rule in self._roles.get(role, ()):
                # 2. never for paths
                if rule.resources:
                    rules[msgspec.structs.replace(rule, non_resource_urls=())] = None
        return list(rules)


def _is_small(attributes: access.Attributes) -> bool:
    if len(attributes.groups) > _QUESTION_WORDS or attributes.fields or attributes.scopes:
        return False
    texts = (
        *attributes.groups,
        attributes.user,
        attributes.verb,
        attributes.path,
        attributes.group,
        attributes.version,
    )
    return (
        sum(map(len, (*texts, attributes.plural, attributes.subresource, attributes.namespace, attributes.name)))
        <= _QUESTION_LENGTH
    )


def _both(one: Collection[str], other: Collection[str]) -> Iterator[str]:
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    return (role for role in few if role in many)


def _granting(
    grants: rbac_grants.Grants, attributes: access.Attributes, words: tuple[str, ...]
) -> Iterator[Collection[str]]:
    if attributes.is_resource:
        return grants.on_resource(attributes.verb, attributes.group, words, attributes.name)
    return grants.on_path(attributes.verb, attributes.path)


def _allows(rule: policy_rules.Sets, attributes: access.Attributes, words: tuple[str, ...]) -> bool:
    if attributes.is_resource:
        return policy_rules.allows_resource(rule, attributes.verb, attributes.group, words, attributes.name)
    return policy_rules.allows_path(rule, attributes.verb, attributes.path)


def _subject(subject: dict[str, Any], namespace: str) -> tuple[bool, str, str] | None:
    """Whether it is a group, its name, and how it is spoken of; None if it is nobody."""
    kind, name = jsonpath.text(subject, "kind"), jsonpath.text(subject, "name")
    if not name:
        return None
    if kind in {"User", "Group"}:
        return kind == "Group", name, f'{kind} "{name}"'
    space = jsonpath.text(subject, "namespace") or namespace
    # 1. a ServiceAccount is a user
    if kind == "ServiceAccount" and space:
        return False, user_names.service_account_user(space, name), f'ServiceAccount "{name}/{space}"'
    return None


def _role_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _not_found(role: str) -> str:
    namespace, _, name = role.partition("/")
    return f'{"role" if namespace else "clusterrole"}.{policy_rules.GROUP} "{name}" not found'
