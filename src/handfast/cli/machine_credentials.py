# SPDX-License-Identifier: Apache-2.0
"""`handfast machine credentials`: the credentials by which machines come in, made, shown and taken back.

It decides nothing. The masters' credential is made by `datadir.machine_credentials`, and needs no API server.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any, Final

import click

from handfast.cli import connecting, directories, output
from handfast.datadir import layout
from handfast.runtime import clock as clocks
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.client import machine_credentials as over_api
    from handfast.datadir import machine_credentials

KINDS: Final = ("master", "worker")
_MAX_BYTES: Final = 1 << 20
# How many names of requests a person is shown.
_SHOWN: Final = 10


@click.group(name="credentials", short_help="Make, show and revoke the credentials by which machines come in.")
def command() -> None:
    """Make, show and revoke the credentials by which machines come in: the masters' certificate, the workers' token."""


@command.command(short_help="Make a bootstrap credential.")
@click.option(
    "--kind", type=click.Choice(KINDS), required=True, help="Whose: masters have a certificate, workers a token."
)
@click.option(
    "--server",
    metavar="URL",
    required=True,
    help="Where machines reach the API server, as in https://api-int.example:6443.",
)
@click.option(
    "--server-ca",
    type=click.Path(),
    default=None,
    help="The CA of that server.  [default: pki/ca.crt of --dir, if it is there]",
)
@click.option("--out", type=click.Path(), required=True, help="The directory that the files go to.")
@directories.option(directories.DEFAULT)
@output.format_option
def create(kind: str, server: str, server_ca: str | None, out: str, directory: str, form: str) -> None:
    """Make a bootstrap credential, for machines that have none of their own yet.

    A master's needs no API server, so that it can be in a machine's first configuration. It is a client certificate for ten
    years, of a signer whose key is used once and never written. It counts while the ConfigMap in the manifest is in the
    cluster. A second call makes a second signer beside the first, and both count.
    """
    from handfast.bootstrap import endpoints
    from handfast.datadir import machine_credentials

    del kind
    url = endpoints.of_server(server).url
    with files.otherwise("name another directory with --out"):
        kept = machine_credentials.create(
            pathlib.Path(out).absolute(), url, _server_ca(server_ca, directory), clocks.SystemClock().now()
        )
    _show_created(kept, url, form)


def _server_ca(named: str | None, directory: str) -> bytes | None:
    if named is not None:
        with files.otherwise("name another file with --server-ca"):
            return files.read_given(pathlib.Path(named), limit=_MAX_BYTES)
    own = layout.Layout.at(directory).ca_certificate
    if own.exists():
        return files.read(own, limit=_MAX_BYTES)
    output.note("the kubeconfig names no CA, so that machines trust the roots of their system; --server-ca names one")
    return None


def _show_created(kept: machine_credentials.Kept, server: str, form: str) -> None:
    from handfast.api import objects

    facts = {
        "kind": "master",
        "server": server,
        "kubeconfig": str(kept.kubeconfig),
        "bundle": str(kept.bundle),
        "manifest": str(kept.manifest),
        "fingerprint": kept.fingerprint,
        "expires": objects.timestamp(kept.expires),
        "signers": kept.signers,
    }
    if form != "text":
        output.result(output.document(facts, form))
        return
    output.progress(f"created {kept.kubeconfig} (0600), good until {facts['expires']} or until it is revoked")
    output.progress(
        f"created {kept.bundle} and {kept.manifest}, with {kept.signers} {'signer' if kept.signers == 1 else 'signers'}"
    )
    output.result(f"To make it count:\n\n  kubectl apply --filename {output.quoted(str(kept.manifest))}")


@command.command(short_help="Revoke a bootstrap credential, at once.")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="Whose credential.")
@click.option("--dry-run", is_flag=True, help="Say what would be cut, and change nothing.")
@connecting.options
@output.format_option
@click.pass_context
def revoke(ctx: click.Context, kind: str, kubeconfig: str | None, directory: str, dry_run: bool, form: str) -> None:
    """Revoke a bootstrap credential: from the next request on it is refused, also on open connections.

    The masters' is the ConfigMap kubelet-bootstrap-kubeconfig, the workers' the Secret node-bootstrapper-token, of which a new
    one is made. Open requests that came by the credential are denied. Machines that have their own certificate go on.
    """
    import asyncio

    from handfast.client import machine_credentials as over_api

    async def work(path: str) -> over_api.Open:
        async with connecting.connected(path) as reached:
            if dry_run:
                return await over_api.look(reached.client, kind)
            return await over_api.revoke(reached.client, kind, clocks.SystemClock())

    cut = asyncio.run(work(connecting.chosen(ctx, kubeconfig, directory)))
    if form != "text":
        output.result(output.document(_cut_document(kind, cut, dry_run=dry_run), form))
    else:
        output.result(_cut_text(kind, cut, dry_run=dry_run))


def _cut_document(kind: str, cut: over_api.Open, *, dry_run: bool) -> dict[str, Any]:
    return {
        "kind": kind,
        "dryRun": dry_run,
        "objects": list(cut.objects),
        "connections": cut.connections,
        "watches": cut.watches,
        "requests": list(cut.requests),
    }


def _cut_text(kind: str, cut: over_api.Open, *, dry_run: bool) -> str:
    if not cut.objects and not cut.requests:
        return f"there is no {kind} credential to revoke, and nothing that came by one"
    deleted, refused, denied = ("would be " if dry_run else "") + "deleted", "are refused", "denied"
    if dry_run:
        refused, denied = "would be refused", "would be denied"
    lines = [f"{title} {deleted}" for title in cut.objects]
    if cut.connections is not None:
        lines.append(f"{cut.connections} open connections and {cut.watches} open watches of it {refused}")
    else:
        lines.append("this API server does not tell what connections and watches it has open")
    shown = ", ".join(cut.requests[:_SHOWN]) + (", …" if len(cut.requests) > _SHOWN else "")
    lines.append(f"{len(cut.requests)} open requests {denied}" + (f": {shown}" if shown else ""))
    return "\n".join(lines)
