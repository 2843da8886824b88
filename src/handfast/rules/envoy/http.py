# SPDX-License-Identifier: Apache-2.0
"""The HTTP connection manager, which both listeners have: what is the same for every request. Routes come by RDS, and with them what is judged.

1. Routes are never inline. A changed listener does not reach connections that are open; changed routes do, at once.
2. A connection ends gracefully after `longest` seconds; one of HTTP/1.1 with its next answer, so that no request is lost. None: it has no end
   of the proxy's, since no certificate made it.
3. What the application gets is what was sent: no request ID, no `x-forwarded-for`, no header of Envoy's own, the server's name as it is, the path
   as it is.
4. A refusal of the proxy's own says why, in a header: a reason of `judging`, else Envoy's own words.
5. No request has a time limit of the proxy's, nor has a stream on which nothing happens: Envoy's own is five minutes.
6. HTTP/1.0 is forwarded, with a host where it has none: Envoy's own answer is 426.
7. What is sent on HTTP/2 faster than it is read is held within a window of 256 KiB, on both sides of the proxy. Envoy's own is 16 MiB, for each of 1,024 streams of
   a connection: one client of a server that reads slowly would use up the memory. A smaller one costs throughput: with the protocol's own 64 KiB a large body took
   one and a half times as long as with 16 MiB, with this one a quarter longer.

| who | holding | tries | stopped by | shown in tests/scenarios/test_envoy_states.py |
|---|---|---|---|---|
| a client | a server that reads slowly | have the proxy hold bodies without end | 7 | test_what_nobody_reads_is_held_within_bounds |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from handfast.rules.envoy import judging, resources, stripping

# As Linkerd calls them.
ERROR_HEADER: Final = stripping.ERROR_HEADER
ORIGINAL_PROTOCOL: Final = "l5d-orig-proto"
CLIENT_ID: Final = "l5d-client-id"
SERVER_ID: Final = stripping.SERVER_ID
FORWARDED: Final = "x-forwarded-proto"
# What figures of the outbound listener are named.
OUTBOUND: Final = "out"
# 7. of a stream, and of a connection
STREAM_WINDOW: Final = 1 << 18
_CONNECTION_WINDOW: Final = 1 << 20
# WebSocket included.
_HTTP2: Final = {
    "allow_connect": True,
    "initial_stream_window_size": STREAM_WINDOW,
    "initial_connection_window_size": _CONNECTION_WINDOW,
}
# What clusters say of HTTP, and that they speak HTTP/2.
OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
HTTP2: Final = {"http2_protocol_options": _HTTP2}
# … that they speak HTTP/1.1 whatever came; and what the client speaks.
HTTP1: Final[dict[str, Any]] = {"explicit_http_config": {"http_protocol_options": {}}}
AS_CALLED: Final[dict[str, Any]] = {"use_downstream_protocol_config": {"http_protocol_options": {}, **HTTP2}}
_FORBIDDEN: Final = 403
_EXPRESSION: Final = "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"


def manager(
    stat_prefix: str,
    routes: str,
    filters: Sequence[resources.Document],
    longest: int | None,
    logs: Sequence[resources.Document] = (),
) -> resources.Document:
    """The network filter; `filters` come before the router, and `logs` are told of requests."""
    return resources.extension(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=stat_prefix,
        codec_type="AUTO",
        # 1. by RDS
        rds={"route_config_name": routes, "config_source": resources.source()},
        http_filters=[*filters, _router()],
        upgrade_configs=[{"upgrade_type": "websocket"}],
        http2_protocol_options=_HTTP2,
        # 4. why
        local_reply_config={"mappers": [*map(judged, judging.REASONS), _other()]},
        **_UNCHANGED,
        **({"access_log": list(logs)} if logs else {}),
        **(_ending(longest) if longest is not None else {}),
    )


def _ending(longest: int) -> resources.Document:
    # 2. no connection outlives the certificates that made it
    return {
        "common_http_protocol_options": {"max_connection_duration": f"{longest}s"},
        "http1_safe_max_connection_duration": True,
    }


# 3. as it was sent; 5. however long it takes; 6. HTTP/1.0, too
_UNCHANGED: Final[dict[str, Any]] = {
    "stream_idle_timeout": "0s",
    "http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": "localhost"},
    "generate_request_id": False,
    "server_header_transformation": "PASS_THROUGH",
    "skip_xff_append": True,
}


def _router() -> resources.Document:
    return resources.extension(
        "envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router", suppress_envoy_headers=True
    )


def judged(reason: str) -> resources.Document:
    """What an answer says where a policy of that name has refused."""
    expression = f'response.code_details.contains("[{reason}]")'
    return {
        "filter": {"extension_filter": resources.extension("reason", _EXPRESSION, expression=expression)},
        "headers_to_add": [header(ERROR_HEADER, reason, action="ADD_IF_ABSENT")],
    }


def _other() -> resources.Document:
    comparison = {"op": "EQ", "value": {"default_value": _FORBIDDEN, "runtime_key": "handfast.forbidden"}}
    return {
        "filter": {"status_code_filter": {"comparison": comparison}},
        "headers_to_add": [header(ERROR_HEADER, "%RESPONSE_CODE_DETAILS%", action="ADD_IF_ABSENT")],
    }


def header(key: str, value: str, action: str = "OVERWRITE_IF_EXISTS_OR_ADD") -> resources.Document:
    """A header to be set; not at all where the value is empty."""
    return {"header": {"key": key, "value": value}, "append_action": action, "keep_empty_value": False}


def route(match: resources.Document, **target: str) -> resources.Document:
    """Where requests of a form go."""
    # 5. no time limit
    return {"match": match, "route": {**target, "timeout": "0s"}}
