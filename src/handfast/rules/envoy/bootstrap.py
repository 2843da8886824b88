# SPDX-License-Identifier: Apache-2.0
"""What Envoy is started with: where its agent answers, and where it answers its agent. Everything else comes over ADS. No secret is in it.

1. Both are unix sockets. Envoy makes its own with mode 0600; that of the agent is made so by `wire.ads`.
2. Listeners and clusters come by delta ADS alone, so that no second source can differ with it.
3. A pattern may be as long as the longest name: by itself Envoy takes none of more than 100 steps, which a name of 253 letters is.
4. It holds so many connections of clients, and closes further ones: each takes two files, and without files left it could call nobody.
"""

from __future__ import annotations

from typing import Final

import msgspec

from handfast.rules.envoy import resources

# The cluster of the agent: the one that Envoy knows before it is told anything.
AGENT: Final = "agent"
_MODE: Final = 0o600
_RUNTIME: Final = {"re2.max_program_size.error_level": 1000, "re2.max_program_size.warn_level": 1000}
_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
# 4. files for everything else
_OTHER_FILES: Final = 256
_FEWEST: Final = 100
_MOST: Final = 50_000
_MONITOR: Final = "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """The name of the workload, the paths of two unix sockets, and how many files may be open."""

    node: str
    agent_socket: str
    admin_socket: str
    files: int


def connections(files: int) -> int:
    """How many connections of clients are held where so many files may be open (4)."""
    return min(max((files - _OTHER_FILES) // 2, _FEWEST), _MOST)


def document(facts: Bootstrap) -> resources.Document:
    return {
        "node": {"id": facts.node, "cluster": facts.node},
        # 1. for this user alone
        "admin": {"address": {"pipe": {"path": facts.admin_socket, "mode": _MODE}}},
        # 2. one stream for all of it
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": AGENT}}],
                "set_node_on_first_message_only": True,
            },
            "lds_config": resources.source(),
            "cds_config": resources.source(),
        },
        "static_resources": {"clusters": [_agent(facts.agent_socket)]},
        # 3. the longest name, letter for letter
        "layered_runtime": {"layers": [{"name": "handfast", "static_layer": dict(_RUNTIME)}]},
        "overload_manager": {"resource_monitors": [_monitor(connections(facts.files))]},
    }


def _monitor(most: int) -> resources.Document:
    # 4. no further ones
    name = "envoy.resource_monitors.global_downstream_max_connections"
    return resources.extension(name, _MONITOR, max_active_downstream_connections=most)


def _agent(path: str) -> resources.Document:
    endpoint = {"endpoint": {"address": {"pipe": {"path": path}}}}
    return {
        "name": AGENT,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            _OPTIONS: resources.typed(_OPTIONS, explicit_http_config={"http2_protocol_options": {}})
        },
        "load_assignment": {"cluster_name": AGENT, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
