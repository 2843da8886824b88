# SPDX-License-Identifier: Apache-2.0
"""Policy and revocation at a real proxy: `mesh proxy run` with Envoy, the policy service and the agents' channel; connections stay open meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from handfast.pki import pairs
from handfast.rules.envoy import judging
from tests.scenarios import envoy_world, policy_world
from tests.unit.wire import greeting

pytestmark = [pytest.mark.slow, pytest.mark.measured, pytest.mark.timeout(240)]
OK = ("OK", "")
DENIED = "envoy_http_rbac_policy_denied"
WOULD_BE_DENIED = "envoy_http_rbac_policy_shadow_denied"


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[policy_world.World]:
    with policy_world.world(tmp_path_factory.mktemp("policy")) as world:
        yield world


@pytest.fixture(scope="module")
def proxy(world) -> Iterator[policy_world.Proxy]:
    with policy_world.Proxy(world, "db-1") as proxy:
        yield proxy.ready()


@pytest.fixture(scope="module")
def web(world):
    return world.client("web")


@pytest.fixture(autouse=True)
def no_policies(world) -> Iterator[None]:
    yield
    world.forget()


async def until(question: Callable[[], Awaitable[Any]], what: Callable[[], Any] = lambda: "it") -> None:
    try:
        async with asyncio.timeout(30):
            while not await question():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(what()) from None


@contextlib.asynccontextmanager
async def http2(world: policy_world.World, port: int, pair: pairs.Pair) -> AsyncIterator[Callable[[], Any]]:
    """One connection of HTTP/2 with a client certificate; how a call on it ends."""
    credentials = grpc.ssl_channel_credentials(world.plane.anchors(), pair.key_pem, pair.certificate_pem)
    options = [("grpc.ssl_target_name_override", policy_world.NAME), ("grpc.enable_retries", 0)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        method = channel.unary_unary(f"/{greeting.SERVICE}/Greet")

        async def call() -> tuple[str, str]:
            try:
                await method(b"", timeout=20)
            except grpc.aio.AioRpcError as error:
                rows = dict([*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())])
                return error.code().name, str(rows.get("l5d-proxy-error", error.details()))
            return OK

        yield call


async def refused(call: Callable[[], Any], reason: str) -> None:
    """Calls go on until one is refused, and then each is."""
    last: list[Any] = []

    async def is_refused() -> bool:
        last[:] = await call()
        assert last[0] in {"OK", "PERMISSION_DENIED"}, last
        return reason in last[1]

    await until(is_refused, lambda: last)
    assert reason in (await call())[1]


async def answers(connection: envoy_world.Http1, status: int, line: str = "GET /x") -> None:
    """Requests go on until one is answered so."""

    async def is_answered() -> bool:
        return (await connection.get(line=line))[0] == status

    await until(is_answered)


async def allowed(call: Callable[[], Any]) -> None:
    async def is_allowed() -> bool:
        return bool(await call() == OK)

    await until(is_allowed)


async def connections(proxy: policy_world.Proxy) -> float:
    return await asyncio.to_thread(
        proxy.figure, "envoy_http_downstream_cx_total", 'envoy_http_conn_manager_prefix="in_tls"'
    )


async def figure(proxy: policy_world.Proxy, name: str, reason: str) -> float:
    return await asyncio.to_thread(proxy.figure, name, f'envoy_rbac_policy_name="{reason}"')


async def write(world: policy_world.World, name: str = "p", **spec: Any) -> None:
    await asyncio.to_thread(lambda: world.write(name, **spec))


async def revoke(world: policy_world.World, *words: str) -> None:
    await asyncio.to_thread(lambda: world.revoke(*words))


def account(name: str) -> dict[str, Any]:
    return {"serviceAccount": {"name": name}}


async def test_a_revocation_reaches_an_open_connection(world, proxy, web):
    async with http2(world, proxy.grpc, web.pair) as call:
        await allowed(call)
        before = await connections(proxy)
        rows: list[tuple[tuple[str, ...], str]] = [
            (("shop/web",), judging.DENIED),
            (("--pod", "shop/web-1"), judging.REVOKED),
            (("--serial", web.leaf.serial), judging.REVOKED),
        ]
        for words, reason in rows:
            counted = await figure(proxy, DENIED, reason)
            await revoke(world, *words)
            # A certificate that is denied by name and by digest is refused by one of them.
            await refused(call, "-revoked")
            assert await figure(proxy, DENIED, reason) > counted or reason == judging.DENIED
            await revoke(world, *words, "--undo")
            await allowed(call)
        # By its key.
        spec = {"keyFingerprint": f"sha256:{web.leaf.public_key.fingerprint}", "reason": "stolen"}
        body = {"apiVersion": "handfast.dev/v1alpha1", "kind": "Revocation", "metadata": {"name": "key"}, "spec": spec}
        await asyncio.to_thread(world.plane.post, "/apis/handfast.dev/v1alpha1/revocations", body, wanted=(201,))
        await refused(call, judging.REVOKED)
        assert await connections(proxy) == before


async def test_policy_reaches_an_open_connection_on_its_port_alone(world, proxy, web):
    async with http2(world, proxy.grpc, web.pair) as call, envoy_world.http1(proxy.web) as plaintext:
        await allowed(call)
        before = await connections(proxy)
        await write(world, targets={"ports": [proxy.grpc]}, clients=[account("api")])
        await refused(call, judging.NOT_ALLOWED)
        await answers(plaintext, 200)
        await write(world, targets={"ports": [proxy.grpc]}, clients=[account("api"), account("web")])
        await allowed(call)
        await write(world, targets={"ports": [proxy.grpc]}, clients=[])
        await refused(call, judging.NOT_ALLOWED)
        await write(world, targets={"ports": [proxy.grpc]}, clients=[{"namespace": "shop"}])
        await allowed(call)
        assert await connections(proxy) == before


async def test_audit_changes_no_answer_and_is_counted(world, proxy, web):
    async with http2(world, proxy.grpc, web.pair) as call:
        await allowed(call)
        await write(world, targets={"ports": [proxy.grpc]}, clients=[account("api")], mode="audit")

        async def is_counted() -> bool:
            assert await call() == OK
            return await figure(proxy, WOULD_BE_DENIED, judging.NOT_ALLOWED) > 0

        await until(is_counted)
        await write(world, targets={"ports": [proxy.grpc]}, clients=[account("api")])
        await refused(call, judging.NOT_ALLOWED)


async def test_an_identity_that_is_required_is_required_on_an_open_connection(world, proxy, web):
    async with (
        envoy_world.http1(proxy.web) as plaintext,
        envoy_world.http1(proxy.web, world.context(), policy_world.NAME) as anonymous,
        envoy_world.http1(proxy.web, world.context(web.pair), policy_world.NAME) as named,
    ):
        for connection in (plaintext, anonymous, named):
            await answers(connection, 200)
        await write(world, requireIdentity={"inbound": True}, clients=[{"unauthenticated": True}])
        for connection in (plaintext, anonymous):

            async def is_refused(connection: envoy_world.Http1 = connection) -> bool:
                status, headers, _ = await connection.get()
                return status == 403 and judging.IDENTITY_REQUIRED in headers["l5d-proxy-error"]

            await until(is_refused)
        assert (await named.get())[0] == 200

        # Probes stay open, as the policy service says, and nothing beside them.
        await answers(plaintext, 200, "GET /healthz")
        for line, expected in (("GET /healthz", 200), ("GET /healthz?x", 200), ("POST /healthz", 403), ("GET /", 403)):
            assert (await plaintext.get(line=line))[0] == expected, line
        # What is no HTTP, and TLS that is not ours, are reset: the application sees no connection.
        await until(lambda: _is_reset(proxy))
        seen = world.application.connections
        assert await envoy_world.exchange(proxy.web, envoy_world.client_hello("other.example")) == b""
        assert world.application.connections == seen


async def _is_reset(proxy: policy_world.Proxy) -> bool:
    return await envoy_world.exchange(proxy.web, b"\x00\x01 no HTTP\r\n") == b""


async def test_a_version_is_acknowledged_once_envoy_works_by_it(world, proxy, web):
    async with http2(world, proxy.grpc, web.pair) as call:
        await write(world, targets={"ports": [proxy.grpc]}, clients=[])
        await refused(call, judging.NOT_ALLOWED)

        async def acknowledges() -> bool:
            return await asyncio.to_thread(proxy.acknowledges)

        await until(acknowledges, proxy.log.read_text)


async def test_while_the_channel_is_down_the_last_policy_holds(world, proxy, web):
    async with http2(world, proxy.grpc, web.pair) as call, envoy_world.http1(proxy.grpc) as plaintext:
        await write(world, targets={"ports": [proxy.grpc]}, clients=[account("api")])
        await refused(call, judging.NOT_ALLOWED)
        for relay in (world.agents, world.policy):
            await asyncio.to_thread(relay.down)
        try:
            await asyncio.to_thread(world.forget)
            for _ in range(20):
                assert judging.NOT_ALLOWED in (await call())[1]
                assert (await plaintext.get())[0] == 403
        finally:
            for relay in (world.agents, world.policy):
                await asyncio.to_thread(relay.up)
        await allowed(call)


async def test_an_agent_that_was_killed_comes_back_without_a_hole(world, proxy, web):
    api = await asyncio.to_thread(world.client, "api")
    await write(world, targets={"ports": [proxy.grpc]}, clients=[account("api")])
    async with http2(world, proxy.grpc, web.pair) as call:
        await refused(call, judging.NOT_ALLOWED)
    await asyncio.to_thread(world.agents.down)
    try:
        # Envoy goes with its agent: nothing is served after.
        await asyncio.to_thread(proxy.kill)
        proxy.start()
        await asyncio.to_thread(proxy.lacks, "the control plane has not said who is denied")
        async with envoy_world.http1(proxy.grpc) as plaintext:
            assert (await plaintext.get())[0] == 403
        # Whom the policy names may be on the deny list, which is not known.
        async with http2(world, proxy.grpc, api.pair) as call:
            assert judging.NOT_KNOWN in (await call())[1]
    finally:
        await asyncio.to_thread(world.agents.up)
    await asyncio.to_thread(proxy.ready)
    # From now on everything is as the policy says, with the first call.
    async with http2(world, proxy.grpc, web.pair) as call:
        assert judging.NOT_ALLOWED in (await call())[1]
    async with http2(world, proxy.grpc, api.pair) as call:
        assert await call() == OK


async def test_it_is_ready_when_it_is_known_who_may_call_and_then_nobody_comes_without_a_name(world, web):
    await asyncio.to_thread(world.agents.down)
    await asyncio.to_thread(world.policy.down)
    with await asyncio.to_thread(policy_world.Proxy, world, "db-3", headers="enabled") as proxy:
        try:
            await asyncio.to_thread(proxy.lacks, "the control plane has not said who is denied: ")
            await asyncio.to_thread(world.policy.up)
            async with envoy_world.http1(proxy.web, world.context(web.pair), policy_world.NAME) as named:
                # The policy service lets everybody in, and the application is not told who it is.
                await answers(named, 200)
                assert "l5d-client-id" not in (await named.get())[2]["headers"]
                assert (await asyncio.to_thread(proxy.get, "/ready"))[0] == 503
                await asyncio.to_thread(world.policy.down)
                await asyncio.to_thread(world.agents.up)
                await asyncio.to_thread(proxy.ready)
                assert (await named.get())[2]["headers"]["l5d-client-id"] == web.name
        finally:
            for relay in (world.agents, world.policy):
                await asyncio.to_thread(relay.up)


async def test_it_is_not_ready_before_the_policy_service_has_answered_for_its_ports(world):
    await asyncio.to_thread(world.policy.down)
    with await asyncio.to_thread(policy_world.Proxy, world, "db-4") as proxy:
        try:
            await asyncio.to_thread(proxy.lacks, "the policy service has not said who may call port ")
        finally:
            await asyncio.to_thread(world.policy.up)
        await asyncio.to_thread(proxy.ready)


async def test_before_a_policy_is_known_nobody_is_let_in_where_the_default_says_so(world):
    await asyncio.to_thread(world.cut_off)
    seen = world.application.connections
    proxy = await asyncio.to_thread(policy_world.Proxy, world, "db-2")
    try:
        await asyncio.to_thread(proxy.listens)
        async with envoy_world.http1(proxy.web) as plaintext:
            status, headers, _ = await plaintext.get()
            assert (status, judging.NOT_KNOWN in headers["l5d-proxy-error"]) == (403, True)
            assert await envoy_world.exchange(proxy.web, b"\x00\x01 no HTTP\r\n") == b""
            assert world.application.connections == seen
            # The policy service lets everybody in: plaintext is forwarded before there is a certificate, on the same connection.
            await asyncio.to_thread(world.policy.up)
            await answers(plaintext, 200)
            await write(world, clients=[])
            await answers(plaintext, 403)
            await answers(plaintext, 200, "GET /healthz")
    finally:
        await asyncio.to_thread(proxy.__exit__)
        for relay in (world.agents, world.policy, world.identity):
            await asyncio.to_thread(relay.up)
