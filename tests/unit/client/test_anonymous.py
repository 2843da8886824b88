# SPDX-License-Identifier: Apache-2.0
"""One GET to a real TLS socket, and what is told when there is no answer."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl

import aiohttp
import pytest

from handfast import errors
from handfast.bootstrap import diagnosis, discovery
from handfast.client import anonymous
from tests.world import tls_cluster
from tests.world.tls_cluster import NOW, TOKEN, Authority, Reply

TROUBLE = diagnosis.Trouble
DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority()


def hello(_request: tls_cluster.Request) -> Reply:
    return Reply(200, b"hello", {"Date": "Sun, 15 Nov 2026 12:00:00 GMT", "Set-Cookie": "a=b"})


async def trouble(url, trust):
    with pytest.raises(anonymous.Troubled) as caught:
        await anonymous.ask(url, trust)
    return caught.value.trouble


async def test_an_answer(ca):
    async with tls_cluster.listening(ca.context(), hello) as server:
        for trust in (anonymous.UNVERIFIED, anonymous.Trust(ca.pem)):
            answer = await anonymous.ask(f"{server.url}/x%2Fy?z", trust)
            assert answer == anonymous.Answer(200, b"hello", "Sun, 15 Nov 2026 12:00:00 GMT")
    assert [request.target for request in server.requests] == ["/x%2Fy?z"] * 2
    assert all(not {"authorization", "cookie"} & set(request.headers) for request in server.requests)
    assert server.connections == 2


async def test_a_token_goes_over_verified_tls_only(ca):
    async with tls_cluster.listening(ca.context(), hello) as server:
        with pytest.raises(errors.Misuse):
            await anonymous.ask(server.url, anonymous.UNVERIFIED, TOKEN)
        assert server.connections == 0
        await anonymous.ask(server.url, anonymous.Trust(ca.pem), TOKEN)
    assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN.text}"


async def test_a_token_never_goes_along_for_cluster_info(ca):
    with pytest.raises(errors.Misuse, match="cluster-info is public"):
        await anonymous.ask(f"https://127.0.0.1:1{discovery.PATH}", anonymous.Trust(ca.pem), TOKEN)


async def test_environment_and_redirects_lead_nowhere(ca, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    async with tls_cluster.listening(
        ca.context(), lambda _: Reply(302, b"", {"Location": "https://127.0.0.1:1"})
    ) as server:
        assert (await anonymous.ask(server.url, anonymous.UNVERIFIED)).code == 302


@pytest.mark.parametrize(
    "url",
    [
        *("https://", "https:///x", "nonsense", "ftp://a/", "http://a/", "https://[::1/", "https://a:99999/"),
        *("https://127.0.0.1:1/\n", "https://a\udcff/", "https://a/\x1b"),
    ],
)
async def test_what_is_no_url_is_refused(url):
    with pytest.raises(errors.Refused, match="is not an https URL") as caught:
        await anonymous.ask(f"{url}?hunter2", anonymous.UNVERIFIED)
    assert caught.value.reason == "BadEndpoint"
    assert caught.value.message.isprintable()
    assert "hunter2" not in caught.value.message


async def test_nothing_is_unpacked(ca):
    packed = lambda _: Reply(200, b"packed", {"Content-Encoding": "gzip"})  # noqa: E731
    async with tls_cluster.listening(ca.context(), packed) as server:
        assert (await anonymous.ask(server.url, anonymous.UNVERIFIED)).body == b"packed"


class TestTrouble:
    @pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..b"])
    async def test_no_name(self, host):
        assert await trouble(f"https://{host}/", anonymous.UNVERIFIED) is TROUBLE.NAME_NOT_FOUND

    async def test_a_header_that_nobody_can_read(self, ca, monkeypatch):
        def unreadable(*_arguments, **_more):
            raise ValueError("hunter2")

        monkeypatch.setattr(anonymous, "Answer", unreadable)
        async with tls_cluster.listening(ca.context(), hello) as server:
            assert await trouble(server.url, anonymous.UNVERIFIED) is TROUBLE.NOT_HTTP

    async def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        assert await trouble(f"https://127.0.0.1:{port}", anonymous.UNVERIFIED) is TROUBLE.CONNECTION_REFUSED

    async def test_another_ca(self, ca):
        async with tls_cluster.listening(ca.context(), hello) as server:
            for trust in (anonymous.Trust(Authority().pem), anonymous.Trust(None)):
                assert await trouble(server.url, trust) is TROUBLE.UNTRUSTED
        assert server.read == b""

    @pytest.mark.parametrize("hosts", [("127.0.0.2",), ("other.example",)])
    async def test_another_name(self, ca, hosts):
        async with tls_cluster.listening(ca.context(hosts), hello) as server:
            assert await trouble(server.url, anonymous.Trust(ca.pem)) is TROUBLE.WRONG_NAME

    async def test_another_name_by_name(self, ca):
        async with tls_cluster.listening(ca.context(("other.example",)), hello) as server:
            url = f"https://localhost:{server.port}"
            assert await trouble(url, anonymous.Trust(ca.pem)) is TROUBLE.WRONG_NAME

    async def test_not_valid_now(self):
        old = Authority(now=NOW - 20 * DAY)
        async with tls_cluster.listening(old.context(ttl=DAY), hello) as server:
            assert await trouble(server.url, anonymous.Trust(old.pem)) is TROUBLE.NOT_VALID_NOW

    async def test_not_valid_yet(self):
        ca = Authority()
        async with tls_cluster.listening(ca.context(now=NOW + 20 * DAY), hello) as server:
            assert await trouble(server.url, anonymous.Trust(ca.pem)) is TROUBLE.NOT_VALID_NOW

    async def test_no_tls(self):
        async with tls_cluster.listening(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", hello) as server:
            assert await trouble(server.url, anonymous.UNVERIFIED) is TROUBLE.NOT_TLS

    async def test_a_hang_up(self):
        async with tls_cluster.listening(lambda _: None, hello) as server:
            assert await trouble(server.url, anonymous.UNVERIFIED) is TROUBLE.UNREACHABLE

    async def test_a_hang_up_after_the_handshake(self, ca):
        class Silent(Reply):
            def octets(self) -> bytes:
                return b""

        async with tls_cluster.listening(ca.context(), lambda _: Silent()) as server:
            assert await trouble(server.url, anonymous.UNVERIFIED) is TROUBLE.UNREACHABLE

    async def test_no_http(self, ca):
        class Other(Reply):
            def octets(self) -> bytes:
                return b"220 mail.example ESMTP\r\n\r\n"

        async with tls_cluster.listening(ca.context(), lambda _: Other()) as server:
            assert await trouble(server.url, anonymous.UNVERIFIED) is TROUBLE.NOT_HTTP

    async def test_an_endless_answer(self, ca, monkeypatch):
        monkeypatch.setattr(anonymous, "_MAX_BYTES", 4)
        async with tls_cluster.listening(ca.context(), hello) as server:
            assert await trouble(server.url, anonymous.UNVERIFIED) is TROUBLE.NOT_HTTP

    async def test_no_answer(self, ca, monkeypatch):
        monkeypatch.setattr(anonymous, "_SECONDS", 0.05)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"https://127.0.0.1:{silent.getsockname()[1]}"
            assert await trouble(url, anonymous.UNVERIFIED) is TROUBLE.NO_ANSWER

    async def test_no_such_name(self, monkeypatch):
        async def unresolved(*_arguments, **_more):
            raise OSError(None, "Name or service not known")

        monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", unresolved)
        monkeypatch.setattr(aiohttp.DefaultResolver, "resolve", unresolved)
        assert await trouble("https://no-such-name.invalid", anonymous.UNVERIFIED) is TROUBLE.NAME_NOT_FOUND

    async def test_no_route(self, monkeypatch):
        async def no_route(*_arguments, **_more):
            raise OSError(113, "No route to host")

        monkeypatch.setattr("aiohappyeyeballs.start_connection", no_route)
        assert await trouble("https://127.0.0.1:1", anonymous.UNVERIFIED) is TROUBLE.UNREACHABLE


def test_an_intermediate_may_be_trusted():
    assert anonymous.Trust(None).context().verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN


def test_an_answer_does_not_print_its_body():
    assert "hello" not in repr(anonymous.Answer(200, b"hello"))


async def test_cancelling_is_no_trouble(ca):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        task = asyncio.ensure_future(
            anonymous.ask(f"https://127.0.0.1:{silent.getsockname()[1]}", anonymous.UNVERIFIED)
        )
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
