# SPDX-License-Identifier: Apache-2.0
"""What a Node is made to say. The names of the table in `rules/nodes/lifecycle.py` are here."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.api import objects
from handfast.rules import revocation
from handfast.rules.nodes import lifecycle

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
SINCE, BEAT, CREATED = "2026-05-01T00:00:00Z", "2026-06-01T11:59:00Z", "2026-04-01T00:00:00Z"
STAMP = objects.timestamp(NOW)
STOLEN = revocation.Revocation(name="node-a", node="a", reason="stolen")
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
OWN = {"key": "handfast.dev/runs-no-pods", "effect": "NoSchedule"}


def condition(word: str, kind: str = "Ready", reason: str = "KubeletReady", **more: Any) -> dict[str, Any]:
    times = {"lastHeartbeatTime": BEAT, "lastTransitionTime": SINCE}
    return {"type": kind, "status": word, "reason": reason, "message": "m", **times, **more}


def node(*conditions: dict[str, Any], taints: Any = None) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": CREATED},
        "spec": {"taints": taints},
        "status": {"conditions": list(conditions)},
    }


def judge(
    found: dict[str, Any], revoked: revocation.Revocation | None = None, *, silent: bool = False
) -> lifecycle.Change:
    return lifecycle.judge(found, revoked, NOW, silent=silent)


def taints(key: str, at: str = STAMP) -> list[dict[str, Any]]:
    return [{"key": key, "effect": effect, "timeAdded": at} for effect in ("NoSchedule", "NoExecute")]


def test_a_silent_node_is_unknown():
    good = node(condition("True"), condition("False", "MemoryPressure"), condition("False", "NetworkUnavailable"))
    change = judge(good, silent=True)
    said = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    assert change.conditions == (
        {"type": "Ready", **said, "lastHeartbeatTime": BEAT, "lastTransitionTime": STAMP},
        {"type": "MemoryPressure", **said, "lastHeartbeatTime": BEAT, "lastTransitionTime": STAMP},
    )
    assert change.lost
    assert change.taints == tuple(taints(UNREACHABLE))


def test_a_node_that_never_posted():
    change = judge(node(condition("False", "DiskPressure")), silent=True)
    assert [row["type"] for row in change.conditions] == ["Ready", "MemoryPressure", "PIDPressure", "DiskPressure"]
    assert change.conditions[0] == {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusNeverUpdated",
        "message": "Kubelet never posted node status.",
        "lastHeartbeatTime": CREATED,
        "lastTransitionTime": STAMP,
    }
    assert change.conditions[3]["reason"] == "NodeStatusUnknown"
    assert (change.lost, change.taints) == (False, tuple(taints(UNREACHABLE)))
    assert "lastHeartbeatTime" not in judge({}, silent=True).conditions[0]
    # As long as it may still come, nothing is said.
    assert judge(node()) == lifecycle.Change()


@pytest.mark.parametrize("word", ["True", "False", "Unknown"])
def test_a_node_that_speaks_is_not_contradicted(word: str):
    key = {"False": NOT_READY, "Unknown": UNREACHABLE}.get(word, "")
    there = [OWN, *(taints(key, SINCE) if key else [])]
    assert judge(node(condition(word), taints=there)) == lifecycle.Change()


def test_what_is_unknown_already_stays_as_it_is():
    there = node(condition("Unknown", reason="NodeStatusUnknown"), taints=taints(UNREACHABLE, SINCE))
    assert judge(there, silent=True) == lifecycle.Change()


def test_a_revoked_node_is_not_ready():
    message = 'the node is refused by Revocation "node-a": stolen'
    change = judge(node(condition("True"), condition("False", "MemoryPressure"), taints=[OWN]), STOLEN)
    (row,) = change.conditions
    assert row == condition("False", reason="NodeRevoked", message=message, lastTransitionTime=STAMP)
    assert (change.lost, change.taints) == (True, (OWN, *taints(NOT_READY)))
    # Said once; silent or not is no matter.
    done = node(row, taints=list(change.taints or ()))
    assert judge(done, STOLEN) == judge(done, STOLEN, silent=True) == lifecycle.Change()
    # Another reason for the same is no new instant.
    other = revocation.Revocation(name="node-a", node="a", reason="sold")
    (again,) = judge(node({**row, "lastTransitionTime": SINCE}), other).conditions
    assert (again["message"][-4:], again["lastTransitionTime"]) == ("sold", SINCE)
    # Of a Node that says nothing, too.
    (first,) = judge(node(), STOLEN).conditions
    assert (first["type"], first["status"], first["lastTransitionTime"]) == ("Ready", "False", STAMP)
    # One that is unknown is known to be refused.
    dead = judge(node(condition("Unknown"), taints=taints(UNREACHABLE, SINCE)), STOLEN)
    assert (dead.conditions[0]["status"], dead.lost, dead.taints) == ("False", False, tuple(taints(NOT_READY)))


def test_a_revocation_that_is_undone():
    there = node(condition("False", reason="NodeRevoked"), taints=taints(NOT_READY, SINCE))
    change = judge(there)
    (row,) = change.conditions
    assert (row["status"], row["reason"], row["lastTransitionTime"]) == ("Unknown", "NodeStatusUnknown", STAMP)
    assert (change.lost, change.taints) == (False, tuple(taints(UNREACHABLE)))


@pytest.mark.parametrize(
    ("word", "before", "after"),
    [
        ("True", [OWN, *taints(UNREACHABLE, SINCE)], (OWN,)),
        ("True", taints(NOT_READY, SINCE), ()),
        ("True", [OWN], None),
        ("False", taints(UNREACHABLE, SINCE), tuple(taints(NOT_READY))),
        ("False", taints(NOT_READY, SINCE)[:1], (taints(NOT_READY, SINCE)[0], taints(NOT_READY)[1])),
        ("Unknown", [*taints(UNREACHABLE, SINCE), OWN], None),
        # Kubernetes knows two effects of these; a third is not ours to have.
        ("True", [{"key": NOT_READY, "effect": "PreferNoSchedule"}], ()),
        ("odd", [OWN], None),
    ],
)
def test_taints_follow_the_condition(word: str, before: Any, after: Any):
    change = judge(node(condition(word), taints=before))
    assert (change.conditions, change.taints) == ((), after)


def test_a_heartbeat_is_that_of_the_ready_condition():
    assert lifecycle.heartbeat(node(condition("True"))) == BEAT
    assert lifecycle.heartbeat(node(condition("True", "DiskPressure"))) == ""
    assert lifecycle.heartbeat({}) == ""
