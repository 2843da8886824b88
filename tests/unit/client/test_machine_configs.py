# SPDX-License-Identifier: Apache-2.0
"""One GET of a configuration over real TLS, and what is told when there is none."""

from __future__ import annotations

import asyncio
import socket
import ssl

import aiohttp
import pytest

from handfast import errors
from handfast.client import machine_configs
from tests.world import tls_cluster
from tests.world.tls_cluster import Authority, Reply


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority()


def answering(code, body=b"", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: Reply(code, body, named)


async def fetch(ca, reply, trusted=None, path="/config/worker", **more):
    async with tls_cluster.listening(ca.context(), reply) as server:
        target = machine_configs.Target(url=server.url + path, ca_pem=(trusted or ca).pem, **more)
        try:
            return await machine_configs.fetch(target), server
        except errors.HandfastError as error:
            return error, server


async def test_the_body_is_fetched_with_the_version_and_the_headers(ca):
    body, server = await fetch(ca, answering(200, b"{}"), headers={"Authorization": "Bearer s"})
    assert body == b"{}"
    request = server.requests[0]
    assert request.target == "/config/worker"
    assert request.headers["accept"].startswith("application/vnd.coreos.ignition+json;version=3.5.0")
    assert request.headers["authorization"] == "Bearer s"
    assert "Bearer" not in repr(machine_configs.Target(url="https://x", ca_pem=b"", headers={"A": "Bearer s"}))


async def test_who_showed_a_secret_is_told_of_the_secret(ca):
    error, _ = await fetch(ca, answering(403, Handfast_Reason="OtherPool"), headers={"Authorization": "Bearer s"})
    assert error.hint.startswith("the secret in the pointer is of another pool or machine")
    error, _ = await fetch(ca, answering(403, Handfast_Reason="OtherPool"))
    assert error.hint.startswith("its certificate is that of a revoked node")


@pytest.mark.parametrize(
    ("code", "header", "reason", "words"),
    [
        (401, "", "Unauthorized", "answered 401: this machine may not have that configuration"),
        (403, "OtherPool: the Node is in master", "OtherPool", "answered 403 (OtherPool: the Node is in master)"),
        (403, "", "Forbidden", "answered 403"),
        (404, "", "BadAnswer", "answered 404"),
        (301, "", "BadAnswer", "answered 301"),
    ],
)
async def test_what_has_to_be_put_right_is_refused_with_the_servers_reason(ca, code, header, reason, words):
    error, _ = await fetch(ca, answering(code, **({"Handfast_Reason": header} if header else {})), path="/config/x?s=1")
    assert isinstance(error, errors.Refused)
    assert (error.reason, words in error.message, bool(error.hint)) == (reason, True, True)
    assert "s=1" not in error.message


@pytest.mark.parametrize(("wait", "seconds"), [("7", 7.0), ("99999999999", 600.0), ("soon", 0.0), ("", 0.0)])
async def test_what_may_pass_is_unavailable_with_the_wait(ca, wait, seconds):
    error, _ = await fetch(ca, answering(503, **({"Retry_After": wait} if wait else {})))
    assert isinstance(error, machine_configs.NotReady)
    assert (error.reason, error.retry_after) == ("ServerNotReady", seconds)


async def test_a_server_of_another_ca_is_refused_with_both_names_and_is_sent_nothing(ca):
    other = Authority()
    error, server = await fetch(other, answering(200), trusted=ca, headers={"Authorization": "s"})
    assert error.reason == machine_configs.OTHER_CA
    assert "presents a certificate of another CA, CN=" in error.message
    assert "the kubeconfig trusts CN=" in error.message
    assert "sha256:" in error.message
    assert server.requests == []


async def test_a_server_whose_certificate_cannot_be_looked_at_is_refused_all_the_same(ca, monkeypatch):
    async def gone(*_, **__):
        raise OSError("gone")

    other = Authority()
    monkeypatch.setattr(asyncio, "open_connection", gone)
    error, _ = await fetch(other, answering(200), trusted=ca)
    assert "another CA, which cannot be read; " in error.message


async def test_nobody_there_is_unavailable_and_says_what_to_start(ca):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    target = machine_configs.Target(url=f"https://127.0.0.1:{port}/config/x", ca_pem=ca.pem)
    with pytest.raises(errors.Unavailable) as caught:
        await machine_configs.fetch(target)
    assert caught.value.reason == "ConnectionRefused"
    assert "handfast serve machine-config" in (caught.value.hint or "")


async def test_what_speaks_no_tls_is_no_machine_config_server(ca):
    async def plain(_reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        target = machine_configs.Target(url=f"https://127.0.0.1:{port}/config/x", ca_pem=ca.pem)
        with pytest.raises(errors.Refused, match="is not a machine-config server"):
            await machine_configs.fetch(target)


@pytest.mark.parametrize("url", ["http://x/config/y", "https:///x", "https://[x/", "x", "https://h/\n"])
async def test_what_is_no_https_url_is_refused(ca, url):
    with pytest.raises(errors.Refused) as caught:
        await machine_configs.fetch(machine_configs.Target(url=url, ca_pem=ca.pem))
    assert caught.value.reason == "BadEndpoint"


async def test_an_answer_has_a_limit(ca, monkeypatch):
    monkeypatch.setattr(machine_configs, "MAX_BYTES", 3)
    error, _ = await fetch(ca, answering(200, b"four"))
    assert (error.reason, "more than 3 bytes" in error.message) == ("TooLarge", True)


async def test_a_certificate_that_the_server_turns_down_is_told(ca, monkeypatch):
    class Alert(ssl.SSLError):
        reason = "TLSV1_ALERT_UNKNOWN_CA"

    async def alert(*_, **__):
        raise Alert

    monkeypatch.setattr(aiohttp.ClientSession, "_request", alert)
    error, _ = await fetch(ca, answering(200))
    assert (error.reason, error.message.endswith("does not take this machine's certificate: unknown ca")) == (
        "CertificateRefused",
        True,
    )
