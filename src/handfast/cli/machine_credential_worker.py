# SPDX-License-Identifier: Apache-2.0
"""The credential of one worker, for `handfast machine credentials create --kind worker --machine NAME`.

It has the token made (`client.machine_tokens`), and writes a kubeconfig that a kubelet can use as its bootstrap kubeconfig. The token
is in that file (0600) and nowhere else: it is not printed.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from handfast.cli import connecting, durations, output

if TYPE_CHECKING:
    from handfast.client import connection

DEFAULT_TTL: Final = "365d"
LONGEST: Final = "3650d"
_SHORTEST_SECONDS: Final = 600
_SHARED_FILE: Final = "kubeconfig-kubelet-worker"
_USER: Final = "kubelet"
_CLUSTER: Final = "handfast"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed: for which Machine (None: for all workers), where it goes, for how long, and which server it names."""

    machine: str | None
    out: pathlib.Path
    seconds: int
    replace: bool
    server: str | None

    @classmethod
    def of(cls, flags: Mapping[str, Any]) -> Wanted:
        from handfast.bootstrap import endpoints

        ttl = flags["ttl"] or DEFAULT_TTL
        seconds = int(durations.parse(ttl, "--ttl", LONGEST).total_seconds())
        if seconds < _SHORTEST_SECONDS:
            raise output.Usage(f'--ttl: "{ttl}" is too short', hint="a token lives for 10m at least")
        server = None if flags["server"] is None else endpoints.of_server(flags["server"]).url
        return cls(
            machine=flags["machine"],
            out=pathlib.Path(flags["out"]).absolute(),
            seconds=seconds,
            replace=flags["replace"],
            server=server,
        )


def create(kubeconfig: str, wanted: Wanted, form: str) -> None:
    """Write a kubeconfig with a token for one Machine, or with the one that all workers share."""
    import asyncio

    facts = asyncio.run(write(kubeconfig, wanted) if wanted.machine else _share(kubeconfig, wanted))
    if form != "text":
        output.result(output.document(facts, form))
        return
    output.progress(f"created {facts['kubeconfig']} (0600), good until {facts['expires'] or 'it is revoked'}")
    revoke = "handfast machine credentials revoke --kind worker"
    if wanted.machine:
        revoke = f"kubectl --namespace {facts['namespace']} delete secret/{facts['secret']}"
    output.result(f"To revoke it{', and it alone' if wanted.machine else ''}:\n\n  {revoke}")


async def _share(kubeconfig: str, wanted: Wanted) -> dict[str, Any]:
    """The kubeconfig with the token that all workers share."""
    from handfast.client import machine_tokens
    from handfast.rules.machines import bootstrapper
    from handfast.runtime import files

    path = wanted.out / _SHARED_FILE
    async with connecting.connected(kubeconfig) as reached:
        token = await machine_tokens.shared(reached.client)
        with files.otherwise("name another directory with --out"):
            files.create_directory(wanted.out)
            files.require_own_directory(wanted.out)
            text = _kubeconfig(reached.connection, wanted.server, token)
            files.write_atomically(path, text.encode("utf-8"))
    return {
        "kind": "worker",
        "machine": None,
        "server": wanted.server or reached.connection.server,
        "kubeconfig": str(path),
        "namespace": bootstrapper.NAMESPACE,
        "secret": bootstrapper.TOKEN_SECRET,
        "expires": None,
    }


async def write(kubeconfig: str, wanted: Wanted) -> dict[str, Any]:
    """The kubeconfig with a token for one Machine."""
    from handfast import errors
    from handfast.api import objects
    from handfast.client import machine_tokens
    from handfast.client import machines as client_machines
    from handfast.rules.machines import bootstrapper
    from handfast.runtime import files

    async with connecting.connected(kubeconfig) as reached:
        machine = await client_machines.find(reached.client, wanted.machine or "")
        path = wanted.out / f"kubeconfig-{machine.name}"
        # What may be refused comes first: else a token would be made that nobody has.
        with files.otherwise("name another directory with --out"):
            files.create_directory(wanted.out)
            files.require_own_directory(wanted.out)
        if path.exists() and not wanted.replace:
            raise errors.Refused(f"{path} is there already", reason="FileExists", hint="--replace makes another")
        issued = await machine_tokens.create(reached.client, machine, wanted.seconds, replace=wanted.replace)
        try:
            files.write_atomically(path, _kubeconfig(reached.connection, wanted.server, issued.token).encode("utf-8"))
        except errors.HandfastError:
            # Nobody has it, and nobody will.
            await machine_tokens.revoke(reached.client, issued.secret, issued.secret_uid)
            raise
    return {
        "kind": "worker",
        "machine": f"{machine.namespace}/{machine.name}",
        "server": wanted.server or reached.connection.server,
        "kubeconfig": str(path),
        "namespace": bootstrapper.NAMESPACE,
        "secret": issued.secret,
        "credentialID": issued.id,
        "expires": objects.timestamp(issued.expires),
    }


def _kubeconfig(reached: connection.Connection, server: str | None, token: str) -> str:
    from handfast.bootstrap import kubeconfig

    cluster = kubeconfig.Cluster(
        name=_CLUSTER, server=server or reached.server, certificate_authority_data=reached.ca_pem
    )
    user = kubeconfig.User(name=_USER, token=token)
    return kubeconfig.render(kubeconfig.Kubeconfig(context=f"{_USER}@{_CLUSTER}", cluster=cluster, user=user))
