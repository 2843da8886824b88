# SPDX-License-Identifier: Apache-2.0
"""Looks up everything that a diagnosis needs, one row each, and hands it over as facts. It judges nothing.

1. The way in comes first. Where it ends before the API, nothing else is asked; but a server that says that it cannot answer now is asked at /readyz why.
2. The other rows are looked up beside one another, each within its deadline, so that one that hangs takes no other with it.
3. Whatever goes wrong with a row is taken down as that row's, with the words of the server. A report is always whole.
4. Where the data directory is that of the server, its roles are asked for their health where it says that they are, and its CA is the one that signs. It is
   that of the server where the server is asked at the address that the directory has, or shows the certificate that the directory has, whatever
   name it is called by. Where it shows none, the directory's own `admin.conf` is taken at its word.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.bootstrap import endpoints as endpoint_words
from handfast.check import reads as reads_module
from handfast.client import api, connection, probes, way
from handfast.datadir import endpoints, layout, own_certificates
from handfast.pki import certificates, pem
from handfast.rules import check
from handfast.rules.diagnoses import facts
from handfast.runtime import clock as clocks
from handfast.runtime import files, tasks

# Rows that ask for many things have longer. A server that answers needs a hundredth of it.
_SECONDS: Final = 10.0
_LONG: Final = 20.0
_WAY: Final = "the way in"
_READY: Final = "ready"
# The reason of a server whose store is away.
_CANNOT: Final = "ServiceUnavailable"
# Keys of endpoints.json: where a role has its health ends so.
_ADMIN: Final = "Admin"
_CONTROLLERS: Final = "controllers"
_MACHINE_CONFIG: Final = "machineConfig"
_CONSOLE: Final = "console"


class Row(msgspec.Struct, frozen=True):
    """One thing to look up: its name, how long it may take, and how."""

    name: str
    seconds: float
    read: Callable[[reads_module.Reads], Awaitable[Any]]


ROWS: Final = (
    Row(_READY, _SECONDS, lambda reads: reads.ready()),
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
    Row("machine-pools", _LONG, lambda reads: reads.pools()),
    Row("bootstrap-credentials", _SECONDS, lambda reads: reads.bootstrap()),
    Row("mesh", _LONG, lambda reads: reads.mesh()),
)
# What somebody looks up who follows nodes by themselves.
BUT_NODES: Final = frozenset(row.name for row in ROWS) - {"nodes"}
# What the facts of one node are made of.
OF_NODE: Final = frozenset({_READY, "requests", "nodes"})
# Told how many rows are done, of how many, and which are not.
Progress = Callable[[int, int, list[str]], None]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is diagnosed, as whom, and where this machine may know more of it."""

    client: api.Client
    used: connection.Connection
    kubeconfig: str
    directory: pathlib.Path
    mesh_namespace: str
    # The one node that is asked for; empty: all.
    node: str = ""


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
    version = "" if isinstance(reach.version, check.Unread) else reach.version
    # 1. where it ends before the API
    if isinstance(reach.version, check.Unread):
        rows = [row for row in rows if row.name == _READY and reach.version.reason == _CANNOT]
    if rows:
        reads = reads_module.Reads(target.client, target.used, version, target.mesh_namespace, clock, target.node)
        async with tasks.Group("check") as group:
            for row in rows:
                group.start(_taken_down(row, reads, clock, known, lambda: _tell(progress, rows, known)), name=row.name)
            # 2. beside one another
            await group.wait()
    # 4. what this machine knows of it
    here = _here(target, reach)
    return _facts(target, clock, reach, known, here, {} if here is None else await _probes(here))


def _tell(progress: Progress, rows: list[Row], known: Mapping[str, Any]) -> None:
    progress(len(known) + 1, len(rows) + 1, [row.name for row in rows if row.name not in known])


