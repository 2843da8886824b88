# SPDX-License-Identifier: Apache-2.0
"""Station: admission by MutatingAdmissionPolicies. Follows policies and bindings, and has them change the document.

`rules.policies` decides which writes a policy is about, and what it makes of an object (`mutators`); `rules.untouched`, which objects are left
as they are. Bindings, params and namespaces are found as for policies that judge (`policies`).

1. Before mutating webhooks, in the order of their names, then of their bindings, then of their params. Whom a write concerns is
   found once, by the object as it comes; match conditions are asked of the object as it is when it is a policy's turn.
2. A policy whose reinvocationPolicy is IfNeeded is asked once more if the object was changed after it: by another policy, a plugin or a
   webhook.
3. An error ends the request, unless the policy's failure policy is Ignore: then that mutation is passed over. Without the evaluator
   every policy is an error.
4. All policies of a write, in both rounds, share one budget. They are evaluated aside where the object is heavy.
5. Nothing becomes what no policy may change: an ordinary Secret no token.
6. What is changed is judged like what is sent: plugins look again, then come defaults, validation, and everybody who may refuse.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_mutating_policies.py |
|---|---|---|---|---|
| who may write policies | a mutation of requests' approval | remove a denial | `untouched` | test_a_denial_stays |
| … | a mutation of Secrets | have an administrator's Secret become a token | 5 | test_no_secret_becomes_a_token |
| … | a mutation of policies | lock policies against repair | `configurations`: policies are exempt | test_policies_are_never_changed_by_policies |
| … | params that they cannot read | copy a Secret into an object that they can read | the plugin `PolicyParams` | test_params_are_for_those_who_may_read_them |
| who writes an object | one on which the policy fails | have it pass as it is | 3: Fail is the default | test_an_error_ends_the_request |
| … | a policy that judges, and one that changes | pass the first with what the second takes away | 6 | test_policies_that_judge_see_what_will_be_stored |
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import msgspec

from handfast.api import kinds, objects
from handfast.apiserver import bodies
from handfast.apiserver.admission import plugin, policies, webhook_review
from handfast.rules import untouched
from handfast.rules.policies import configurations, mutators, verdicts
from handfast.rules.webhooks import matching

_encode = msgspec.json.Encoder().encode


class Invocation(msgspec.Struct, frozen=True):
    """A policy under a binding with one of its params, or None."""

    case: policies.Case
    param: policies.Param | None

    @property
    def key(self) -> tuple[str, ...]:
        binding = self.case.binding
        place = () if self.param is None else (self.param[1].namespace, self.param[1].name)
        return (self.case.judge.policy.name, "" if binding is None else binding.name, *place)

    @property
    def reinvoked(self) -> bool:
        return self.case.judge.policy.reinvoked

    @property
    def title(self) -> str:
        binding = self.case.binding
        named = f"MutatingAdmissionPolicy '{self.case.judge.policy.name}'"
        return named if binding is None else f"{named} with binding '{binding.name}'"


def warnings_of(write: plugin.Write) -> list[str]:
    """What whoever writes a mutating policy should know: which of the objects that it names are never changed."""
    if write.document is None or write.kind.prefix != policies.MUTATING_POLICIES:
        return []
    rules = [named.rule for named in configurations.policy(write.document).match.rules]
    names = untouched.named(rules)
    return [f"mutating policies change nothing of {', '.join(names)}: see docs/limitations.md"] if names else []


class MutatingPolicies(policies.Policies):
    """Every mutating policy of the cluster."""

    policies_at: ClassVar = policies.MUTATING_POLICIES
    bindings_at: ClassVar = policies.MUTATING_BINDINGS

    def judge(self, policy: configurations.Policy) -> verdicts.Judge:
        return mutators.Mutator(policy)

    def concerned(self, operation: str, kind: kinds.Kind, subresource: str) -> tuple[policies.Row, ...]:
        rows = super().concerned(operation, kind, subresource)
        return () if rows and untouched.is_untouched_kind(kind, subresource) else rows

    def begin(self, write: plugin.Write, options: Mapping[str, Any], work: policies.Work | None = None) -> Mutation:
        """What the policies of a write will do; whom it concerns is found here (1)."""
        return Mutation(write, tuple(self._invocations(write, options)), work)

    def _invocations(self, write: plugin.Write, options: Mapping[str, Any]) -> Iterator[Invocation]:
        place, documents = (write.namespace, write.name), (write.document, write.old)
        if write.document is None or untouched.is_untouched(write.kind, write.subresource, place, documents):
            return
        for judge, kind in self.concerned(write.operation, write.kind, write.subresource):
            for case in self.cases(judge, kind, write, options):
                yield from (Invocation(case, param) for param in (case.params if not case.wrong else (None,)))


class Mutation:
    """One write on its way past the policies."""

    def __init__(self, write: plugin.Write, invocations: Sequence[Invocation], work: policies.Work | None) -> None:
        self._write = write
        self._invocations = invocations
        self._work = work
        self._rounds = matching.Rounds()
        self._budget = mutators.Budget()
        self._left = b""

    async def first(self) -> bool:
        """Let all change the document, in place; whether one did."""
        return await self._round(self._invocations)

    async def again(self) -> bool:
        """The second round, for those that want it and after which something changed (2)."""
        if self._invocations and _encode(self._write.document) != self._left:
            self._rounds.changed_by_others()
        return await self._round([each for each in self._invocations if self._rounds.again(each)])

    async def _round(self, invocations: Sequence[Invocation]) -> bool:
        document = self._write.document
        if document is None or not invocations:
            return False
        if self._work is None:
            after = self._mutated(invocations, document)
        else:
            cases = list({id(each.case): each.case for each in invocations}.values())
            after = await self._work(functools.partial(policies.weight, cases), self._mutated, invocations, document)
        changed = after is not document
        if changed:
            document.clear()
            document.update(after)
        self._left = _encode(document)
        return changed

    def _mutated(self, invocations: Sequence[Invocation], document: objects.Document) -> objects.Document:
        """The document as they leave it; the same one, if they change nothing. Raises what ends the request (3)."""
        for invocation in invocations:
            after = self._by(invocation, document)
            self._rounds.answered(invocation, changed=after is not document)
            document = after
        return document

    def _by(self, invocation: Invocation, document: objects.Document) -> objects.Document:
        case, write = invocation.case, self._write
        policy = case.judge.policy
        after, errors = document, [case.wrong]
        if not case.wrong:
            seen = webhook_review.as_kind(write.kind, case.kind, document)
            data = {**case.data, "object": seen, "params": policies.decoded(invocation.param)}
            case.judge.prepare()
            mutator = cast("mutators.Mutator", case.judge)
            types = None if seen is None else _types(case.kind, seen)
            made, errors = mutator.mutate(data, self._budget, types=types, check=self._check)
            if made is not seen:
                after = webhook_review.restored(write, case.kind, made)
        if errors and not policy.fails_open:
            finding = verdicts.Finding(errors[0])
            raise policies.refusal(write, f"{invocation.title} denied request: {errors[0]}", finding)
        return after

    def _check(self, document: objects.Document) -> None:
        """Refuse what has not the types of its kind, or has become what is left alone."""
        write = self._write
        bodies.check_fields(document, webhook_review.message_of(document), bodies.STRICT)
        # 5. nothing becomes what no policy may change
        if untouched.is_untouched(write.kind, write.subresource, (write.namespace, write.name), (document,)):
            raise mutators.NotMutated("a policy may not make a token of a Secret")


def _types(kind: kinds.Kind, document: objects.Document) -> mutators.Types:
    """The schema of the object, or of what is sent to a subresource that takes a document of its own."""
    own = kind.schema if document.get("kind") == kind.kind else None
    return webhook_review.message_of(document) or own
