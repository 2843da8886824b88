# SPDX-License-Identifier: Apache-2.0
"""Envoy's messages, from xds-protos: JSON documents in, octets out. It knows no resource by itself; `rules.envoy` makes the documents.

A document names the types of its extensions, which the library looks up among those that are imported: here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2
from envoy.extensions.access_loggers.grpc.v3 import als_pb2
from envoy.extensions.clusters.dns.v3 import dns_cluster_pb2
from envoy.extensions.clusters.dynamic_forward_proxy.v3 import cluster_pb2 as forward_cluster_pb2
from envoy.extensions.filters.http.dynamic_forward_proxy.v3 import dynamic_forward_proxy_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.header_to_metadata.v3 import header_to_metadata_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.http.on_demand.v3 import on_demand_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as rbac_filter_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.http.upstream_codec.v3 import upstream_codec_pb2
from envoy.extensions.filters.listener.http_inspector.v3 import http_inspector_pb2
from envoy.extensions.filters.listener.original_dst.v3 import original_dst_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from envoy.extensions.filters.network.direct_response.v3 import config_pb2 as direct_response_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    header_mutation_pb2 as early_header_mutation_pb2,
)
from envoy.extensions.matching.common_inputs.network.v3 import network_inputs_pb2
from envoy.extensions.matching.common_inputs.ssl.v3 import ssl_inputs_pb2
from envoy.extensions.network.dns_resolver.cares.v3 import cares_dns_resolver_pb2
from envoy.extensions.rbac.matchers.upstream_ip_port.v3 import upstream_ip_port_matcher_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from envoy.extensions.transport_sockets.raw_buffer.v3 import raw_buffer_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from envoy.service.discovery.v3 import discovery_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf import any_pb2, json_format

# Looked up by the names in a document.
EXTENSIONS: Final = (
    cluster_pb2,
    endpoint_pb2,
    listener_pb2,
    rbac_pb2,
    route_pb2,
    als_pb2,
    cel_pb2,
    cel_pb2,
    als_pb2,
    dns_cluster_pb2,
    forward_cluster_pb2,
    dynamic_forward_proxy_pb2,
    cares_dns_resolver_pb2,
    upstream_ip_port_matcher_pb2,
    previous_hosts_pb2,
    header_mutation_pb2,
    early_header_mutation_pb2,
    header_to_metadata_pb2,
    lua_pb2,
    on_demand_pb2,
    rbac_filter_pb2,
    router_pb2,
    upstream_codec_pb2,
    http_inspector_pb2,
    original_dst_pb2,
    tls_inspector_pb2,
    direct_response_pb2,
    http_connection_manager_pb2,
    tcp_proxy_pb2,
    network_inputs_pb2,
    ssl_inputs_pb2,
    http_inputs_pb2,
    raw_buffer_pb2,
    secret_pb2,
    tls_pb2,
    http_protocol_options_pb2,
)
Request: Final = discovery_pb2.DeltaDiscoveryRequest
Response: Final = discovery_pb2.DeltaDiscoveryResponse


def packed(type_url: str, document: Mapping[str, Any]) -> bytes:
    """A resource as octets; a field that is none of its type's is an error."""
    wrapped = json_format.ParseDict({"@type": type_url, **document}, any_pb2.Any())
    return bytes(wrapped.value)
