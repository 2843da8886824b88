# SPDX-License-Identifier: Apache-2.0
"""Policies of the mesh as Envoy enforces them."""

import pytest

from handfast.rules.envoy import judging
from handfast.rules.mesh import enforcement, policy

Permits, Rules = judging.Permits, policy.Rules


def permit(**client):
    return policy.Permit(policy="shop/db", row=0, **client)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(), judging.EVERYBODY),
        (Rules(needs_identity=True), Permits(identified=True)),
        (Rules(restricted=True), Permits()),
        (Rules(restricted=True, needs_identity=True), Permits()),
        (Rules(restricted=True, permits=(permit(anyone=True),)), judging.EVERYBODY),
        (Rules(restricted=True, needs_identity=True, permits=(permit(anyone=True),)), Permits(identified=True)),
        (
            Rules(restricted=True, permits=(permit(identity="a.b"), permit(suffix=".d"), permit(suffix=".c"))),
            Permits(names=frozenset({"a.b"}), suffixes=(".c", ".d")),
        ),
    ],
)
def test_rules_become_who_is_permitted(rules, expected):
    assert enforcement.permits(rules) == expected


def test_a_port_has_its_rules_what_is_in_audit_and_its_open_paths():
    closed = Rules(restricted=True)
    compiled = policy.Compiled(
        ports=(policy.PortRules(port=0, enforced=Rules()), policy.PortRules(port=80, enforced=Rules(), audited=closed))
    )
    assert enforcement.by_policy(compiled, 80, ("/x",)) == judging.PortJudgement(
        port=80, audited=Permits(), open_paths=("/x",)
    )
    assert enforcement.by_policy(compiled, 81) == judging.PortJudgement(port=81)


@pytest.mark.parametrize(
    ("enforced", "expected"),
    [
        (Rules(), Permits()),
        (Rules(needs_identity=True), Permits(anonymous=True)),
        (Rules(restricted=True, permits=(permit(identity="a.b"),)), None),
    ],
)
def test_in_audit_counts_who_is_let_in_now(enforced, expected):
    rules = policy.PortRules(port=0, enforced=enforced, audited=Rules(restricted=True))
    assert enforcement.by_policy(policy.Compiled(ports=(rules,)), 80).audited == expected


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("all-unauthenticated", judging.EVERYBODY),
        ("all-authenticated", Permits(identified=True)),
        ("deny", Permits()),
        ("anything", Permits()),
    ],
)
def test_before_a_policy_is_known_the_default_counts(default, expected):
    assert enforcement.by_default(default, 80) == judging.PortJudgement(
        port=80, permits=expected, reason=judging.NOT_KNOWN
    )


def test_policies_count_before_answers_and_answers_before_the_default():
    answer = judging.PortJudgement(port=80, permits=Permits(identified=True), open_paths=("/x",))
    compiled = policy.Compiled(
        ports=(policy.PortRules(port=0, enforced=Rules(restricted=True)), policy.PortRules(port=90, enforced=Rules()))
    )
    closed = judging.PortJudgement(port=80, permits=Permits(), open_paths=("/x",))
    assert enforcement.rows(80, "deny", None, {}) == (enforcement.by_default("deny", 80),)
    assert enforcement.rows(80, "deny", None, {80: answer}) == (answer,)
    assert enforcement.rows(80, "deny", compiled, {80: answer}) == (closed,)
    assert [row.port for row in enforcement.rows(0, "deny", compiled, {80: answer})] == [0, 80, 90]
    assert enforcement.rows(0, "deny", None, {80: answer}) == (enforcement.by_default("deny", 0), answer)


def test_nobody_is_let_in_by_a_name_before_it_is_known_who_is_denied():
    def judged(**permits):
        row = judging.PortJudgement(port=80, permits=Permits(**permits), open_paths=("/x",))
        return enforcement.rows(80, "deny", None, {80: row}, awaits_denials=True)

    closed = judging.PortJudgement(port=80, permits=Permits(), reason=judging.NOT_KNOWN, open_paths=("/x",))
    assert judged(names=frozenset({"a.b"})) == (closed,)
    assert judged(identified=True) == (closed,)
    assert judged(anyone=True)[0].tcp
    # Nor by the default, where nobody has answered.
    for number in (80, 0):
        (row,) = enforcement.rows(number, "all-authenticated", None, {}, awaits_denials=True)
        assert (row.permits, row.reason) == (Permits(), judging.NOT_KNOWN)
        (row,) = enforcement.rows(number, "all-unauthenticated", None, {}, awaits_denials=True)
        assert row.permits == judging.EVERYBODY