async def _taken_down(
    row: Row, reads: reads_module.Reads, clock: clocks.Clock, known: dict[str, Any], tell: Callable[[], None]
) -> None:
    late = check.Unread(
        f"it was not answered within {row.seconds:g} s",
        check.TIMEOUT,
        f"see whether the API server is overloaded; {check.LOG}",
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
    except errors.HandfastError as error:
        return check.refused(error)
    except Exception as error:  # noqa: BLE001  an object that no rule can read must not take the report with it
        return check.not_understood(error)


def _here(target: Target, reach: facts.Reach) -> Mapping[str, Any] | None:
    """What the data directory says of where its control plane answers; None: it is not that of this server (4)."""
    written = endpoints.read(target.directory)
    if written is None:
        return None
    if _is_its_server(target, reach.certificate):
        return written
    try:
        here = endpoint_words.of_server(str(written.get("apiserver")))
        same = here in {endpoint_words.of_server(url) for url in (target.used.server, *target.used.others)}
    except errors.Refused:
        return None
    return written if same else None


def _is_its_server(target: Target, shown: certificates.Certificate | check.Unread) -> bool:
    """Whether the data directory is that of a server that is called by another name than the directory has (4)."""
    place = layout.Layout.at(target.directory)
    if isinstance(shown, check.Unread):
        # It showed nothing: then the directory's own kubeconfig leads nowhere else.
        return pathlib.Path(target.kubeconfig).resolve() == place.admin_kubeconfig.resolve()
    own = _certificate(place.apiserver_certificate)
    return own is not None and own.fingerprint == shown.fingerprint


async def _probes(here: Mapping[str, Any]) -> dict[str, facts.Probe]:
    """What each role says of its health, beside one another (4)."""
    doors = {key.removesuffix(_ADMIN): str(url) for key, url in here.items() if key.endswith(_ADMIN)}
    asked = {name: (url, "/readyz?verbose") for name, url in doors.items()}
    # Its one door says no more than that it lives.
    asked |= {_CONSOLE: (str(here[_CONSOLE]), "/livez")} if _CONSOLE in here else {}
    asked = {name: each for name, each in asked.items() if each[0].startswith("http://")}
    answers = await asyncio.gather(*(probes.readiness(*each) for each in asked.values()))
    return dict(zip(asked, answers, strict=True))


def _certificate(path: pathlib.Path) -> certificates.Certificate | None:
    """The first of a file (4)."""
    try:
        return _leaf(files.read(path, limit=own_certificates.MAX_BYTES))
    except errors.HandfastError:
        return None


def _facts(
    target: Target,
    clock: clocks.Clock,
    reach: facts.Reach,
    known: Mapping[str, Any],
    here: Mapping[str, Any] | None,
    spoken: Mapping[str, facts.Probe],
) -> facts.Facts:
    def row(name: str) -> Any:
        return known.get(name, facts.NOT_ASKED)

    rights, nodes = row("rights"), row("nodes")
    place = layout.Layout.at(target.directory)
    shown = None if here is None else _certificate(place.machine_config_certificate)
    return facts.Facts(
        now=clock.now(),
        reach=reach,
        credential=_leaf(target.used.cert_pem),
        own_ca=target.used.ca_pem,
        # 4. the first of its file signs
        signer_ca=None if here is None else _certificate(place.ca_certificate),
        ready=row(_READY),
        lease=row("lease"),
        controllers=spoken.get(_CONTROLLERS),
        roles=None if here is None else {name: each for name, each in spoken.items() if name != _CONTROLLERS},
        serving={} if shown is None or _MACHINE_CONFIG not in spoken else {_MACHINE_CONFIG: shown},
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
        pools=row("machine-pools"),
        bootstrap=row("bootstrap-credentials"),
        mesh=row("mesh"),
    )


def _leaf(cert_pem: bytes | None) -> certificates.Certificate | None:
    try:
        return None if cert_pem is None else certificates.read(pem.certificates_from_pem(cert_pem)[0])
    except errors.Refused:
        return None
