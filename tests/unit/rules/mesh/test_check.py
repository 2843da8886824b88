# SPDX-License-Identifier: Apache-2.0
"""Verdicts: the worst counts, what is not known is not good, and many names are counted."""

from handfast.rules.mesh import check, check_trust, check_workloads
from tests.unit.rules.mesh import checking


def test_a_mesh_in_order_passes_every_check():
    facts = checking.facts()
    checks = (*check_trust.checks(facts), *check_workloads.checks(facts))
    assert [(each.name, each.reason) for each in checks if each.verdict is not check.Verdict.OK] == []
    assert check.worst(checks) is check.Verdict.OK
    assert [each.name for each in checks] == [
        *("settings", "trust-anchors", "issuer", "kinds", "rights", "webhook"),
        *("services", "clock", "accounts", "unmeshed-pods", "pod-anchors", "workload-certificates"),
    ]


def test_the_worst_verdict_counts():
    rows = [
        check.Check("a", verdict, "") for verdict in (check.Verdict.OK, check.Verdict.FAILED, check.Verdict.UNKNOWN)
    ]
    assert check.worst(rows) is check.Verdict.FAILED
    assert check.worst(rows[::2]) is check.Verdict.UNKNOWN
    assert check.worst([]) is check.Verdict.OK


def test_many_names_are_counted():
    assert check.several(["a", "b"]) == "a, b"
    assert check.several([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
