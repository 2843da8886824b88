# SPDX-License-Identifier: Apache-2.0
"""Plugins for writes of policies and bindings themselves: what their authors are told, and what they must be able to read.

1. The expressions of a validating policy are compared with the kinds that it is about. What does not fit is written into its status.
2. Whoever writes a policy with params, or a binding with params, may `get` those params: messages and mutations could tell what is in
   them. Where the policy, or its kind of params, is not there yet, they need `get` on everything, as in Kubernetes.
3. Without the evaluator, whoever writes a policy, or a webhook with conditions, is warned.

What policies do with other writes is in `policies` and `mutating_policies`.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_policy_authors.py |
|---|---|---|---|---|
| who may write policies | Secrets as params | read them in messages | 2 | test_params_are_for_those_who_may_read_them |
| … | a binding whose policy, or its kind of params, comes later | the same | 2 | test_params_that_nobody_knows_are_for_those_who_may_read_all |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from handfast.api import jsonpath, kinds
from handfast.api.cel import engine
from handfast.apiserver.admission import plugin, policies
from handfast.rules import access, decision
from handfast.rules.policies import configurations, type_checking
from handfast.runtime import aside as aside_module

NOT_EVALUATED: Final = f"expressions of policies and matchConditions are stored and not evaluated: {engine.INSTALL}"
_POLICIES: Final = frozenset({"mutatingadmissionpolicies", "validatingadmissionpolicies"})
_BINDINGS: Final = frozenset({"mutatingadmissionpolicybindings", "validatingadmissionpolicybindings"})
# Of params that are not known yet: any group, version and resource.
_ANY: Final = ("*", "*", "*")


def warnings_of(write: plugin.Write) -> list[str]:
    """What whoever writes a policy, or a webhook with conditions, should know (3)."""
    if write.kind.group != policies.GROUP or write.document is None or engine.is_available():
        return []
    hooks = jsonpath.mappings(write.document, "webhooks")
    conditional = any(hook.get("matchConditions") for hook in hooks)
    return [NOT_EVALUATED] if conditional or write.kind.plural in _POLICIES else []


class Authors:
    """What is done when a policy or a binding is written: its types are checked, and its author may read the params."""

    def __init__(self, table: Iterable[kinds.Kind] | None = None, aside: aside_module.Aside | None = None) -> None:
        self._table = kinds.builtin() if table is None else table
        self._aside = aside
        written = frozenset({plugin.CREATE, plugin.UPDATE})
        resources = frozenset({(policies.GROUP, "validatingadmissionpolicies")})
        self.type_row = plugin.Row("PolicyTypes", written, self.check_types, resources, changes=True)
        both = frozenset((policies.GROUP, plural) for plural in _POLICIES | _BINDINGS)
        self.params_row = plugin.Row("PolicyParams", written, self.require_params, both)

    async def check_types(self, write: plugin.Write, _context: plugin.Context) -> None:
        """Write into the status which expressions do not fit the kinds that the policy is about."""
        document, old = write.document, write.old
        if document is None or write.subresource:
            return
        generation = 1
        if old is not None:
            generation = int(old["metadata"].get("generation") or 1) + (document.get("spec") != old.get("spec"))
        policy, table = configurations.policy(document), tuple(self._table)
        # Aside: each expression is compiled, and judged once for each kind.
        if self._aside is None:
            warnings = type_checking.warnings(policy, table)
        else:
            warnings = await self._aside.run(write.user.name, type_checking.warnings, policy, table)
        checked = {"typeChecking": {"expressionWarnings": warnings} if warnings else {}}
        document["status"] = {**(document.get("status") or {}), "observedGeneration": generation, **checked}

    def require_params(self, write: plugin.Write, context: plugin.Context) -> None:
        """Refuse who may not read the params: messages could tell what is in them."""
        document, old = write.document, write.old
        if document is None or write.subresource or (old is not None and old.get("spec") == document.get("spec")):
            return
        if write.kind.plural in _POLICIES:
            kind, space, name = configurations.policy(document).param_kind, "", ""
        else:
            binding = configurations.binding(document)
            kind = _kind_of(write, binding.policy, context) if binding.has_params else None
            space, name = binding.param_namespace, binding.param_name
        if kind is not None:
            # What is not served today may be tomorrow, when nobody asks again.
            row = policies.served(self._table, *kind)
            resource = _ANY if row is None else (row.group, row.version, row.plural)
            _require_get(write, context, resource, space, name)


def _kind_of(write: plugin.Write, policy: str, context: plugin.Context) -> tuple[str, str] | None:
    """The kind of params of the policy of a binding; none that is served for one that is not there: it may be any."""
    mutates = write.kind.plural == "mutatingadmissionpolicybindings"
    document = context.find(policies.MUTATING_POLICIES if mutates else policies.POLICIES, "", policy)
    return ("*", "*") if document is None else configurations.policy(document).param_kind


def _require_get(
    write: plugin.Write, context: plugin.Context, resource: tuple[str, str, str], space: str, name: str
) -> None:
    group, version, plural = resource
    question = access.Attributes(
        user=write.user.name,
        groups=write.user.groups,
        verb="get",
        is_resource=True,
        group=group,
        version=version,
        plural=plural,
        namespace=space,
        name=name,
    )
    verdict = context.decide(question)
    if not isinstance(verdict, decision.Approve):
        why = f"{access.refusal(question, verdict)}: whoever writes a policy with params has to be able to read them"
        raise plugin.Refusal(write, decision.Deny("ParamsNotPermitted", why, "PolicyParams"))
