# SPDX-License-Identifier: Apache-2.0
"""Answers of discovery as octets: each is encoded once, when it is first said, however many are told. It decides nothing.

A message has so many endpoints at most: one with all of a large Service would be over what clients take, and hold the loop while it is encoded.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from handfast.rules.mesh import authorities, endpoints, meshed, views
from handfast.wire import mesh_messages

CHUNK: Final = 500
# As Linkerd has it, where nobody says otherwise.
_BUDGET: Final = {"retry_ratio": 0.2, "min_retries_per_second": 10, "ttl": {"seconds": 10}}
_LOW: Final = (1 << 64) - 1

Encoded = Callable[[], bytes]


class Messages(Sequence[bytes]):
    """Messages in order, each encoded when it is first asked for."""

    def __init__(self, parts: Iterable[Encoded]) -> None:
        self._parts: list[Encoded | bytes] = list(parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: Any) -> Any:
        part = self._parts[index]
        if not isinstance(part, bytes):
            part = self._parts[index] = part()
        return part


def added(rows: Sequence[endpoints.Endpoint], labels: Mapping[str, str]) -> list[Encoded]:
    """That these are there."""

    def part(chunk: Sequence[endpoints.Endpoint]) -> Encoded:
        return lambda: _update(add={"addrs": [weighted(row) for row in chunk], "metric_labels": labels})

    return [part(rows[start : start + CHUNK]) for start in range(0, len(rows), CHUNK)]


def removed(rows: Sequence[authorities.Address]) -> list[Encoded]:
    """That these are gone."""

    def part(chunk: Sequence[authorities.Address]) -> Encoded:
        return lambda: _update(remove={"addrs": [tcp(row) for row in chunk]})

    return [part(rows[start : start + CHUNK]) for start in range(0, len(rows), CHUNK)]


def none(*, exists: bool) -> list[Encoded]:
    """That there are none; and whether there is a Service."""
    return [lambda: _update(no_endpoints={"exists": exists})]


def service_profile(service: views.Service, wanted: authorities.Service) -> bytes:
    """What is to be known of a Service's port."""
    meta = service.metadata
    parent = {"group": "core", "kind": "Service", "name": meta.name, "namespace": meta.namespace, "port": wanted.port}
    return _profile(
        fully_qualified_name=wanted.fqdn,
        opaque_protocol=meshed.is_opaque(service, wanted.port),
        parent_ref={"resource": parent},
    )


def endpoint_profile(row: endpoints.Endpoint, *, is_opaque: bool, name: str = "") -> bytes:
    """What is to be known of one address."""
    return _profile(fully_qualified_name=name, opaque_protocol=is_opaque, endpoint=weighted(row))


def weighted(row: endpoints.Endpoint) -> Any:
    """One address with what it is."""
    standing = row.standing
    message = mesh_messages.WeightedAddr(addr=tcp(row.address), weight=endpoints.WEIGHT, metric_labels=dict(row.labels))
    if standing.identity:
        # For whom TLS is spoken to, and which name is asked for.
        message.tls_identity.dns_like_identity.name = standing.identity
        message.tls_identity.server_name.name = standing.identity
    if standing.protocol is not meshed.Protocol.UNKNOWN:
        getattr(message.protocol_hint, standing.protocol.value).SetInParent()
    if standing.inbound_port:
        message.protocol_hint.opaque_transport.inbound_port = standing.inbound_port
    return message


def tcp(address: authorities.Address) -> Any:
    """An address as numbers."""
    ip = ipaddress.ip_address(address.host)
    number = int(ip)
    if ip.version == 4:
        return mesh_messages.TcpAddress(ip={"ipv4": number}, port=address.port)
    return mesh_messages.TcpAddress(ip={"ipv6": {"first": number >> 64, "last": number & _LOW}}, port=address.port)


def _update(**fields: Any) -> bytes:
    return bytes(mesh_messages.Update(**fields).SerializeToString())


def _profile(**fields: Any) -> bytes:
    return bytes(mesh_messages.DestinationProfile(retry_budget=_BUDGET, **fields).SerializeToString())
