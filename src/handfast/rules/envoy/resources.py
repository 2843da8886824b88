# SPDX-License-Identifier: Apache-2.0
"""What Envoy's resources have in common: their kinds, the one source that all of them come from, and typed extensions. It holds no resource.

1. There is one ConfigSource, the same octets everywhere. Where that of a known secret changes, Envoy puts a listener to work without its
   certificate (envoy#47309).
2. It waits for a secret as long as it takes: a listener never goes to work without one that it names.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

Document = dict[str, Any]

_TYPES: Final = "type.googleapis.com/"


class Kind(enum.StrEnum):
    """What is sent, in the order in which it is sent: what is named comes before who names it."""

    SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105  the name of a type
    CLUSTER = "envoy.config.cluster.v3.Cluster"
    ENDPOINTS = "envoy.config.endpoint.v3.ClusterLoadAssignment"
    LISTENER = "envoy.config.listener.v3.Listener"
    ROUTES = "envoy.config.route.v3.RouteConfiguration"

    @property
    def type_url(self) -> str:
        return f"{_TYPES}{self.value}"


# 1. one source; 2. that is waited for
SOURCE: Final[Mapping[str, Any]] = MappingProxyType(
    {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
)


def source() -> Document:
    """The ConfigSource, as a document of its own."""
    return {**SOURCE, "ads": {}}


def typed(kind: str, /, **fields: Any) -> Document:
    """A message of that type, named as Envoy's `Any` wants it."""
    return {"@type": f"{_TYPES}{kind}", **fields}


def extension(name: str, kind: str, /, **fields: Any) -> Document:
    """A filter, a transport socket or another extension, with its configuration."""
    return {"name": name, "typed_config": typed(kind, **fields)}


def mutation(**mutations: list[Document]) -> Document:
    """A filter that changes headers."""
    kind = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"
    return extension("envoy.filters.http.header_mutation", kind, mutations=mutations)


def address(host: str, port: int) -> Document:
    return {"socket_address": {"address": host, "port_value": port}}
