# SPDX-License-Identifier: Apache-2.0
"""`handfast machine ignition`: the pointer configuration that a machine starts with, and the secret in it.

The secret's digest is kept by `client.ignition_secrets`, or in a bootstrap directory. The text is in what is printed, and nowhere else.

1. Everything that was typed is judged before a secret is made: one that nobody has seen would be in the way.
2. The file is for its owner alone.
3. Whoever is trusted as the server configures the machine, as root: a CA of the cluster's ConfigMap counts only if the operator's own kubeconfig
   has it, or the operator names it.
"""

from __future__ import annotations

import json
import pathlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from handfast import errors
from handfast.cli import candidates, connecting, durations, machine_options, output
from handfast.datadir import endpoints, layout
from handfast.rules.machine_config import names
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.rules.machines import inventory

_OVERLAP: Final = "24h"
_LONGEST: Final = "365d"
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pointer:
    """Where a machine fetches its configuration, whom it trusts there, and what it shows. The secret does not print."""

    url: str
    ca: bytes
    secret: str = field(repr=False)

    def text(self) -> str:
        from handfast.rules.machine_config import pointer

        return json.dumps(pointer.document(self.url, self.ca, self.secret), indent=2) + "\n"


@click.command(name="ignition", short_help="Make the configuration that a machine starts with.")
@click.argument("name", required=False, shell_complete=candidates.machines)
@click.option(
    "--pool", default=None, help="The pool.  Without a NAME: for all of its machines.  [default: that of its role]"
)
@click.option("--rotate", is_flag=True, help="Make another secret where there is one.")
@click.option(
    "--overlap",
    metavar="DURATION",
    default=None,
    help=f"With --rotate of a pool: how long the secret before goes on.  [default: {_OVERLAP}]",
)
@click.option(
    "--url",
    default=None,
    help=f"Where machines reach the machine-config server, as in https://api-int.example:{names.SERVER_PORT}.  [default: as the API server]",
)
@click.option(
    "--server-ca", type=click.Path(), default=None, help="The CA of that server.  [default: the cluster's own]"
)
@click.option(
    "--bootstrap-dir",
    type=click.Path(),
    default=None,
    help="Before there is a cluster: the directory that `serve machine-config` serves.",
)
@click.option("--out", type=click.Path(), default=None, help="Write it to this file, for its owner alone.")
@machine_options.namespace_option()
@connecting.options
@click.pass_context
def ignition(ctx: click.Context, /, name: str | None, kubeconfig: str | None, directory: str, **flags: Any) -> None:
    """Make the configuration that a machine starts with: where its own is, whom to trust there, and its secret.

    With a NAME the secret is that machine's alone, and good until its first certificate. With --pool alone it is for every machine of
    the pool. The secret is in what is printed, and only its digest is kept: there is no second time.
    """
    import asyncio

    wanted = _Wanted.of(name, flags)
    if wanted.bootstrap_dir is not None:
        _show(_before_the_cluster(wanted, layout.Layout.at(directory)), wanted.out)
        return
    path = connecting.chosen(ctx, kubeconfig, directory)
    _show(asyncio.run(_make(path, wanted, layout.Layout.at(directory))), wanted.out)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed."""

    name: str
    namespace: str
    pool: str
    rotate: bool
    overlap: Any
    url: str
    server_ca: bytes | None
    bootstrap_dir: pathlib.Path | None
    out: pathlib.Path | None

    @classmethod
    def of(cls, name: str | None, flags: dict[str, Any]) -> _Wanted:
        from handfast.bootstrap import endpoints as server_endpoints

        if name is None and flags["pool"] is None:
            raise output.Usage(
                "name a machine, or a pool with --pool", hint="`handfast machine list -o name` shows machines"
            )
        if flags["overlap"] is not None and (name is not None or not flags["rotate"]):
            raise output.Usage("--overlap goes with --pool and --rotate", hint="the secret of a machine ends at once")
        if flags["bootstrap_dir"] is not None and (name is not None or flags["url"] is None):
            raise output.Usage(
                "--bootstrap-dir goes with --pool and --url, and without a NAME", hint="no cluster knows machines yet"
            )
        # 1. all of it is judged first
        url = "" if flags["url"] is None else server_endpoints.parse(flags["url"], names.SERVER_PORT).url
        return cls(
            name=name or "",
            namespace=flags["namespace"],
            pool=flags["pool"] or "",
            rotate=flags["rotate"],
            overlap=durations.parse(flags["overlap"] or _OVERLAP, "--overlap", _LONGEST),
            url=url,
            server_ca=_read(flags["server_ca"]),
            bootstrap_dir=None if flags["bootstrap_dir"] is None else pathlib.Path(flags["bootstrap_dir"]).absolute(),
            out=None if flags["out"] is None else pathlib.Path(flags["out"]).absolute(),
        )


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    with files.otherwise("name another file with --server-ca"):
        return _checked(files.read_given(pathlib.Path(path), limit=_MAX_BYTES))


def _checked(pem: bytes) -> bytes:
    """What is no CA would be found out by the first machine."""
    from handfast.pki import bundles

    bundles.TrustBundle.from_pem(pem)
    return pem


async def _make(kubeconfig: str, wanted: _Wanted, place: layout.Layout) -> _Pointer:
    """Keep the digest of a new secret in the cluster, and say what goes to the machine."""
    from handfast.client import ignition_secrets as client_secrets
    from handfast.client import machines as client_machines
    from handfast.rules.machine_config import ignition_secrets
    from handfast.runtime import clock

    text = ignition_secrets.generate(secrets.token_bytes)
    async with connecting.connected(kubeconfig) as reached:
        url, ca = await _where(reached, wanted, place, kubeconfig)
        if wanted.name:
            known = await client_machines.read(reached.client)
            machine = known.one(wanted.name, wanted.namespace)
            pool = wanted.pool or _pool_of(machine)
            await client_secrets.keep_for_machine(reached.client, machine, pool, text, rotate=wanted.rotate)
            output.note(
                f"good for {machine.title} until its first certificate; `handfast machine readmit` ends it, too"
            )
        else:
            pool, now = wanted.pool, clock.SystemClock().now()
            until = now + wanted.overlap if wanted.rotate else None
            await client_secrets.keep_for_pool(reached.client, pool, text, until)
            _tell_of_pool(pool)
    return _Pointer(url=f"{url}/config/{pool}", ca=ca, secret=text)


def _pool_of(machine: inventory.Machine) -> str:
    from handfast.api import machine_config_kinds

    return machine.role or machine_config_kinds.WORKER


def _tell_of_pool(pool: str) -> None:
    output.note(f"whoever has it gets the bootstrap credential of the pool {pool}, until --rotate and the overlap")


async def _where(
    reached: connecting.Reached, wanted: _Wanted, place: layout.Layout, kubeconfig: str
) -> tuple[str, bytes]:
    """Where machines fetch configurations, and the CA of that server."""
    from handfast.api import resources
    from handfast.bootstrap import endpoints as server_endpoints
    from handfast.rules.machine_config import credential
    from handfast.rules.machines import bootstrapper

    there = await reached.client.find(resources.CONFIG_MAPS, names.KUBECONFIG_DATA, namespace=bootstrapper.NAMESPACE)
    seen = credential.read((), () if there is None else (there,))
    ca = wanted.server_ca or _trusted(seen.ca, reached.connection.ca_pem or b"")
    if not ca:
        raise errors.Refused("the CA of the server is not known", reason="NoServerCA", hint="name it with --server-ca")
    if wanted.url:
        return wanted.url, ca
    host = server_endpoints.of_server(seen.server or reached.connection.server).host
    port = names.SERVER_PORT
    if pathlib.Path(kubeconfig) == place.admin_kubeconfig and (running := endpoints.read(place.root)) is not None:
        port = server_endpoints.parse(running.get("machineConfig") or host, names.SERVER_PORT).port
    return server_endpoints.Endpoint(host, port).url, ca


def _trusted(of_machines: bytes, own: bytes) -> bytes:
    """The CA that machines know the API server by, if the operator trusts it, too; that of the operator where there is none."""
    # 3. no stranger's
    if of_machines and own and not _certificates(of_machines) <= _certificates(own):
        raise errors.Refused(
            "the ConfigMap kubeconfig-data names a CA that your kubeconfig does not trust: whoever wrote it would configure your machines",
            reason="OtherServerCA",
            hint="look at it; if it is the right one, name it with --server-ca",
        )
    return of_machines or own


def _certificates(pem_text: bytes) -> set[bytes]:
    from handfast.pki import pem

    return set(pem.certificates_from_pem(pem_text))


def _before_the_cluster(wanted: _Wanted, place: layout.Layout) -> _Pointer:
    """Keep the digest of a new secret in a bootstrap directory, and say what goes to the machines."""
    from handfast.datadir import bootstrap_secrets
    from handfast.rules.machine_config import ignition_secrets
    from handfast.runtime import clock

    if wanted.server_ca is None and not place.ca_certificate.exists():
        raise errors.Refused(
            f"the CA of the server is not known: there is no {place.ca_certificate}",
            reason="NoServerCA",
            hint="name it with --server-ca, or the data directory with --dir",
        )
    ca = wanted.server_ca or files.read(place.ca_certificate, limit=_MAX_BYTES)
    text = ignition_secrets.generate(secrets.token_bytes)
    until = clock.SystemClock().now() + wanted.overlap if wanted.rotate else None
    with files.otherwise("name another directory with --bootstrap-dir"):
        bootstrap_secrets.keep(wanted.bootstrap_dir or pathlib.Path(), wanted.pool, text, until)
    _tell_of_pool(wanted.pool)
    return _Pointer(url=f"{wanted.url}/config/{wanted.pool}", ca=ca, secret=text)


def _show(pointer: _Pointer, out: pathlib.Path | None) -> None:
    if out is None:
        output.result(pointer.text().rstrip("\n"))
        return
    # 2. for its owner alone
    with files.otherwise("name another file with --out"):
        files.write_atomically(out, pointer.text().encode("ascii"))
    output.progress(f"created {out} (0600)")
