# SPDX-License-Identifier: Apache-2.0
"""Calls of real HTTPS servers: good ones, broken ones, hostile ones and the wrong ones."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from handfast.apiserver.admission import webhook_client
from handfast.rules.webhooks import answers
from handfast.rules.webhooks import configurations as rules
from tests.unit.apiserver import hooking
from tests.world import clock as clocks

LOCAL = ("127.0.0.1", "hook.system.svc")


class Calling:
    """A client with its clock and its copy of the store."""

    def __init__(self) -> None:
        self.clock = clocks.MovableClock()
        self.copy = hooking.Copy()
        self.client = webhook_client.Client(self.copy.replica, self.clock)

    async def call(self, config: dict[str, Any], **more: Any) -> bytes:
        document = hooking.configuration(hooking.MUTATING, hooking.webhook("one", config, **more))
        return await self.client.call(rules.parse(document)[0], b'{"request":{}}')

    async def fails(self, config: dict[str, Any], **more: Any) -> str:
        with pytest.raises(answers.CallFailed) as caught:
            await self.call(config, **more)
        return caught.value.message

    async def fails_in_time(self, server: hooking.Server, **more: Any) -> str:
        """Fails at the deadline: its clock is moved when the server was asked."""
        call = asyncio.ensure_future(self.fails(server.config(), timeoutSeconds=1, **more))
        async with asyncio.timeout(10):
            await server.asked.wait()
            await self.clock.advance(0.9)
            assert not call.done()
            await self.clock.advance(0.2)
            return await call


@pytest.fixture
async def calling() -> AsyncIterator[Calling]:
    made = Calling()
    yield made
    await made.client.close()


@pytest.fixture
async def server() -> AsyncIterator[hooking.Server]:
    async with hooking.Server(hooking.serving(*LOCAL), hooking.sends(b"answer")) as running:
        yield running


@pytest.fixture
async def other() -> AsyncIterator[hooking.Server]:
    """One that is to be left alone, though it would be trusted."""
    async with hooking.Server(hooking.serving(*LOCAL), hooking.sends(b"another's")) as running:
        yield running


def by_service(**more: Any) -> dict[str, Any]:
    return {"service": {**hooking.SERVICE, "path": "/check", "port": 443, **more}, "caBundle": hooking.bundle()}


async def test_a_url_is_posted_to(calling, server):
    assert await calling.call(server.config()) == b"answer"
    head = server.heads[0]
    assert (head.method, head.path_qs) == ("POST", "/admit?timeout=10s")
    assert head.headers["Content-Type"] == "application/json"
    assert head.headers["Host"] == f"127.0.0.1:{server.port}"
    assert server.reviews == [{"request": {}}]


async def test_calls_share_a_connection_and_keep_no_cookies(calling, server):
    seen = []

    async def answer(request: web.BaseRequest, review: Any) -> web.StreamResponse:
        assert request.transport is not None
        seen.append(request.transport.get_extra_info("peername"))
        return web.Response(body=b"answer", headers={"Set-Cookie": "a=b"})

    server.answer = answer
    await calling.call(server.config())
    await calling.call(server.config())
    assert seen[0] == seen[1]
    assert "Cookie" not in server.heads[1].headers


async def test_the_environment_is_not_asked_for_proxies(calling, server, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert await calling.call(server.config()) == b"answer"


async def test_a_service_is_called_at_an_endpoint_under_its_own_name(calling, server):
    calling.copy.put_service(server.port)
    assert await calling.call(by_service()) == b"answer"
    head = server.heads[0]
    assert head.path_qs == "/check?timeout=10s"
    assert head.headers["Host"] == "hook.system.svc:443"


async def test_paths_are_quoted(calling, server):
    calling.copy.put_service(server.port)
    await calling.call(by_service(path="/a b?c\r\nX-Evil: 1"))
    head = server.heads[0]
    assert head.path_qs.partition("?")[0] == "/a%20b%3Fc%0D%0AX-Evil:%201"
    assert "X-Evil" not in head.headers


async def test_an_external_service_is_called_by_its_name(calling, server):
    calling.copy.put_service(1, type="ExternalName", externalName="localhost")
    # The port is the reference's own: nothing maps it.
    assert await calling.call(by_service(port=server.port)) == b"answer"


async def test_only_ready_endpoints_are_called(calling, server, other):
    calling.copy.put_service(server.port)
    calling.copy.put_slice("hook", [{"addresses": ["127.0.0.1"]}], server.port)
    unready = {"addresses": ["127.0.0.1"], "conditions": {"ready": False}}
    calling.copy.put_slice("hook", [unready], other.port, name="two")
    for _ in range(8):
        assert await calling.call(by_service()) == b"answer"
    assert (len(server.heads), other.heads) == (8, [])


async def test_an_endpoint_that_refuses_is_given_up_for_the_next(calling, server):
    calling.copy.put_service(server.port)
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    calling.copy.put_slice("hook", [{"addresses": ["127.0.0.1"]}], port, name="two")
    for _ in range(4):
        assert await calling.call(by_service()) == b"answer"


async def test_a_connection_that_ended_is_replaced(calling, server):
    calls = 0

    async def answer(request: web.BaseRequest, review: Any) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if calls == 2:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(body=b"answer")

    server.answer = answer
    assert await calling.call(server.config()) == b"answer"
    assert await calling.call(server.config()) == b"answer"
    assert calls == 3


async def test_a_server_that_always_hangs_up_is_a_failure(calling, server):
    async def answer(request: web.BaseRequest, review: Any) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.answer = answer
    assert (await calling.fails(server.config())).endswith('?timeout=10s": EOF')


@pytest.mark.parametrize(
    ("prepare", "config", "why"),
    [
        (lambda _: None, by_service(), 'service "hook" not found'),
        (lambda copy: copy.put_service(1), by_service(port=8443), 'no service port 8443 found for service "hook"'),
        (
            lambda copy: copy.put_service(1, ports=[{"name": "other", "port": 443}]),
            by_service(),
            'no endpoints available for service "hook"',
        ),
        (
            lambda copy: copy.put_service(1, ports=[{"name": "https", "port": 443, "protocol": "UDP"}]),
            by_service(),
            'no service port 443 found for service "hook"',
        ),
        (
            lambda copy: (copy.put_service(1), copy.put_slice("hook", [], 1)),
            by_service(),
            'no endpoints available for service "hook"',
        ),
        (
            lambda copy: copy.put_service(1, type="ExternalName"),
            by_service(),
            "there is no address that can be called",
        ),
        (lambda copy: copy.put_service(1, address="a b"), by_service(), "there is no address that can be called"),
    ],
)
async def test_services_that_cannot_be_called(calling, prepare, config, why):
    prepare(calling.copy)
    message = await calling.fails(config)
    assert message.startswith('failed to call webhook: Post "https://hook.system.svc')
    assert message.endswith(f'/check?timeout=10s": {why}')


async def test_slices_of_other_services_are_not_called(calling, server, other):
    calling.copy.put_service(other.port, name="other")
    calling.copy.put_service(server.port)
    for _ in range(8):
        assert await calling.call(by_service()) == b"answer"
    assert (len(server.heads), other.heads) == (8, [])


async def test_what_is_wrong_with_a_configuration_is_said(calling):
    message = await calling.fails({"url": "https://127.0.0.1"}, admissionReviewVersions=["v1beta1"])
    assert message == "failed to call webhook: webhook does not accept v1 AdmissionReview"


async def test_only_https_is_called(calling):
    assert (await calling.fails({"url": "http://127.0.0.1:1/"})).endswith("only https URLs are called")


@pytest.mark.parametrize("url", ["https://[::1", "/admit", ""])
async def test_a_url_that_is_none(calling, url):
    message = await calling.fails({"url": url})
    assert message == "failed to call webhook: clientConfig names no URL that can be called"


async def test_a_password_in_the_url_is_not_shown(calling, server):
    server.answer = hooking.sends(b"", 500)
    url = server.url.replace("//", "//user:hunter2@")
    message = await calling.fails(server.config(url=url))
    assert "hunter2" not in message
    assert "Authorization" not in server.heads[0].headers


async def test_nobody_listens(calling):
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    message = await calling.fails({"url": f"https://127.0.0.1:{port}/"})
    assert f"dial tcp 127.0.0.1:{port}: " in message


async def test_a_server_without_tls(calling):
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(hello, "127.0.0.1", 0)
    async with plain:
        port = plain.sockets[0].getsockname()[1]
        assert "tls: handshake failed: " in await calling.fails({"url": f"https://127.0.0.1:{port}/"})


# --- the wrong one answers


async def test_a_certificate_of_another_ca_is_refused(calling):
    async with hooking.Server(hooking.serving(*LOCAL, issuer="evil"), hooking.sends(b"answer")) as server:
        message = await calling.fails(server.config())
        assert "tls: failed to verify certificate: " in message
        assert server.reviews == []


async def test_without_a_bundle_the_system_decides(calling, server):
    message = await calling.fails({"url": server.url})
    assert "tls: failed to verify certificate: " in message
    assert server.reviews == []


async def test_a_certificate_for_another_name_is_refused(calling):
    async with hooking.Server(hooking.serving("other.example.com"), hooking.sends(b"answer")) as server:
        assert "tls: failed to verify certificate: IP address mismatch" in await calling.fails(server.config())
        assert server.reviews == []


async def test_endpoints_of_somebody_else_are_refused(calling):
    """The address is right and the CA is right, but the certificate is another Service's."""
    async with hooking.Server(hooking.serving("127.0.0.1", "mine.evil.svc"), hooking.sends(b"answer")) as server:
        calling.copy.put_service(server.port)
        assert "tls: failed to verify certificate: Hostname mismatch" in await calling.fails(by_service())
        assert server.reviews == []


