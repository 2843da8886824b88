# SPDX-License-Identifier: Apache-2.0
"""What a keeper of certificates counts, under the names of KEP-266 and the names of today's kubelet.

It measures nothing itself and changes nothing: values are read when somebody scrapes. The names are upstream's, and end
as they do there. The library would add `_total` to the name of a counter: these are of no type for it, and `exposed` says
in the text that they are counters.

| client                                                       | server                                                    |
|--------------------------------------------------------------|-----------------------------------------------------------|
| `kubelet_certificate_manager_client_expiration_seconds`      | `kubelet_certificate_manager_server_expiration_seconds`   |
| `kubelet_certificate_manager_client_ttl_seconds`             | `kubelet_certificate_manager_server_ttl_seconds`          |
| `kubelet_certificate_manager_client_expiration_renew_errors` | `kubelet_server_expiration_renew_errors`, and the KEP's form |
|                                                              | `kubelet_certificate_manager_server_rotation_seconds`     |
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from typing import Any

import prometheus_client
from prometheus_client import core

from handfast.client import keeping
from handfast.pki import pairs
from handfast.runtime import clock as clocks

CLIENT = "client"
SERVER = "server"

# A minute, an hour, four hours, a day, a week, a month, three, six, a year, four years: upstream's.
_BUCKETS = (60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000)


_ERRORS = frozenset(
    {
        "kubelet_certificate_manager_client_expiration_renew_errors",
        "kubelet_certificate_manager_server_expiration_renew_errors",
        "kubelet_server_expiration_renew_errors",
    }
)


def exposed(registry: core.CollectorRegistry) -> bytes:
    """The text of a registry, with the type of the counters whose names are upstream's."""
    text = prometheus_client.generate_latest(registry)
    for name in _ERRORS:
        text = text.replace(f"# TYPE {name} untyped\n".encode(), f"# TYPE {name} counter\n".encode())
    return text


class CertificateMetrics:
    """A collector for one keeper: `registry.register(CertificateMetrics(keeper, "client", clock))`."""

    def __init__(self, keeper: keeping.Keeper[Any], side: str, clock: clocks.Clock) -> None:
        self._keeper = keeper
        self._side = side
        self._clock = clock
        self._before = keeper.current()
        self._lives = [0] * (len(_BUCKETS) + 1)
        self._lived = 0.0
        keeper.subscribe(self._rotated)

    async def _rotated(self, pair: pairs.Pair) -> None:
        if self._before is not None:
            seconds = (self._clock.now() - self._before.leaf.not_before).total_seconds()
            self._lives[bisect.bisect_left(_BUCKETS, seconds)] += 1
            self._lived += seconds
        self._before = pair

    def collect(self) -> Iterator[core.Metric]:
        prefix = f"kubelet_certificate_manager_{self._side}"
        pair = self._keeper.current()
        ends = math.inf if pair is None else pair.leaf.not_after.timestamp()
        left = math.inf if pair is None else math.trunc((pair.leaf.not_after - self._clock.now()).total_seconds())
        yield core.GaugeMetricFamily(
            f"{prefix}_expiration_seconds", "When the certificate ends, in seconds since 1970-01-01T00:00:00Z.", ends
        )
        yield core.GaugeMetricFamily(f"{prefix}_ttl_seconds", "Seconds until the certificate ends; +Inf if none.", left)
        names = [f"{prefix}_expiration_renew_errors"]
        if self._side == SERVER:
            names.append("kubelet_server_expiration_renew_errors")
        for name in names:
            yield core.UnknownMetricFamily(name, "Renewals of the certificate that failed.", self._keeper.renew_errors)
        due = self._keeper.next_renewal
        yield core.GaugeMetricFamily(
            f"handfast_node_{self._side}_certificate_renewal_seconds",
            "When the certificate is renewed, in seconds since 1970-01-01T00:00:00Z; +Inf if never.",
            math.inf if due is None else due.timestamp(),
        )
        if self._side == SERVER:
            yield self._rotations(prefix)

    def _rotations(self, prefix: str) -> core.Metric:
        family = core.HistogramMetricFamily(
            f"{prefix}_rotation_seconds", "Seconds that a certificate had lived when it was replaced."
        )
        below = 0
        rows = []
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), self._lives, strict=True):
            below += count
            rows.append((bound, float(below)))
        family.add_metric([], rows, self._lived)
        return family
