# SPDX-License-Identifier: Apache-2.0
"""TLS in front of gRPC, on real sockets: who is believed, who is not, and what is spoken."""

import asyncio
import contextlib
import datetime
import errno
import pathlib
import socket
import ssl
import stat

import grpc
import pytest

from handfast.pki import profiles
from handfast.wire import peers, server, server_tls, terminator
from tests.unit.wire import greeting
from tests.world import mesh_client

NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"


@pytest.fixture
def anchor() -> greeting.Anchor:
    return greeting.Anchor()


@pytest.mark.parametrize("alpn", [(), ("h2",), ("transport.l5d.io/v1",)], ids=["none", "h2", "another"])
async def test_a_client_is_served_with_alpn_or_none(anchor, alpn):
    async with greeting.serving(anchor) as address:
        assert await greeting.who(address, greeting.context(anchor, anchor.pair(NAME), alpn)) == NAME


async def test_a_client_of_grpcs_own_tls_is_served(anchor):
    own = anchor.pair(NAME)
    credentials = grpc.ssl_channel_credentials(anchor.ca.pem, own.key_pem, own.certificate_pem)
    async with (
        greeting.serving(anchor) as address,
        grpc.aio.secure_channel(
            f"127.0.0.1:{address.port}", credentials, options=(("grpc.ssl_target_name_override", "server.test"),)
        ) as channel,
    ):
        call = channel.unary_unary(f"/{greeting.SERVICE}/Greet", request_serializer=bytes, response_deserializer=bytes)
        assert mesh_client.certified(await call(b"", timeout=20)).leaf.decode() == NAME


async def test_a_client_without_a_certificate_is_anonymous(anchor):
    async with greeting.serving(anchor) as address:
        assert await greeting.who(address, greeting.context(anchor)) == ""


async def test_an_expired_certificate_counts_as_none():
    anchor = greeting.Anchor(ago=datetime.timedelta(days=2))
    expired = anchor.pair(NAME, ttl=datetime.timedelta(hours=1), ago=datetime.timedelta(days=1))
    async with greeting.serving(anchor) as address:
        assert await greeting.who(address, greeting.context(anchor, expired)) == ""
        assert await greeting.who(address, greeting.context(anchor, anchor.pair(NAME))) == NAME


async def test_a_certificate_of_another_ca_is_refused(anchor):
    stranger = greeting.Anchor()
    async with greeting.serving(anchor) as address:
        context = greeting.context(anchor, stranger.pair(NAME))
        async with mesh_client.tunnel(address.port, context) as target:
            code, _ = await mesh_client.refusal(target, f"/{greeting.SERVICE}/Greet", b"")
    assert code == "UNAVAILABLE"


async def test_a_certificate_for_servers_alone_is_nobodys(anchor):
    front = server_tls.ServerTLS(lambda: None, lambda: anchor.bundle)
    pair = anchor.pair(NAME, profiles.KUBELET_SERVING)
    assert front.judge(pair.chain, greeting.CLOCK.now()) is None


async def test_older_versions_of_tls_are_refused(anchor):
    context = greeting.context(anchor)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with greeting.serving(anchor) as address:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", address.port, ssl=context)


async def test_without_a_pair_a_handshake_fails(anchor):
    front = server_tls.ServerTLS(lambda: None, lambda: anchor.bundle)
    ends = terminator.Terminator(front, pathlib.Path("/nowhere/grpc"), peers.Peers(), greeting.CLOCK)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await ends.start(sock)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(*sock.getsockname(), ssl=greeting.context(anchor))
        await ends.stop()


async def test_without_a_grpc_server_the_connection_is_closed(anchor, tmp_path):
    pair = anchor.pair("server.test")
    known = peers.Peers()
    front = server_tls.ServerTLS(lambda: pair, lambda: anchor.bundle)
    ends = terminator.Terminator(front, tmp_path / "grpc", known, greeting.CLOCK)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await ends.start(sock)
        reader, writer = await asyncio.open_connection(*sock.getsockname(), ssl=greeting.context(anchor))
        assert await reader.read() == b""
        writer.close()
        await ends.stop()
    assert len(known) == 0
    assert list(tmp_path.iterdir()) == []


async def test_connections_over_the_bound_are_closed(anchor, tmp_path):
    pair = anchor.pair("server.test")
    front = server_tls.ServerTLS(lambda: pair, lambda: anchor.bundle)
    ends = terminator.Terminator(front, tmp_path / "grpc", peers.Peers(), greeting.CLOCK, limit=0)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await ends.start(sock)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(*sock.getsockname(), ssl=greeting.context(anchor))
        await ends.stop()


