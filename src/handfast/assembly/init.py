# SPDX-License-Identifier: Apache-2.0
"""`handfast init` on a data directory: its API, served for as long as it takes to write its first objects.

It prints nothing, and holds no lock: the caller owns the directory, and has prepared it. What is written is in
`introduction`.

1. The server listens on a free port of this machine alone. Requests pass every station that any request passes, and are
   in the audit log.
2. What the objects say of the server's address is where it will listen, not where it listens meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Final

from handfast.apiserver import limits
from handfast.assembly import apiserver, config, guard, stores
from handfast.client import api, connection, transport
from handfast.datadir import layout
from handfast.runtime import addresses
from handfast.runtime import clock as clocks

_LOOPBACK: Final = "127.0.0.1"


def servers(listen: addresses.Address, advertise: Sequence[addresses.Address]) -> tuple[str, ...]:
    """Where newcomers are told to go: what is advertised, else where the server listens, by an address for other machines."""
    return tuple(address.url("https") for address in (advertise or addresses.outward(listen) or (listen,)))


@contextlib.asynccontextmanager
async def served(place: layout.Layout, chosen: config.Configuration, clock: clocks.Clock) -> AsyncIterator[api.Client]:
    """The administrator's client of a prepared directory that nobody else serves (1)."""
    server = await apiserver.open_server(_options(place, chosen), clock)
    port = server.address[1]
    # 2. the address is where it will listen
    server.address = (chosen.listen.host, chosen.listen.port)
    await server.start()
    try:
        admin = dataclasses.replace(
            connection.load(str(place.admin_kubeconfig)),
            server=f"https://{addresses.Address(_LOOPBACK, port)}",
            others=(),
        )
        opened = transport.Transport(admin, clock=clock)
        try:
            yield api.Client(opened)
        finally:
            await opened.close()
    finally:
        await server.stop()


def _options(place: layout.Layout, chosen: config.Configuration) -> apiserver.ApiServerOptions:
    path = chosen.audit_log_path
    # Standard output is for what was asked for.
    audit = apiserver.AuditOptions(
        path=str(place.root / path),
        max_mib=chosen.audit_log_max_mib,
        max_files=chosen.audit_log_max_files,
        max_days=chosen.audit_log_max_days,
    )
    return apiserver.ApiServerOptions(
        directory=str(place.root),
        listen=(_LOOPBACK, 0),
        advertise=tuple(str(address) for address in chosen.advertise),
        store=stores.named(place, chosen.store),
        etcd=stores.access(chosen),
        limits=limits.Limits(),
        guard=guard.GuardOptions(anonymous_from="none", issuer=chosen.service_account_issuer),
        audit=None if path in {"none", "-"} else audit,
    )
