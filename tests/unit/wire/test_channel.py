# SPDX-License-Identifier: Apache-2.0
"""A channel to a service of the mesh, on real sockets: who is called, who is not, and what a call that fails says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from handfast import errors
from handfast.runtime import addresses
from handfast.wire import channel, mesh_messages
from tests.unit.wire import greeting

NAME = "server.test"
GREET = f"/{greeting.SERVICE}/Greet"
COUNT = f"/{greeting.SERVICE}/Count"
ECHO = f"/{greeting.SERVICE}/Echo"


@pytest.fixture
def anchor() -> greeting.Anchor:
    return greeting.Anchor()


async def greet(service: channel.Channel, identity: str = "") -> str:
    message = mesh_messages.CertifyRequest(identity=identity)
    answer = await service.unary(GREET, message, mesh_messages.CertifyResponse, 20)
    return str(answer.leaf_certificate.decode())


async def read(service: channel.Channel, numbers: list[bytes]) -> None:
    message = mesh_messages.CertifyRequest(identity="refuse")
    async for item in service.stream(COUNT, message, mesh_messages.CertifyResponse):
        numbers.append(item.leaf_certificate)  # noqa: PERF401 - what came before the refusal counts


def opened(address, anchor=None, name=NAME, **more):
    bundle = None if anchor is None else anchor.bundle
    return channel.opened(address, anchors=bundle, server_name=name, clock=greeting.CLOCK, **more)


async def test_many_messages_go_both_ways_until_one_side_ends_it():
    async def words(*identities: str):
        for identity in identities:
            yield mesh_messages.CertifyRequest(identity=identity)

    async def heard(service, messages):
        rows = service.duplex(ECHO, messages, mesh_messages.CertifyResponse)
        return [row.leaf_certificate async for row in rows]

    async with greeting.serving() as address, opened(address) as service:
        assert await heard(service, words("a", "b")) == [b"a", b"b"]
        with pytest.raises(channel.Failed, match="no more") as failed:
            await heard(service, words("a", "refuse"))
        assert failed.value.code == "PERMISSION_DENIED"


async def test_on_loopback_it_is_plaintext():
    async with greeting.serving() as address, opened(address) as service:
        assert await greet(service) == ""


async def test_without_anchors_nothing_but_loopback_is_called():
    with pytest.raises(errors.Refused, match="only loopback is called") as caught:
        async with opened(addresses.Address("192.0.2.1", 8080)):
            pass
    assert caught.value.reason == "PlaintextNotLoopback"


async def test_through_tls_the_pair_is_shown(anchor):
    async with greeting.serving(anchor) as address:
        async with opened(address, anchor) as service:
            assert await greet(service) == ""
        async with opened(address, anchor, pair=anchor.pair("web.test")) as service:
            assert await greet(service) == "web.test"
            assert await greet(service) == "web.test"


async def test_a_stream_is_read_to_its_end(anchor):
    async with greeting.serving(anchor) as address, opened(address, anchor) as service:
        numbers: list[bytes] = []
        with pytest.raises(channel.Failed, match="no more") as caught:
            await read(service, numbers)
        assert numbers == [b"0", b"1", b"2"]
        assert caught.value.code == "NOT_FOUND"


async def test_a_refusal_has_its_code_and_text(anchor):
    async with greeting.serving(anchor) as address, opened(address, anchor) as service:
        with pytest.raises(channel.Failed, match="come again") as caught:
            await greet(service, "refuse")
        assert caught.value.code == "RESOURCE_EXHAUSTED"


async def test_a_server_of_another_ca_is_not_called(anchor):
    async with greeting.serving(anchor) as address, opened(address, greeting.Anchor()) as service:
        with pytest.raises(channel.Failed, match="cannot be reached") as caught:
            await greet(service)
        assert caught.value.code == "UNAVAILABLE"


@pytest.mark.parametrize("shown", ["other.test", "*.test"])
async def test_a_server_of_another_name_is_not_called(anchor, shown):
    async with greeting.serving(anchor, anchor.pair(shown)) as address, opened(address, anchor) as service:
        with pytest.raises(channel.Failed, match=NAME):
            await greet(service)


@contextlib.asynccontextmanager
async def listening(heard: list[bytes]) -> AsyncIterator[addresses.Address]:
    """Somebody who takes connections, and writes down what is said."""

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65536))
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    try:
        yield addresses.Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def test_nothing_is_said_before_the_server_is_known(anchor):
    heard: list[bytes] = []
    async with listening(heard) as address, opened(address, anchor) as service:
        with pytest.raises(channel.Failed):
            await greet(service, "secret")
    assert heard
    assert all(each.startswith(b"\x16\x03") and b"secret" not in each for each in heard)


async def test_nobody_there_is_a_failure_that_says_so(anchor):
    with pytest.raises(channel.Failed, match="cannot be reached"):
        async with opened(addresses.Address("127.0.0.1", 1), anchor) as service:
            await greet(service)


async def test_it_leaves_no_files(anchor, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with greeting.serving(anchor) as address, opened(address, anchor) as service:
        await greet(service)
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o700}
    assert list(tmp_path.iterdir()) == []
