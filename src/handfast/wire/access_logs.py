# SPDX-License-Identifier: Apache-2.0
"""What Envoy tells of requests and connections to its agent: entries of its access log in, a few facts of each out. What they mean is not known here.

It stands on the agent's own socket, beside ADS, which only this user may open. Which requests are told, `rules.envoy.observing` says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
from envoy.data.accesslog.v3 import accesslog_pb2
from envoy.service.accesslog.v3 import als_pb2

from handfast.rules.envoy import judging, observing
from handfast.wire import peers, server

SERVICE: Final = "envoy.service.accesslog.v3.AccessLogService"
_METHOD: Final = "StreamAccessLogs"
_DENIED: Final = "denied"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A request, with those like it since the last that was told; or a connection that is none (`unsecured` says why it is not).

    `peer` is the name that was proved, empty for none, and `tls` whether the connection was the proxy's own TLS. `refused` and `would_be_refused` are reasons.
    """

    port: int
    count: int = 1
    peer: str = ""
    tls: bool = False
    unsecured: str = ""
    refused: str = ""
    would_be_refused: str = ""


def services(take: Callable[[Entry], None]) -> server.Services:
    """The service, which hands over each entry."""

    async def stream(messages: AsyncIterator[Any], _peer: peers.Peer) -> AsyncIterator[Any]:
        async for message in messages:
            for entry in message.http_logs.log_entry:
                take(_request(entry.common_properties))
            for entry in message.tcp_logs.log_entry:
                take(_connection(entry.common_properties))
        yield als_pb2.StreamAccessLogsResponse()

    method = server.Duplex(_METHOD, als_pb2.StreamAccessLogsMessage, als_pb2.StreamAccessLogsResponse, stream)
    return {SERVICE: [method]}


def _request(properties: accesslog_pb2.AccessLogCommon) -> Entry:
    noted = properties.metadata.filter_metadata[observing.NAMESPACE].fields
    judged = properties.metadata.filter_metadata[judging.RBAC].fields
    return Entry(
        port=_port(properties),
        count=int(noted[observing.COUNT].number_value),
        peer=noted[observing.PEER].string_value,
        tls=properties.HasField("tls_properties"),
        refused=_reason(judged, "enforced"),
        would_be_refused=_reason(judged, "shadow"),
    )


def _connection(properties: accesslog_pb2.AccessLogCommon) -> Entry:
    return Entry(port=_port(properties), unsecured=properties.custom_tags[observing.UNSECURED])


def _port(properties: accesslog_pb2.AccessLogCommon) -> int:
    return int(properties.downstream_local_address.socket_address.port_value)


def _reason(judged: Any, engine: str) -> str:
    if judged[f"{engine}_engine_result"].string_value != _DENIED:
        return ""
    return str(judged[f"{engine}_effective_policy_id"].string_value)
