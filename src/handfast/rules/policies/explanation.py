# SPDX-License-Identifier: Apache-2.0
"""What admission policies say of a certificate request: the expression, what it saw, and which part of it was false.

It decides nothing: it evaluates the policies once more, as far as that is possible without the server.

1. A request is judged when it is created, by who sent it; and again when it is approved, by somebody who is not known here. What
   depends on who approves is said to be unknown.
2. Policies whose rules match are shown, with each of their bindings; selectors of the binding are looked at, too.
3. Of an expression joined by `&&` the part is shown that was false, or could not be evaluated; and the values it names.
4. Params are not fetched. A policy that has some is shown as not evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast.api import jsonpath, kinds, signing_requests
from handfast.api.cel import engine, estimate, expressions, tree
from handfast.rules.policies import configurations, verdicts

HOLDS, FAILS, UNKNOWN = "holds", "fails", "unknown"
_SHOWN: Final = 200
_AND: Final = "_&&_"


@dataclass(frozen=True, slots=True)
class Row:
    """One validation of one policy under one binding. `part` and `inputs` are there where it does not hold."""

    policy: str
    binding: str
    operation: str
    actions: tuple[str, ...]
    result: str
    expression: str
    message: str = ""
    part: str = ""
    inputs: tuple[tuple[str, str], ...] = ()


def explain(
    policies: Sequence[Mapping[str, Any]], bindings: Sequence[Mapping[str, Any]], request: Mapping[str, Any]
) -> list[Row]:
    """What each policy on certificate requests says of one."""
    bound = [configurations.binding(dict(document)) for document in bindings]
    rows: list[Row] = []
    for document in sorted(policies, key=lambda each: jsonpath.text(each, "metadata", "name")):
        policy = configurations.policy(dict(document))
        for binding in bound:
            if binding.policy == policy.name:
                rows += _bound(policy, binding, request)
    return rows


def _bound(policy: configurations.Policy, binding: configurations.Binding, request: Mapping[str, Any]) -> Iterator[Row]:
    kind = kinds.row("certificatesigningrequests", signing_requests.GROUP)
    name = jsonpath.text(request, "metadata", "name")
    for operation, subresource, data in _writes(request):
        for match in (policy.match, binding.match):
            # 2. rules and selectors of both
            if match.matched(operation, (kind,), subresource, name) is None or not match.selects(
                None, (dict(request),)
            ):
                break
        else:
            where = f"{operation}/{subresource}" if subresource else operation
            yield from (_row(policy, binding, where, each, data) for each in policy.validations)


def _writes(request: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    # 1. when it is created, and when it is approved
    spec = jsonpath.mapping(request, "spec")
    user = {key: spec[key] for key in ("username", "uid", "groups", "extra") if spec.get(key)}
    yield "CREATE", "", _data("CREATE", "", request, None, user)
    conditions = [*jsonpath.mappings(request, "status", "conditions"), {"type": "Approved", "status": "True"}]
    approved = {**request, "status": {**jsonpath.mapping(request, "status"), "conditions": conditions}}
    yield "UPDATE", "approval", _data("UPDATE", "approval", approved, request, {})


def _data(operation: str, subresource: str, after: Any, before: Any, user: dict[str, Any]) -> dict[str, Any]:
    request: dict[str, Any] = {
        "operation": operation,
        "subResource": subresource,
        "name": jsonpath.text(after, "metadata", "name"),
    }
    if user:
        request["userInfo"] = user
    return {"object": after, "oldObject": before, "request": request, "namespaceObject": None}


def _row(
    policy: configurations.Policy,
    binding: configurations.Binding,
    operation: str,
    validation: configurations.Validation,
    data: Mapping[str, Any],
) -> Row:
    text = validation.text.strip()
    shown = Row(policy.name, binding.name, operation, binding.actions, UNKNOWN, text)
    if policy.param_kind is not None:  # 4. params are not fetched
        return _with(shown, message="its params are not read here")
    if not engine.is_available():
        return _with(shown, message=verdicts.UNAVAILABLE)
    sight = _Sight(policy.variables, data)
    try:
        if not verdicts.conditions_hold(policy.conditions, sight.values, verdicts.Budget()):
            return _with(shown, result=HOLDS, message="its matchConditions leave this request out")
        if sight.of(text) is True:
            return _with(shown, result=HOLDS)
        part = sight.false_part(text)
        message = validation.message or f"failed expression: {text}"
        return _with(shown, result=FAILS, message=message, part=part, inputs=sight.inputs(part))
    except (engine.NotEvaluated, estimate.InvalidExpression) as error:
        return _with(shown, message=error.message, part=sight.seen, inputs=sight.inputs(sight.seen))


def _with(row: Row, **more: Any) -> Row:
    fields = {name: getattr(row, name) for name in Row.__slots__}
    return Row(**(fields | more))


class _Sight:
    """What expressions of one policy see of one write; `seen` is the part that was evaluated last."""

    def __init__(self, variables: tuple[tuple[str, str], ...], data: Mapping[str, Any]) -> None:
        self.values = verdicts.Values(data, has_params=False)
        self.seen = ""
        self._variables = variables

    def of(self, text: str) -> Any:
        """Its value, of whatever type; raises `NotEvaluated` or `InvalidExpression`."""
        self.seen = text
        expression = expressions.variable(text, self._variables)
        return self.values.of(expression, verdicts.Budget())

    def false_part(self, text: str) -> str:
        """The smallest part of a false expression that is false and makes it so (3)."""
        while True:
            text = _bare(text)
            root = engine.program(text, *expressions.NAMES, "variables").root
            if root.kind != tree.CALL or root.name != _AND:
                return text
            left, right = text[: root.offset].strip(), text[root.offset + 2 :].strip()
            text = right if self.of(left) is True else left

    def inputs(self, text: str) -> tuple[tuple[str, str], ...]:
        """The values that an expression names, as text."""
        try:
            root = engine.program(text, *expressions.NAMES, "variables").root
        except estimate.InvalidExpression:
            return ()
        return tuple((name, self._shown(name)) for name in _named(root))

    def _shown(self, name: str) -> str:
        try:
            text = json.dumps(self.of(name), ensure_ascii=False, default=str)
        except (engine.NotEvaluated, estimate.InvalidExpression) as error:
            return error.message
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _named(root: tree.Node) -> list[str]:
    """The names in an expression, each as far as it goes: `object.spec.username`, and not `object`."""
    longest: dict[int, str] = {}
    for node in root.walk():
        place = estimate.chain(node)
        if place is not None and place[1].partition(".")[0] in {*expressions.NAMES, "variables"}:
            offset, name = place
            longest[offset] = max(longest.get(offset, ""), name, key=len)
    return sorted(set(longest.values()))


def _bare(text: str) -> str:
    """An expression without brackets around all of it."""
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and _closes(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closes(text: str) -> int:
    """Where the bracket closes that a text begins with; brackets in quotes are not counted."""
    depth, quote = 0, ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and text[index - 1] != "\\" else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
            if not depth:
                return index
    return -1
