# SPDX-License-Identifier: Apache-2.0
"""Health and metrics over HTTP, for a role that answers nothing else.

`/livez`, `/readyz` and `/healthz` answer what `health` says, with 200 or 500. `/metrics` is the Prometheus text format. It
checks nothing itself: roles bring their checks, and say who is told why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import prometheus_client

from handfast.serving import answers, service
from handfast.telemetry import health as health_module

_ENDPOINTS: Final = frozenset({"livez", "readyz", "healthz"})
_METRICS: Final[Mapping[str, str]] = {"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}


class Probes:
    """What one process answers. `metrics` makes the text at each scrape."""

    def __init__(self, health: health_module.Health, metrics: Callable[[], bytes]) -> None:
        self._health = health
        self._metrics = metrics

    def answer(self, http: service.Request, *, trusted: bool = True) -> answers.Answer:
        """One request. Whoever is not trusted learns whether all is well, and not why; it gets no metrics."""
        if http.method not in {"GET", "HEAD"}:
            return answers.text(405, f"method {http.method} is not allowed here\n")
        if http.path == "/metrics":
            if not trusted:
                return answers.text(403, "metrics are for this machine, and for certificates of the cluster\n")
            return answers.Answer(self._metrics(), headers=_METRICS)
        report = self._report(http, withhold=not trusted)
        if report is None:
            return answers.text(404, "not found; there are /livez, /readyz, /healthz and /metrics\n")
        well, text = report
        return answers.text(200 if well else 500, text)

    def _report(self, http: service.Request, *, withhold: bool) -> tuple[bool, str] | None:
        endpoint, slash, name = http.path.removeprefix("/").partition("/")
        if endpoint not in _ENDPOINTS:
            return None
        if slash:
            return self._health.one(endpoint, name, withhold=withhold)
        return self._health.report(endpoint, verbose="verbose" in http.query, withhold=withhold)
