# SPDX-License-Identifier: Apache-2.0
"""Who calls a workload, told to the agent by Envoy: some requests of many, and connections that are none. It decides nothing about a request.

1. For each peer and port the first request is told, then one in ten seconds, with how many there were since the one before. What Python does for it does not grow
   with the requests, and what Envoy does for it could not be measured: 98 to 108 µs of CPU a request with it, 102 to 117 without (HTTP/1.1, TLS).
2. The table of peers and ports has a bound, and so has what is told in ten seconds, whoever calls. What is beyond is told later, or not at all.
3. What is told is an entry of Envoy's own access log, over the agent's own socket: the port, what was judged, and the name that the peer has proved. That is noted by the
   script, since Envoy's entries have no DNS names.
4. Connections that are not HTTP, or the application's own TLS, are told each when they are passed on. To make one costs Envoy far more than to tell of it.
5. Where the script fails, nothing is told. What is judged does not depend on it.

| who | holding | tries | stopped by | shown in tests/scenarios/test_envoy_edges.py |
|---|---|---|---|---|
| a crowd of clients | names, or ports to call, without end | keep the agent busy, or use up its memory | 2 | test_however_many_call_so_many_are_told_and_all_are_served |
"""

from __future__ import annotations

from typing import Any, Final

from handfast.rules.envoy import bootstrap, resources

# Where Envoy keeps what the script notes, and its notes.
NAMESPACE: Final = "handfast.edges"
COUNT: Final = "count"
PEER: Final = "peer"
# What connections say of themselves: why they are not secured.
UNSECURED: Final = "unsecured"
# Why an edge is not secured. Of clients:
PLAINTEXT: Final = "plaintext"
NO_CERTIFICATE: Final = "no-client-certificate"
NOT_HTTP: Final = "not-http"
FOREIGN_TLS: Final = "tls-of-the-application"
# Of those that are called:
NO_IDENTITY: Final = "no-peer-identity"
TUNNEL: Final = "tunnel"
_SECONDS: Final = 10
_MOST: Final = 256
_LOG: Final = "edges"
_GRPC: Final = "envoy.extensions.access_loggers.grpc.v3"

# 1. the first, then one in so many seconds; 2. with bounds. There is one table for each worker and each table of routes.
SCRIPT: Final = f"""\
local edges, known, ends, left = {{}}, 0, 0, 0
local function observe(handle, peer)
  local info, now = handle:streamInfo(), os.time()
  if now >= ends then ends, left = now + {_SECONDS}, {_MOST} end
  local key = peer .. info:downstreamLocalAddress()
  local edge = edges[key]
  if edge == nil then
    if known >= {_MOST} then edges, known = {{}}, 0 end
    edge, known = {{count = 0, due = 0}}, known + 1
    edges[key] = edge
  end
  edge.count = edge.count + 1
  if now >= edge.due and left > 0 then
    local notes = info:dynamicMetadata()
    notes:set("{NAMESPACE}", "{COUNT}", edge.count)
    notes:set("{NAMESPACE}", "{PEER}", peer)
    edge.count, edge.due, left = 0, now + {_SECONDS}, left - 1
  end
end
"""
# For requests that nobody judges by a certificate. 5. where it fails, nothing is told
PLAINTEXT_SCRIPT: Final = f"""\
{SCRIPT}\
function envoy_on_request(handle)
  pcall(observe, handle, "")
end
"""


def requests() -> resources.Document:
    """The access log of a listener's requests."""
    # 3. what the script noted, and nothing else
    noted: dict[str, Any] = {"filter": NAMESPACE, "path": [{"key": COUNT}], "value": {"present_match": True}}
    log = resources.extension(
        "envoy.access_loggers.http_grpc", f"{_GRPC}.HttpGrpcAccessLogConfig", common_config=_common()
    )
    return {**log, "filter": {"metadata_filter": {"matcher": noted, "match_if_key_not_found": False}}}


def connections(unsecured: str) -> resources.Document:
    """The fields of a TCP proxy whose connections are told; `unsecured` is why they are not secured."""
    tag = {"tag": UNSECURED, "literal": {"value": unsecured}}
    log = resources.extension(
        "envoy.access_loggers.tcp_grpc",
        f"{_GRPC}.TcpGrpcAccessLogConfig",
        common_config={**_common(), "custom_tags": [tag]},
    )
    # 4. when it is passed on, not when it ends
    begun = {"log_type_filter": {"types": ["TcpUpstreamConnected"]}}
    return {
        "access_log": [{**log, "filter": begun}],
        "access_log_options": {"flush_access_log_on_connected": True},
    }


def _common() -> dict[str, Any]:
    return {
        "log_name": _LOG,
        "grpc_service": {"envoy_grpc": {"cluster_name": bootstrap.AGENT}},
        "transport_api_version": "V3",
        "buffer_flush_interval": "0.2s",
    }
