# SPDX-License-Identifier: Apache-2.0
"""Station: admission by ValidatingAdmissionPolicies. Follows policies and bindings, and does what their verdicts mean.

`rules.policies` decides which writes a policy looks at, and what it says of one. Here its params are found, and its findings deny, warn, or
are written into the audit line, as the binding says.

1. A cluster without policies pays one lookup for a write; one with policies that are about other kinds pays another.
2. A policy counts where a binding of it matches, too. One without a binding says nothing.
3. Params are objects of the policy's `paramKind`: one by its name, or all that a selector selects. They lie in the namespace that the
   binding names, else in that of the object. Where there is none, the binding's `parameterNotFoundAction` says whether that refuses or passes.
   More than `MAX_PARAMS`, or `MAX_PARAM_BYTES`, are an error (4).
4. A policy that cannot be used for this write is an error, and its failure policy decides: a selector that cannot be read, a kind of params
   that nobody serves, params without a namespace.
5. The action Deny ends the request with the reason of the validation, Warn warns the caller, and Audit annotates the audit line.
   All policies are asked, in the order of their names. The caller is told of the first that denies.
6. Without the evaluator every policy is an error: those that fail closed refuse, the others pass.

Writes of policies themselves are `policy_authors`'.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_policies.py |
|---|---|---|---|---|
| who may write policies | a policy that refuses everything | lock it against its own removal | `configurations`: policies are exempt | test_policies_are_never_judged_by_policies |
| … | … | keep themselves from being revoked | `configurations`: new Revocations are exempt | test_nobody_is_kept_from_being_revoked |
| who may write params | a thousand of them, or large ones | hold the server | 3, and they are decoded aside | test_so_many_params_and_no_more |
| who writes what a policy forbids | a namespace that is gone | pass a selector | the namespace is asked for, and is not there | test_a_namespace_that_is_gone_passes_nobody |
"""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from handfast.api import kinds, status
from handfast.api.cel import expressions
from handfast.api.codec import bounds
from handfast.api.custom import definitions
from handfast.apiserver.admission import plugin, webhook_review
from handfast.apiserver.state import items
from handfast.apiserver.state import replica as replica_module
from handfast.rules.policies import configurations, verdicts
from handfast.rules.webhooks import matching

GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = f"{GROUP}/validatingadmissionpolicies/"
BINDINGS: Final = f"{GROUP}/validatingadmissionpolicybindings/"
MUTATING_POLICIES: Final = f"{GROUP}/mutatingadmissionpolicies/"
MUTATING_BINDINGS: Final = f"{GROUP}/mutatingadmissionpolicybindings/"
NOTE: Final = "validation.policy.admission.k8s.io/validation_failure"
NO_PARAMS: Final = "no params found for policy binding with `Deny` parameterNotFoundAction"
_NAMESPACES: Final = "core/namespaces/"
_DEFINITIONS: Final = f"{definitions.RESOURCE[0]}/{definitions.RESOURCE[1]}/"
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
# What the audit line shows of an annotation.
_NOTES_LENGTH: Final = 1024
MAX_PARAMS: Final = 200
MAX_PARAM_BYTES: Final = 2 << 20
Row = tuple[verdicts.Judge, kinds.Kind]
# Runs a function aside where it would hold the event loop. It takes what weighs beside the object, the function, and its arguments.
Work = Callable[..., Awaitable[Any]]
# A kind, and an object of it.
Param = tuple[kinds.Kind, items.Item]


class Case(msgspec.Struct, frozen=True):
    """A policy under a binding, and what it is to judge; or why it cannot."""

    judge: verdicts.Judge
    binding: configurations.Binding | None
    # The kind under which the object is seen.
    kind: kinds.Kind
    data: Mapping[str, Any] = msgspec.field(default_factory=dict)
    params: Sequence[Param | None] = ()
    wrong: str = ""


class NotUsable(Exception):
    """A policy, or a binding, cannot be used for this write."""