async def test_a_connection_verified_for_one_name_is_not_used_for_another(calling, server):
    assert await calling.call(server.config()) == b"answer"
    calling.copy.put_service(server.port)
    calling.copy.put_service(server.port, name="other")
    assert await calling.call(by_service()) == b"answer"
    assert "Hostname mismatch" in await calling.fails(by_service(name="other"))


async def test_a_connection_verified_by_one_bundle_is_not_used_for_another(calling, server):
    assert await calling.call(server.config()) == b"answer"
    assert "failed to verify" in await calling.fails(server.config(caBundle=hooking.bundle("evil")))


async def test_a_bundle_without_certificates(calling, server):
    message = await calling.fails(server.config(caBundle="bm90IFBFTQ=="))
    assert "clientConfig.caBundle: the CA bundle holds no certificate that can be read" in message


async def test_rotated_bundles_are_forgotten(calling, server, monkeypatch):
    monkeypatch.setattr(webhook_client, "_CONTEXTS", 1)
    await calling.call(server.config())
    await calling.fails(server.config(caBundle=hooking.bundle("evil")))
    assert await calling.call(server.config()) == b"answer"
    assert len(calling.client._contexts) == 1


# --- a hostile webhook


async def test_a_silent_webhook_ends_at_its_deadline(calling, server):
    server.answer = hooking.hangs
    message = await calling.fails_in_time(server)
    assert message == f'failed to call webhook: Post "{server.url}?timeout=1s": context deadline exceeded'


