# SPDX-License-Identifier: Apache-2.0
"""What a mutating policy makes of one object, for one binding and one of its params.

1. All match conditions are true of the object as it is now; else nothing is changed.
2. Each mutation is evaluated, and its patch applied, in order: each sees what the one before it left.
3. An apply configuration is merged as server-side apply merges it. A JSON patch changes nothing if one of its `test` operations fails.
4. The object stays what it is: apiVersion, kind, name, namespace and uid. Metadata that only the server sets is put back.
5. It keeps the types of its kind, and has no field that its kind has not. The caller checks that (`check`).
6. What cannot be evaluated, does not compile, costs too much, is too large or does not apply is an error; the object is left as it was
   before that mutation. Whether the write ends is for the failure policy.
7. One write has `MAX_EVALUATIONS` evaluations (`verdicts`), hands `MAX_BYTES` of objects to them, and a patch has `MAX_VALUES` values
   and `MAX_PATCH` bytes.

Which objects no such policy changes is decided in `rules.untouched`.

| who | holding | tries | stopped by | shown in tests/unit/rules/policies/test_mutators.py |
|---|---|---|---|---|
| who may write policies | a patch of metadata | turn a write into one to another object | 4 | test_the_object_stays_what_it_is |
| … | … | set an owner of fields, a uid or a time of creation | 4 | test_what_only_the_server_sets_is_put_back |
| … | a patch with other types | store what no client could | 5 | test_what_is_not_of_the_kind_is_an_error |
| … | a patch that grows with the object | fill the memory | 7 | test_a_patch_is_bounded |
| … | many mutations of a large object | hold the server | 7 | test_objects_are_handed_over_so_often_and_no_more |
| who writes an object | one on which the expression fails | have it pass as it is | 6 | test_what_fails_is_an_error |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from handfast.api import objects, status
from handfast.api.cel import engine, estimate, expressions, mutations
from handfast.api.codec import bounds
from handfast.api.merging import apply, patch
from handfast.rules.policies import configurations, verdicts
from handfast.rules.webhooks import answers

MAX_BYTES: Final = 64 << 20
MAX_VALUES: Final = answers.MAX_VALUES
MAX_PATCH: Final = 3 << 20
# Raises `status.StatusError` for an object that has not the types of its kind.
Check = Callable[[objects.Document], None]
# The schema's message, or a definition's schema.
Types = str | Mapping[str, Any] | None
_encode = msgspec.json.Encoder().encode


class NotMutated(Exception):
    """A mutation cannot be done; the text says why."""


class Budget(verdicts.Budget):
    """How many evaluations a write may still have, and on how many bytes."""

    def __init__(self, left: int = verdicts.MAX_EVALUATIONS, bytes_left: int = MAX_BYTES) -> None:
        super().__init__(left)
        self._bytes_left = bytes_left

    def hand_over(self, size: int) -> None:
        self._bytes_left -= size
        self.require()

    def require(self) -> None:
        """Raise if nothing is left: then nothing is handed over either."""
        if self._bytes_left < 0 or self.is_spent:  # 7. so many bytes and no more
            raise engine.TooCostly(verdicts.SPENT)


class Mutator(verdicts.Judge):
    """A policy that changes objects, compiled when it is first needed."""

    def parts(self) -> Iterator[verdicts.Part]:
        yield from self.conditions()
        for mutation in self.policy.mutations:
            yield self._mutation(mutation)

    def _mutation(self, mutation: configurations.Mutation) -> verdicts.Part:
        is_patch = mutation.patch_type == configurations.JSON_PATCH
        return self.part(mutation.text, verdicts.PATCH if is_patch else verdicts.CONFIGURATION)

    def mutate(
        self, data: Mapping[str, Any], budget: Budget, *, types: Types, check: Check
    ) -> tuple[objects.Document, list[str]]:
        """The object as it leaves it (the same one, if nothing changes), and what could not be done (6)."""
        document: objects.Document = data["object"]
        if not engine.is_available():
            return document, [verdicts.UNAVAILABLE]
        errors: list[str] = []
        values: verdicts.Values | None = None
        try:
            values = self._values(data, budget)
            if not self.applies(values, budget):  # 1. of the object as it is now
                return document, []
        except (engine.NotEvaluated, estimate.InvalidExpression) as error:
            return document, [error.message]
        for mutation in self.policy.mutations:  # 2. in order
            try:
                if values is None:
                    values = self._values({**data, "object": document}, budget)
                after = self._changed(mutation, document, values, budget, types)
                if not patch.json_equal(after, document):
                    check(after)  # 5. the types of its kind
                    document, values = after, None
            except engine.NotEvaluated as error:
                errors.append(expressions.failure(mutation.text.strip(), error.message))
            except estimate.InvalidExpression as error:
                errors.append(f"compilation error: compilation failed: {error.message}")
            except status.StatusError as error:
                errors.append(f"error applying patch: {error.message}")
            except NotMutated as error:
                errors.append(str(error))
        return document, errors

    def _values(self, data: Mapping[str, Any], budget: Budget) -> verdicts.Values:
        budget.require()
        values = verdicts.Values(data, has_params=self.has_params)
        budget.hand_over(values.sizes.size)
        return values

    def _changed(
        self,
        mutation: configurations.Mutation,
        document: objects.Document,
        values: verdicts.Values,
        budget: Budget,
        types: Types,
    ) -> objects.Document:
        part = self._mutation(mutation)
        value = values.of(verdicts.expression_of(part), budget)
        if part.kind == verdicts.PATCH:
            after = _patched(document, mutations.operations(value))
        else:
            configuration = mutations.configuration(value)
            _bound(configuration)
            # 3. as server-side apply merges it
            after = apply.merged_by_policy(document, configuration, types)
        changed = answers.changed_identity(document, after)
        if changed:  # 4. the object stays what it is
            raise NotMutated(f"a policy may not change {changed}")
        return answers.with_server_set(document, after)


def _patched(document: objects.Document, operations: list[dict[str, Any]]) -> objects.Document:
    _bound(operations)
    try:
        return patch.apply_json_patch(document, operations)
    except patch.TestFailed:
        return document  # 3. a test that fails: nothing is changed


def _bound(mutation: Any) -> None:
    encoded = _encode(mutation)
    # 7. so many values, and so many bytes
    if len(encoded) > MAX_PATCH or bounds.values(encoded, MAX_VALUES) > MAX_VALUES:
        raise NotMutated(f"the patch has more than {MAX_VALUES} values, or {MAX_PATCH} bytes")
