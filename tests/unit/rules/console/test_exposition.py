# SPDX-License-Identifier: Apache-2.0
"""Metrics in Prometheus' text format are read as they are written; what is not of that format is left out."""

from __future__ import annotations

import math

import prometheus_client
from prometheus_client import core

from handfast.rules.console import exposition


def test_what_prometheus_writes_is_read_back_with_every_character_of_a_label():
    registry = core.CollectorRegistry()
    label = 'a "b" \\ c\nd, e="f"} 9'
    prometheus_client.Gauge("wanted", "", ["first", "second"], registry=registry).labels(label, "2").set(1.5e16)
    prometheus_client.Gauge("plain", "", registry=registry).set(math.nan)
    text = prometheus_client.generate_latest(registry).decode()
    samples = exposition.read(text, {"wanted", "plain"})
    assert samples["wanted"] == [exposition.Sample({"first": label, "second": "2"}, 1.5e16)]
    plain = exposition.number(samples, "plain")
    assert plain is not None
    assert math.isnan(plain)
    assert exposition.number(samples, "wanted") is exposition.number(samples, "absent") is None


def test_other_metrics_and_lines_of_no_such_format_are_left_out():
    text = "wanted_more 1\nwanted\nwanted lots\nwanted 1 2 3\nwanted{ 4\n# wanted 5\nwanted 6 1700000000000\n"
    assert exposition.read(text, {"wanted"}) == {"wanted": [exposition.Sample({}, 6.0)]}


def test_what_is_too_long_is_cut():
    assert exposition.read("x" * exposition.MOST + "\nwanted 1\n", {"wanted"}) == {}
