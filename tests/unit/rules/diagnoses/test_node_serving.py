# SPDX-License-Identifier: Apache-2.0
"""What nodes serve with: late fails before it is over, and what a node has left behind is a warning."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import signer_names
from handfast.rules import check
from handfast.rules.diagnoses import facts, node_serving
from handfast.rules.nodes import overview, serving
from tests.unit.rules.diagnoses import known
from tests.unit.rules.nodes import test_overview
from tests.unit.rules.nodes.test_serving import served


def asks(name: str = "csr-9", of: str = "w1", **more: Any) -> dict[str, Any]:
    """A request of a node for what it serves with."""
    spec = {"username": f"system:node:{of}", "signerName": signer_names.KUBELET_SERVING, **more}
    return known.request(name, of=of, **spec)


def judged(*issued: Any, requests: Any = (), **changes: Any) -> check.Check:
    nodes = known.nodes(nodes=[test_overview.node(), test_overview.node("w2")], serving=issued)
    row = node_serving.every(known.good(**{"nodes": nodes, "requests": facts.Requests(requests), **changes}))
    assert row.name == node_serving.NAME
    return row


DENIED = [{"type": "Denied", "status": "True"}]


@pytest.mark.parametrize(
    ("age", "requests", "verdict", "reason", "hint"),
    [
        (1, [], "ok", "", ""),
        (22, [], "failed", "ServingRenewalLate", "on the machine: handfast node status"),
        (22, [asks()], "failed", "ServingRenewalLate", "handfast csr explain csr-9"),
        (25, [asks()], "failed", "ServingExpired", "handfast csr explain csr-9"),
        (25, [asks("csr-8"), asks(conditions=DENIED)], "failed", "ServingExpired", "handfast csr explain csr-8"),
        (25, [asks(conditions=DENIED), asks("csr-8")], "failed", "ServingExpired", "handfast csr explain csr-8"),
        (25, [asks(of="w2")], "warning", "ServingLeftOver", "nothing, if it signs its own"),
        (25, [asks(der=known.leaf())], "warning", "ServingLeftOver", "nothing, if it signs its own"),
        (25, [known.request()], "warning", "ServingLeftOver", "nothing, if it signs its own"),
        # Whoever is called as the node is, and is no node, asks for nothing of the node's.
        (25, [asks(username="w1")], "warning", "ServingLeftOver", "nothing, if it signs its own"),
    ],
)
def test_late_fails_and_what_is_over_fails_while_somebody_asks(age, requests, verdict, reason, hint):
    row = judged(served(age=age), requests=requests)
    assert (row.verdict.value, row.reason) == (verdict, reason)
    assert row.hint.startswith(hint)


def test_what_is_urgent_is_told_before_what_was_left_behind():
    row = judged(served(age=25), served("w2", age=23))
    assert (row.reason, row.sentence.partition(":")[0]) == ("ServingRenewalLate", "w2")


class Incomparable(serving.Served, frozen=True, eq=False):
    """Of ten thousand that are over, none is compared with all others."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    __hash__ = None  # type: ignore[assignment]


def test_each_is_looked_at_once_however_many_are_over():
    late = [Incomparable(f"w{number}", known.NOW, known.NOW) for number in range(3)]
    standing = overview.Standing(counts={}, needing=[], serving=serving.Standing(3, late[0], late))
    assert judged(nodes=standing, requests=[asks(of="w2")]).sentence.startswith("w2: ")


def test_what_is_good_is_counted_with_its_first_end():
    assert judged(served(age=3), served("w2", age=1)).sentence.startswith(
        "2 of this cluster; the first, of w1, ends at "
    )
    assert judged().sentence == "no node has a serving certificate of this cluster"


def test_what_may_not_be_read_is_unknown_and_what_is_known_of_it_is_told_all_the_same():
    unread = known.nodes(serving=None)
    assert judged(nodes=unread, hidden=["no ledger"]).verdict is check.Verdict.UNKNOWN
    assert judged(nodes=check.Unread("no")).verdict is check.Verdict.UNKNOWN
    # A ledger without an entry hides nothing, where there is no node.
    assert judged(nodes=unread).verdict is check.Verdict.OK


def test_without_the_right_to_read_requests_nobody_knows_that_none_asks():
    nodes = known.nodes(serving=[served(age=25)])
    row = node_serving.every(known.good(nodes=nodes, requests=check.Unread("no")))
    assert (row.verdict.value, row.reason) == ("failed", "ServingExpired")


def test_a_console_has_judged_it_already():
    nodes = known.nodes(serving=[served(age=22)])
    standing = overview.standing(nodes, known.NOW)
    assert judged(nodes=standing) == judged(nodes=nodes)
    assert node_serving.of_node("w1", known.good(nodes=check.Unread("no"))).verdict is check.Verdict.UNKNOWN


def test_of_one_node_only_its_own_counts():
    nodes = known.nodes(nodes=[test_overview.node(), test_overview.node("w2")], serving=[served("w2", age=22)])
    facts_now = known.good(nodes=nodes)
    assert node_serving.of_node("w1", facts_now).verdict is check.Verdict.OK
    assert node_serving.of_node("w2", facts_now).reason == "ServingRenewalLate"
