# SPDX-License-Identifier: Apache-2.0
"""What `/metrics` of a proxy says, but for Envoy's own figures. It asks nobody: whoever answers has asked Envoy.

Names that Linkerd has are Linkerd's; the others begin with `handfast_proxy_`.
"""

from __future__ import annotations

from collections.abc import Iterator

import prometheus_client
from prometheus_client import core

from handfast.proxy import credentials, envoy
from handfast.rules.envoy import refusals
from handfast.wire import ads


class Figures:
    """For a registry of its own; `own` is None for a plain proxy."""

    def __init__(self, own: credentials.Credentials | None, sent: ads.Ads, child: envoy.Envoy) -> None:
        self._own = own
        self._ads = sent
        self._envoy = child
        self._registry = core.CollectorRegistry()
        self._registry.register(self)
        self._text = ""

    def written(self, text: str) -> bytes:
        """All of them, with what Envoy's figures in `text` say of refusals."""
        self._text = text
        octets: bytes = prometheus_client.generate_latest(self._registry)
        return octets

    def collect(self) -> Iterator[core.Metric]:
        if self._own is not None:
            yield from _certificate(self._own)
        yield _counter(
            "handfast_proxy_envoy_rejected",
            "Updates that Envoy did not take, by kind.",
            "kind",
            {kind.name.lower(): count for kind, count in self._ads.rejections.items()},
        )
        yield core.CounterMetricFamily(
            "handfast_proxy_envoy_ends", "How often Envoy ended, and was started anew.", value=self._envoy.ends
        )
        yield _counter(
            "handfast_proxy_refused",
            "Connections and requests that were refused, by reason, since Envoy was started.",
            "reason",
            refusals.refused(self._text),
        )
        yield _counter(
            "handfast_proxy_would_be_refused",
            "Requests that a policy in audit would have refused, by reason, since Envoy was started.",
            "reason",
            refusals.would_be_refused(self._text),
        )


def _certificate(own: credentials.Credentials) -> Iterator[core.Metric]:
    until = own.standing().until
    yield core.GaugeMetricFamily(
        "control_identity_cert_expiration_timestamp_seconds",
        "When the certificate ends; 0 before the first.",
        value=0.0 if until is None else until.timestamp(),
    )
    yield _counter(
        "control_identity_cert_refreshes",
        "Attempts to get a certificate, by result.",
        "result",
        {"ok": own.renewals, "error": own.failures},
    )


def _counter(name: str, words: str, label: str, counts: dict[str, int]) -> core.CounterMetricFamily:
    family = core.CounterMetricFamily(name, words, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family
