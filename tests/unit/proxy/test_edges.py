# SPDX-License-Identifier: Apache-2.0
"""The edges of a workload, from what its Envoy says. The real one is in tests/scenarios/test_envoy_edges.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from handfast import errors
from handfast.proxy import edges
from handfast.rules.envoy import observing
from handfast.runtime import tasks
from handfast.wire import access_logs
from tests.world.clock import MovableClock

WEB = "web.shop.sa.linkerd-identity.linkerd.cluster.local"


def clusters(*totals: int, name: str = "http/web.shop:80") -> dict[str, Any]:
    hosts = [
        {
            "address": {"socket_address": {"address": f"10.0.0.{number}", "port_value": 8080}},
            "hostname": WEB,
            "stats": [{"name": "rq_total", "value": str(total)}],
        }
        for number, total in enumerate(totals)
    ]
    return {"cluster_statuses": [{"name": name, "host_statuses": hosts}]}


@pytest.mark.parametrize(
    ("entry", "unsecured"),
    [
        (access_logs.Entry(port=80, peer=WEB, tls=True), ""),
        (access_logs.Entry(port=80, tls=True), observing.NO_CERTIFICATE),
        (access_logs.Entry(port=80), observing.PLAINTEXT),
        (access_logs.Entry(port=80, unsecured=observing.NOT_HTTP), observing.NOT_HTTP),
    ],
)
def test_why_a_client_is_not_secured(entry, unsecured):
    seen = edges.Edges(MovableClock())
    seen.take(entry)
    (edge,) = seen.rows()
    assert (edge.direction, edge.peer, edge.secured, edge.unsecured) == (
        "inbound",
        entry.peer,
        not unsecured,
        unsecured,
    )


def test_what_is_new_is_said_to_be():
    seen = edges.Edges(MovableClock())
    news: list[str] = []
    seen.on_news = lambda: news.append("new")
    for refused in ("", "", "identity-revoked"):
        seen.take(access_logs.Entry(port=80, peer=WEB, tls=True, refused=refused))
        seen.rows()
    assert len(news) == 2


async def test_calls_are_counted_over_the_endpoints_of_a_destination_and_over_restarts():
    clock = MovableClock()
    seen = edges.Edges(clock)
    counted = []
    # The second has begun anew; the third has called nobody since; the fourth has one endpoint less.
    for document in (clusters(5, 2), clusters(3, 2), clusters(3, 2), clusters(4)):
        seen.count(document)
        await clock.advance(60)
        counted.append([(edge.peer, edge.destination, edge.count) for edge in seen.rows()])
    assert counted == [[(WEB, "web.shop:80", count)] for count in (7, 10, 10, 11)]


async def test_it_looks_again_and_again_whatever_envoy_says():
    clock = MovableClock()
    seen = edges.Edges(clock)
    answers: list[tuple[int, bytes] | None] = [
        None,
        (200, b"nonsense"),
        (503, b""),
        (200, json.dumps(clusters(3)).encode()),
    ]

    async def ask(path: str) -> tuple[int, bytes]:
        assert path == "/clusters?format=json"
        answer = answers.pop(0)
        if answer is None:
            raise errors.Unavailable("it is started anew")
        return answer

    async with tasks.Group("edges") as group:
        group.start(seen.run(ask), name="edges")
        async with asyncio.timeout(20):
            while answers:
                await clock.advance(10)
                await asyncio.sleep(0)
        group.end()
    assert [edge.count for edge in seen.rows()] == [3]
