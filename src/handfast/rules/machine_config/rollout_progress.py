# SPDX-License-Identifier: Apache-2.0
"""How far the bootstrap credential has come: each pool, what it is rendered with, who has it, and who is behind and why.

One view for the command that shows it, for the dry run and for the controller that waits for it. It waits for nobody itself, and knows
credentials by their digests alone.

1. A pool is rendered with the credential that counts, or it is not: by kind and digest, as its rendering says. Until it is, nobody of
   the pool has that credential, whatever they report.
2. Whoever has another rendering with the same credential has the credential.
3. Three sorts of nodes are without it. Some never follow: they have no agent, or are in no pool. Some follow, but cannot now: their pool is
   paused, or they are silent. The others are on their way. Revoking at once waits for those on their way alone. Revoking after the roll-out
   waits for all that follow, since the credential that they have still counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from handfast.rules.machine_config import credential, following, members, names, pool_status, pools
from handfast.rules.machines import revocation

# 3. follow, but cannot now
UNABLE_NOW: Final = frozenset({following.PAUSED, following.NODE_SILENT})

# Stands for a rendering that nobody has.
_FORESEEN: Final = "rendered-anew"

# The words for the state of a pool.
NOT_RENDERED: Final = "not rendered"
PAUSED: Final = "paused"
DEGRADED: Final = "degraded"
UPDATING: Final = "updating"
UPDATED: Final = "updated"
# Whoever follows has it, and others never do.
NOT_BY_ALL: Final = "not followed by all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One pool. `kind` is of the credential that counts, empty while there is none: `missing` says why. `trouble` is the pool's own."""

    pool: str
    rendering: str = ""
    paused: bool = False
    kind: str = ""
    missing: str = ""
    rendered: bool = False
    trouble: str = ""
    nodes: tuple[following.Follower, ...] = ()

    @property
    def have(self) -> tuple[following.Follower, ...]:
        # 1. nobody before the pool is rendered with it; 2. whatever else differs
        return tuple(node for node in self.nodes if self.rendered and node.has_credential)

    @property
    def late(self) -> tuple[following.Follower, ...]:
        """Those without the rendering, whatever credential they have."""
        return tuple(node for node in self.nodes if not node.has_it)

    @property
    def without(self) -> tuple[following.Follower, ...]:
        """Those without the credential."""
        have = set(self.have)
        return tuple(node for node in self.nodes if node not in have)

    @property
    def expected(self) -> tuple[following.Follower, ...]:
        """Those without it that have an agent: it comes to them, sooner or later."""
        return tuple(node for node in self.without if node.follows)

    @property
    def able(self) -> tuple[following.Follower, ...]:
        """Those without it that can follow now."""
        return tuple(node for node in self.expected if node.reason not in UNABLE_NOW)

    @property
    def unable(self) -> tuple[following.Follower, ...]:
        """Those without it that never follow, or cannot now."""
        able = set(self.able)
        return tuple(node for node in self.without if node not in able)

    def waits(self, *, patient: bool) -> bool:
        """Whether there is something to wait for. `patient`: for every node with an agent, as after a roll-out; else for those that can follow now (3)."""
        # A pool that nobody renders changes nothing on any machine.
        if not self.rendering:
            return False
        return not self.rendered or bool(self.expected if patient else self.able)

    @property
    def state(self) -> str:
        """A word for the pool as a whole, of its rendering and not of the credential alone."""
        if not self.rendering:
            return NOT_RENDERED
        behind = [node for node in self.late if node.follows]
        if self.trouble or any(node.reason == following.DEGRADED for node in behind):
            return DEGRADED
        if self.paused:
            return PAUSED
        if behind or not self.rendered:
            return UPDATING
        return NOT_BY_ALL if self.late else UPDATED


@dataclass(frozen=True, slots=True)
class Fleet:
    """Every pool by its name, and the Nodes of none."""

    pools: tuple[Progress, ...] = ()
    outside: tuple[following.Follower, ...] = ()

    def concerned(self, kind: str) -> tuple[Progress, ...]:
        """The pools whose machines have, or are to have, the credential that replaces the one of this kind."""
        if kind == revocation.MASTER:
            return tuple(pool for pool in self.pools if pool.pool in credential.CERTIFICATE_POOLS)
        return tuple(pool for pool in self.pools if pool.kind != names.CERTIFICATE)


def of(
    all_pools: Sequence[pools.Pool],
    nodes: Iterable[members.Node],
    renderings: members.Renderings,
    seen: credential.Seen,
) -> Fleet:
    """How far everybody is."""
    followers = following.follow(all_pools, nodes, renderings)
    progress = [
        _progress(pool, [row for row in followers if row.pool == pool.name], renderings, seen) for pool in all_pools
    ]
    outside = tuple(row for row in followers if not row.pool)
    return Fleet(tuple(sorted(progress, key=lambda one: one.pool)), outside)


def as_rendered(
    all_pools: Sequence[pools.Pool], nodes: Iterable[members.Node], renderings: members.Renderings
) -> Fleet:
    """The same for whoever may not see credentials: each pool counts as rendered with the one that its rendering names."""
    fleet = of(all_pools, nodes, renderings, credential.Seen())
    return dataclasses.replace(fleet, pools=tuple(_named(pool, renderings) for pool in fleet.pools))


def _named(pool: Progress, renderings: members.Renderings) -> Progress:
    rendering = renderings.get(pool.rendering)
    kind = "" if rendering is None else rendering.credential.partition(" ")[0]
    return dataclasses.replace(pool, kind=kind, rendered=rendering is not None, missing="")


def foreseen(all_pools: Sequence[pools.Pool], nodes: Iterable[members.Node], seen: credential.Seen) -> Fleet:
    """Who would follow, and who could not, if every pool were rendered anew now."""
    anew = [dataclasses.replace(pool, configuration={"name": _FORESEEN}) for pool in all_pools]
    fleet = of(anew, nodes, {}, seen)
    # Who reads it is told what there is: nobody knows the name of what would be.
    targets = {pool.name: pool.target for pool in all_pools}
    return dataclasses.replace(
        fleet, pools=tuple(dataclasses.replace(pool, rendering=targets[pool.pool]) for pool in fleet.pools)
    )


def _progress(
    pool: pools.Pool, rows: Iterable[following.Follower], renderings: members.Renderings, seen: credential.Seen
) -> Progress:
    chosen = credential.choose(pool.name, seen)
    rendering = renderings.get(pool.target)
    # 1. by kind and digest
    wanted = f"{chosen.kind} {chosen.digest}" if isinstance(chosen, credential.Credential) else ""
    return Progress(
        pool=pool.name,
        rendering=pool.target,
        paused=pool.paused,
        kind=chosen.kind if isinstance(chosen, credential.Credential) else "",
        missing=chosen.sentence if isinstance(chosen, credential.Missing) else "",
        rendered=wanted != "" and rendering is not None and rendering.credential == wanted,
        trouble=pool_status.trouble(pool),
        nodes=tuple(rows),
    )
