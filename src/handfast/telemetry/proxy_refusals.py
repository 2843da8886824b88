# SPDX-License-Identifier: Apache-2.0
"""The metric of connections that were refused for a PROXY header, or the lack of one. Who refuses them is elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import core


class ProxyRefusals:
    """For a registry; the counts, by reason, are read when somebody scrapes."""

    def __init__(self, read: Callable[[], Mapping[str, int]]) -> None:
        self._read = read

    def collect(self) -> Iterator[core.Metric]:
        family = core.CounterMetricFamily(
            "handfast_proxy_headers_refused",
            "Connections refused for a PROXY header, or the lack of one, by reason.",
            labels=["reason"],
        )
        for reason, count in tuple(self._read().items()):
            family.add_metric([reason], count)
        yield family
