# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import prometheus_client
from prometheus_client import core

from handfast.telemetry import proxy_refusals


def test_by_reason():
    registry = core.CollectorRegistry()
    registry.register(proxy_refusals.ProxyRefusals(lambda: {"NotNamed": 3}))
    text = prometheus_client.generate_latest(registry).decode()
    assert 'handfast_proxy_headers_refused_total{reason="NotNamed"} 3.0' in text
