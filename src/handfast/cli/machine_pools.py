# SPDX-License-Identifier: Apache-2.0
"""`handfast machine pools`: the pools, what they are rendered as, how many machines have it, and who is behind. It changes nothing.

It sees no credential: of each pool it tells the kind that the rendering names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from handfast.cli import connecting, output, rollout_output, tables

if TYPE_CHECKING:
    from handfast.rules.machine_config import rollout_progress

_COLUMNS: Final = ("POOL", "RENDERING", "HAVE", "STATE", "CREDENTIAL")
_BEHIND: Final = ("NODE", "POOL", "REASON", "WHY")


@click.command(short_help="List pools, their rendering, and who is behind.")
@connecting.options
@output.format_option
@click.pass_context
def pools(ctx: click.Context, kubeconfig: str | None, directory: str, form: str) -> None:
    """List the pools of machines: what each is rendered as, how many machines have it, and who is behind and why.

    Machines without an agent that follows configurations stay behind for ever: they are listed as NoAgent.
    """
    import asyncio

    show(asyncio.run(_look(connecting.chosen(ctx, kubeconfig, directory))), form)


def show(fleet: rollout_progress.Fleet, form: str) -> None:
    """The pools, then those who are behind."""
    if form != "text":
        rows = [rollout_output.pool_document(pool, pool.late) for pool in fleet.pools]
        others = [rollout_output.node_document(node) for node in fleet.outside]
        output.result(output.document({"pools": rows, "outside": others}, form))
        return
    if not fleet.pools:
        output.note("there are no MachineConfigPools")
        return
    output.result(tables.table(_COLUMNS, [_row(pool) for pool in fleet.pools], minor=("RENDERING",)))
    for pool in fleet.pools:
        if pool.trouble:
            output.result(f"\n{pool.pool} is degraded: {pool.trouble}")
    late = [(node, pool.pool) for pool in fleet.pools for node in pool.late] + [(node, "-") for node in fleet.outside]
    if late:
        output.result("\n" + tables.table(_BEHIND, [(row.node, pool, row.reason, row.sentence) for row, pool in late]))


async def _look(path: str) -> rollout_progress.Fleet:
    from handfast.client import machine_rollout

    async with connecting.connected(path) as reached:
        return await machine_rollout.pools_and_nodes(reached.client)


def _row(pool: rollout_progress.Progress) -> tuple[str, ...]:
    have = f"{len(pool.nodes) - len(pool.late)} of {len(pool.nodes)}"
    return (pool.pool, pool.rendering or "-", have, pool.state, pool.kind or "-")
