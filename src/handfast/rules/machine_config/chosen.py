# SPDX-License-Identifier: Apache-2.0
"""Which rendering of a pool is served to a node, or to a new machine. It reads nothing and serves nothing.

1. Only a rendering of that pool is served, by its name: a node could write the name of another on its own Node.
2. A node that asks as itself gets what it is to have: its `desiredConfig`. A node without one is served like a new machine.
3. A new machine gets the pool's newest rendering once a machine of the pool has it, and before that the last one that all of them had. A
   pool that never had a machine has only the newest.
4. A rendering is served only with the credential that it names, and only while that credential counts. If what all machines had names
   another, a new machine gets the newest rendering, if that names the right one.
5. If none fits, there is no answer now: the pool is being rendered anew, and whoever asks tries again.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_chosen.py |
|---|---|---|---|---|
| a node, taken over | its certificate, its own Node | have the masters' rendering served, by its own desiredConfig | 1 | test_a_node_is_never_served_the_rendering_of_another_pool |
| a thief | a machine's secret | have a credential that was revoked | 4 | test_a_rendering_of_another_credential_is_never_served |
"""

from __future__ import annotations

from typing import Final

import msgspec

from handfast.api import jsonpath
from handfast.rules.machine_config import following, members, pools, rendering

NOT_RENDERED: Final = following.NOT_RENDERED
BEING_RENDERED: Final = "BeingRendered"


class NotYet(msgspec.Struct, frozen=True):
    """Nothing can be served now (5)."""

    reason: str
    sentence: str


def choose(pool: pools.Pool, desired: str, renderings: members.Renderings, credential: str) -> str | NotYet:
    """The name of the rendering to serve, of those that are there; `credential` is the one that counts, as renderings name it."""
    # 2. a node gets what it is to have
    if desired:
        wanted: tuple[str, ...] = (desired,)
    # 3. a new machine gets the newest, once another machine has it
    elif jsonpath.number(pool.status, "updatedMachineCount") > 0 or not pool.settled:
        wanted = (pool.target,)
    else:
        wanted = (pool.settled, pool.target)
    # 1. of this pool
    there = [name for name in wanted if name in renderings and rendering.pool_of(name) == pool.name]
    for name in there:
        # 4. with the credential that counts
        if renderings[name].credential == credential:
            return name
    # 5. no answer now
    if there:
        sentence = f"{there[-1]} of the pool {pool.name} was rendered with a credential that does not count any more"
        return NotYet(BEING_RENDERED, sentence)
    named = ", ".join(name for name in wanted if name)
    return NotYet(
        NOT_RENDERED,
        f"the pool {pool.name} has no rendering" + (f": {named} is not there, or another pool's" * bool(named)),
    )
