# SPDX-License-Identifier: Apache-2.0
"""Entries of Envoy's access log, over a real socket."""

from __future__ import annotations

import asyncio
import pathlib
import tempfile
from typing import Any

import grpc.aio
from envoy.service.accesslog.v3 import als_pb2

from handfast.rules.envoy import observing
from handfast.wire import access_logs, server
from tests.unit.wire import greeting

AT = {"downstream_local_address": {"socket_address": {"address": "10.0.0.1", "port_value": 8080}}}


def noted(**judged: str) -> dict[str, Any]:
    note = {"fields": {"count": {"number_value": 7}, "peer": {"string_value": "a.b"}}}
    rbac = {"fields": {name: {"string_value": text} for name, text in judged.items()}}
    return {"filter_metadata": {observing.NAMESPACE: note, "envoy.filters.http.rbac": rbac}}


def message(**properties: Any) -> Any:
    entry = {"common_properties": {**AT, **properties}}
    return als_pb2.StreamAccessLogsMessage(http_logs={"log_entry": [entry]})


async def taken(*messages: Any) -> list[access_logs.Entry]:
    """What is handed over of these."""
    entries: list[access_logs.Entry] = []
    with tempfile.TemporaryDirectory(prefix="hf-") as directory:
        path = pathlib.Path(directory) / "s"
        async with (
            server.Server(access_logs.services(entries.append), clock=greeting.CLOCK).at(path),
            grpc.aio.insecure_channel(f"unix:{path}") as channel,
        ):
            method: Any = channel.stream_unary(f"/{access_logs.SERVICE}/StreamAccessLogs")
            octets = [each.SerializeToString() for each in messages]
            await asyncio.wait_for(method(iter(octets)), 20)
    return entries


async def test_an_entry_says_who_called_which_port_and_what_was_judged():
    denied = {"enforced_engine_result": "denied", "enforced_effective_policy_id": "identity-revoked"}
    shadow = {"shadow_engine_result": "denied", "shadow_effective_policy_id": "not-allowed-by-policy"}
    allowed = {"enforced_engine_result": "allowed", "enforced_effective_policy_id": "allowed"}
    entries = await taken(
        message(metadata=noted(**denied), tls_properties={}),
        message(metadata=noted(**allowed, **shadow)),
        message(metadata=noted()),
    )
    common: dict[str, Any] = {"port": 8080, "count": 7, "peer": "a.b"}
    assert entries == [
        access_logs.Entry(**common, tls=True, refused="identity-revoked"),
        access_logs.Entry(**common, would_be_refused="not-allowed-by-policy"),
        access_logs.Entry(**common),
    ]


async def test_a_connection_says_why_it_is_not_secured():
    entry = {"common_properties": {**AT, "custom_tags": {observing.UNSECURED: observing.NOT_HTTP}}}
    told = als_pb2.StreamAccessLogsMessage(tcp_logs={"log_entry": [entry]})
    assert await taken(told) == [access_logs.Entry(port=8080, unsecured=observing.NOT_HTTP)]