async def test_connections_that_say_nothing_are_counted_too(anchor, tmp_path):
    pair = anchor.pair("server.test")
    front = server_tls.ServerTLS(lambda: pair, lambda: anchor.bundle)
    ends = terminator.Terminator(front, tmp_path / "grpc", peers.Peers(), greeting.CLOCK, limit=2)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await ends.start(sock)
        silent = [await asyncio.open_connection(*sock.getsockname()) for _ in range(2)]
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        # The third is closed before any octet of TLS.
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        # What was no TLS makes room.
        silent[0][1].write(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(silent[0][0].read(), 20)
        again, last = await asyncio.open_connection(*sock.getsockname())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(again.read(), 0.3)
        await ends.stop()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(again.read(), 20) == b""
        for _, each in (*silent, (reader, writer), (again, last)):
            each.close()
    assert len(ends) == 0


async def test_one_host_does_not_take_all_connections(anchor, tmp_path, monkeypatch):
    pair = anchor.pair("server.test")
    front = server_tls.ServerTLS(lambda: pair, lambda: anchor.bundle)
    ends = terminator.Terminator(front, tmp_path / "grpc", peers.Peers(), greeting.CLOCK, limit=8)
    # 127.0.0.9 is somebody else here, and 127.0.0.1 this machine.
    monkeypatch.setattr("handfast.runtime.addresses.is_loopback", lambda host: host == "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await ends.start(sock)

        async def connected(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection(*sock.getsockname(), local_addr=(host, 0))

        mine = [await connected("127.0.0.9") for _ in range(3)]
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(mine[2][0].read(), 20) == b""
        others = [await connected("127.0.0.1") for _ in range(4)]
        for _ in range(100):
            await asyncio.sleep(0.01)
            if len(ends) == 6:
                break
        assert len(ends) == 6
        await ends.stop()
        for _, each in (*mine, *others):
            each.close()


async def test_without_descriptors_it_waits_for_one(anchor, monkeypatch):
    async with greeting.serving(anchor) as address:
        real, calls = socket.socket.accept, []

        def accept(sock):
            calls.append(sock)
            if len(calls) == 1:
                raise OSError(errno.EMFILE, "too many open files")
            return real(sock)

        monkeypatch.setattr(socket.socket, "accept", accept)
        assert await greeting.who(address, greeting.context(anchor, anchor.pair(NAME))) == NAME
    assert len(calls) > 1


async def test_connections_leave_descriptors_for_the_process_itself(anchor, tmp_path, monkeypatch):
    monkeypatch.setattr("handfast.runtime.descriptors.allowed", lambda: 512 + 3 * 7 + 2)
    pair = anchor.pair("server.test")
    front = server_tls.ServerTLS(lambda: pair, lambda: anchor.bundle)
    ends = terminator.Terminator(front, tmp_path / "grpc", peers.Peers(), greeting.CLOCK)
    assert ends.limit == 7


async def test_each_call_has_the_peer_of_its_own_connection(anchor):
    contexts = [greeting.context(anchor, anchor.pair(f"w{number}.shop.test")) for number in range(8)]
    async with greeting.serving(anchor) as address:
        said = await asyncio.gather(*(greeting.who(address, context) for context in contexts))
    assert said == [f"w{number}.shop.test" for number in range(8)]


async def test_the_socket_lies_where_only_its_owner_goes(anchor, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with greeting.serving(anchor) as address:
        (directory,) = tmp_path.iterdir()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert await greeting.who(address, greeting.context(anchor)) == ""
        # The names of connections leave no files.
        assert [path.name for path in directory.iterdir()] == ["grpc"]
    assert list(tmp_path.iterdir()) == []


async def test_a_new_pair_and_new_anchors_count_from_the_next_handshake_on(anchor):
    second = greeting.Anchor()
    now = {"pair": anchor.pair("server.test"), "anchors": anchor.bundle}
    front = server_tls.ServerTLS(lambda: now["pair"], lambda: now["anchors"])
    served = server.Server(greeting.SERVICES, clock=greeting.CLOCK, tls=front)
    async with served.on(greeting.LOOPBACK) as address:
        assert await greeting.who(address, greeting.context(anchor, anchor.pair(NAME))) == NAME
        now.update(pair=second.pair("server.test"), anchors=second.bundle)
        assert await greeting.who(address, greeting.context(second, second.pair("new.test"))) == "new.test"
