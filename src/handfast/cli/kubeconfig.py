# SPDX-License-Identifier: Apache-2.0
"""`handfast kubeconfig`: bring the addresses and the CA in a kubeconfig up to date, or show them.

The work is in `client.cluster_cache`. It prints no credential, and sends none.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import click

from handfast.cli import connecting, output

if TYPE_CHECKING:
    from handfast.bootstrap import cluster_info
    from handfast.client import cluster_cache

_context_option = click.option(
    "--context", metavar="NAME", default="", help="The context to use.  [default: the current one]"
)


@click.group(name="kubeconfig", short_help="Update or show the cluster in a kubeconfig.")
def command() -> None:
    """Update or show the cluster in a kubeconfig: its servers and CA certificates."""


@command.command(short_help="Update its servers and CA certificates.")
@connecting.options
@_context_option
@output.format_option
@click.pass_context
def refresh(ctx: click.Context, kubeconfig: str | None, context: str, directory: str, form: str) -> None:
    """Update a kubeconfig with the servers and CA certificates that the cluster publishes now.

    They are read without a credential, over TLS, which is verified with the CA in the kubeconfig. One server that still
    answers is enough. If none does, or if it is another cluster, nothing is changed.
    """
    import asyncio

    path = connecting.chosen_file(ctx, kubeconfig, directory)
    refreshed = asyncio.run(_refresh(path, context))
    if form == "text":
        output.result(_refresh_text(path, refreshed))
    else:
        facts = {
            "kubeconfig": str(path),
            "changed": list(refreshed.changed),
            **_facts(refreshed.info, refreshed.server),
        }
        output.result(output.document(facts, form))
    for text in refreshed.notes:
        output.note(text)


@command.command(short_help="Show the cluster that a kubeconfig names.")
@connecting.options
@_context_option
@output.format_option
@click.pass_context
def show(ctx: click.Context, kubeconfig: str | None, context: str, directory: str, form: str) -> None:
    """Show the cluster that a kubeconfig names: servers, CA certificates and id. No server is asked."""
    from handfast.client import cluster_cache
    from handfast.runtime import files

    path = connecting.chosen_file(ctx, kubeconfig, directory)
    with files.otherwise("name another file with --kubeconfig"):
        found = cluster_cache.load(path, context)
    facts = {"kubeconfig": str(path), "cluster": found.cluster, **_facts(found.info, found.info.servers[0])}
    output.result(_show_text(facts) if form == "text" else output.document(facts, form))


async def _refresh(path: pathlib.Path, context: str) -> cluster_cache.Refreshed:
    from handfast.client import cluster_cache, discovery
    from handfast.runtime import clock, files
    from handfast.telemetry import log

    log.configure(level="error")
    search = discovery.Discovery(clock.SystemClock())
    with files.otherwise("name another file with --kubeconfig"):
        return await cluster_cache.refresh(path, search, context)


def _facts(info: cluster_info.ClusterInfo, server: str) -> dict[str, Any]:
    from handfast.api import objects
    from handfast.pki import certificates, pem, pins

    authorities = [] if info.ca is None else [certificates.read(der) for der in pem.certificates_from_pem(info.ca)]
    return {
        "server": server,
        "servers": list(info.servers),
        "clusterID": info.id or None,
        "certificateAuthorities": [
            {"pin": str(pins.of_certificate(row.der)), "notAfter": objects.timestamp(row.not_after)}
            for row in authorities
        ],
    }


def _refresh_text(path: pathlib.Path, refreshed: cluster_cache.Refreshed) -> str:
    if not refreshed.changed:
        return f"{path} is up to date: server {refreshed.server}"
    return f"{path} was brought up to date: {', '.join(refreshed.changed)}\n\n{_lines(_facts(refreshed.info, refreshed.server))}"


def _show_text(facts: dict[str, Any]) -> str:
    return f"cluster {facts['cluster']} of {facts['kubeconfig']}\n\n{_lines(facts)}"


def _lines(facts: dict[str, Any]) -> str:
    authorities = [f"{row['pin']} until {row['notAfter']}" for row in facts["certificateAuthorities"]]
    return (
        f"  server      {facts['server']}\n"
        f"  servers     {', '.join(facts['servers'])}\n"
        f"  CA          {', '.join(authorities) or 'the roots of this system'}\n"
        f"  cluster id  {facts['clusterID'] or 'not known'}"
    )
