# SPDX-License-Identifier: Apache-2.0
"""Looks up everything that a diagnosis needs, one row each, and hands it over as facts. It judges nothing.

1. The way in comes first. Where it ends before the API, nothing else is asked.
2. The other rows are looked up beside one another, each within its deadline, so that one that hangs takes no other with it.
3. Whatever goes wrong with a row is taken down as that row's, with the words of the server. A report is always whole.
4. Where the data directory is that of the server, the controllers are asked for their health where it says that they are.
"""

from __future__ import annotations

import pathlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import status
from handfast.bootstrap import endpoints as endpoint_words
from handfast.check import reads as reads_module
from handfast.client import api, connection, probes, way
from handfast.datadir import endpoints
from handfast.pki import certificates, pem
from handfast.rules import check
from handfast.rules.diagnoses import facts
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

# Rows that ask for many things have longer. A server that answers needs a hundredth of it.
_SECONDS: Final = 10.0
_LONG: Final = 20.0
_WAY: Final = "the way in"


class Row(msgspec.Struct, frozen=True):
    """One thing to look up: its name, how long it may take, and how."""

    name: str
    seconds: float
    read: Callable[[reads_module.Reads], Awaitable[Any]]


ROWS: Final = (
    Row("ready", _SECONDS, lambda reads: reads.ready()),
    Row("lease", _SECONDS, lambda reads: reads.lease()),
    Row("rights", _LONG, lambda reads: reads.rights()),
    Row("webhooks", _LONG, lambda reads: reads.webhooks()),
    Row("client-cas", _SECONDS, lambda reads: reads.client_cas()),
    Row("cluster-info", _SECONDS, lambda reads: reads.cluster_info()),
    Row("stranger", _SECONDS, lambda reads: reads.stranger()),
    Row("tokens", _SECONDS, lambda reads: reads.tokens()),
    Row("requests", _LONG, lambda reads: reads.requests()),
    Row("nodes", _LONG, lambda reads: reads.nodes()),
    Row("bindings", _SECONDS, lambda reads: reads.bindings()),
    Row("machines", _LONG, lambda reads: reads.machines()),
    Row("mesh", _LONG, lambda reads: reads.mesh()),
)
# What somebody looks up who follows nodes by themselves.
BUT_NODES: Final = frozenset(row.name for row in ROWS) - {"nodes"}
# What the facts of one node are made of.
OF_NODE: Final = frozenset({"ready", "requests", "nodes"})
# Told how many rows are done, of how many, and which are not.
Progress = Callable[[int, int, list[str]], None]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is diagnosed, as whom, and where this machine may know more of it."""

    client: api.Client
    used: connection.Connection
    kubeconfig: str
    directory: pathlib.Path
    mesh_namespace: str


async def look(
    target: Target, clock: clocks.Clock, progress: Progress, wanted: frozenset[str] = frozenset()
) -> facts.Facts:
    """The facts; `wanted` are the names of the rows that count, none: all."""
    rows = [row for row in ROWS if not wanted or row.name in wanted]
    total = len(rows) + 1
    progress(0, total, [_WAY])
    # 1. the way in
    reach = await way.Way(target.client, target.used, target.kubeconfig, clock).walk()
    known: dict[str, Any] = {}
    if isinstance(reach.version, str):
        reads = reads_module.Reads(target.client, target.used, reach.version, target.mesh_namespace, clock)
        async with tasks.Group("check") as group:
            for row in rows:
                group.start(_taken_down(row, reads, clock, known, lambda: _tell(progress, rows, known)), name=row.name)
            # 2. beside one another
            await group.wait()
    probe = await _controllers(target)
    return _facts(target, clock, reach, known, probe)


def _tell(progress: Progress, rows: list[Row], known: Mapping[str, Any]) -> None:
    progress(len(known) + 1, len(rows) + 1, [row.name for row in rows if row.name not in known])


async def _taken_down(
    row: Row, reads: reads_module.Reads, clock: clocks.Clock, known: dict[str, Any], tell: Callable[[], None]
) -> None:
    late = check.Unread(
        f"it was not answered within {row.seconds:g} s", check.TIMEOUT, "see whether the API server is overloaded"
    )
    seen: list[Any] = []

    async def ask() -> None:
        seen.append(await _read(row, reads))

    # 2. each within its deadline
    await tasks.within(ask(), clock, row.seconds)
    known[row.name] = seen[0] if seen else late
    tell()


async def _read(row: Row, reads: reads_module.Reads) -> Any:
    # 3. its own trouble
    try:
        return await row.read(reads)
    except status.StatusError as error:
        return check.Unread(error.message)
    except errors.HandfastError as error:
        reason = check.TIMEOUT if error.reason == check.TIMEOUT else check.UNKNOWN
        return check.Unread(error.message, reason, error.hint or "")
    except Exception as error:  # noqa: BLE001  an object that no rule can read must not take the report with it
        return check.Unread(f"what is there cannot be understood ({type(error).__name__})")


async def _controllers(target: Target) -> facts.Probe | None:
    """What the controllers say, where the directory is that of this server (4)."""
    written = endpoints.read(target.directory)
    if written is None:
        return None
    try:
        here = endpoint_words.of_server(str(written.get("apiserver")))
        same = here in {endpoint_words.of_server(url) for url in (target.used.server, *target.used.others)}
    except errors.Refused:
        return None
    where = str(written.get("controllersAdmin") or "")
    return await probes.readiness(where) if same and where.startswith("http://") else None


def _facts(
    target: Target, clock: clocks.Clock, reach: facts.Reach, known: Mapping[str, Any], probe: facts.Probe | None
) -> facts.Facts:
    def row(name: str) -> Any:
        return known.get(name, facts.NOT_ASKED)

    rights, nodes = row("rights"), row("nodes")
    return facts.Facts(
        now=clock.now(),
        reach=reach,
        credential=_leaf(target.used.cert_pem),
        own_ca=target.used.ca_pem,
        ready=row("ready"),
        lease=row("lease"),
        controllers=probe,
        missing_rights=rights if isinstance(rights, check.Unread) else rights.missing,
        controllers_user="" if isinstance(rights, check.Unread) else rights.user,
        cluster_info=row("cluster-info"),
        stranger=row("stranger"),
        tokens=row("tokens"),
        client_cas=row("client-cas"),
        webhooks=row("webhooks"),
        requests=row("requests"),
        nodes=nodes if isinstance(nodes, check.Unread) else nodes.objects,
        hidden=() if isinstance(nodes, check.Unread) else nodes.unread,
        bindings=row("bindings"),
        machines=row("machines"),
        mesh=row("mesh"),
    )


def _leaf(cert_pem: bytes | None) -> certificates.Certificate | None:
    try:
        return None if cert_pem is None else certificates.read(pem.certificates_from_pem(cert_pem)[0])
    except errors.Refused:
        return None
