# SPDX-License-Identifier: Apache-2.0
"""How much clusters are used, as Envoy counts."""

import json

import pytest

from handfast.rules.envoy import usage


def figures(**rows):
    return json.dumps({"stats": [{"name": name, "value": value} for name, value in rows.items()]}).encode()


def test_calls_are_counted_by_cluster_and_by_its_kind():
    octets = figures(
        **{
            "cluster.http/web_shop_8080.upstream_rq_total": 7,
            "cluster.http/web_shop_8080.upstream_cx_total": 2,
            "cluster.http/web_shop_8080.upstream_cx_none_healthy": 1,
            "cluster.http/web_shop_8080.upstream_rq_active": 1,
            "cluster.http/web_shop_8080.upstream_cx_active": 2,
            "cluster.tcp/web_shop_443.upstream_cx_active": 3,
            "server.uptime": 5,
        }
    )
    assert usage.read(octets, ["http/web.shop:8080", "tcp/web.shop:443", "http/none", "other"]) == {
        "http/web.shop:8080": usage.Use(10, 1),
        "tcp/web.shop:443": usage.Use(0, 3),
        "http/none": usage.Use(),
        "other": usage.Use(),
    }


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"[]",
        b"{}",
        b'{"stats": 5}',
        b'{"stats": [5, {"name": 5, "value": 1}, {"name": "cluster.http/a.x", "value": "1"}]}',
    ],
)
def test_what_cannot_be_read_is_no_use(octets):
    assert usage.read(octets, ["http/a"]) == {"http/a": usage.Use()}
