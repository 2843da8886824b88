# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh edges`: who talks to whom, as the agents of both ends have seen it. It judges nothing; `rules.mesh.edges` puts it together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from handfast.cli import connecting, mesh_options, output, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from handfast.client import mesh_edges
    from handfast.rules.mesh import edges as edges_module
    from handfast.rules.mesh import names

_HEAD = ("FROM", "TO", "PORT", "SECURED", "COUNT", "SINCE", "JUDGED", "SEEN BY")


@click.command(name="edges", short_help="Show who talks to whom, and what policies in audit would refuse.")
@click.option("-n", "--namespace", "homes", metavar="NAME", multiple=True, help="With an end in it; may be repeated.")
@click.option("--would-deny", is_flag=True, help="Only what would be refused if policies in audit were enforced.")
@mesh_options.control_plane_option
@connecting.options
@output.format_option
@click.pass_context
def edges(
    ctx: click.Context,
    homes: tuple[str, ...],
    would_deny: bool,
    namespace: str,
    kubeconfig: str | None,
    directory: str,
    form: str,
) -> int:
    """Show who talks to whom: identities, whether it is secured or why not, how it is judged, and since when.

    It is what agents have reported of their own workloads, once a minute. A stock proxy reports nothing: its side is unknown, and what two of
    them say to each other is not seen.
    """
    import asyncio

    from handfast.rules.mesh import edges as edges_module

    seen = asyncio.run(_work(connecting.chosen(ctx, kubeconfig, directory), namespace, homes))
    if seen.partial:
        output.note("not everything could be read: workloads of other namespaces are unknown")
    rows = [
        edge
        for edge in edges_module.joined(seen.workloads)
        if (edge.would_be_refused or not would_deny)
        and (not homes or edges_module.namespaces(edge, seen.mesh) & {*homes})
    ]
    if form != "text":
        output.result(output.document({"edges": [_document(edge, seen.mesh) for edge in rows]}, form))
    elif rows:
        output.result(tables.table(_HEAD, [_row(edge, seen.mesh) for edge in rows], minor=("SEEN BY", "SINCE")))
    else:
        output.note(_nothing(seen, would_deny))
    return output.Code.DONE


async def _work(path: str, namespace: str, homes: Sequence[str]) -> mesh_edges.Look:
    from handfast.client import mesh_edges

    async with connecting.connected(path) as reached:
        return await mesh_edges.look(reached.client, namespace, homes)


def _nothing(seen: mesh_edges.Look, would_deny: bool) -> str:
    if not seen.workloads:
        return "no agent of the mesh reports"
    return "nothing that was seen would be refused" if would_deny else "nobody was seen to talk to anybody"


def _row(edge: edges_module.Edge, mesh: names.Mesh) -> tuple[str, ...]:
    from handfast.rules.mesh import edges as edges_module

    return (
        edges_module.title(edge.client, mesh) or "-",
        edges_module.title(edge.server, mesh) or edge.destination or "-",
        str(edge.port),
        "yes" if edge.secured else f"no: {edge.unsecured or '?'}",
        str(edge.count),
        _instant(edge.since) or "-",
        edges_module.judgement(edge),
        _seen_by(edge),
    )


def _seen_by(edge: edges_module.Edge) -> str:
    from handfast.rules.mesh import edges as edges_module

    sides = {"client": edge.client_side, "server": edge.server_side}
    seen = [name for name, side in sides.items() if side is edges_module.Side.REPORTED]
    others = [f"{name} {side}" for name, side in sides.items() if name not in seen]
    return ", ".join(["both"] if not others else [*seen, *others])


def _document(edge: edges_module.Edge, mesh: names.Mesh) -> dict[str, Any]:
    from handfast.rules.mesh import edges as edges_module

    return {
        "client": {
            "identity": edge.client,
            "account": edges_module.title(edge.client, mesh),
            "seen": str(edge.client_side),
        },
        "server": {
            "identity": edge.server,
            "account": edges_module.title(edge.server, mesh),
            "seen": str(edge.server_side),
        },
        "destination": edge.destination,
        "port": edge.port,
        "secured": edge.secured,
        "unsecured": edge.unsecured,
        "count": edge.count,
        "refused": edge.refused,
        "wouldBeRefused": edge.would_be_refused,
        "since": _instant(edge.since),
        "last": _instant(edge.last),
    }


def _instant(at: Any) -> str:
    from handfast.api import objects

    return objects.timestamp(at) if at else ""
