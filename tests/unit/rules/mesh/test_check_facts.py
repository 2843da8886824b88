# SPDX-License-Identifier: Apache-2.0
"""A mesh in order passes every check."""

from handfast.rules import check
from handfast.rules.mesh import check_trust, check_workloads
from tests.unit.rules.mesh import checking


def test_a_mesh_in_order_passes_every_check():
    facts = checking.facts()
    checks = (*check_trust.checks(facts), *check_workloads.checks(facts))
    assert [(each.name, each.reason) for each in checks if each.verdict is not check.Verdict.OK] == []
    assert check.worst(checks) is check.Verdict.OK
    assert [each.name for each in checks] == [
        *("settings", "trust-anchors", "issuer", "kinds", "rights", "webhook"),
        *("services", "clock", "accounts", "unmeshed-pods", "pod-anchors", "workload-certificates", "audit"),
    ]