async def test_a_trickle_ends_at_the_deadline(calling, server):
    async def answer(request: web.BaseRequest, review: Any) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.001)

    server.answer = answer
    assert "context deadline exceeded" in await calling.fails_in_time(server)


async def test_an_endless_body_is_cut_off(calling, server):
    sent = 0

    async def answer(request: web.BaseRequest, review: Any) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)
            sent += 65536

    server.answer = answer
    message = await calling.fails(server.config())
    assert message.endswith(f"the answer is larger than {webhook_client.MAX_ANSWER} bytes")
    assert sent < 4 * webhook_client.MAX_ANSWER


async def test_the_largest_answer_is_read(calling, server):
    server.answer = hooking.sends(b" " * webhook_client.MAX_ANSWER)
    assert len(await calling.call(server.config())) == webhook_client.MAX_ANSWER


async def test_a_compressed_body_is_not_opened(calling, server):
    bomb = gzip.compress(b" " * 1_000_000)
    server.answer = hooking.sends(bomb, headers={"Content-Encoding": "gzip"})
    assert await calling.call(server.config()) == bomb


async def test_redirects_are_not_followed(calling, server):
    server.answer = hooking.sends(b"", 307, {"Location": server.url})
    message = await calling.fails(server.config())
    assert message.endswith("the server responded with the status code 307 but did not return more information")
    assert len(server.reviews) == 1


@pytest.mark.parametrize("code", [300, 400, 404, 500, 503])
async def test_other_codes_are_failures(calling, server, code):
    server.answer = hooking.sends(b"secret", code)
    message = await calling.fails(server.config())
    assert f"the server responded with the status code {code} but" in message
    assert "secret" not in message


async def test_a_body_that_breaks_off(calling, server):
    async def answer(request: web.BaseRequest, review: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    server.answer = answer
    assert "the exchange failed (ClientPayloadError)" in await calling.fails(server.config())


async def test_closing_twice(calling, server):
    await calling.call(server.config())
    await calling.client.close()
    await calling.client.close()
    assert await calling.call(server.config()) == b"answer"
