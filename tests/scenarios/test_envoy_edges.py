# SPDX-License-Identifier: Apache-2.0
"""A real Envoy tells its agent who calls: a few requests of many, by peer and port, and connections that are no requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handfast.rules.envoy import inbound, judging, observing
from handfast.rules.mesh import reports
from tests.scenarios import envoy_world as world
from tests.unit.wire import greeting

pytestmark = pytest.mark.slow


async def told(proxy: world.Proxy, reached: Callable[[dict[tuple[str, str], reports.Edge]], bool]) -> None:
    async def so() -> bool:
        return reached({(edge.peer, edge.unsecured): edge for edge in proxy.edges.rows()})

    await world.until(so, "the edges")


async def test_who_calls_is_told_once_with_its_name_its_port_and_why_it_is_not_secured():
    anchor = greeting.Anchor()
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        for context in (greeting.context(anchor, anchor.pair(world.CLIENT)), greeting.context(anchor), None):
            async with world.http1(proxy.port, context) as connection:
                for _ in range(5):
                    assert (await connection.get())[0] == 200
        assert await world.exchange(proxy.port, b"\x00\x01 no HTTP\r\n", enough=12)
        hello = world.client_hello("other.example")
        assert await world.exchange(proxy.port, hello, enough=len(hello)) == hello
        await told(proxy, lambda edges: len(edges) == 5)
        edges = {(edge.peer, edge.unsecured): edge for edge in proxy.edges.rows()}
        assert set(edges) == {
            (world.CLIENT, ""),
            ("", observing.NO_CERTIFICATE),
            ("", observing.PLAINTEXT),
            ("", observing.NOT_HTTP),
            ("", observing.FOREIGN_TLS),
        }
        assert {edge.port for edge in edges.values()} == {proxy.port}
        assert {edge.secured for (peer, _), edge in edges.items() if peer} == {True}
        # Of five requests in one moment the first is told, and those after it with the next that is.
        assert {edge.count for edge in edges.values()} == {1}
        assert not any(edge.refused or edge.would_be_refused for edge in edges.values())


def judged(key: tuple[str, str], refused: str, would_be: str) -> Callable[[dict[tuple[str, str], reports.Edge]], bool]:
    def reached(edges: dict[tuple[str, str], reports.Edge]) -> bool:
        return key in edges and (edges[key].refused, edges[key].would_be_refused) == (refused, would_be)

    return reached


async def test_what_is_refused_and_what_would_be_is_told_as_soon_as_it_is_judged_so():
    anchor = greeting.Anchor()
    others = judging.Permits(names=frozenset({world.IDENTITY}))
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        async with (
            world.http1(proxy.port, greeting.context(anchor, anchor.pair(world.CLIENT))) as meshed,
            world.http1(proxy.port) as plain,
        ):
            for row, code, refused, would_be in (
                (judging.PortJudgement(audited=others), 200, "", judging.NOT_ALLOWED),
                (judging.PortJudgement(permits=others), 403, judging.NOT_ALLOWED, ""),
                (judging.PortJudgement(), 200, "", ""),
            ):
                await proxy.judge(row)
                for connection in (meshed, plain):
                    assert (await connection.get())[0] == code
                for key in ((world.CLIENT, ""), ("", observing.PLAINTEXT)):
                    await told(proxy, judged(key, refused, would_be))
            # Who is revoked is told by that reason.
            await proxy.judge(deny=judging.Deny(names=frozenset({world.CLIENT})))
            assert (await meshed.get())[0] == 403
            await told(proxy, lambda edges: edges[world.CLIENT, ""].refused == judging.DENIED)


async def test_probes_in_plaintext_are_nobodys_calls():
    async with world.application() as application, world.proxy(application.port, None) as proxy:
        await proxy.judge(judging.PortJudgement(open_paths=("/x",)))
        async with world.http1(proxy.port) as connection:
            assert (await connection.get())[0] == 200
        assert await world.exchange(proxy.port, b"GET /y HTTP/1.1\r\nhost: a\r\n\r\n")
        await told(proxy, lambda edges: len(edges) == 1)
        assert [edge.count for edge in proxy.edges.rows()] == [1]


async def test_however_many_call_so_many_are_told_and_all_are_served():
    anchor = greeting.Anchor()
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        proxy.state(inbound.State.TLS)
        for number in range(reports.MOST_EDGES + 20):
            context = greeting.context(anchor, anchor.pair(f"a{number}.ns1.example"))
            assert await world.is_served(proxy.port, context)
        await told(proxy, lambda edges: len(edges) > reports.MOST_EDGES - 30)
        assert len(proxy.edges.rows()) <= reports.MOST_EDGES
