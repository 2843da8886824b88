# SPDX-License-Identifier: Apache-2.0
"""A gRPC channel to a service of the mesh: in plaintext on loopback, and through TLS of our own elsewhere.

grpcio speaks no TLS without ALPN. So its client connects to a unix socket of this process, and what it says goes through TLS to the
service. No room but this one sees grpcio: a call is a method, a message, and a message or a `Failed`.

1. Without trust anchors only loopback is called.
2. TLS 1.3 and nothing older. The server's chain leads to a trust anchor, in force by the clock (`pki.chains`).
3. One of its DNS names is the expected one, letter for letter: no wildcard counts.
4. Nothing is passed on before that is known.
5. The unix socket lies in a directory that only this user may enter.
6. No proxy of the environment is used.

It renews nothing, and keeps no connection beyond its block.

| who | holding | tries | stopped by | shown in tests/unit/wire/test_channel.py |
|---|---|---|---|---|
| a stranger | a certificate of another CA | be the service | 2 | test_a_server_of_another_ca_is_not_called |
| a workload | its own certificate | be the service | 3 | test_a_server_of_another_name_is_not_called |
| a stranger | the address of the service, in plaintext | be told a token | 1, 4 | test_nothing_is_said_before_the_server_is_known |
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import pathlib
import shutil
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Final

import grpc
import grpc.aio
import structlog

from handfast import errors
from handfast.pki import bundles, chains, pairs
from handfast.runtime import addresses, crowd, tls
from handfast.runtime import clock as clocks
from handfast.wire import relay

_HANDSHAKE_SECONDS: Final = 10.0
# A deny list and a policy at their bounds; gRPC's own is 4 MiB.
_LARGEST: Final = 32 << 20
_log = structlog.get_logger("handfast.wire")


class Failed(errors.Unavailable):
    """A call that was refused, or not answered; `code` is gRPC's name for it, as INVALID_ARGUMENT."""

    reason = "CallFailed"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Channel:
    """Calls of one service; `own` is grpcio's."""

    def __init__(self, own: Any, tunnel: _Tunnel | None = None) -> None:
        self.own = own
        self._tunnel = tunnel

    async def unary(self, method: str, message: Any, response: Any, seconds: float) -> Any:
        """One message for one; `method` is `/SERVICE/METHOD`, `response` the class of the answer."""
        call = self.own.unary_unary(
            method, request_serializer=type(message).SerializeToString, response_deserializer=response.FromString
        )
        try:
            return await call(message, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None

    async def stream(self, method: str, message: Any, response: Any) -> AsyncGenerator[Any, None]:
        """One message for many, until the service ends it or the iteration is closed."""
        call = self.own.unary_stream(
            method, request_serializer=type(message).SerializeToString, response_deserializer=response.FromString
        )(message)
        try:
            async for item in call:
                if item is None:
                    # What gRPC makes of octets that are no message.
                    raise Failed("INTERNAL", "the service said what is no message")
                yield item
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None
        finally:
            call.cancel()

    async def duplex(self, method: str, messages: AsyncIterator[Any], response: Any) -> AsyncIterator[Any]:
        """Many messages for many, until the service ends it, there are no more, or the iteration is closed."""
        call = self.own.stream_stream(
            method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )(messages)
        try:
            async for item in call:
                yield item
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None
        finally:
            call.cancel()

    def _failed(self, error: grpc.aio.AioRpcError) -> Failed:
        why = "" if self._tunnel is None else self._tunnel.why
        # What gRPC says of a tunnel that closed is of no use to anybody.
        return Failed(error.code().name, why or error.details() or "the call was not answered")


@contextlib.asynccontextmanager
async def opened(
    address: addresses.Address,
    *,
    anchors: bundles.TrustBundle | None,
    server_name: str,
    clock: clocks.Clock,
    pair: pairs.Pair | None = None,
) -> AsyncIterator[Channel]:
    """A channel while the block runs. `server_name` is the identity that the server must have; `pair` is shown to it."""
    if anchors is None:
        # 1. in plaintext on loopback only
        _require_loopback(address)
        async with _insecure(str(address), server_name) as own:
            yield Channel(own)
        return
    # 5. a directory that only this user may enter
    directory = pathlib.Path(tempfile.mkdtemp(prefix="handfast-wire-"))
    tunnel = _Tunnel(address, anchors, server_name, clock, pair)
    try:
        await tunnel.start(directory / "channel")
        async with _insecure(f"unix:{directory / 'channel'}", server_name) as own:
            yield Channel(own, tunnel)
    finally:
        await tunnel.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _insecure(target: str, authority: str) -> Any:
    # 6. no proxy of the environment
    options: list[tuple[str, int | str]] = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    options.append(("grpc.max_receive_message_length", _LARGEST))
    if authority:
        options.append(("grpc.default_authority", authority))
    return grpc.aio.insecure_channel(target, options=options)


def _require_loopback(address: addresses.Address) -> None:
    if not addresses.is_loopback(address.host.removesuffix(".")):
        raise errors.Refused(f"{address}: without trust anchors only loopback is called", reason="PlaintextNotLoopback")


class _Tunnel:
    """Takes connections on a unix socket, and passes each on through TLS of its own."""

    def __init__(
        self,
        address: addresses.Address,
        anchors: bundles.TrustBundle,
        server_name: str,
        clock: clocks.Clock,
        pair: pairs.Pair | None,
    ) -> None:
        self._address = address
        self._anchors = anchors
        self._name = server_name
        self._clock = clock
        self._context = _context(anchors, pair)
        self._crowd = crowd.Crowd("wire/tunnel")
        self._halves: set[relay.Half] = set()
        self._server: asyncio.Server | None = None
        # Why the last connection came to nothing.
        self.why = ""

    async def start(self, path: pathlib.Path) -> None:
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Near(self), str(path))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._crowd.stop()
        for half in tuple(self._halves):
            half.transport.abort()

    def opened(self, near: _Near) -> None:
        self._halves.add(near)
        self._crowd.start(self._connect(near))

    def closed(self, half: relay.Half) -> None:
        self._halves.discard(half)

    async def _connect(self, near: _Near) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: _Far(self, near),
                self._address.host,
                self._address.port,
                ssl=self._context,
                server_hostname=self._name,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )
        except OSError as error:
            # The text of an error of `ssl` is the library's, and quotes nothing of ours.
            self.failed(near, f"{self._address} cannot be reached: {getattr(error, 'verify_message', '') or error}")

    def failed(self, near: relay.Half, why: str) -> None:
        if why != self.why:
            _log.info("a connection to a service of the mesh failed", server=self._name, why=why)
        self.why = why
        near.close()

    def judge(self, chain: Sequence[bytes]) -> None:
        """Return if this is the server that was meant, else refuse."""
        now: datetime.datetime = self._clock.now()
        # 2. a chain to an anchor, in force
        verified = chains.verify(chain, self._anchors, chains.Server(self._name), now)
        # 3. letter for letter
        if self._name.lower() not in {name.lower() for name in verified.sans.dns}:
            raise errors.Refused(f"the server has no name {self._name}", reason="WrongName")


