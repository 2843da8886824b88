# SPDX-License-Identifier: Apache-2.0
"""The listeners of transparent mode, to which the kernel redirects a Pod's connections, and the clusters of where they were going. It redirects nothing.

The chains are those of `inbound`, and the manager of requests is `outbound`'s: here they are chosen by the original destination.

1. Each connection's original destination is read first. Inbound, the application is called at just that address; outbound, requests go to the
   cluster of that address, and bytes to the address itself.
2. Inbound, only the Pod's own addresses are forwarded to, where they are known: nobody has the proxy connect elsewhere.
3. Whoever connects to a port of the proxy itself, and so to no destination, is reset: else the proxy would call itself for ever.
4. Where a port lets bytes without a name in, or not, other than the rest, it has chains of its own: Envoy looks at the port first, and never goes back.
5. On opaque ports nothing is detected: the inspectors are off there, and everything is bytes.
6. Outbound, what is no HTTP goes on as it is, without TLS of the proxy's. Where an identity is required it is reset.
7. Both versions of IP are listened on, where there are two.

| who | holding | tries | stopped by | shown in tests/scenarios/test_mesh_transparent.py |
|---|---|---|---|---|
| a machine of the same network | packets for another address | have the proxy connect to it | 2 | test_what_is_for_another_address_is_not_forwarded |
| a client | the proxy's own ports | have the proxy call itself | 3 | test_the_proxys_own_ports_lead_nowhere |
| a client that no policy allows | a protocol that is no HTTP | reach the application past the policy | 4 | test_bytes_are_refused_on_a_port_where_not_everybody_may_come_in |
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast.rules.envoy import http, inbound, outbound, ports, refusals, resources

# Where connections of the application's were going that are no HTTP.
ORIGINAL: Final = "original"
# What names a destination of a request, in place of its authority.
DESTINATION: Final = "%DOWNSTREAM_LOCAL_ADDRESS%"
_ORIGINAL: Final = "envoy.extensions.filters.listener.original_dst.v3.OriginalDst"
# 7. the same place in the other version of IP
_OTHER: Final = {"0.0.0.0": "::", "127.0.0.1": "::1", "::": "0.0.0.0", "::1": "127.0.0.1"}  # noqa: S104  compared


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a listener is, and whether it is in both versions of IP; `own` are the ports of the proxy itself, `opaque` ranges of opaque ones."""

    host: str
    port: int
    both: bool = False
    own: tuple[int, ...] = ()
    opaque: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected:
    """Connections to the workload: to which addresses (none: to any), and the ports whose `tcp` is not that of the rest."""

    place: Place
    facts: inbound.Facts
    ips: tuple[str, ...] = ()
    others: tuple[int, ...] = ()


def every(identity: str = "", longest: int = 3600, *, tcp: bool = True) -> inbound.Facts:
    """The facts of all ports at once."""
    return inbound.Facts(host="", port=ports.EVERY, identity=identity, longest=longest, tcp=tcp)


def listener(redirected: Redirected, state: inbound.State) -> resources.Document:
    """Of connections to the workload."""
    rest = redirected.facts
    chains = _matching(inbound.chains(rest, state), _addresses(redirected.ips))
    # 4. ports of their own
    for number in redirected.others:
        turned = inbound.chains(_turned(rest), state)
        chains += _matching(turned, {**_addresses(redirected.ips), "destination_port": number}, f"-{number}")
    document = _listener(ports.EVERY.listener, redirected.place, chains)
    # 2. to nobody else
    closed = (
        {"default_filter_chain": {"name": "elsewhere", "filters": [inbound.reset(refusals.ELSEWHERE)]}}
        if redirected.ips
        else {}
    )
    return {**document, "traffic_direction": "INBOUND", **closed}


def _turned(facts: inbound.Facts) -> inbound.Facts:
    return every(facts.identity, facts.longest, tcp=not facts.tcp)


def _addresses(ips: Sequence[str]) -> dict[str, Any]:
    rows = [{"address_prefix": ip, "prefix_len": ipaddress.ip_address(ip).max_prefixlen} for ip in ips]
    return {"prefix_ranges": rows} if rows else {}


def _matching(chains: Sequence[resources.Document], more: dict[str, Any], suffix: str = "") -> list[resources.Document]:
    return [
        {**chain, "name": f"{chain['name']}{suffix}", "filter_chain_match": {**chain["filter_chain_match"], **more}}
        for chain in chains
    ]


def calling(place: Place, manager: resources.Document, *, require_identity: bool) -> resources.Document:
    """The listener of connections that the workload opens; `manager` does requests."""
    plaintext = {"transport_protocol": "raw_buffer"}
    # 6. as it is, or not at all
    relays = {
        name: inbound.reset(refusals.OUTBOUND) if require_identity else inbound.relay(f"out_{name}", ORIGINAL)
        for name in ("tcp", "tls")
    }
    chains = [
        inbound.chain("http", {**plaintext, "application_protocols": list(inbound.REQUESTS)}, manager),
        inbound.chain("tcp", plaintext, relays["tcp"]),
        inbound.chain("tls", {"transport_protocol": "tls"}, relays["tls"]),
    ]
    return {**_listener(outbound.NAME, place, chains), "traffic_direction": "OUTBOUND"}


def _listener(name: str, place: Place, chains: Sequence[resources.Document]) -> resources.Document:
    # 3. to itself: nowhere
    numbers = dict.fromkeys((place.port, *place.own))
    own = [
        inbound.chain(f"own-{number}", {"destination_port": number}, inbound.reset(refusals.OWN_PORT))
        for number in numbers
    ]
    document = {
        "name": name,
        "address": resources.address(place.host, place.port),
        "enable_reuse_port": False,
        "listener_filters": list(_filters(place.opaque)),
        "filter_chains": [*chains, *own],
    }
    # 7. both versions
    if place.both and place.host in _OTHER:
        other = resources.address(_OTHER[place.host], place.port)
        document["additional_addresses"] = [{"address": other}]
    return document


def _filters(opaque: Sequence[tuple[int, int]]) -> Iterator[resources.Document]:
    # 1. the destination first
    yield resources.extension("envoy.filters.listener.original_dst", _ORIGINAL)
    # 5. nothing is detected
    rules = [{"destination_port_range": {"start": first, "end": last + 1}} for first, last in opaque]
    off: dict[str, Any] = {}
    if rules:
        off = {"filter_disabled": rules[0] if len(rules) == 1 else {"or_match": {"rules": rules}}}
    yield from ({**inspector, **off} for inspector in inbound.inspectors())


def application() -> tuple[resources.Document, resources.Document]:
    """The clusters of the application, at the address that was called: as it was called, and in HTTP/1.1 (see `inbound_routes`)."""
    every = ports.EVERY
    return _by_destination(every.cluster, http.AS_CALLED), _by_destination(every.http1_cluster, http.HTTP1)


def original() -> resources.Document:
    """The cluster of where bytes of the application's were going."""
    return _by_destination(ORIGINAL)


def _by_destination(name: str, options: dict[str, Any] | None = None) -> resources.Document:
    # 1. that very address
    document: dict[str, Any] = {
        "name": name,
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "1s",
    }
    if options is not None:
        document["typed_extension_protocol_options"] = {http.OPTIONS: resources.typed(http.OPTIONS, **options)}
    return document
