# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from handfast.rules import decision
from handfast.rules.rbac import holders


def verdict(word: str) -> decision.Approve:
    return decision.Approve("Allowed", word, "rbac")


def test_a_role_is_held_until_its_last_binding_goes():
    held = holders.Held()
    assert held.give("role", "one", verdict("one"))
    assert not held.give("role", "two", verdict("two"))
    assert held.answer({"role", "other"}).sentence == "one"
    assert not held.take("role", "one")
    assert held.answer({"role"}).sentence == "two"
    assert held.take("role", "two")
    assert held.roles == {}


def test_the_answer_names_a_role_that_allows():
    held = holders.Held()
    for name in ("a", "b", "c"):
        held.give(name, "binding", verdict(name))
    assert held.answer({"x", "b"}).sentence == "b"
    assert held.answer({"x", "y", "z", "w", "c"}).sentence == "c"
