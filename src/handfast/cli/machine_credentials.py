# SPDX-License-Identifier: Apache-2.0
"""`handfast machine credentials`: the credentials by which machines come in, made, shown and taken back.

It decides nothing. The masters' credential is made by `datadir.machine_credentials`, and needs no API server.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from handfast.cli import connecting, machine_credential_worker, machine_revoke, output, tables
from handfast.datadir import layout
from handfast.runtime import clock as clocks
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.datadir import machine_credentials
    from handfast.rules.machines import doors

KINDS: Final = machine_revoke.KINDS
_MAX_BYTES: Final = 1 << 20


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
    default=None,
    help="Where machines reach the API server, as in https://api-int.example:6443.  [default for workers: as here]",
)
@click.option(
    "--server-ca",
    type=click.Path(),
    default=None,
    help="Of a master: the CA of that server.  [default: pki/ca.crt of --dir, if it is there]",
)
@click.option("--machine", metavar="NAME", default=None, help="Of a worker: the Machine that alone may use it.")
@click.option("--ttl", metavar="DURATION", default=None, help="With --machine: how long it lives.  [default: 365d]")
@click.option("--replace", is_flag=True, help="With --machine: revoke the one that is there, and make another.")
@click.option("--out", type=click.Path(), required=True, help="The directory that the files go to.")
@connecting.options
@output.format_option
@click.pass_context
def create(ctx: click.Context, /, kind: str, **flags: Any) -> None:
    """Make a bootstrap credential, for machines that have none of their own yet.

    A master's needs no API server, so that it can be in a machine's first configuration. It is a client certificate for ten
    years, of a signer whose key is used once and never written. It counts while the ConfigMap in the manifest is in the
    cluster. A second call makes a second signer beside the first, and both count.

    A worker's is a token of the account node-bootstrapper: the one that all workers share, written into a kubeconfig, or with
    --machine one that is good for that Machine alone.
    """
    if kind == "master":
        _require_none(kind, flags, "machine", "ttl", "replace")
        _create_master(flags)
        return
    _require_none(kind, flags, "server_ca")
    if flags["machine"] is None:
        _require_none("worker without --machine", flags, "ttl", "replace")
    path = connecting.chosen(ctx, flags["kubeconfig"], flags["directory"])
    machine_credential_worker.create(path, machine_credential_worker.Wanted.of(flags), flags["form"])


def _require_none(kind: str, flags: Mapping[str, Any], *fields: str) -> None:
    for field in fields:
        if flags[field]:
            raise output.Usage(f"--{field.replace('_', '-')} does not go with --kind {kind}")


def _create_master(flags: Mapping[str, Any]) -> None:
    from handfast.bootstrap import endpoints
    from handfast.datadir import machine_credentials

    if flags["server"] is None:
        raise output.Usage(
            "--kind master needs --server: no API server is asked", hint="as in --server https://api-int.example:6443"
        )
    url = endpoints.of_server(flags["server"]).url
    authority = _server_ca(flags["server_ca"], flags["directory"])
    with files.otherwise("name another directory with --out"):
        kept = machine_credentials.create(
            pathlib.Path(flags["out"]).absolute(), url, authority, clocks.SystemClock().now()
        )
    _show_created(kept, url, flags["form"])


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


@command.command(short_help="List every door to a node's certificate.")
@connecting.options
@output.format_option
@click.pass_context
def show(ctx: click.Context, kubeconfig: str | None, directory: str, form: str) -> None:
    """List every door to a node's certificate: tokens, CAs, accounts and bindings, whom each lets in, and what closes it."""
    import asyncio
    import dataclasses

    from handfast.client import doors as client_doors

    async def work(path: str) -> tuple[tuple[doors.Door, ...], list[str]]:
        async with connecting.connected(path) as reached:
            look = client_doors.Look(reached.client)
            return await look.everything(), look.unread

    rows, unread = asyncio.run(work(connecting.chosen(ctx, kubeconfig, directory)))
    for each in unread:
        output.note(f"not everything could be read: {each}")
    if form != "text":
        output.result(output.document({"doors": [dataclasses.asdict(row) for row in rows]}, form))
        return
    lines = [(row.kind, row.name, row.opens, row.until, row.close) for row in rows]
    output.result(tables.table(("DOOR", "NAME", "LETS IN", "UNTIL", "CLOSED BY"), lines, minor=("UNTIL", "CLOSED BY")))


command.add_command(machine_revoke.revoke)
