# SPDX-License-Identifier: Apache-2.0
"""The credential of one worker, for `handfast machine credentials create --kind worker --machine NAME`.

It has the token made (`client.machine_tokens`), and writes a kubeconfig that a kubelet can use as its bootstrap kubeconfig. The token
is in that file (0600) and nowhere else: it is not printed.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any, Final

from handfast.cli import connecting, durations, output

if TYPE_CHECKING:
    from handfast.client import connection, machine_tokens

DEFAULT_TTL: Final = "365d"
LONGEST: Final = "3650d"
_SHORTEST_SECONDS: Final = 600
_USER: Final = "kubelet"
_CLUSTER: Final = "handfast"


def create(
    *, kubeconfig: str, machine: str, out: str, ttl: str = DEFAULT_TTL, replace: bool = False, form: str
) -> None:
    """Have a token made for this Machine, and write the kubeconfig of it into the directory `out`."""
    import asyncio

    seconds = int(durations.parse(ttl, "--ttl", LONGEST).total_seconds())
    if seconds < _SHORTEST_SECONDS:
        raise output.Usage(f'--ttl: "{ttl}" is too short', hint="a token lives for 10m at least")
    facts = asyncio.run(_create(kubeconfig, machine, pathlib.Path(out).absolute(), seconds, replace=replace))
    if form != "text":
        output.result(output.document(facts, form))
        return
    output.progress(f"created {facts['kubeconfig']} (0600), good until {facts['expires']} or until it is revoked")
    output.result(
        f"To revoke it, and it alone:\n\n  kubectl --namespace {facts['namespace']} delete secret/{facts['secret']}"
    )


async def _create(
    kubeconfig: str, named: str, directory: pathlib.Path, seconds: int, *, replace: bool
) -> dict[str, Any]:
    from handfast import errors
    from handfast.api import objects
    from handfast.client import machine_tokens
    from handfast.rules.machines import bootstrapper
    from handfast.runtime import files

    async with connecting.connected(kubeconfig) as reached:
        machine = await machine_tokens.find(reached.client, named)
        path = directory / f"kubeconfig-{machine.name}"
        # What may be refused comes first: else a token would be made that nobody has.
        with files.otherwise("name another directory with --out"):
            files.create_directory(directory)
            files.require_own_directory(directory)
        if path.exists() and not replace:
            raise errors.Refused(f"{path} is there already", reason="FileExists", hint="--replace makes another")
        issued = await machine_tokens.create(reached.client, machine, seconds, replace=replace)
        try:
            files.write_atomically(path, _kubeconfig(reached.connection, issued).encode("utf-8"))
        except errors.HandfastError:
            # Nobody has it, and nobody will.
            await machine_tokens.revoke(reached.client, issued.secret, issued.secret_uid)
            raise
    return {
        "kind": "worker",
        "machine": f"{machine.namespace}/{machine.name}",
        "server": reached.connection.server,
        "kubeconfig": str(path),
        "namespace": bootstrapper.NAMESPACE,
        "secret": issued.secret,
        "credentialID": issued.id,
        "expires": objects.timestamp(issued.expires),
    }


def _kubeconfig(reached: connection.Connection, issued: machine_tokens.Issued) -> str:
    from handfast.bootstrap import kubeconfig

    cluster = kubeconfig.Cluster(name=_CLUSTER, server=reached.server, certificate_authority_data=reached.ca_pem)
    user = kubeconfig.User(name=_USER, token=issued.token)
    return kubeconfig.render(kubeconfig.Kubeconfig(context=f"{_USER}@{_CLUSTER}", cluster=cluster, user=user))
