# SPDX-License-Identifier: Apache-2.0
"""What a scrape of the API server shows."""

from __future__ import annotations

from handfast.telemetry import metrics


def lines(made: metrics.ApiServerMetrics) -> set[str]:
    return {line for line in made.text().decode().splitlines() if not line.startswith("#")}


def test_requests_are_counted_by_answer() -> None:
    made = metrics.ApiServerMetrics()
    for code in (200, 200, 404):
        made.request("get", "", "secrets", "", code, 0.002)
    found = lines(made)
    shared = 'group="",resource="secrets",subresource="",verb="get"'
    assert f'apiserver_request_total{{code="200",{shared}}} 2.0' in found
    assert f'apiserver_request_total{{code="404",{shared}}} 1.0' in found


def test_times_are_cumulative() -> None:
    made = metrics.ApiServerMetrics()
    for seconds in (0.001, 0.002, 3.0, 99.0):
        made.request("list", "apps", "deployments", "", 200, seconds)
    found = lines(made)
    name = "apiserver_request_duration_seconds"
    labels = 'resource="deployments",verb="list"'
    for bound, count in (("0.001", 1.0), ("0.005", 2.0), ("2.5", 2.0), ("5.0", 3.0), ("10.0", 3.0), ("+Inf", 4.0)):
        assert f'{name}_bucket{{le="{bound}",{labels}}} {count}' in found
    assert f"{name}_count{{{labels}}} 4.0" in found
    assert f"{name}_sum{{{labels}}} 102.003" in found


def test_watches_have_no_duration() -> None:
    made = metrics.ApiServerMetrics()
    made.request("watch", "", "secrets", "", 200, 1800.0)
    assert "duration_seconds_bucket" not in made.text().decode()
    assert "apiserver_request_total" in made.text().decode()


def test_callers_cannot_invent_time_series() -> None:
    made = metrics.ApiServerMetrics()
    for number in range(1000):
        made.request(f"verb{number}", "", "", "", 405, 0.0)
    counted = [line for line in lines(made) if line.startswith("apiserver_request_total")]
    assert counted == ['apiserver_request_total{code="405",group="",resource="",subresource="",verb="other"} 1000.0']


def test_gauges_are_read_when_scraped() -> None:
    made = metrics.ApiServerMetrics()
    values = iter([1.0, 2.0])
    made.gauge("handfast_things", "Things.", lambda: next(values))
    assert "handfast_things 1.0" in lines(made)
    assert "handfast_things 2.0" in lines(made)


def test_refusals_are_counted_by_station_and_reason() -> None:
    made = metrics.ApiServerMetrics()
    made.refused.labels("authenticate", "Expired").inc()
    assert 'handfast_apiserver_refused_total{reason="Expired",station="authenticate"} 1.0' in lines(made)


def test_registries_are_apart() -> None:
    one, other = metrics.ApiServerMetrics(), metrics.ApiServerMetrics()
    one.request("get", "", "secrets", "", 200, 0.1)
    assert not [line for line in lines(other) if "secrets" in line]


def test_counters_are_read_when_scraped() -> None:
    made = metrics.ApiServerMetrics()
    values = iter([1.0, 2.0])
    made.counter("handfast_events", "Events.", lambda: next(values))
    assert "handfast_events_total 1.0" in lines(made)
    assert "handfast_events_total 2.0" in lines(made)
