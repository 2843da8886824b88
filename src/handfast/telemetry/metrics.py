# SPDX-License-Identifier: Apache-2.0
"""Every metric of the API server, with its help text, in one registry. It measures nothing itself.

Requests are counted in plain dictionaries and turned into metric families when somebody scrapes: on the request path
that costs a tenth of what bound counters do.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterator, Mapping

import prometheus_client
from prometheus_client import core

_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# What is not among these counts as "other", so that callers cannot invent time series.
_VERBS = frozenset(
    {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "head", "post", "put"}
)


class _Requests:
    """How many requests, and how long they took."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, str, str, int], int] = {}
        # For each (verb, resource): the count per bucket, with one more for what is over the last, and the sum.
        self._times: dict[tuple[str, str], tuple[list[int], list[float]]] = {}

    def add(self, key: tuple[str, str, str, str, int], seconds: float) -> None:
        answers = self._answers
        answers[key] = answers.get(key, 0) + 1
        verb, _, resource, _, _ = key
        if verb == "watch":
            return
        times = self._times.get((verb, resource))
        if times is None:
            times = self._times[verb, resource] = ([0] * (len(_BUCKETS) + 1), [0.0])
        times[0][bisect.bisect_left(_BUCKETS, seconds)] += 1
        times[1][0] += seconds

    def collect(self) -> Iterator[core.Metric]:
        answers = core.CounterMetricFamily(
            "apiserver_request",
            "Requests by verb, group, resource, subresource and answer.",
            labels=["verb", "group", "resource", "subresource", "code"],
        )
        for (*labels, code), count in tuple(self._answers.items()):
            answers.add_metric([*map(str, labels), str(code)], count)
        yield answers
        times = core.HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "Time to answer by verb and resource; watches are not counted.",
            labels=["verb", "resource"],
        )
        for labels_, (counts, total) in tuple(self._times.items()):
            times.add_metric(list(labels_), _cumulative(counts), total[0])
        yield times


def _cumulative(counts: list[int]) -> list[tuple[str, float]]:
    below = 0
    rows = []
    for bound, count in zip((*map(str, _BUCKETS), "+Inf"), counts, strict=True):
        below += count
        rows.append((bound, float(below)))
    return rows


class _Read:
    """A counter whose value somebody else keeps."""

    def __init__(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._name, self._text, self._read = name, text, read

    def collect(self) -> Iterator[core.Metric]:
        yield core.CounterMetricFamily(self._name, self._text, value=self._read())


def loop_lateness(registry: core.CollectorRegistry) -> prometheus_client.Histogram:
    """How late the event loop of this process is: the same name in every role."""
    return prometheus_client.Histogram(
        "handfast_event_loop_lateness_seconds",
        "How late the event loop ended a sleep of 0.1 s: for so long it was held.",
        buckets=_BUCKETS,
        registry=registry,
    )


@functools.cache
def process_lateness() -> prometheus_client.Histogram:
    """The same in the registry of the process, for roles that have no other."""
    return loop_lateness(prometheus_client.REGISTRY)


class ApiServerMetrics:
    """The API server's registry."""

    def __init__(self) -> None:
        self.registry = core.CollectorRegistry()
        self._requests = _Requests()
        self.registry.register(self._requests)
        self.refused = prometheus_client.Counter(
            "handfast_apiserver_refused_total",
            "Requests refused by a station of the pipeline, by station and reason.",
            ["station", "reason"],
            registry=self.registry,
        )
        self._joins_refused = prometheus_client.Counter(
            "handfast_joins_refused_total",
            "Bootstrap tokens that were refused, and requests for certificates that were refused to one, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.loop_lateness = loop_lateness(self.registry)
        self._held = prometheus_client.Counter(
            "handfast_apiserver_request_held_loop_total",
            "Steps of requests that held the event loop for more than 50 ms, by verb and resource.",
            ["verb", "resource"],
            registry=self.registry,
        )
        self.webhooks = prometheus_client.Counter(
            "handfast_admission_webhook_total",
            "Admission webhooks that refused or failed, by name and outcome.",
            ["name", "outcome"],
            registry=self.registry,
        )

    def request(self, verb: str, group: str, resource: str, subresource: str, code: int, seconds: float) -> None:
        self._requests.add((verb if verb in _VERBS else "other", group, resource, subresource, code), seconds)

    def held(self, verb: str, resource: str) -> None:
        """A request held the event loop; `resource` is that of a kind that exists, or empty."""
        self._held.labels(verb if verb in _VERBS else "other", resource).inc()

    def join_refused(self, reason: str) -> None:
        """A join was refused; `reason` is a word of ours."""
        self._joins_refused.labels(reason).inc()

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge read when scraped."""
        prometheus_client.Gauge(name, text, registry=self.registry).set_function(read)

    def gauges(self, name: str, text: str, label: str, reads: Mapping[str, Callable[[], float]]) -> None:
        """A gauge with one label, read when scraped; `reads` by the label's value."""
        gauge = prometheus_client.Gauge(name, text, [label], registry=self.registry)
        for value, read in reads.items():
            gauge.labels(value).set_function(read)

    def counter(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A counter read when scraped; `_total` is added to its name."""
        self.registry.register(_Read(name, text, read))

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self.registry)
