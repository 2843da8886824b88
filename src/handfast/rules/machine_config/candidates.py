# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a pool are to be sent to its rendering now, and which wait for their turn.

It writes no annotation. Everything is computed anew from what the Nodes say: nothing has to be remembered over a restart.

1. A paused pool, and one without a rendering, sends nobody.
2. Only nodes with an agent are sent; the others never change. A node that was sent there before is left alone.
3. Sent at once, whatever `maxUnavailable` says, are nodes for which only the credential differs, since nothing restarts; and nodes that
   have the rendering already, and were never sent there.
4. Sent at once, while `maxUnavailable` can be read, are nodes without any configuration, as at a machine's first boot.
5. All others are sent in turn, zone by zone, the oldest first, and only those that are ready: `maxUnavailable` of them at a time. Nodes
   that are unavailable, and nodes that could not apply this rendering, count against it.
6. While `maxUnavailable` cannot be read, nobody has a turn.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_candidates.py |
|---|---|---|---|---|
| a node, taken over | its certificate, its own Node | keep another configuration by writing `desiredConfig` itself | 5: it is sent back in its turn | test_a_node_that_writes_its_own_desired_config_is_sent_back |
| … | … | let others be changed before their turn, by saying that it is done | 5: it frees its own place and no other | test_a_lie_about_being_done_lets_no_more_through_than_the_liar |
| … | … | be changed early, by saying that it has nothing | 4: it is changed, and no other; it counts as unavailable until it is done | test_who_says_it_has_nothing_moves_only_itself |
| … | … | keep a new credential from others, by never being done | 3: a credential waits for nobody | test_a_node_that_is_never_done_keeps_no_credential_from_others |
| a pool's writer | a `maxUnavailable` that is no number | have all machines changed at once | 6 | test_nobody_has_a_turn_while_max_unavailable_cannot_be_read |

Not stopped: a node that is never ready, or never done, holds up the configurations of its pool as a dead one does. `handfast machine pools`
names it; the operator raises `maxUnavailable`, or deletes the Node. A node that waits for its turn gets a new credential together with
the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from handfast.rules.machine_config import members, pools


class Plan(msgspec.Struct, frozen=True):
    """Names of nodes: sent whatever `maxUnavailable` says, sent because it is their turn, and those that wait."""

    at_once: tuple[str, ...] = ()
    in_turn: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    # How many could have a turn.
    capacity: int = 0

    @property
    def sent(self) -> tuple[str, ...]:
        return (*self.at_once, *self.in_turn)


_NOBODY = Plan()


def plan(pool: pools.Pool, nodes: Iterable[members.Node], renderings: members.Renderings, limit: int | None) -> Plan:
    """Who is to be sent to the pool's rendering. `limit` is what `maxUnavailable` comes to; None: it cannot be read."""
    # 1. paused, or nothing to be sent to
    if pool.paused or not pool.target:
        return _NOBODY
    inside = sorted(nodes, key=lambda node: node.order)
    # 2. those with an agent that were not sent there before
    behind = [node for node in inside if node.follows and node.desired != pool.target]
    at_once = [node for node in behind if _at_once(node, pool, renderings, limit)]
    early = {node.name for node in at_once}
    # 5. the ready ones of all others, in their order
    others = [node.name for node in behind if node.name not in early and node.ready]
    capacity = _capacity(pool, inside, renderings, limit)
    return Plan(
        tuple(node.name for node in at_once),
        tuple(others[:capacity]),
        tuple(others[capacity:]),
        capacity,
    )


def _at_once(node: members.Node, pool: pools.Pool, renderings: members.Renderings, limit: int | None) -> bool:
    # 4. nothing at all, as at the first boot
    if not node.current and not node.desired:
        return limit is not None
    # 3. only the credential differs, or it has it already
    return members.alike(node.desired or node.current, pool.target, renderings)


def _capacity(
    pool: pools.Pool, nodes: Iterable[members.Node], renderings: members.Renderings, limit: int | None
) -> int:
    # 6. it cannot be read
    if limit is None:
        return 0
    # 5. those that count against it
    taken = sum(
        members.unavailable(node, renderings) or (node.failing and node.desired == pool.target) for node in nodes
    )
    return max(limit - taken, 0)
