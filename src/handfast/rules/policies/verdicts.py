# SPDX-License-Identifier: Apache-2.0
"""What a policy says of one write, for one binding: which expressions were false, what could not be evaluated, what is to be noted.

1. All match conditions are true; else the policy has nothing to say. If one is false, that decides, even if another cannot be evaluated. If
   none is false and one cannot be evaluated, it is an error.
2. Each validation is true. One that is false is a finding, with the words of its messageExpression, its message, or itself.
3. What cannot be evaluated, costs too much or does not compile is a finding too, unless the failure policy is Ignore.
4. With several params, each is judged on its own, and each has to hold.
5. One write is given `MAX_EVALUATIONS` evaluations, and `MAX_COST` for all of them, whatever policies, bindings and params there are.
   What is left of it then cannot be evaluated (3).

Whether a finding denies, warns or is written down is the binding's to say, and the server's to do.

| who | holding | tries | stopped by | shown in tests/unit/rules/policies/test_verdicts.py |
|---|---|---|---|---|
| who writes what a policy forbids | an object on which its expression fails | have it pass | 3 | test_what_cannot_be_evaluated_is_refused |
| … | an object so large that evaluating would take seconds | hold the server | `expressions`: what would cost too much is not evaluated | test_an_object_that_is_too_large_is_an_error |
| … | many params | hold the server | 5 | test_one_write_has_so_many_evaluations |
| … | a text of a megabyte, and many policies | hold the server | 5 | test_the_evaluations_of_one_write_cost_so_much_and_no_more |
| … | a list of thousands, and a policy that filters it | hold the server | `expressions`: what would gather too much is not evaluated | test_an_object_whose_lists_are_too_long_is_an_error |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from handfast.api.cel import engine, estimate, expressions
from handfast.rules.policies import configurations

MAX_EVALUATIONS: Final = 2000
# Ten times what one may cost: about a second, aside.
MAX_COST: Final = 10 * expressions.MAX_COST
# What is evaluated where the write arrived: some 5 ms.
LIGHT_COST: Final = 500_000
_MAX_WORDS: Final = 5 << 10
SPENT: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
_MAX_NOTE: Final = 10 << 10
UNAVAILABLE: Final = f"CEL is not evaluated by this server: {engine.INSTALL}"


class Finding(msgspec.Struct, frozen=True):
    """Something that does not hold. `index` is that of the validation, -1 if it is none of them."""

    message: str
    reason: str = "Invalid"
    index: int = -1
    # The policy, or its binding, cannot be used at all.
    is_setup: bool = False


class Verdict(msgspec.Struct):
    """What one policy says under one binding; `notes` are audit annotations, by their key."""

    findings: list[Finding] = msgspec.field(default_factory=list)
    notes: dict[str, str] = msgspec.field(default_factory=dict)


class Budget:
    """How many evaluations a write may still have, and what they may cost."""

    def __init__(self, left: int = MAX_EVALUATIONS, cost: float = MAX_COST) -> None:
        self._left = left
        self._cost = cost

    @property
    def is_spent(self) -> bool:
        return self._left < 0 or self._cost < 0

    def spend(self, cost: float) -> None:
        self._left -= 1
        self._cost -= cost
        if self.is_spent:  # 5. so many, so much, and no more
            raise engine.TooCostly(SPENT)


class Values:
    """The values that expressions see; handed to the evaluator once for all of them."""

    def __init__(self, data: Mapping[str, Any], *, has_params: bool) -> None:
        self.sizes = expressions.Sizes(data)
        names = expressions.names(has_params=has_params)
        self._values = engine.environment(*names).values({name: data.get(name) for name in names})

    def of(self, expression: expressions.Expression, budget: Budget) -> Any:
        """Raises `NotEvaluated`."""
        try:
            cost = expression.price(self.sizes)
        except engine.TooCostly:
            budget.spend(0)  # it was looked at
            raise
        budget.spend(cost)
        return expression.program.evaluate(self._values)


class Part(NamedTuple):
    """One expression of a policy, and what its value is to be."""

    text: str
    variables: tuple[tuple[str, str], ...]
    has_params: bool
    kind: str


_NOTE: Final = "note"
CONFIGURATION, PATCH = "configuration", "patch"
_MAKERS: Final = {
    _NOTE: expressions.annotation,
    CONFIGURATION: expressions.configuration,
    PATCH: expressions.patch,
}
_kept: Final = engine.Kept[expressions.Expression]()


def expression_of(part: Part) -> expressions.Expression:
    return _kept.get(part, lambda: _compiled(part), lambda expression: len(expression.program.text))


def _compiled(part: Part) -> expressions.Expression:
    make = _MAKERS.get(part.kind)
    if make is not None:
        return make(part.text, part.variables, has_params=part.has_params)
    return expressions.compiled(part.text, part.variables, has_params=part.has_params, kind=part.kind)


def price(conditions: Sequence[tuple[str, str]], sizes: expressions.Sizes) -> float:
    """What the match conditions of a webhook cost on values of such sizes, `LIGHT_COST` being what may be done at once."""
    return _price([Part(text, (), False, "bool") for _name, text in conditions], sizes)


def _price(parts: Iterable[Part], sizes: expressions.Sizes) -> float:
    cost = 0.0
    for part in parts:
        expression = _kept.peek(part)
        if expression is None:
            return math.inf  # it has to be compiled first
        try:
            cost += expression.price(sizes)
        except engine.TooCostly:
            continue  # it is not evaluated
    return cost


class Judge:
    """A policy, compiled when it is first needed."""

    def __init__(self, policy: configurations.Policy) -> None:
        self.policy = policy
        self.has_params = policy.param_kind is not None

    def price(self, sizes: expressions.Sizes) -> float:
        """What judging costs on values of such sizes; without end if it has to be compiled first."""
        return _price(self.parts(), sizes)

    def prepare(self) -> None:
        """Compile all of it."""
        for part in self.parts() if engine.is_available() else ():
            try:
                expression_of(part)
            except estimate.InvalidExpression:
                continue  # a finding, when it is needed

    def parts(self) -> Iterator[Part]:
        policy = self.policy
        yield from self.conditions()
        for validation in policy.validations:
            yield self.part(validation.text)
            if validation.words.strip():
                yield self.part(validation.words, "string")
        for _key, text in policy.annotations:
            yield self.part(text, _NOTE)

    def conditions(self) -> Iterator[Part]:
        for _name, text in self.policy.conditions:
            yield Part(text, (), self.has_params, "bool")

    def part(self, text: str, kind: str = "bool") -> Part:
        return Part(text, self.policy.variables, self.has_params, kind)

    def judge(self, data: Mapping[str, Any], params: Sequence[Any], budget: Budget) -> Verdict:
        """What it says of a write, for each of the params (4); a policy without params has one, which is None."""
        verdict = Verdict()
        if not engine.is_available():
            return self._failed(verdict, UNAVAILABLE)
        for param in params:
            if budget.is_spent:
                # 5. whoever spent it: what was not judged does not pass, and is not looked at
                return self._failed(verdict, SPENT)
            seen = {**data, expressions.PARAMS: param} if self.has_params else data
            try:
                values = Values(seen, has_params=self.has_params)
                if self.applies(values, budget):
                    self._validate(values, budget, verdict)
            except (engine.NotEvaluated, estimate.InvalidExpression) as error:
                self._failed(verdict, error.message)
        return verdict

    def _failed(self, verdict: Verdict, message: str, index: int = -1) -> Verdict:
        # 3. a finding too, unless the failure policy is Ignore
        if not self.policy.fails_open:
            verdict.findings.append(Finding(message, index=index))
        return verdict

    def applies(self, values: Values, budget: Budget) -> bool:
        return conditions_hold(self.policy.conditions, values, budget, has_params=self.has_params)

    def _validate(self, values: Values, budget: Budget, verdict: Verdict) -> None:
        for index, validation in enumerate(self.policy.validations):
            try:
                expression = expression_of(self.part(validation.text))
                if values.of(expression, budget) is not True:  # 2. each is true
                    message = self._words(validation, values, budget)
                    verdict.findings.append(Finding(message, validation.reason, index))
            except engine.NotEvaluated as error:
                self._failed(verdict, expressions.failure(validation.text, error.message), index)
            except estimate.InvalidExpression as error:
                self._failed(verdict, f"compilation error: compilation failed: {error.message}", index)
        for key, text in self.policy.annotations:
            self._note(key, text, values, budget, verdict)

    def _words(self, validation: configurations.Validation, values: Values, budget: Budget) -> str:
        words: Any = ""
        if validation.words.strip():
            try:
                words = values.of(expression_of(self.part(validation.words, "string")), budget)
            except (engine.NotEvaluated, estimate.InvalidExpression):
                words = ""
        text = words.strip() if isinstance(words, str) else ""
        if not text or "\n" in text or len(text.encode()) > _MAX_WORDS:
            text = validation.message or f"failed expression: {validation.text.strip()}"
        return text

    def _note(self, key: str, text: str, values: Values, budget: Budget, verdict: Verdict) -> None:
        try:
            value = values.of(expression_of(self.part(text, _NOTE)), budget)
        except engine.NotEvaluated as error:
            self._failed(verdict, expressions.failure(text, error.message))
            return
        except estimate.InvalidExpression as error:
            self._failed(verdict, f"compilation error: compilation failed: {error.message}")
            return
        if isinstance(value, str) and value.strip():
            verdict.notes[key] = value.strip()[:_MAX_NOTE]


def conditions_hold(
    conditions: Sequence[tuple[str, str]], values: Values, budget: Budget, *, has_params: bool = False
) -> bool:
    """Whether all match conditions are true (1); raises `NotEvaluated` if that is not known."""
    unknown: list[str] = []
    for _name, text in conditions:
        try:
            if values.of(expression_of(Part(text, (), has_params, "bool")), budget) is not True:
                return False
        except engine.NotEvaluated as error:
            unknown.append(expressions.failure(text, error.message))
        except estimate.InvalidExpression as error:
            unknown.append(f"compilation error: compilation failed: {error.message}")
    if unknown:
        raise engine.NotEvaluated("; ".join(unknown))
    return True
