# SPDX-License-Identifier: Apache-2.0
"""`handfast join failures`: which machines could not join, and what would let each in. What a line says is `rules.nodes.join_failures`'."""

from __future__ import annotations

import click

from handfast.cli import connecting, durations, output, tables


@click.command(name="failures", short_help="Show which machines could not join, and why.")
@click.option(
    "--since",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How far to look back; refused credentials are known for an hour.",
)
@connecting.options
@output.format_option
@click.pass_context
def command(ctx: click.Context, since: str, kubeconfig: str | None, directory: str, form: str) -> None:
    """Show joins that failed, or wait: when, from where, with which credential, as which node, why, and the smallest change.

    Refused credentials and requests are read from Events of kube-system (JoinRefused), which last for an hour. Requests for certificates that
    were denied, have failed or wait are listed, too.
    """
    import asyncio

    from handfast.client import join_failures
    from handfast.rules.nodes import join_failures as listing
    from handfast.runtime import clock

    length = durations.parse(since, "--since", "36500d")

    async def work(path: str) -> join_failures.Read:
        async with connecting.connected(path) as reached:
            return await join_failures.read(reached.client)

    read = asyncio.run(work(connecting.chosen(ctx, kubeconfig, directory)))
    now = clock.SystemClock().now()
    failures = listing.ordered(read.failures, now - length)
    if form != "text":
        shown = {"failures": [listing.document(each) for each in failures], "unread": list(read.unread)}
        output.result(output.document(shown, form))
        return
    for sentence in read.unread:
        output.note(sentence)
    if failures:
        output.result(tables.table(listing.COLUMNS, [listing.cells(each, now) for each in failures]))
    else:
        output.note(f"no join has failed or waits since {since} ago")
