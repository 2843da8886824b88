# SPDX-License-Identifier: Apache-2.0
"""`handfast machine credentials`: the credentials by which machines come in, made, shown and taken back.

It decides nothing. The masters' credential is made by `datadir.machine_credentials`, and needs no API server.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Final

import click

from handfast.cli import directories, output
from handfast.datadir import layout
from handfast.runtime import clock as clocks
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.datadir import machine_credentials

KINDS: Final = ("master", "worker")
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
