# SPDX-License-Identifier: Apache-2.0
"""What is written into a Node for a node that cannot: because it is silent, or because it is refused.

It reads and writes nothing: `controllers.cluster.node_lifecycle` does, and knows when each node was heard of. Pods are
left alone: what runs on the node is not known, and nobody is evicted. Conditions, reasons, messages, taints and Events
are those of Kubernetes, but for the revocation.

1. A node that a Revocation refuses is not ready, from that moment on: `Ready` is False with the reason `NODE_REVOKED`. Whatever
   else the Node says stays: nobody can correct it.
2. When that has ended, what was written over is not known until the node says it again: `Ready` is Unknown.
3. Of a node that is silent nothing is known: `Ready` and whatever else it posted become Unknown (`NodeStatusUnknown`). A Node that
   never posted gets what kubelets post, as Unknown (`NodeStatusNeverUpdated`).
4. Nothing makes a node ready but the node: `Ready` is never set to True, and a node that speaks is not contradicted.
5. The taints `not-ready` (False) and `unreachable` (Unknown), each with both effects, follow `Ready`. Taints of others stay.
6. The instant of a change is that at which the status changes; a change of the reason alone keeps it.

| who | holding | tries | stopped by | shown in tests/unit/rules/nodes/test_lifecycle.py |
|---|---|---|---|---|
| a revoked node | what it wrote before | look ready, and be sent Pods | 1, 5 | test_a_revoked_node_is_not_ready |
| a node that is dead | its last word | look ready for ever | 3, 5 | test_a_silent_node_is_unknown |
| who may write Nodes | a condition NodeRevoked of their own | keep a node out | 2: it ends at the next look | test_a_revocation_that_is_undone |
| a node | taints that it was given | come back without them by being heard again | 5: Ready must be True | test_taints_follow_the_condition |
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast.api import jsonpath, objects
from handfast.rules import revocation

READY: Final = "Ready"
# 3. In Kubernetes' order.
POSTED: Final = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
NODE_REVOKED: Final = "NodeRevoked"
STOPPED: Final = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
NEVER: Final = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
NOT_READY_EVENT: Final = "NodeNotReady"
# 5. what follows `Ready`
_TAINTS: Final[Mapping[str, str]] = {
    "False": "node.kubernetes.io/not-ready",
    "Unknown": "node.kubernetes.io/unreachable",
}
_EFFECTS: Final = ("NoSchedule", "NoExecute")

Condition = dict[str, Any]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written: conditions, by their types; and the taints that go with them, None: as they are."""

    conditions: tuple[Condition, ...] = ()
    taints: tuple[dict[str, Any], ...] | None = None
    # It was ready, and is not any more.
    lost: bool = False


def ready(node: Any) -> Condition | None:
    """What a Node says of being ready; None: nothing yet."""
    return _by_type(node).get(READY)


def heartbeat(node: Any) -> str:
    """When the node last posted, as it says; empty: never."""
    condition = ready(node)
    return "" if condition is None else jsonpath.text(condition, "lastHeartbeatTime")


def judge(node: Any, revoked: revocation.Revocation | None, now: datetime.datetime, *, silent: bool) -> Change:
    """What a Node should say, where that is something else than it says."""
    before = ready(node)
    if revoked is not None:
        wanted = _revoked(before, revoked, now)
    elif before is not None and before.get("reason") == NODE_REVOKED:
        # 2. not known until the node says it again
        wanted = (_changed(before, "Unknown", *STOPPED, now),)
    else:
        # 3. 4. silent, or left alone
        wanted = _silent(node, now) if silent else ()
    after = next((row for row in wanted if row["type"] == READY), before)
    lost = before is not None and before.get("status") == "True" and after is not None and after["status"] != "True"
    return Change(conditions=wanted, taints=_tainted(node, after, now), lost=lost)


def _revoked(before: Condition | None, revoked: revocation.Revocation, now: datetime.datetime) -> tuple[Condition, ...]:
    # 1. not ready, from that moment on
    message = f'the node is refused by Revocation "{revoked.name}": {revoked.reason}'
    said = (jsonpath.text(before, "status"), jsonpath.text(before, "reason"), jsonpath.text(before, "message"))
    if said == ("False", NODE_REVOKED, message):
        return ()
    return (_changed(before or {"type": READY}, "False", NODE_REVOKED, message, now),)


def _silent(node: Any, now: datetime.datetime) -> tuple[Condition, ...]:
    # 3. what it posted, or would have
    known = _by_type(node)
    if READY not in known:
        created = jsonpath.text(node, "metadata", "creationTimestamp")
        missing = [kind for kind in POSTED if kind not in known]
        made = ({"type": kind, **({"lastHeartbeatTime": created} if created else {})} for kind in missing)
        new = tuple(_changed(row, "Unknown", *NEVER, now) for row in made)
    else:
        new = ()
    stale = (known[kind] for kind in POSTED if kind in known and known[kind].get("status") != "Unknown")
    return new + tuple(_changed(row, "Unknown", *STOPPED, now) for row in stale)


def _changed(row: Condition, word: str, reason: str, message: str, now: datetime.datetime) -> Condition:
    # 6. the instant of a change of the status
    since = jsonpath.text(row, "lastTransitionTime")
    if row.get("status") != word or not since:
        since = objects.timestamp(now)
    return {**row, "status": word, "reason": reason, "message": message, "lastTransitionTime": since}


def _tainted(node: Any, after: Condition | None, now: datetime.datetime) -> tuple[dict[str, Any], ...] | None:
    # 5. of others nothing is touched
    if after is None:
        return None
    taints: Sequence[dict[str, Any]] = jsonpath.mappings(node, "spec", "taints")
    key = _TAINTS.get(jsonpath.text(after, "status"), "")
    wanted = {(key, effect) for effect in _EFFECTS} if key else set()
    kept = [row for row in taints if row.get("key") not in _TAINTS.values() or _pair(row) in wanted]
    there = {_pair(row) for row in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": objects.timestamp(now)}
        for effect in _EFFECTS
        if (key, effect) in wanted - there
    ]
    return (*kept, *added) if added or len(kept) != len(taints) else None


def _pair(taint: Mapping[str, Any]) -> tuple[str, str]:
    return jsonpath.text(taint, "key"), jsonpath.text(taint, "effect")


def _by_type(node: Any) -> dict[str, Condition]:
    return {jsonpath.text(row, "type"): row for row in jsonpath.mappings(node, "status", "conditions")}
