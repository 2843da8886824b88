# SPDX-License-Identifier: Apache-2.0
"""The messages by which proxies of Linkerd's protocol are told whom to let in, and how to reach a Service: inbound and outbound policy.

Only what is said here, by its field numbers: no rate limits, no retries, no routes of gRPC or TLS. It gives no meaning to any of them.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.wire import descriptors, mesh_messages
from handfast.wire.descriptors import DURATION, many, one, texts
from handfast.wire.mesh_messages import DESTINATION, META, NET

HTTP_TYPES: Final = "io.linkerd.proxy.http_types"
HTTP_ROUTE: Final = "io.linkerd.proxy.http_route"
INBOUND: Final = "io.linkerd.proxy.inbound"
OUTBOUND: Final = "io.linkerd.proxy.outbound"
INBOUND_SERVICE: Final = f"{INBOUND}.InboundServerPolicies"
OUTBOUND_SERVICE: Final = f"{OUTBOUND}.OutboundPolicies"
# Of the methods that have a number.
GET: Final = 0

_METADATA: Final = f"{META}.Metadata"
_HTTP_TYPES: Final[descriptors.Messages] = {
    # An enumeration is a number on the wire.
    "HttpMethod": (one("registered", 1, "int32", oneof="type"), one("unregistered", 2, "string", oneof="type")),
}
_HTTP_ROUTE: Final[descriptors.Messages] = {
    "HttpRouteMatch": (one("path", 1, f"{HTTP_ROUTE}.PathMatch"), one("method", 4, f"{HTTP_TYPES}.HttpMethod")),
    "PathMatch": tuple(
        one(name, number, "string", oneof="kind") for number, name in enumerate(("exact", "prefix", "regex"), 1)
    ),
}
_PERMIT: Final = f"{INBOUND}.Authn.PermitUnauthenticated"
_INBOUND: Final[descriptors.Messages] = {
    "PortSpec": (one("workload", 1, "string"), one("port", 2, "uint32")),
    "Server": (
        one("protocol", 1, f"{INBOUND}.ProxyProtocol"),
        many("server_ips", 2, f"{NET}.IPAddress"),
        many("authorizations", 3, f"{INBOUND}.Authz"),
        texts("labels", 4),
    ),
    "ProxyProtocol": (
        one("detect", 1, f"{INBOUND}.ProxyProtocol.Detect", oneof="kind"),
        one("opaque", 2, f"{INBOUND}.ProxyProtocol.Opaque", oneof="kind"),
    ),
    "ProxyProtocol.Detect": (one("timeout", 1, DURATION), many("http_routes", 3, f"{INBOUND}.HttpRoute")),
    "ProxyProtocol.Opaque": (),
    "Authz": (
        many("networks", 1, f"{INBOUND}.Network"),
        one("authentication", 2, f"{INBOUND}.Authn"),
        texts("labels", 3),
        one("metadata", 4, _METADATA),
    ),
    "Network": (one("net", 1, f"{NET}.IPNetwork"), many("except", 2, f"{NET}.IPNetwork")),
    "Authn": (
        one("unauthenticated", 1, _PERMIT, oneof="permit"),
        one("meshTLS", 2, f"{INBOUND}.Authn.PermitMeshTLS", oneof="permit"),
    ),
    "Authn.PermitUnauthenticated": (),
    "Authn.PermitMeshTLS": (
        one("unauthenticated", 1, _PERMIT, oneof="clients"),
        one("identities", 2, f"{INBOUND}.Authn.PermitMeshTLS.PermitClientIdentities", oneof="clients"),
    ),
    "Authn.PermitMeshTLS.PermitClientIdentities": (
        many("identities", 1, f"{INBOUND}.Identity"),
        many("suffixes", 2, f"{INBOUND}.IdentitySuffix"),
    ),
    "Identity": (one("name", 1, "string"),),
    "IdentitySuffix": (many("parts", 1, "string"),),
    "HttpRoute": (
        one("metadata", 1, _METADATA),
        many("authorizations", 3, f"{INBOUND}.Authz"),
        many("rules", 4, f"{INBOUND}.HttpRoute.Rule"),
    ),
    "HttpRoute.Rule": (many("matches", 1, f"{HTTP_ROUTE}.HttpRouteMatch"),),
}


def _route(kind: str, rule: tuple[descriptors.Field, ...]) -> dict[str, tuple[descriptors.Field, ...]]:
    """A route and what is in it: of HTTP, and of connections that are opaque, in the same form."""
    inside = f"{OUTBOUND}.{kind}"
    return {
        kind: (one("metadata", 1, _METADATA), many("rules", 3, f"{inside}.Rule")),
        f"{kind}.Rule": rule,
        f"{kind}.Distribution": (one("first_available", 2, f"{inside}.Distribution.FirstAvailable", oneof="kind"),),
        f"{kind}.Distribution.FirstAvailable": (many("backends", 1, f"{inside}.RouteBackend"),),
        f"{kind}.RouteBackend": (one("backend", 1, f"{OUTBOUND}.Backend"),),
    }


_BALANCER: Final = f"{OUTBOUND}.Backend.BalanceP2c"
_OUTBOUND: Final[descriptors.Messages] = {
    "TrafficSpec": (
        one("source_workload", 1, "string"),
        one("addr", 2, f"{NET}.TcpAddress", oneof="target"),
        one("authority", 3, "string", oneof="target"),
    ),
    "OutboundPolicy": (one("protocol", 1, f"{OUTBOUND}.ProxyProtocol"), one("metadata", 2, _METADATA)),
    "ProxyProtocol": (
        one("detect", 1, f"{OUTBOUND}.ProxyProtocol.Detect", oneof="kind"),
        one("opaque", 2, f"{OUTBOUND}.ProxyProtocol.Opaque", oneof="kind"),
    ),
    "ProxyProtocol.Detect": (
        one("timeout", 1, DURATION),
        one("opaque", 2, f"{OUTBOUND}.ProxyProtocol.Opaque"),
        one("http1", 3, f"{OUTBOUND}.ProxyProtocol.Http"),
        one("http2", 4, f"{OUTBOUND}.ProxyProtocol.Http"),
    ),
    "ProxyProtocol.Opaque": (many("routes", 1, f"{OUTBOUND}.OpaqueRoute"),),
    # Two messages of one form in the original: nobody sees their names.
    "ProxyProtocol.Http": (many("routes", 1, f"{OUTBOUND}.HttpRoute"),),
    **_route(
        "HttpRoute",
        (
            many("matches", 1, f"{HTTP_ROUTE}.HttpRouteMatch"),
            one("backends", 3, f"{OUTBOUND}.HttpRoute.Distribution"),
        ),
    ),
    **_route("OpaqueRoute", (one("backends", 1, f"{OUTBOUND}.OpaqueRoute.Distribution"),)),
    "Backend": (
        one("metadata", 1, _METADATA),
        one("forward", 2, f"{DESTINATION}.WeightedAddr", oneof="kind"),
        one("balancer", 3, _BALANCER, oneof="kind"),
        one("queue", 4, f"{OUTBOUND}.Queue"),
    ),
    "Backend.EndpointDiscovery": (one("dst", 1, f"{OUTBOUND}.Backend.EndpointDiscovery.DestinationGet", oneof="kind"),),
    "Backend.EndpointDiscovery.DestinationGet": (one("path", 1, "string"),),
    "Backend.BalanceP2c": (
        one("discovery", 1, f"{OUTBOUND}.Backend.EndpointDiscovery"),
        one("peak_ewma", 2, f"{_BALANCER}.PeakEwma", oneof="load"),
    ),
    "Backend.BalanceP2c.PeakEwma": (one("default_rtt", 1, DURATION), one("decay", 2, DURATION)),
    "Queue": (one("capacity", 1, "uint32"), one("failfast_timeout", 2, DURATION)),
}


def _add() -> None:
    pool = mesh_messages.POOL
    pool.add(HTTP_TYPES, _HTTP_TYPES)
    pool.add(HTTP_ROUTE, _HTTP_ROUTE, (HTTP_TYPES,))
    pool.add(INBOUND, _INBOUND, (NET, META, HTTP_ROUTE))
    pool.add(OUTBOUND, _OUTBOUND, (NET, META, DESTINATION, HTTP_ROUTE))


_add()
PortSpec: Final[Any] = mesh_messages.POOL.message(f"{INBOUND}.PortSpec")
Server: Final[Any] = mesh_messages.POOL.message(f"{INBOUND}.Server")
Authz: Final[Any] = mesh_messages.POOL.message(f"{INBOUND}.Authz")
HttpRoute: Final[Any] = mesh_messages.POOL.message(f"{INBOUND}.HttpRoute")
TrafficSpec: Final[Any] = mesh_messages.POOL.message(f"{OUTBOUND}.TrafficSpec")
OutboundPolicy: Final[Any] = mesh_messages.POOL.message(f"{OUTBOUND}.OutboundPolicy")
