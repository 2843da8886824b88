# SPDX-License-Identifier: Apache-2.0
"""A gRPC service: its answers, refusals and faults, and where it listens."""

import asyncio
import dataclasses
import os
import stat
from typing import Any

import grpc
import pytest

from handfast import errors
from handfast.runtime import addresses
from handfast.wire import mesh_messages, server, server_tls
from tests.unit.wire import greeting
from tests.world import mesh_client

GREET = f"/{greeting.SERVICE}/Greet"


def target(address: addresses.Address) -> str:
    return f"127.0.0.1:{address.port}"


async def test_on_loopback_it_is_served_without_tls():
    async with greeting.serving() as address:
        assert mesh_client.certified(await mesh_client.call(target(address), GREET, b"")).leaf == b""


async def test_several_services_share_one_address_and_each_has_its_own_methods():
    async with greeting.serving() as address:
        assert mesh_client.certified(await mesh_client.call(target(address), "/test.Farewell/Greet", b"")).leaf == b""
        code, _ = await mesh_client.refusal(target(address), "/test.Farewell/Count", b"")
    assert code == "UNIMPLEMENTED"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::"])
async def test_elsewhere_it_is_refused_without_tls(host):
    service = server.Server(greeting.SERVICES, clock=greeting.CLOCK, flag="--identity-listen")
    with pytest.raises(errors.Refused, match="only loopback") as refused:
        async with service.on(addresses.Address(host, 8080)):
            pass
    assert refused.value.reason == "PlaintextNotLoopback"


async def test_two_servers_never_share_a_port():
    async with greeting.serving() as address:
        service = server.Server(greeting.SERVICES, clock=greeting.CLOCK)
        with pytest.raises(errors.Refused) as refused:
            async with service.on(address):
                pass
    assert refused.value.reason == "AddressInUse"


async def test_a_socket_that_was_handed_over_is_served_without_tls_and_stays_whosever_it_is():
    with addresses.listen(greeting.LOOPBACK, "--x") as held:
        address = addresses.bound(held, greeting.LOOPBACK)
        for _ in range(2):
            # As for a process, and for the one that takes its place.
            handed = dataclasses.replace(address, descriptor=os.dup(held.fileno()))
            async with greeting.serving(listen=handed) as bound:
                assert bound == address
                assert mesh_client.certified(await mesh_client.call(target(bound), GREET, b"")).leaf == b""
            # Meanwhile nobody is refused, and nobody else has the port.
            _, writer = await asyncio.open_connection("127.0.0.1", address.port)
            writer.transport.abort()
            with pytest.raises(errors.Refused, match="another process has this port"):
                addresses.listen(address, "--x")


async def test_a_socket_that_was_handed_over_is_refused_without_tls_elsewhere():
    with addresses.listen(addresses.Address("0.0.0.0", 0), "--x") as held:
        handed = dataclasses.replace(addresses.bound(held, addresses.Address("0.0.0.0", 0)), descriptor=held.fileno())
        with pytest.raises(errors.Refused, match="only loopback"):
            async with greeting.serving(listen=handed):
                pass


async def test_a_refusal_has_its_code_its_text_and_when_to_come_again():
    async with greeting.serving() as address, grpc.aio.insecure_channel(target(address)) as channel:
        call = channel.unary_unary(GREET, request_serializer=bytes, response_deserializer=bytes)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(mesh_client.octets(1, b"refuse"), timeout=20)
    assert (refused.value.code().name, refused.value.details()) == ("RESOURCE_EXHAUSTED", "come again")
    assert ("grpc-retry-pushback-ms", "500") in tuple(refused.value.trailing_metadata())


async def test_a_fault_is_internal_and_quotes_nothing():
    async with greeting.serving() as address:
        assert await mesh_client.refusal(target(address), GREET, mesh_client.octets(1, b"fail")) == (
            "INTERNAL",
            "internal error",
        )


async def test_a_message_over_the_bound_is_refused():
    async with greeting.serving() as address:
        message = mesh_client.octets(3, b"x" * (server.MAX_MESSAGE + 1))
        code, _ = await mesh_client.refusal(target(address), GREET, message)
    assert code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("identity", [b"", b"refuse"])
async def test_a_stream_answers_many_and_may_end_in_a_refusal(identity):
    async with greeting.serving() as address, grpc.aio.insecure_channel(target(address)) as channel:
        call = channel.unary_stream(
            f"/{greeting.SERVICE}/Count", request_serializer=bytes, response_deserializer=bytes
        )(mesh_client.octets(1, identity), timeout=20)
        said = []
        code = ""
        try:
            while (item := await call.read()) is not grpc.aio.EOF:
                said.append(mesh_client.certified(item).leaf)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
    assert said == [b"0", b"1", b"2"]
    assert code == ("NOT_FOUND" if identity else "")


@pytest.mark.parametrize("last", [b"", b"refuse"])
async def test_both_sides_speak_at_once_and_a_refusal_ends_it(last):
    async with greeting.serving() as address, grpc.aio.insecure_channel(target(address)) as channel:
        call = channel.stream_stream(
            f"/{greeting.SERVICE}/Echo", request_serializer=bytes, response_deserializer=bytes
        )(timeout=20)
        for word in (b"one", b"two"):
            await call.write(mesh_client.octets(1, word))
            assert mesh_client.certified(await call.read()).leaf == word
        if last:
            await call.write(mesh_client.octets(1, last))
        await call.done_writing()
        code = await call.code()
    assert code.name == ("PERMISSION_DENIED" if last else "OK")


async def test_in_a_pod_it_is_served_with_tls_there_and_without_on_loopback():
    anchor = greeting.Anchor()
    pair = anchor.pair("server.test")
    front = server_tls.ServerTLS(lambda: pair, lambda: anchor.bundle)
    service = server.Server(greeting.SERVICES, clock=greeting.CLOCK, tls=front, beside_loopback=True)
    # Another address of this machine stands for that of the Pod.
    async with service.on(addresses.Address("127.0.0.2", 0)) as address:
        assert mesh_client.certified(await mesh_client.call(target(address), GREET, b"")).leaf == b""
        _, writer = await asyncio.open_connection("127.0.0.2", address.port, ssl=greeting.context(anchor))
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.transport.abort()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", address.port)


@pytest.mark.slow
async def test_of_many_calls_at_once_none_is_cancelled_by_the_library():
    """By itself gRPC cancels some of more than 1,000: who is one of too many is for the service to say."""
    go = asyncio.Event()

    async def wait(_message: Any, _peer: Any) -> Any:
        await go.wait()
        return mesh_messages.CertifyResponse()

    methods = [server.Unary("Wait", mesh_messages.CertifyRequest, mesh_messages.CertifyResponse, wait)]
    async with (
        server.Server({greeting.SERVICE: methods}, clock=greeting.CLOCK).on(greeting.LOOPBACK) as address,
        grpc.aio.insecure_channel(target(address)) as channel,
    ):
        call = channel.unary_unary(f"/{greeting.SERVICE}/Wait", request_serializer=bytes, response_deserializer=bytes)
        calls = [call(b"", timeout=60) for _ in range(4000)]
        go.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []


async def test_a_socket_is_where_its_path_says(tmp_path):
    (tmp_path / "aA b").write_text("of somebody else")
    async with server.Server({}, clock=greeting.CLOCK).at(tmp_path / "a%41 b") as path:
        assert stat.S_ISSOCK(path.stat().st_mode)
    assert [each.name for each in tmp_path.iterdir()] == ["aA b"]
