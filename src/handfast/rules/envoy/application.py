# SPDX-License-Identifier: Apache-2.0
"""The clusters of the application beside the proxy. What is sent to it, `inbound_routes` says."""

from __future__ import annotations

from handfast.rules.envoy import http, ports, resources


def clusters(port: ports.Port) -> tuple[resources.Document, resources.Document]:
    """The application behind a port, spoken to as it was called, and in HTTP/1.1 (see `inbound_routes`)."""
    return _static(port.cluster, port, http.AS_CALLED), _static(port.http1_cluster, port, http.HTTP1)


def _static(name: str, port: ports.Port, options: resources.Document) -> resources.Document:
    endpoint = {"endpoint": {"address": resources.address(port.host, port.application)}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {http.OPTIONS: resources.typed(http.OPTIONS, **options)},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
