# SPDX-License-Identifier: Apache-2.0
"""Whom a workload has called, from what Envoy counts for each endpoint of its clusters (`/clusters?format=json`). It counts nothing itself.

1. Clusters of the agent's own are none of the workload's calls: those by demand are, that of DNS, and that of redirected bytes.
2. An endpoint with an identity is called by TLS in clusters of requests, and its hostname is the name that it proved. Tunnels are bytes, whoever is at their end.
3. What nobody called is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from handfast.api import jsonpath
from handfast.rules.envoy import dns, observing, outbound, transparent


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint that was called: `total` requests, or connections of a tunnel, since Envoy was started."""

    cluster: str
    address: str
    port: int
    destination: str
    peer: str = ""
    unsecured: str = ""
    total: int = 0


def called(document: Mapping[str, Any]) -> Iterator[Called]:
    for cluster in jsonpath.mappings(document, "cluster_statuses"):
        name = jsonpath.text(cluster, "name")
        # 1. by demand, by DNS, or by where they were going
        if name.startswith((outbound.HTTP, outbound.TCP)) or name in {dns.CLUSTER, transparent.ORIGINAL}:
            for host in jsonpath.mappings(cluster, "host_statuses"):
                row = _row(name, host)
                # 3. called, and at a port
                if row.total and row.port:
                    yield row


def _row(cluster: str, host: Mapping[str, Any]) -> Called:
    socket = jsonpath.mapping(host, "address", "socket_address")
    address, port = jsonpath.text(socket, "address"), jsonpath.number(socket, "port_value")
    hostname = jsonpath.text(host, "hostname")
    # 2. a name that was proved, or none
    peer = hostname if cluster.startswith(outbound.HTTP) else ""
    destination, unsecured, figure = cluster.partition("/")[2], "" if peer else observing.NO_IDENTITY, "rq_total"
    if cluster == dns.CLUSTER:
        destination = hostname
    elif cluster == transparent.ORIGINAL:
        destination, unsecured, figure = f"{address}:{port}", observing.NOT_HTTP, "cx_total"
    elif cluster.startswith(outbound.TCP):
        unsecured, figure = observing.TUNNEL, "cx_total"
    return Called(
        cluster=cluster,
        address=address,
        port=port,
        destination=destination,
        peer=peer,
        unsecured=unsecured,
        total=_total(host, figure),
    )


def _total(host: Mapping[str, Any], name: str) -> int:
    values = [jsonpath.text(row, "value") for row in jsonpath.mappings(host, "stats") if row.get("name") == name]
    return int(values[0]) if values and values[0].isdecimal() else 0
