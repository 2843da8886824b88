# SPDX-License-Identifier: Apache-2.0
"""`handfast node list`: every node in one line, those that need somebody first. What is shown of each is `rules.nodes.overview`'s."""

from __future__ import annotations

from typing import Final

import click

from handfast.cli import connecting, output, tables

_FORMATS: Final = ("text", "wide", "json", "yaml", "name")


@click.command(name="list", short_help="List the nodes, and how the certificate of each stands.")
@connecting.options
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="How they are written: wide adds serial number, key and next step, name has the names alone.",
    callback=output.remember_format,
)
@click.pass_context
def command(ctx: click.Context, kubeconfig: str | None, directory: str, form: str) -> None:
    """List the nodes, those that need somebody first.

    A node is expired or late by its newest certificate in the ledger, silent when it does not renew its Lease, and waiting while nobody
    has decided on the request for its first certificate.
    """
    import asyncio

    from handfast.client import node_overview
    from handfast.rules.nodes import listing, overview
    from handfast.runtime import clock

    async def work(path: str) -> node_overview.Read:
        async with connecting.connected(path) as reached:
            return await node_overview.read(reached.client)

    read = asyncio.run(work(connecting.chosen(ctx, kubeconfig, directory)))
    now = clock.SystemClock().now()
    rows = overview.rows(read.objects, now)
    if form in {"json", "yaml"}:
        shown = {"nodes": [listing.document(row) for row in rows], "unread": list(read.unread)}
        output.result(output.document(shown, form))
        return
    for sentence in read.unread:
        output.note(sentence)
    if not rows:
        output.note("there are no nodes, and nobody asks to be one")
    elif form == "name":
        output.result("\n".join(row.name for row in rows))
    else:
        wide = form == "wide"
        head = listing.WIDE_COLUMNS if wide else listing.COLUMNS
        cells = [listing.cells(row, now, wide=wide) for row in rows]
        output.result(tables.table(head, cells, minor=listing.MINOR, sentences=listing.SENTENCES))
