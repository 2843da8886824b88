# SPDX-License-Identifier: Apache-2.0
"""A real Envoy judges each request: deny list, policy and expiry reach connections that are open."""

from __future__ import annotations

import datetime
import hashlib
from typing import Any

import pytest

from handfast.rules import decision
from handfast.rules.envoy import inbound_routes, judging, refusals
from handfast.rules.mesh import enforcement, policy
from tests.scenarios import envoy_world as world
from tests.scenarios import http2_world
from tests.unit.wire import greeting

pytestmark = pytest.mark.slow
OK = ("OK", "")


def assert_refused(answer, reason):
    assert answer == ("PERMISSION_DENIED", reason)


async def test_the_deny_list_reaches_an_open_connection():
    anchor = greeting.Anchor()
    pair = anchor.pair(world.CLIENT)
    digest = hashlib.sha256(pair.chain[0]).hexdigest()
    crowd = frozenset(f"n{number}.example" for number in range(1000))
    async with greeting.serving() as address, world.proxy(address.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        async with world.http2(proxy.port, anchor, pair) as call:
            assert await call() == OK
            await proxy.judge(deny=judging.Deny(names=crowd | {world.CLIENT}))
            assert_refused(await call(), judging.DENIED)
            await proxy.judge(deny=judging.Deny(names=crowd))
            assert await call() == OK
            await proxy.judge(deny=judging.Deny(digests=frozenset({digest})))
            assert_refused(await call(), judging.REVOKED)
            await proxy.judge()
            assert await call() == OK
            assert await proxy.stat("http.in_tls.downstream_cx_total") == 1
            assert await proxy.refused() == {judging.DENIED: 1, judging.REVOKED: 1}


async def test_policy_reaches_an_open_connection():
    anchor = greeting.Anchor()
    permits = judging.Permits
    refused = ("PERMISSION_DENIED", judging.NOT_ALLOWED)
    rows = [
        (permits(), refused),
        (permits(names=frozenset({world.CLIENT})), OK),
        (permits(names=frozenset({world.IDENTITY})), refused),
        (permits(identified=True), OK),
        (permits(suffixes=(".ns1.sa.linkerd-identity.linkerd.cluster.local",)), OK),
        (
            permits(names=frozenset({world.IDENTITY}), suffixes=(".ns2.sa.linkerd-identity.linkerd.cluster.local",)),
            refused,
        ),
        (permits(anyone=True), OK),
    ]
    async with greeting.serving() as address, world.proxy(address.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        async with world.http2(proxy.port, anchor, anchor.pair(world.CLIENT)) as call:
            for permitted, expected in rows:
                await proxy.judge(judging.PortJudgement(permits=permitted))
                assert await call() == expected, permitted
            assert await proxy.stat("http.in_tls.downstream_cx_total") == 1


async def test_who_has_no_identity_is_refused_where_one_is_required_and_audit_only_counts():
    identified = judging.Permits(identified=True)
    anchor = greeting.Anchor()
    async with (
        world.application() as application,
        world.proxy(application.port, anchor) as proxy,
        world.http1(proxy.port) as plaintext,
    ):
        assert (await plaintext.get())[0] == 200
        await proxy.judge(judging.PortJudgement(audited=identified))
        assert (await plaintext.get())[0] == 200
        assert await proxy.stat("http.in_http.rbac.shadow_denied") == 1
        await proxy.judge(judging.PortJudgement(permits=identified))
        status, headers, _ = await plaintext.get()
        assert status == 403
        assert judging.IDENTITY_REQUIRED in headers["l5d-proxy-error"]
        _, figures = await proxy.envoy.ask("/stats/prometheus")
        assert refusals.would_be_refused(figures.decode()) == {judging.IDENTITY_REQUIRED: 1}
        assert await proxy.refused() == {judging.IDENTITY_REQUIRED: 1}


async def test_who_has_no_identity_is_let_in_by_a_deny_list_and_refused_by_a_list_of_names():
    anchor = greeting.Anchor()
    open_to_all = judging.PortJudgement()
    named = judging.PortJudgement(permits=judging.Permits(names=frozenset({world.CLIENT})))
    denying, other = judging.Deny(frozenset({world.CLIENT})), judging.Deny(frozenset({world.IDENTITY}))
    nobody = judging.NOBODY_DENIED
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        async with world.http1(proxy.port) as plaintext, world.http1(proxy.port, greeting.context(anchor)) as anonymous:
            rows = ((open_to_all, denying, 200), (named, other, 403), (open_to_all, nobody, 200))
            for judged, deny, expected in rows:
                await proxy.judge(judged, deny=deny)
                for connection in (plaintext, anonymous):
                    status, headers, _ = await connection.get()
                    assert status == expected
                    assert status == 200 or judging.NOT_ALLOWED in headers["l5d-proxy-error"]


async def test_envoy_decides_as_the_rules_do():
    """A sample of what a property test compares with the matcher's document."""
    anchor = greeting.Anchor()
    other = "api.ns2.sa.linkerd-identity.linkerd.cluster.local"
    rows: list[dict[str, Any]] = [
        {"anyone": True},
        {"identity": world.CLIENT},
        {"suffix": ".ns1.sa.linkerd-identity.linkerd.cluster.local"},
        {"suffix": "1.sa.linkerd-identity.linkerd.cluster.local"},
        {"identity": other},
    ]
    permits = [policy.Permit(policy="ns1/p", row=0, **row) for row in rows]
    sample = [policy.Rules(), policy.Rules(needs_identity=True), policy.Rules(restricted=True)]
    sample += [
        policy.Rules(restricted=True, needs_identity=needed, permits=tuple(chosen))
        for needed in (False, True)
        for chosen in ([each] for each in permits)
    ]
    sample.append(policy.Rules(restricted=True, permits=(permits[4], permits[2])))
    async with (
        world.application() as application,
        world.proxy(application.port, anchor) as proxy,
        world.http1(proxy.port) as plaintext,
    ):
        await proxy.certify(anchor.pair(world.IDENTITY))
        async with (
            world.http1(proxy.port, greeting.context(anchor)) as anonymous,
            world.http1(proxy.port, greeting.context(anchor, anchor.pair(world.CLIENT))) as client,
            world.http1(proxy.port, greeting.context(anchor, anchor.pair(other))) as elsewhere,
        ):
            clients = [("", plaintext), ("", anonymous), (world.CLIENT, client), (other, elsewhere)]
            for rules in sample:
                await proxy.judge(judging.PortJudgement(permits=enforcement.permits(rules)))
                for name, connection in clients:
                    approved = isinstance(rules.decide(name), decision.Approve)
                    assert ((await connection.get())[0] == 200) == approved, (rules, name)


async def test_a_verdict_from_outside_counts_for_nothing():
    anchor = greeting.Anchor()
    pair = anchor.pair(world.CLIENT)
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        await proxy.judge(deny=judging.Deny(names=frozenset({world.CLIENT})))
        async with world.http1(proxy.port, greeting.context(anchor, pair)) as connection:
            status, headers, _ = await connection.get(l5d_verdict="good")
            assert (status, judging.DENIED in headers["l5d-proxy-error"]) == (403, True)
        async with world.http1(proxy.port, greeting.context(anchor)) as connection:
            status, _, seen = await connection.get(l5d_verdict=judging.EXPIRED)
            assert (status, judging.VERDICT in seen["headers"]) == (200, False)
        # A script that does not run refuses.
        port, nobody = proxy.facts.port, judging.NOBODY_DENIED
        document, _ = inbound_routes.documents(port, [judging.PortJudgement()], nobody, identity_headers=False)
        del document["virtual_hosts"][0]["typed_per_filter_config"][judging.LUA]
        proxy.ads.put(world.KIND.ROUTES, port.routes, document)
        await proxy.ads.acknowledged([(world.KIND.ROUTES, port.routes)])
        async with world.http1(proxy.port, greeting.context(anchor, pair)) as connection:
            status, headers, _ = await connection.get()
            assert (status, judging.NOT_JUDGED in headers["l5d-proxy-error"]) == (403, True)
        assert await proxy.stat(f"http.in_tls.rbac.policy.{judging.DENIED}.denied") == 1
        assert await proxy.stat(f"http.in_tls.rbac.policy.{judging.NOT_JUDGED}.denied") == 1


async def test_probes_stay_open_and_nothing_else_does():
    anchor = greeting.Anchor()
    closed = judging.PortJudgement(permits=judging.Permits(), open_paths=("/healthz",))
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        await proxy.judge(closed)
        async with world.http1(proxy.port) as plaintext, world.http1(proxy.port, greeting.context(anchor)) as secured:
            for connection in (plaintext, secured):
                for line, expected in (
                    ("GET /healthz", 200),
                    ("GET /healthz?verbose", 200),
                    ("POST /healthz", 403),
                    ("GET /healthz/", 403),
                    ("GET /healthz/../x", 403),
                    ("GET /HEALTHZ", 403),
                    ("GET /x?/healthz", 403),
                ):
                    assert (await connection.get(line=line))[0] == expected, line


async def test_a_probe_is_no_door_for_more_than_its_path():
    """Some servers take a WebSocket at any path, and some read no body of GET: what follows is a request of its own there."""
    anchor, hidden = greeting.Anchor(), b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"
    closed = judging.PortJudgement(permits=judging.Permits(), open_paths=("/healthz",))
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        await proxy.judge(closed)
        for context in (None, greeting.context(anchor)):
            for headers in (
                {"connection": "upgrade", "upgrade": "websocket"},
                {"content-length": str(len(hidden))},
                {"content-length": str(len(hidden)), "l5d-orig-proto": "HTTP/1.1"},
            ):
                async with world.http1(proxy.port, context) as connection:
                    status, refusal, _ = await connection.get(line="GET /healthz", **headers)
                    assert (status, refusal.get("l5d-proxy-error")) == (403, judging.NOT_ALLOWED), headers
        assert application.octets == b""


async def test_nobody_brings_a_name_of_his_own_however_it_is_spelled():
    """A server that is called as CGI programs are takes `l5d_client_id` for the same header."""
    anchor = greeting.Anchor()
    liar = "a\r\nl5d_client_id: liar\r\nL5D-Client_ID: liar\r\nl5d-client-id: liar"
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        client = greeting.context(anchor, anchor.pair(world.CLIENT))
        for context, expected in ((None, {}), (client, {"l5d-client-id": world.CLIENT})):
            async with world.http1(proxy.port, context) as connection:
                _, _, seen = await connection.get(host=liar)
            assert {name: value for name, value in seen["headers"].items() if name.startswith("l5d")} == expected


async def test_nobody_brings_a_name_of_his_own_in_a_trailer():
    """Many servers have headers and trailers in one table; gRPC's are an example."""
    anchor = greeting.Anchor()
    liar = [("l5d-client-id", "liar"), ("l5d_client_id", "liar")]
    async with http2_world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        client = greeting.context(anchor, anchor.pair(world.CLIENT), ["h2"])
        for context in (None, client):
            async with http2_world.client(proxy.port, context, world.IDENTITY) as connection:
                for trailers, left in ((liar, {}), ([*liar, ("x-own", "1")], {"x-own": "1"})):
                    answer = await connection.get(trailers=trailers)
                    assert (answer.status, answer.seen["trailers"]) == (200, left)
                    # Nor does the application tell its client who it is.
                    assert answer.trailers == {"x-sum": "1"}
    # Of HTTP/1.1 no trailer is passed on.
    head = b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    async with world.application() as older, world.proxy(older.port, anchor) as proxy:
        assert (await world.exchange(proxy.port, head + b"1\r\nx\r\n0\r\nl5d-client-id: liar\r\n\r\n"))[
            :12
        ] == b"HTTP/1.1 200"
        assert b"liar" not in older.octets


async def test_one_table_of_routes_judges_by_the_port_that_was_called():
    anchor = greeting.Anchor()
    closed, everybody = judging.Permits(), judging.EVERYBODY
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        async with world.http1(proxy.port) as plaintext, world.http1(proxy.port, greeting.context(anchor)) as secured:
            for others, own, audited, expected in (
                (everybody, closed, None, 403),
                (closed, everybody, None, 200),
                (closed, everybody, closed, 200),
            ):
                await proxy.judge(
                    judging.PortJudgement(permits=others, open_paths=("/x",)),
                    judging.PortJudgement(port=proxy.port, permits=own, audited=audited),
                    judging.PortJudgement(port=1, permits=others),
                )
                for connection in (plaintext, secured):
                    assert (await connection.get())[0] == expected
            assert await proxy.stat("http.in_http.rbac.shadow_denied") == 1
            # A port without a row has nobody, where there is none for the others.
            await proxy.judge(judging.PortJudgement(port=1), judging.PortJudgement(port=2))
            assert (await plaintext.get())[0] == 403


async def test_a_client_certificate_that_ends_is_refused_on_its_open_connection():
    hour = datetime.timedelta(hours=1)
    anchor = greeting.Anchor(ago=24 * hour)
    async with greeting.serving() as address, world.proxy(address.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        # Made when everything runs: that may take longer than it has left.
        short = anchor.pair(world.CLIENT, ttl=hour, ago=hour - datetime.timedelta(seconds=8))
        async with world.http2(proxy.port, anchor, short) as call:
            assert await call() == OK

            async def is_refused() -> bool:
                code, why = await call()
                return code != "OK" and judging.EXPIRED in why

            await world.until(is_refused, "the end of the certificate")
            assert greeting.CLOCK.now() >= short.leaf.not_after
            assert (await proxy.refused())[judging.EXPIRED] >= 1
            assert await proxy.stat("http.in_tls.downstream_cx_total") == 1


async def test_a_connection_ends_with_an_answer_that_says_so():
    """One of TLS; in plaintext no certificate made it, and it has no end."""
    anchor = greeting.Anchor()
    async with world.application() as application, world.proxy(application.port, anchor, longest=1) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        async with world.http1(proxy.port, greeting.context(anchor)) as kept, world.http1(proxy.port) as plaintext:
            status, headers, _ = await kept.get()
            assert (status, headers.get("connection")) == (200, None)

            async def is_closing() -> bool:
                status, headers, _ = await plaintext.get()
                assert (status, headers.get("connection")) == (200, None)
                status, headers, _ = await kept.get()
                assert status == 200
                return headers.get("connection") == "close"

            await world.until(is_closing, "the last answer")
