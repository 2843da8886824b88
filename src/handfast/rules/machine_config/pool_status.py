# SPDX-License-Identifier: Apache-2.0
"""What the status of a pool says: counts of its machines, and the conditions Updated, Updating, Degraded, NodeDegraded, RenderDegraded.

Documents only: nothing is written here, and no node is changed.

1. Every machine that the pool selects counts. Updated: it has the pool's rendering, and is done. Ready: updated, and ready. Degraded: it
   says so. Unavailable: see `members`.
2. Updated is true when all of them are updated and ready; then `status.configuration` is what they have. Until then it stays what all
   of them had last, which new machines are given.
3. Updating is true while machines are being changed, or are to be. A paused pool is not updating, and says what it does not go to. Nor is a
   pool updating in which all have it but machines without an agent: it names those.
4. Degraded is true when a machine is degraded, or rendering is, or the pool's own fields cannot be read. It names all of these.
5. A condition keeps its time while its status stays. Conditions of others are left as they are.
6. What a node says is quoted, cut, and of few nodes: it can write anything there.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_pool_status.py |
|---|---|---|---|---|
| a node, taken over | its certificate, its own Node | fill the pool's status with its reason | 6 | test_what_nodes_say_is_cut_and_of_few |
| … | … | have the pool say that all have the rendering | 1: it counts itself only | test_a_lie_about_being_done_counts_for_one |
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from handfast.api import jsonpath, objects
from handfast.rules.machine_config import following, max_unavailable, members, pools

UPDATED: Final = "Updated"
UPDATING: Final = "Updating"
DEGRADED: Final = "Degraded"
NODE_DEGRADED: Final = "NodeDegraded"
RENDER_DEGRADED: Final = "RenderDegraded"

ALL_UPDATED: Final = "AllMachinesUpdated"
NOT_ALL_UPDATED: Final = "NotAllMachinesUpdated"
NOT_RENDERED: Final = following.NOT_RENDERED
PAUSED: Final = "Paused"
ROLLING_OUT: Final = "RollingOut"
NO_AGENT: Final = following.NO_AGENT
NODES_DEGRADED: Final = "MachinesDegraded"
RENDERED: Final = "Rendered"
AS_EXPECTED: Final = "AsExpected"

# 6. as many nodes as are quoted, and as much of each
_NODES_QUOTED: Final = 5
_TEXT_QUOTED: Final = 200


class Condition(msgspec.Struct, frozen=True):
    """One condition of a pool."""

    kind: str
    true: bool
    reason: str = ""
    message: str = ""


class Counts(msgspec.Struct, frozen=True):
    """Machines of a pool (1)."""

    machines: int
    updated: int
    ready: int
    unavailable: int
    degraded: int

    @property
    def all_updated(self) -> bool:
        return self.updated == self.ready == self.machines and self.unavailable == 0


def count(pool: pools.Pool, nodes: Iterable[members.Node], renderings: members.Renderings) -> Counts:
    """How many are how far."""
    inside = list(nodes)
    # 1. it has the pool's rendering, is done, and follows
    updated = [node for node in inside if _updated(node, pool)]
    return Counts(
        machines=len(inside),
        updated=len(updated),
        ready=sum(node.ready for node in updated),
        unavailable=sum(members.unavailable(node, renderings) for node in inside),
        degraded=sum(node.degraded for node in inside),
    )


def compute(
    pool: pools.Pool,
    nodes: Sequence[members.Node],
    renderings: members.Renderings,
    *,
    refusal: max_unavailable.Refused | None,
    now: datetime.datetime,
) -> objects.Document:
    """The status that the pool is to have. `refusal` is why `maxUnavailable` cannot be read."""
    counts = count(pool, nodes, renderings)
    # 2. all of them are updated
    settled = bool(pool.target) and counts.all_updated
    status: dict[str, Any] = {
        **pool.status,
        "observedGeneration": pool.generation,
        "machineCount": counts.machines,
        "updatedMachineCount": counts.updated,
        "readyMachineCount": counts.ready,
        "unavailableMachineCount": counts.unavailable,
        "degradedMachineCount": counts.degraded,
        **({"configuration": dict(pool.configuration)} if settled else {}),
    }
    broken = _node_condition(nodes, counts)
    conditions = (
        _updated_condition(pool, nodes, counts, settled=settled),
        _updating_condition(pool, nodes, refusal, settled=settled),
        broken,
        _degraded_condition(pool, broken, refusal),
    )
    return with_conditions(status, conditions, now)


def with_conditions(
    status: objects.Document, conditions: Iterable[Condition], now: datetime.datetime
) -> objects.Document:
    """The status with these conditions set; the others stay as they are (5)."""
    rows = {jsonpath.text(row, "type"): row for row in jsonpath.mappings(status, "conditions")}
    for condition in conditions:
        word = "True" if condition.true else "False"
        before = rows.get(condition.kind, {})
        # 5. it keeps its time while its status stays
        since = before.get("lastTransitionTime") if before.get("status") == word else None
        rows[condition.kind] = {
            "type": condition.kind,
            "status": word,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": since or objects.timestamp(now),
        }
    return {**status, "conditions": list(rows.values())}


def is_true(pool: pools.Pool, kind: str) -> bool:
    """Whether the pool says so now."""
    return any(
        row.get("type") == kind and row.get("status") == "True" for row in jsonpath.mappings(pool.status, "conditions")
    )


def trouble(pool: pools.Pool) -> str:
    """What the pool says is wrong with itself; empty where nothing is, or with its machines alone."""
    reason, message = _text(pool, DEGRADED, "reason"), _text(pool, DEGRADED, "message")
    return f"{reason}: {message}" if is_true(pool, DEGRADED) and reason != NODES_DEGRADED else ""


def said(pool: pools.Pool, kind: str) -> str:
    """The message of a condition; empty where there is none."""
    return _text(pool, kind, "message")


def since(pool: pools.Pool, kind: str) -> str:
    """Since when a condition is as it is, as it is written; empty where there is none."""
    return _text(pool, kind, "lastTransitionTime")


def _text(pool: pools.Pool, kind: str, field: str) -> str:
    rows = jsonpath.mappings(pool.status, "conditions")
    return next((jsonpath.text(row, field) for row in rows if row.get("type") == kind), "")


def _updated(node: members.Node, pool: pools.Pool) -> bool:
    return node.follows and node.done and node.desired == pool.target


def _updated_condition(pool: pools.Pool, nodes: Sequence[members.Node], counts: Counts, *, settled: bool) -> Condition:
    if settled:
        return Condition(UPDATED, True, ALL_UPDATED, f"all machines have {pool.target}")
    if not pool.target:
        return Condition(UPDATED, False, NOT_RENDERED, "nothing has been rendered for this pool yet")
    message = f"{counts.updated} of {counts.machines} machines have {pool.target}{_without_agent(nodes)}"
    return Condition(UPDATED, False, NOT_ALL_UPDATED, message)


def _without_agent(nodes: Sequence[members.Node]) -> str:
    """Those that never follow, by name, as the end of a sentence."""
    rest = sorted(node.name for node in nodes if not node.follows)
    more = f" and {len(rest) - _NODES_QUOTED} more" if len(rest) > _NODES_QUOTED else ""
    return f"; without an agent that follows: {', '.join(rest[:_NODES_QUOTED])}{more}" if rest else ""


def _updating_condition(
    pool: pools.Pool, nodes: Sequence[members.Node], refusal: max_unavailable.Refused | None, *, settled: bool
) -> Condition:
    if settled:
        return Condition(UPDATING, False, ALL_UPDATED)
    if not pool.target:
        return Condition(UPDATING, False, NOT_RENDERED)
    # 3. a paused pool says so
    if pool.paused:
        return Condition(UPDATING, False, PAUSED, f"the pool is paused: it does not go to {pool.target}")
    working = any(node.follows and node.desired == pool.target and not node.done for node in nodes)
    if refusal is not None and not working:
        return Condition(UPDATING, False, refusal.reason, f"nobody has a turn: {refusal.message}")
    # 3. nobody is left who would follow
    if all(not node.follows or (_updated(node, pool) and node.ready) for node in nodes):
        return Condition(UPDATING, False, NO_AGENT, f"nobody else follows{_without_agent(nodes)}")
    return Condition(UPDATING, True, ROLLING_OUT, f"the machines go to {pool.target}{_without_agent(nodes)}")


def _node_condition(nodes: Sequence[members.Node], counts: Counts) -> Condition:
    if not counts.degraded:
        return Condition(NODE_DEGRADED, False, AS_EXPECTED)
    # 6. quoted, cut, and of few
    broken = sorted((node for node in nodes if node.degraded), key=lambda node: node.name)
    said = [f"{node.name} is {node.state}: {_quoted(node.reason)}" for node in broken[:_NODES_QUOTED]]
    more = [f"and {len(broken) - _NODES_QUOTED} more"] if len(broken) > _NODES_QUOTED else []
    return Condition(NODE_DEGRADED, True, NODES_DEGRADED, "; ".join([*said, *more]))


def _degraded_condition(pool: pools.Pool, broken: Condition, refusal: max_unavailable.Refused | None) -> Condition:
    # 4. all of it, by name
    rows = []
    if is_true(pool, RENDER_DEGRADED):
        rows.append((RENDER_DEGRADED, _text(pool, RENDER_DEGRADED, "message")))
    if pool.nodes.trouble:
        rows.append((pools.SELECTOR_UNREADABLE, f"spec.nodeSelector: {pool.nodes.trouble}"))
    if refusal is not None:
        rows.append((refusal.reason, refusal.message))
    if broken.true:
        rows.append((broken.reason, broken.message))
    if not rows:
        return Condition(DEGRADED, False, AS_EXPECTED)
    return Condition(DEGRADED, True, rows[0][0], "; ".join(message for _, message in rows))


def _quoted(text: str) -> str:
    cut = text if len(text) <= _TEXT_QUOTED else f"{text[:_TEXT_QUOTED]}…"
    return json.dumps(cut, ensure_ascii=False)
