# SPDX-License-Identifier: Apache-2.0
"""Who talks to whom in a mesh: what the agents of both ends reported, put together. It looks nothing up, and judges no call.

1. What two ends with identities say of each other is one edge: by client, server and port. Of one account the Pods are put together.
2. An end that has shown no identity is nobody: for a server all such clients are one, for each reason that it is not secured. A client says what it called instead.
3. Both ends count. The larger count is shown, since each tells of a request when it gets to it; the earliest instant, and the latest.
4. What was judged is the server's to say: the last that it said counts.
5. Of an end that has not reported an edge it is said why: an agent of that identity reports and has not seen it, or nobody of that identity reports. That is so for a stock
   proxy, and for who is gone.

What an agent reports is its own word.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from handfast.api import jsonpath, objects
from handfast.rules.mesh import names, reports


class Side(enum.StrEnum):
    """What is known of an edge from one of its ends (5)."""

    REPORTED = "reported"
    NOT_SEEN = "not seen"
    UNKNOWN = "unknown"
    NOBODY = "no identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """An edge as one agent said it."""

    direction: str
    port: int
    secured: bool
    count: int
    peer: str = ""
    destination: str = ""
    unsecured: str = ""
    refused: str = ""
    would_be_refused: str = ""
    first: datetime.datetime | None = None
    last: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """One that reports: its identity, and its edges."""

    identity: str
    edges: tuple[Reported, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Who talks to whom; an end without an identity is empty, and `destination` is what its client called."""

    client: str
    server: str
    destination: str
    port: int
    secured: bool
    unsecured: str
    count: int
    refused: str
    would_be_refused: str
    since: datetime.datetime | None
    last: datetime.datetime | None
    client_side: Side
    server_side: Side


def read(document: objects.Document) -> Workload | None:
    """A MeshWorkload; None where it has no identity. What cannot be read is left out."""
    identity = jsonpath.text(document, "status", "identity")
    rows = jsonpath.mappings(document, "status", "edges")
    return Workload(identity, tuple(map(_reported, rows))) if identity else None


def _reported(row: objects.Document) -> Reported:
    return Reported(
        direction=jsonpath.text(row, "direction"),
        port=jsonpath.number(row, "port"),
        secured=row.get("secured") is True,
        count=jsonpath.number(row, "count"),
        peer=jsonpath.text(row, "peer"),
        destination=jsonpath.text(row, "destination"),
        unsecured=jsonpath.text(row, "unsecured"),
        refused=jsonpath.text(row, "refused"),
        would_be_refused=jsonpath.text(row, "wouldBeRefused"),
        first=_instant(jsonpath.text(row, "firstSeen")),
        last=_instant(jsonpath.text(row, "lastSeen")),
    )


def _instant(text: str) -> datetime.datetime | None:
    try:
        return objects.parse_timestamp(text)
    except ValueError:
        return None


_Key = tuple[str, str, int, str, str]


def joined(workloads: Sequence[Workload]) -> list[Edge]:
    """Every edge, in the order of its ends."""
    known = {workload.identity for workload in workloads}
    inbound: dict[_Key, list[Reported]] = {}
    outbound: dict[_Key, list[Reported]] = {}
    for workload in workloads:
        for row in workload.edges:
            rows = inbound if row.direction == reports.INBOUND else outbound
            rows.setdefault(_key(workload.identity, row), []).append(row)
    return [_edge(key, outbound.get(key, []), inbound.get(key, []), known) for key in sorted({*inbound, *outbound})]


def _key(identity: str, row: Reported) -> _Key:
    if row.direction == reports.INBOUND:
        # 2. nobody, for each reason
        return row.peer, identity, row.port, "", row.unsecured
    # 1. by both; 2. what was called instead
    return identity, row.peer, row.port, "" if row.peer else row.destination, row.unsecured


def _edge(key: _Key, sent: Sequence[Reported], received: Sequence[Reported], known: Iterable[str]) -> Edge:
    client, server, port, destination, unsecured = key
    both = [*sent, *received]
    # 4. what was said last
    judged = max(received, key=lambda row: row.last.timestamp() if row.last else 0.0, default=None)
    return Edge(
        client=client,
        server=server,
        destination=destination or next((row.destination for row in sent), ""),
        port=port,
        secured=all(row.secured for row in both),
        unsecured=unsecured,
        # 3. the larger, the earliest and the latest
        count=max(sum(row.count for row in rows) for rows in (sent, received)),
        refused="" if judged is None else judged.refused,
        would_be_refused="" if judged is None else judged.would_be_refused,
        since=min((row.first for row in both if row.first), default=None),
        last=max((row.last for row in both if row.last), default=None),
        client_side=_side(client, sent, known),
        server_side=_side(server, received, known),
    )


def _side(identity: str, rows: Sequence[Reported], known: Iterable[str]) -> Side:
    # 5. why an end has not reported it
    if rows:
        return Side.REPORTED
    if not identity:
        return Side.NOBODY
    return Side.NOT_SEEN if identity in known else Side.UNKNOWN


def namespaces(edge: Edge, mesh: names.Mesh) -> set[str]:
    """Those of the ends that are workloads of the mesh."""
    return {account.namespace for end in (edge.client, edge.server) if (account := _account(end, mesh)) is not None}


def title(identity: str, mesh: names.Mesh) -> str:
    """An end as people write it: namespace and account, or the whole name where it is none of this mesh."""
    account = _account(identity, mesh)
    return identity if account is None else f"{account.namespace}/{account.name}"


def _account(identity: str, mesh: names.Mesh) -> names.Account | None:
    try:
        return mesh.account(identity)
    except names.NotAnIdentity:
        return None


def sentence(edge: Edge) -> str:
    """What was seen of an edge, for people."""
    since = f" since {objects.timestamp(edge.since)}" if edge.since else ""
    return f"{'once' if edge.count == 1 else f'{edge.count} times'}{since}, {security(edge)}, {judgement(edge)}"


def security(edge: Edge) -> str:
    return "secured" if edge.secured else f"not secured: {edge.unsecured or 'nobody says why'}"


def judgement(edge: Edge) -> str:
    """What the server does with such calls."""
    if edge.refused:
        return f"refused: {edge.refused}"
    if edge.would_be_refused:
        return f"would be refused: {edge.would_be_refused}"
    return "allowed" if edge.server_side is Side.REPORTED else "nobody says how it was judged"
