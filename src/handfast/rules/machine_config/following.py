# SPDX-License-Identifier: Apache-2.0
"""Who has a pool's configuration, who is behind, and why: one rule for commands, controllers and dry runs.

It waits for nobody and changes nothing.

1. A node without an agent never follows. What it says of itself does not count.
2. A node has it when it has the pool's rendering, and says that it is done.
3. Every other node is behind, for the first of these reasons that holds: its pool has no rendering yet, its pool is paused, it is silent, it
   could not apply something, it is at work, its turn has not come.
4. A node with another rendering that has the same credential has the credential all the same (`has_credential`).
5. Of a node in no pool it is said what is missing: its Machine, which gives it the label of its role, or the label itself.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_following.py |
|---|---|---|---|---|
| a node, taken over | its certificate, its own Node | have a revoked credential kept for ever, by never following | it is named, and revoking at once waits for nobody | test_who_never_follows_is_named_with_a_reason |
| … | … | be counted as done with a rendering of its own choice | 2: it is not the pool's | test_another_rendering_counts_for_nothing |
| … | … | pass for done while it reports that it failed | 2 | test_a_failed_node_does_not_have_it |
| … | … | have operators read lines of its own about others, by a reason with line breaks | `members` 6 | test_a_reason_is_one_line_and_not_too_long |

Not stopped: a node that says it has a credential that it does not have. It harms itself alone: it cannot join again with the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from handfast.api import machine_config_kinds
from handfast.rules.machine_config import members, names, pools

NO_AGENT: Final = "NoAgent"
NO_POOL: Final = "NoPool"
SEVERAL_POOLS: Final = pools.SEVERAL_POOLS
NOT_RENDERED: Final = "NotRendered"
PAUSED: Final = "Paused"
NODE_SILENT: Final = "NodeSilent"
DEGRADED: Final = "Degraded"
WORKING: Final = "Working"
WAITS_FOR_TURN: Final = "WaitsForTurn"
# All of them, in the order in which they are looked at.
REASONS: Final = (
    NO_POOL,
    SEVERAL_POOLS,
    NO_AGENT,
    NOT_RENDERED,
    PAUSED,
    NODE_SILENT,
    DEGRADED,
    WORKING,
    WAITS_FOR_TURN,
)
_ROLE: Final = f"{machine_config_kinds.NODE_ROLE_LABEL}/{machine_config_kinds.WORKER}"
_OWN_KUBELET: Final = "handfast-"
_NOBODY_RENDERS: Final = "its condition RenderDegraded says why, or machine-config-render-controller does not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """One Node: what it has (`rendering`), what it is to have (`target`), and why it does not have that. `pool` is empty where it is in none."""

    node: str
    pool: str = ""
    rendering: str = ""
    target: str = ""
    has_it: bool = False
    has_credential: bool = False
    reason: str = ""
    sentence: str = ""

    @property
    def follows(self) -> bool:
        """Whether it has an agent in a pool, so that it is worth waiting for."""
        return self.reason not in {NO_AGENT, NO_POOL, SEVERAL_POOLS}


_NOTHING: Final[members.Renderings] = {}


def follow(
    all_pools: Sequence[pools.Pool], nodes: Iterable[members.Node], renderings: members.Renderings = _NOTHING
) -> tuple[Follower, ...]:
    """Every Node, by name. Without `renderings` a credential counts only with the pool's own rendering."""
    by_name = {pool.name: pool for pool in all_pools}
    membership = pools.membership(all_pools, nodes)
    rows = [_member(node, by_name[name], renderings) for name, inside in membership.nodes.items() for node in inside]
    rows += [_outside(node, NO_POOL, _without_pool(node)) for node in membership.elsewhere]
    rows += [_outside(node, SEVERAL_POOLS, contested.sentence) for node, contested in membership.contested]
    return tuple(sorted(rows, key=lambda row: row.node))


def _outside(node: members.Node, reason: str, sentence: str) -> Follower:
    return Follower(node=node.name, rendering=node.current, reason=reason, sentence=sentence)


def _member(node: members.Node, pool: pools.Pool, renderings: members.Renderings) -> Follower:
    reason, sentence = _behind(node, pool)
    return Follower(
        node=node.name,
        pool=pool.name,
        rendering=node.current,
        target=pool.target,
        has_it=reason == "",
        # 4. another rendering with the same credential
        has_credential=reason == "" or (reason != NO_AGENT and _same_credential(node.current, pool.target, renderings)),
        reason=reason,
        sentence=sentence,
    )


def _same_credential(one: str, other: str, renderings: members.Renderings) -> bool:
    current, target = renderings.get(one), renderings.get(other)
    return (
        current is not None
        and target is not None
        and target.credential != ""
        and current.credential == target.credential
    )


def _behind(node: members.Node, pool: pools.Pool) -> tuple[str, str]:
    """The reason why it is behind, and a sentence; both empty: it is not."""
    # 1. nobody without an agent
    if not node.follows:
        return NO_AGENT, _without_agent(node)
    # 3. its pool has no rendering yet
    if not pool.target:
        return NOT_RENDERED, f"nothing has been rendered for the pool {pool.name} yet: {_NOBODY_RENDERS}"
    # 2. it has it, and is done
    if node.current == pool.target and node.state == names.DONE:
        return "", ""
    return _why(node, pool)


def _why(node: members.Node, pool: pools.Pool) -> tuple[str, str]:
    # 3. the first that holds
    if pool.paused:
        return PAUSED, f"the pool {pool.name} is paused"
    if node.silent:
        return NODE_SILENT, "it is not ready: its last word may be old"
    if node.degraded:
        return DEGRADED, node.reason or f"it is {node.state} and gives no reason"
    if node.desired == pool.target:
        return WORKING, "it is to apply it, and has not said that it is done"
    return WAITS_FOR_TURN, f"it waits until others of the pool {pool.name} are done: see spec.maxUnavailable"


def _without_pool(node: members.Node) -> str:
    # 5. what is missing
    if node.windows:
        return "it runs Windows: no pool has such nodes"
    label = f"label it, such as {_ROLE}"
    if node.machine:
        return f"no pool selects its labels, though it is linked to the Machine {node.machine}: {label}"
    return (
        "no pool selects it, and no Machine is linked to it, which would give it the label of its role: "
        f"`handfast machine explain MACHINE` says what is missing; or {label}"
    )


def _without_agent(node: members.Node) -> str:
    if node.kubelet_version.startswith(_OWN_KUBELET):
        release = node.kubelet_version.removeprefix(_OWN_KUBELET)
        return f"its agent of release {release} runs without --machine-config, or is older than that option"
    if node.kubelet_version:
        return f"it runs a kubelet {node.kubelet_version} and no agent that follows configurations"
    return "it runs no agent that follows configurations"
