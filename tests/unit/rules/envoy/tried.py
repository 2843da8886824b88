# SPDX-License-Identifier: Apache-2.0
"""The states of Envoy as they were tried by hand (`states/`), and what has been changed in them since, by name.

1. Routes were inline in the inbound listener; they come by RDS. So each manager is compared without its routes.
2. There is one source, which waits for ever, for listeners, clusters and routes, too.
3. What a manager has got since then is listed; all else must be as it was tried.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from handfast.rules.envoy import resources

STATES = pathlib.Path(__file__).parent / "states"
ADDED = frozenset(
    {
        "access_log",
        "common_http_protocol_options",
        "http1_safe_max_connection_duration",
        "http_protocol_options",
        "http2_protocol_options",
        "local_reply_config",
        "server_header_transformation",
        "skip_xff_append",
        "stream_idle_timeout",
    }
)
# How a connection was ended when it was tried: as now, but not counted.
RESET = resources.extension(
    "envoy.filters.network.direct_response",
    "envoy.extensions.filters.network.direct_response.v3.Config",
    response={"inline_string": ""},
)
IDENTITY = "web.ns1.sa.linkerd-identity.linkerd.cluster.local"


def tried(name: str) -> Any:
    """A document as it was tried, with the source of today (2)."""
    return _walked(json.loads((STATES / f"{name}.json").read_text()))


def _walked(value: Any) -> Any:
    if isinstance(value, list):
        return [_walked(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "ads" in value and "resource_api_version" in value:
        return resources.source()
    walked = {key: _walked(each) for key, each in value.items()}
    return {key: "application" if each == "app" else each for key, each in walked.items()}


def bare(value: Any) -> Any:
    """A listener without what managers have got since (1, 3)."""
    if isinstance(value, list):
        return [bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("@type", "").endswith(".HttpConnectionManager"):
        kept = {key: each for key, each in value.items() if key not in ADDED | {"route_config", "rds"}}
        return {**kept, "http_filters": value["http_filters"][-1:]}
    return {key: bare(each) for key, each in value.items()}