def _context(anchors: bundles.TrustBundle, pair: pairs.Pair | None) -> ssl.SSLContext:
    context = tls.client_context(anchors.to_pem())
    # 2. nothing older than TLS 1.3
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # 3. the name is compared by `judge`: names of the mesh may be longer than `ssl` likes, and wildcards do not count
    context.check_hostname = False
    if pair is not None:
        tls.load_pair(context, pair.certificate_pem, pair.key_pem)
    return context


class _Near(relay.Half):
    """The side of gRPC's client: paused until the server is known."""

    def __init__(self, tunnel: _Tunnel) -> None:
        self._tunnel = tunnel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # 4. nothing is passed on before the server is known
        self.transport.pause_reading()
        self._tunnel.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._tunnel.closed(self)


class _Far(relay.Half):
    """The side of the server."""

    def __init__(self, tunnel: _Tunnel, near: _Near) -> None:
        self._tunnel = tunnel
        self._near = near

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        try:
            self._tunnel.judge(tls.presented_chain(transport))
        except errors.Refused as refused:
            self._tunnel.failed(self._near, f"the server at the address is not believed: {refused.message}")
            transport.close()
            return
        self.join(self._near)
        if self._near.transport.is_closing():
            transport.close()
            return
        self._near.transport.resume_reading()
