# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import prometheus_client
from prometheus_client import core

from handfast.telemetry import proxy_refusals


def test_refusals_are_counted_by_reason():
    registry = core.CollectorRegistry()
    counts = {"NotNamed": 3, "TooLong": 1}
    registry.register(proxy_refusals.ProxyRefusals(lambda: counts))
    text = prometheus_client.generate_latest(registry).decode()
    for reason, count in counts.items():
        assert f'handfast_proxy_headers_refused_total{{reason="{reason}"}} {count}.0' in text
