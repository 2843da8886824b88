# SPDX-License-Identifier: Apache-2.0
"""A look at a workload from outside."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from handfast.node import workload_probes
from handfast.runtime import addresses


@contextlib.asynccontextmanager
async def answering(octets: bytes) -> AsyncIterator[addresses.Address]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(octets)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield addresses.Address("127.0.0.1", server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nready\n", None),
        (b"HTTP/1.1 503 X\r\n\r\nnot ready: there is no certificate\n", "there is no certificate"),
        (b"HTTP/1.1 503 X\r\n\r\n", "the proxy does not say why"),
        (b"", "the proxy does not say why"),
        (b"\xff\xff nonsense", "the proxy does not say why"),
    ],
)
async def test_what_the_proxy_says_is_why_it_is_not_ready(octets, why):
    async with answering(octets) as address:
        assert await workload_probes.why_not_ready(address) == why


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b'{"lastError": {"at": "a", "reason": "CertificateRefused", "message": "no"}}', ("a", "no")),
        (b'{"lastError": {"at": "a", "reason": "CallFailed", "message": "no"}}', None),
        (b'{"name": "web", "lastError": null}', None),
        (b'{"name": "web"}', None),
        (b"not found", None),
        (b"", None),
    ],
)
async def test_a_refused_certificate_is_told_apart_from_other_trouble(body, refusal):
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n" + body) as address:
        assert await workload_probes.refusal(address) == refusal


async def test_where_nobody_listens_nothing_is_ready(unused_tcp_port):
    address = addresses.Address("127.0.0.1", unused_tcp_port)
    assert await workload_probes.refusal(address) is None
    assert await workload_probes.why_not_ready(address) == "the proxy does not answer"
    assert not await workload_probes.accepts(unused_tcp_port)


async def test_an_application_that_listens_accepts_connections():
    async with answering(b"") as address:
        assert await workload_probes.accepts(address.port)
