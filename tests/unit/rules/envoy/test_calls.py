# SPDX-License-Identifier: Apache-2.0
"""Whom a workload called, from documents as Envoy writes them."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.envoy import calls, observing
from handfast.rules.envoy.calls import Called

WEB = "web.shop.sa.linkerd-identity.linkerd.cluster.local"


def host(address: str, port: int, hostname: str = "", **totals: int) -> dict[str, Any]:
    return {
        "address": {"socket_address": {"address": address, "port_value": port}},
        **({"hostname": hostname} if hostname else {}),
        "stats": [
            {"type": "GAUGE", "value": "9", "name": "cx_active"},
            {"name": "rq_error"},
            *({"value": str(total), "name": name} for name, total in totals.items()),
        ],
    }


def called(name: str, *hosts: dict[str, Any]) -> list[Called]:
    return list(calls.called({"cluster_statuses": [{"name": name, "host_statuses": list(hosts)}]}))


def test_an_endpoint_with_an_identity_is_called_in_its_name():
    row = host("10.0.0.1", 8080, WEB, rq_total=7, cx_total=1)
    assert called("http/web.shop:80", row) == [
        Called(cluster="http/web.shop:80", address="10.0.0.1", port=8080, destination="web.shop:80", peer=WEB, total=7)
    ]


def test_one_without_says_why_it_is_not_secured():
    (row,) = called("http/old.shop:80", host("10.0.0.2", 80, rq_total=1))
    assert (row.peer, row.unsecured, row.destination) == ("", observing.NO_IDENTITY, "old.shop:80")


def test_a_tunnel_is_counted_by_connections_whoever_is_at_its_end():
    (row,) = called("tcp/web.shop:443", host("10.0.0.1", 443, WEB, rq_total=0, cx_total=3))
    assert (row.peer, row.unsecured, row.total) == ("", observing.TUNNEL, 3)


def test_a_name_of_dns_is_no_identity():
    (row,) = called("dns", host("192.0.2.1", 80, "example.org", rq_total=2))
    assert (row.peer, row.unsecured, row.destination) == ("", observing.NO_IDENTITY, "example.org")


def test_redirected_bytes_went_where_they_were_going():
    (row,) = called("original", host("192.0.2.1", 5432, cx_total=2, rq_total=0))
    assert (row.peer, row.unsecured, row.destination, row.total) == ("", observing.NOT_HTTP, "192.0.2.1:5432", 2)


@pytest.mark.parametrize("name", ["agent", "application-8080", "application-http1-8080"])
def test_clusters_of_the_agents_own_are_no_calls(name):
    assert called(name, host("127.0.0.1", 80, rq_total=7, cx_total=7)) == []


@pytest.mark.parametrize(
    "row",
    [host("10.0.0.1", 80, WEB), host("10.0.0.1", 80, WEB, rq_total=0), host("10.0.0.1", 0, WEB, rq_total=1), {}],
)
def test_what_nobody_called_is_left_out(row):
    assert called("http/web.shop:80", row) == []


@pytest.mark.parametrize("document", [{}, {"cluster_statuses": 7}, {"cluster_statuses": [7, {"host_statuses": {}}]}])
def test_nonsense_is_no_call(document):
    assert list(calls.called(document)) == []