class Policies:
    """The validating policies of the cluster, and their bindings. `MutatingPolicies` follows the other sort in the same way."""

    # Where they and their bindings are.
    policies_at: ClassVar = POLICIES
    bindings_at: ClassVar = BINDINGS

    def __init__(self, replica: replica_module.Replica, table: Iterable[kinds.Kind] | None = None) -> None:
        self._replica = replica
        self._table = kinds.builtin() if table is None else table
        self._judges: dict[str, verdicts.Judge] = {}
        self._bindings: dict[str, configurations.Binding] = {}
        self._concerned: dict[tuple[str, ...], tuple[Row, ...]] = {}

    def load(self) -> None:
        """Take in what the copy holds, and follow it from now on. No event may have been applied in between."""
        for prefix, put in ((self.policies_at, self._put_policy), (self.bindings_at, self._put_binding)):
            collection = self._replica.collection(prefix)
            for item in collection.snapshot():
                put(item.name, item)
            collection.listen(self, functools.partial(self._changed, put))
        self._replica.collection(_DEFINITIONS).listen(self, lambda _: self._concerned.clear())

    def _changed(self, put: Any, change: items.Change) -> None:
        put((change.after or change.gone()).name, change.after)

    def _put_policy(self, name: str, item: items.Item | None) -> None:
        self._concerned.clear()
        self._judges.pop(name, None)
        if item is not None:
            self._judges[name] = self.judge(configurations.policy(item.document()))

    def judge(self, policy: configurations.Policy) -> verdicts.Judge:
        return verdicts.Judge(policy)

    def _put_binding(self, name: str, item: items.Item | None) -> None:
        self._bindings.pop(name, None)
        if item is not None:
            self._bindings[name] = configurations.binding(item.document())

    def concerned(self, operation: str, kind: kinds.Kind, subresource: str) -> tuple[Row, ...]:
        """The policies that could have something to say of such a write, before names and selectors are looked at."""
        if not self._judges:  # 1. one lookup
            return ()
        key = (operation, kind.group, kind.version, kind.plural, subresource)
        rows = self._concerned.get(key)
        if rows is None:
            names = self._names(kind)
            judges = [self._judges[name] for name in sorted(self._judges)]
            about = [(judge, judge.policy.match.about(operation, names, subresource)) for judge in judges]
            rows = self._concerned[key] = tuple((judge, row) for judge, row in about if row is not None)
        return rows

    def _names(self, kind: kinds.Kind) -> tuple[kinds.Kind, ...]:
        """A kind, and others that show the same objects."""
        others = [row for row in self._table if row.prefix == kind.prefix and row.api_version != kind.api_version]
        return (kind, *others)

    # --- a write

    async def validate(
        self,
        write: plugin.Write,
        options: Mapping[str, Any],
        warnings: list[str],
        annotations: dict[str, str],
        work: Work | None = None,
    ) -> None:
        """Let policies refuse the document as it will be stored. `work` evaluates aside, where the object is heavy."""
        rows = self.concerned(write.operation, write.kind, write.subresource)
        # What is followed here is looked at here; aside, nothing is but the write.
        cases = [case for judge, kind in rows for case in self.cases(judge, kind, write, options)]
        judged = _judged(cases) if work is None else await work(functools.partial(weight, cases), _judged, cases)
        denied: list[tuple[str, verdicts.Finding]] = []
        for case, verdict in zip(cases, judged, strict=True):
            denied += _act(case.judge.policy, case.binding, verdict, warnings, annotations)
        if denied:  # 5. the caller is told of the first
            raise refusal(write, *denied[0])

    def cases(
        self, judge: verdicts.Judge, kind: kinds.Kind, write: plugin.Write, options: Mapping[str, Any]
    ) -> Iterator[Case]:
        """What one policy is to judge, binding by binding (2)."""
        policy, bindings = judge.policy, self._bound(judge.policy.name)
        try:
            if not bindings or not self._matches(policy.match, write):
                return
        except NotUsable as error:
            yield Case(judge, None, kind, wrong=f"failed to configure policy: {error}")
            return
        data: dict[str, Any] | None = None
        for binding in bindings:
            try:
                if not self._matches(binding.match, write):
                    continue
                params = self._params(policy, binding, write)
            except NotUsable as error:
                yield Case(judge, binding, kind, wrong=f"failed to configure binding: {error}")
                continue
            if data is None:
                data = self._data(write, options, kind)
            yield Case(judge, binding, kind, data, params)

    def _bound(self, policy: str) -> list[configurations.Binding]:
        return [self._bindings[name] for name in sorted(self._bindings) if self._bindings[name].policy == policy]

    def _matches(self, match: configurations.Match, write: plugin.Write) -> bool:
        if match.matched(write.operation, self._names(write.kind), write.subresource, write.name) is None:
            return False
        if match.wrong:  # 4. an error
            raise NotUsable(match.wrong)
        labels = None if match.namespace_selector.empty else self._namespace_labels(write)
        return match.selects(labels, (write.document, write.old))

    def _namespace_labels(self, write: plugin.Write) -> Mapping[str, str] | None:
        if write.kind.resource == matching.NAMESPACES and write.document is not None and not write.subresource:
            return matching.labels(write.document) or {}
        namespace = self._namespace(write)
        return None if namespace is None else namespace.labels()

    def _namespace(self, write: plugin.Write) -> items.Item | None:
        """The namespace of an object; None for one that is in none."""
        is_own = write.kind.resource == matching.NAMESPACES
        if not write.kind.namespaced and not is_own:
            return None
        name = write.name if is_own else write.namespace
        item = self._replica.collection(_NAMESPACES).get("", name)
        if item is None:
            # Nobody knows whether the selector matches, and a policy is not passed over on a guess.
            raise status.not_found("namespaces", "", name)
        return item

    def _params(
        self, policy: configurations.Policy, binding: configurations.Binding, write: plugin.Write
    ) -> Sequence[Param | None]:
        # 3. objects of the policy's kind
        if policy.param_kind is None or not binding.has_params:
            return [None]
        row = served(self._table, *policy.param_kind)
        if row is None:
            raise NotUsable(f"paramKind kind `{'/'.join(policy.param_kind)}` not known")
        space = (binding.param_namespace or write.namespace) if row.namespaced else ""
        if row.namespaced and not space:
            raise NotUsable("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
        if not row.namespaced and binding.param_namespace:
            raise NotUsable("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        chosen = self._chosen(binding, row, space)
        if not chosen and binding.denies_missing:
            raise NotUsable(NO_PARAMS)
        if len(chosen) > MAX_PARAMS or sum(len(item.body) for item in chosen) > MAX_PARAM_BYTES:
            raise NotUsable(f"more than {MAX_PARAMS} params, or {MAX_PARAM_BYTES} bytes of them")
        return [(row, item) for item in chosen]

    def _chosen(self, binding: configurations.Binding, row: kinds.Kind, space: str) -> list[items.Item]:
        collection = self._replica.collection(row.prefix)
        if binding.param_name:
            item = collection.get(space, binding.param_name)
            return [] if item is None else [item]
        selector = binding.param_selector
        return [item for item in collection.snapshot(space) if selector is None or selector.match(item.labels())]

    def _data(self, write: plugin.Write, options: Mapping[str, Any], kind: kinds.Kind) -> dict[str, Any]:
        request = webhook_review.review(write, options, kind, "")["request"]
        namespace = self._namespace(write) if write.kind.resource != matching.NAMESPACES else None
        return {
            "object": request.pop("object"),
            "oldObject": request.pop("oldObject"),
            "request": request,
            "namespaceObject": None if namespace is None else namespace.document(),
        }


def weight(cases: Sequence[Case]) -> float:
    """How long the work beside reading the object takes, in bytes that take as long to read.

    Params are read, and expressions are evaluated, perhaps even compiled.
    """
    params = sum(len(param[1].body) for case in cases for param in case.params if param is not None)
    cost = sum(len(case.params) * case.judge.price(expressions.Sizes(case.data)) for case in cases if not case.wrong)
    return params + bounds.LIGHT_BYTES * cost / verdicts.LIGHT_COST


def _judged(cases: Sequence[Case]) -> list[verdicts.Verdict]:
    budget = verdicts.Budget()
    return [_verdict(case, budget) for case in cases]


def _verdict(case: Case, budget: verdicts.Budget) -> verdicts.Verdict:
    if case.wrong:
        return _unusable(case.judge.policy, case.wrong)
    case.judge.prepare()
    return case.judge.judge(case.data, [decoded(param) for param in case.params], budget)


def decoded(param: Param | None) -> Any:
    return None if param is None else webhook_review.as_kind(param[0], param[0], param[1].document())


def _act(
    policy: configurations.Policy,
    binding: configurations.Binding | None,
    verdict: verdicts.Verdict,
    warnings: list[str],
    annotations: dict[str, str],
) -> list[tuple[str, verdicts.Finding]]:
    """Do what the binding says, and return what denies. An error of the configuration always does."""
    for key, value in verdict.notes.items():
        annotations[f"{policy.name}/{key}"] = value
    denied = []
    for finding in verdict.findings:
        where = f"ValidatingAdmissionPolicy '{policy.name}'"
        if binding is not None:
            where += f" with binding '{binding.name}'"
        actions = ("Deny",) if binding is None or finding.is_setup else binding.actions
        if "Deny" in actions:
            denied.append((f"{where} denied request: {finding.message}", finding))
        if "Warn" in actions:
            warnings.append(f"Validation failed for {where}: {finding.message}")
        if "Audit" in actions and binding is not None:
            annotations[NOTE] = _noted(annotations.get(NOTE, "[]"), policy, binding, finding)
    return denied


def served(table: Iterable[kinds.Kind], api_version: str, kind: str) -> kinds.Kind | None:
    """The kind of that name, if it is served."""
    return next((row for row in table if (row.api_version, row.kind) == (api_version, kind)), None)


def _unusable(policy: configurations.Policy, message: str) -> verdicts.Verdict:
    return verdicts.Verdict([] if policy.fails_open else [verdicts.Finding(message, is_setup=True)])


def _noted(
    before: str, policy: configurations.Policy, binding: configurations.Binding, finding: verdicts.Finding
) -> str:
    """One more failure in the list that the audit line has of them, if it still fits there."""
    note = {
        "message": finding.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": finding.index,
        "validationActions": list(binding.actions),
    }
    notes = json.dumps([*json.loads(before), note], separators=(",", ":"), ensure_ascii=False)
    return before if len(notes) > _NOTES_LENGTH and before != "[]" else notes


def refusal(write: plugin.Write, message: str, finding: verdicts.Finding) -> status.StatusError:
    """What a caller is told whose write a policy ends."""
    said = status.forbidden(write.kind.plural, write.kind.group, write.name, message)
    return status.StatusError(
        finding.reason,
        said.message,
        code=_CODES.get(finding.reason, 422),
        name=said.name,
        group=said.group,
        kind=said.kind,
        causes=[status.Cause("", message)],
    )
