# SPDX-License-Identifier: Apache-2.0
"""One destination as Envoy is told of it: its cluster and its endpoints, by what is known and what is required. Who is known, it is told.

1. A cluster of requests has endpoints with an identity in TLS, and those without, or which speak no HTTP, in plaintext. One of tunnels has them all in plaintext.
2. Where an identity is required, there is nobody in plaintext: no tunnel, no name of DNS, no endpoint without one. The cluster stays, and says why.
3. What leads back to this workload is called with an identity, or not at all.
4. A destination that nobody is behind, or that is asleep, has no TLS: it costs next to nothing until somebody calls it again. Nor does it follow endpoints:
   Envoy tells the next ones to the cluster that goes, too, a moment before the one with TLS takes its place, and would speak to them in plaintext.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast.rules.envoy import dns, outbound, outbound_routes, resources

ASLEEP: Final = "destination-asleep"
UNKNOWN: Final = "unknown-destination"
BAD: Final = outbound_routes.BAD
NOT_ASKED: Final = "destination-service-away"

Documents = list[tuple[resources.Kind, resources.Document]]


class Standing(msgspec.Struct, frozen=True):
    """What is known of a destination: endpoints, or a name that DNS has; `why` is said where nobody is left.

    `is_home`: it leads to this workload itself (3).
    """

    endpoints: tuple[outbound.Endpoint, ...] = ()
    by_dns: tuple[str, int] | None = None
    why: str = outbound.NO_ENDPOINT
    is_home: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What holds for all destinations at a moment."""

    certified: bool = False
    longest: int = 3600
    require_identity: bool = False
    identity_headers: bool = False


def documents(name: str, standing: Standing, mode: Mode) -> Documents:
    """The cluster of that name, and its endpoints."""
    is_tunnel = name.startswith(outbound.TCP)
    if standing.by_dns is not None and not mode.require_identity:
        return [(resources.Kind.CLUSTER, _by_dns(name, standing.by_dns, mode))]
    rows = _tunnelled(standing, mode) if is_tunnel else _called(standing, mode)
    destination = outbound.Destination(
        name=name,
        identities=tuple(dict.fromkeys(row.identity for row in rows if row.identity)),
        meshed=bool(rows) and all(row.identity for row in rows),
        certified=mode.certified,
        longest=mode.longest,
        identity_headers=mode.identity_headers,
        why=_why(standing, mode),
    )
    # 4. neither TLS nor endpoints where there is nobody
    if not rows and not is_tunnel:
        return [(resources.Kind.CLUSTER, outbound.empty(destination))]
    form = outbound.tunnel if is_tunnel else outbound.cluster
    return [
        (resources.Kind.CLUSTER, form(destination)),
        (resources.Kind.ENDPOINTS, outbound.endpoints(name, rows)),
    ]


def _called(standing: Standing, mode: Mode) -> list[outbound.Endpoint]:
    # 2. nobody in plaintext; 3. with an identity, or not at all
    return [row for row in standing.endpoints if row.identity or not (mode.require_identity or standing.is_home)]


def _tunnelled(standing: Standing, mode: Mode) -> list[outbound.Endpoint]:
    # 1. all in plaintext; 2. or nobody; 3. and nobody at home
    if mode.require_identity or standing.is_home:
        return []
    return [dataclasses.replace(row, identity="") for row in standing.endpoints]


def _by_dns(name: str, place: tuple[str, int], mode: Mode) -> resources.Document:
    destination = outbound.Destination(
        name=name,
        longest=mode.longest,
        identity_headers=mode.identity_headers,
        why=outbound.NOT_RESOLVED,
    )
    return outbound.by_dns(destination, *place)


def _why(standing: Standing, mode: Mode) -> str:
    if standing.is_home:
        return dns.OWN_ADDRESS
    left_out = standing.endpoints or standing.by_dns is not None
    return outbound_routes.IDENTITY_REQUIRED if left_out and mode.require_identity else standing.why
