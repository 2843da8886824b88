# SPDX-License-Identifier: Apache-2.0
"""The messages that meshes of Linkerd's protocol speak: identity, addresses and destinations, by their field numbers.

Only what the services here say or read: an unknown field is skipped by the library. It gives no meaning to any of them.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.wire import descriptors
from handfast.wire.descriptors import DURATION, TIMESTAMP, many, one, texts

IDENTITY: Final = "io.linkerd.proxy.identity"
NET: Final = "io.linkerd.proxy.net"
META: Final = "io.linkerd.proxy.meta"
DESTINATION: Final = "io.linkerd.proxy.destination"

IDENTITY_SERVICE: Final = f"{IDENTITY}.Identity"
DESTINATION_SERVICE: Final = f"{DESTINATION}.Destination"

_IDENTITY: Final[descriptors.Messages] = {
    "CertifyRequest": (
        one("identity", 1, "string"),
        one("token", 2, "bytes"),
        # DER, whatever the comment in the original file says.
        one("certificate_signing_request", 3, "bytes"),
    ),
    "CertifyResponse": (
        one("leaf_certificate", 1, "bytes"),
        many("intermediate_certificates", 2, "bytes"),
        one("valid_until", 3, TIMESTAMP),
    ),
}
_NET: Final[descriptors.Messages] = {
    "IPv6": (one("first", 1, "fixed64"), one("last", 2, "fixed64")),
    "IPAddress": (one("ipv4", 1, "fixed32", oneof="ip"), one("ipv6", 2, f"{NET}.IPv6", oneof="ip")),
    "IPNetwork": (one("ip", 1, f"{NET}.IPAddress"), one("prefix_len", 2, "uint32")),
    "TcpAddress": (one("ip", 1, f"{NET}.IPAddress"), one("port", 2, "uint32")),
}
_META: Final[descriptors.Messages] = {
    "Resource": (
        *(
            one(name, number, "string")
            for number, name in enumerate(("group", "kind", "name", "namespace", "section"), 1)
        ),
        one("port", 6, "uint32"),
    ),
    "Metadata": (one("default", 1, "string", oneof="kind"), one("resource", 2, f"{META}.Resource", oneof="kind")),
}
_IDENTITY_NAME: Final = f"{DESTINATION}.TlsIdentity.DnsLikeIdentity"
_DESTINATION: Final[descriptors.Messages] = {
    "GetDestination": (one("scheme", 1, "string"), one("path", 2, "string"), one("context_token", 3, "string")),
    "Update": (
        one("add", 1, f"{DESTINATION}.WeightedAddrSet", oneof="update"),
        one("remove", 2, f"{DESTINATION}.AddrSet", oneof="update"),
        one("no_endpoints", 3, f"{DESTINATION}.NoEndpoints", oneof="update"),
    ),
    "AddrSet": (many("addrs", 1, f"{NET}.TcpAddress"),),
    "WeightedAddrSet": (many("addrs", 1, f"{DESTINATION}.WeightedAddr"), texts("metric_labels", 2)),
    "WeightedAddr": (
        one("addr", 1, f"{NET}.TcpAddress"),
        one("weight", 3, "uint32"),
        texts("metric_labels", 4),
        one("tls_identity", 5, f"{DESTINATION}.TlsIdentity"),
        one("protocol_hint", 6, f"{DESTINATION}.ProtocolHint"),
        one("authority_override", 7, f"{DESTINATION}.AuthorityOverride"),
        one("http2", 8, f"{DESTINATION}.Http2ClientParams"),
        one("resource_ref", 9, f"{META}.Metadata"),
    ),
    "TlsIdentity": (
        one("dns_like_identity", 1, _IDENTITY_NAME, oneof="strategy"),
        one("uri_like_identity", 3, f"{DESTINATION}.TlsIdentity.UriLikeIdentity", oneof="strategy"),
        one("server_name", 4, _IDENTITY_NAME),
    ),
    "TlsIdentity.DnsLikeIdentity": (one("name", 1, "string"),),
    "TlsIdentity.UriLikeIdentity": (one("uri", 1, "string"),),
    "AuthorityOverride": (one("authority_override", 1, "string"),),
    "NoEndpoints": (one("exists", 1, "bool"),),
    "ProtocolHint": (
        one("h2", 1, f"{DESTINATION}.ProtocolHint.H2", oneof="protocol"),
        one("opaque_transport", 2, f"{DESTINATION}.ProtocolHint.OpaqueTransport"),
        one("opaque", 3, f"{DESTINATION}.ProtocolHint.Opaque", oneof="protocol"),
    ),
    "ProtocolHint.H2": (),
    "ProtocolHint.Opaque": (),
    "ProtocolHint.OpaqueTransport": (one("inbound_port", 1, "uint32"),),
    "Http2ClientParams": (
        one("flow_control", 1, f"{DESTINATION}.Http2ClientParams.FlowControl"),
        one("keep_alive", 2, f"{DESTINATION}.Http2ClientParams.KeepAlive"),
        one("internals", 3, f"{DESTINATION}.Http2ClientParams.Internals"),
    ),
    "Http2ClientParams.FlowControl": (
        one("initial_connection_window_size", 1, "uint32"),
        one("initial_stream_window_size", 2, "uint32"),
        one("adaptive_flow_control", 3, "bool"),
    ),
    "Http2ClientParams.KeepAlive": (
        one("interval", 1, DURATION),
        one("timeout", 2, DURATION),
        one("while_idle", 3, "bool"),
    ),
    "Http2ClientParams.Internals": (
        one("max_concurrent_reset_streams", 1, "uint32"),
        one("max_frame_size", 2, "uint32"),
        one("max_send_buf_size", 3, "uint32"),
    ),
    # Routes (1) are left out: nothing here has any.
    "DestinationProfile": (
        one("retry_budget", 2, f"{DESTINATION}.RetryBudget"),
        many("dst_overrides", 3, f"{DESTINATION}.WeightedDst"),
        one("opaque_protocol", 4, "bool"),
        one("fully_qualified_name", 5, "string"),
        one("endpoint", 6, f"{DESTINATION}.WeightedAddr"),
        one("parent_ref", 7, f"{META}.Metadata"),
        one("profile_ref", 8, f"{META}.Metadata"),
    ),
    "RetryBudget": (
        one("retry_ratio", 1, "float"),
        one("min_retries_per_second", 2, "uint32"),
        one("ttl", 3, DURATION),
    ),
    "WeightedDst": (
        one("authority", 1, "string"),
        one("weight", 2, "uint32"),
        one("backend_ref", 3, f"{META}.Metadata"),
    ),
}


def _pool() -> descriptors.Pool:
    pool = descriptors.Pool()
    pool.add(IDENTITY, _IDENTITY)
    pool.add(NET, _NET)
    pool.add(META, _META)
    pool.add(DESTINATION, _DESTINATION, (NET, META))
    return pool


# Of all packages, so that those of other modules can name these messages.
POOL: Final = _pool()

CertifyRequest: Final[Any] = POOL.message(f"{IDENTITY}.CertifyRequest")
CertifyResponse: Final[Any] = POOL.message(f"{IDENTITY}.CertifyResponse")
IPAddress: Final[Any] = POOL.message(f"{NET}.IPAddress")
TcpAddress: Final[Any] = POOL.message(f"{NET}.TcpAddress")
GetDestination: Final[Any] = POOL.message(f"{DESTINATION}.GetDestination")
Update: Final[Any] = POOL.message(f"{DESTINATION}.Update")
WeightedAddr: Final[Any] = POOL.message(f"{DESTINATION}.WeightedAddr")
TlsIdentity: Final[Any] = POOL.message(f"{DESTINATION}.TlsIdentity")
ProtocolHint: Final[Any] = POOL.message(f"{DESTINATION}.ProtocolHint")
DestinationProfile: Final[Any] = POOL.message(f"{DESTINATION}.DestinationProfile")
