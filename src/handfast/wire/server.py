# SPDX-License-Identifier: Apache-2.0
"""gRPC services on one address: their methods, and nothing else. Where to start for whoever adds one.

    methods = [server.Unary("Certify", mesh_messages.CertifyRequest, mesh_messages.CertifyResponse, certify)]
    services = {"io.linkerd.proxy.identity.Identity": methods}
    async with server.Server(services, clock=clock).on(address):
        ...

A method is a function of the message, or of the stream of them, and the peer. It answers with a message, or with a stream of them, or raises
`Refusal` with a code of gRPC's. What many are told may be encoded once: octets are sent as they are. What nobody expected is INTERNAL for
the client, in words that quote nothing, and told to the log.

1. Without TLS it serves loopback only. With `beside_loopback` a server with TLS does that, too, at the same port: for the proxy of its
   own Pod, which asks there.
2. With TLS, gRPC listens on a unix socket in a directory that only this user may enter, behind `terminator`. So it does without TLS on a socket
   that was handed to this process, since gRPC takes none that is bound.
3. A port is nobody else's: two processes never share one.
4. A message has a bound.
5. Who is one of too many is told so by the service, which knows who comes first.
6. A connection on which no call was under way for ten to twenty seconds ends: descriptors are scarcer than handshakes. Streams are calls.
7. A unix socket, in place of an address, is for this user alone, mode 0600; or for a group as well, mode 0660.
8. Where calls are to be marked, one without the mark, word for word, is INVALID_ARGUMENT before anything else.

It decides nothing, and keeps no time but the clock it is handed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

import grpc
import grpc.aio
import msgspec
import structlog

from handfast import errors
from handfast.runtime import addresses
from handfast.runtime import clock as clocks
from handfast.wire import peers as peers_module
from handfast.wire import server_tls, terminator

# Seconds that calls in flight get to end when a server stops.
GRACE: Final = 3.0
_LOOPBACK: Final = "127.0.0.1"
MAX_MESSAGE: Final = 2 << 20
IDLE_MS: Final = 10_000
# As many as there may be connections.
PENDING: Final = terminator.CONNECTIONS
_OPTIONS: Final = (
    # 3. a port is nobody else's
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 20_000),
    # 5. refused by the service, in its own words: by itself gRPC cancels some of more than 1,000 that arrive at once
    ("grpc.server.max_pending_requests", PENDING),
    ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING),
    # Proxies keep their connections alive with pings, also while nothing is asked.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    # 6. a connection without a call ends
    ("grpc.max_connection_idle_ms", IDLE_MS),
)
_log = structlog.get_logger("handfast.wire")


class Refusal(Exception):
    """The answer to a call: a code by gRPC's name, as INVALID_ARGUMENT, and a text. `retry_ms` tells when to come again."""

    def __init__(self, code: str, message: str, retry_ms: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_ms = retry_ms


class Unary(msgspec.Struct, frozen=True):
    """A method that answers one message with one."""

    name: str
    request: Any
    response: Any
    handler: Callable[[Any, peers_module.Peer], Awaitable[Any]]


class Stream(msgspec.Struct, frozen=True):
    """A method that answers one message with many."""

    name: str
    request: Any
    response: Any
    handler: Callable[[Any, peers_module.Peer], AsyncIterator[Any]]


class Duplex(msgspec.Struct, frozen=True):
    """A method that takes many messages and answers with many, at the same time. Who is slow in reading is not written to."""

    name: str
    request: Any
    response: Any
    handler: Callable[[AsyncIterator[Any], peers_module.Peer], AsyncIterator[Any]]


Services = Mapping[str, Sequence[Unary | Stream | Duplex]]


class Server:
    """Services by their full names, each with its methods; without `tls` they are for loopback only."""

    def __init__(
        self,
        services: Services,
        *,
        clock: clocks.Clock,
        tls: server_tls.ServerTLS | None = None,
        flag: str = "--listen",
        beside_loopback: bool = False,
        mark: tuple[str, str] | None = None,
        largest: int = MAX_MESSAGE,
    ) -> None:
        self._services = services
        self._largest = largest
        self._clock = clock
        self._tls = tls
        self._flag = flag
        self._beside_loopback = beside_loopback
        self._mark = mark
        self._peers = peers_module.Peers()

    @contextlib.asynccontextmanager
    async def on(self, address: addresses.Address) -> AsyncIterator[addresses.Address]:
        """Serve while the block runs, on the address that the block is handed: port 0 picks a free one."""
        if self._tls is None:
            # 1. without TLS loopback only
            require_loopback(address, self._flag)
        own = self._own()
        is_direct = self._tls is None and address.descriptor is None
        serving = self._plain(own, address) if is_direct else self._behind(own, address)
        async with serving as bound:
            yield bound

    @contextlib.asynccontextmanager
    async def at(self, path: pathlib.Path, group: int | None = None) -> AsyncIterator[pathlib.Path]:
        """Serve while the block runs, on a unix socket that only this user may open, or whoever is in the group, too."""
        own = self._own()
        # 7. whoever else opens it is refused from the first moment; gRPC binds in this call, and takes no mode
        mask = os.umask(0o177)
        try:
            _add_unix_port(own, path)
        finally:
            os.umask(mask)
        if group is not None:
            _share(path, group)
        await own.start()
        try:
            yield path
        finally:
            await own.stop(GRACE)
            path.unlink(missing_ok=True)  # noqa: ASYNC240  a name in memory

    def _own(self) -> Any:
        # 4. a message has a bound
        own = grpc.aio.server(options=[*_OPTIONS, ("grpc.max_receive_message_length", self._largest)])
        for service, methods in self._services.items():
            handlers = {method.name: self._method(service, method) for method in methods}
            own.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        return own

    @contextlib.asynccontextmanager
    async def _plain(self, own: Any, address: addresses.Address) -> AsyncIterator[addresses.Address]:
        with addresses.listen(address, self._flag) as sock:
            # For its words where the port is taken; gRPC has none, and takes no socket that is bound.
            bound = addresses.bound(sock, address)
        _add_port(own, bound)
        await own.start()
        try:
            yield bound
        finally:
            await own.stop(GRACE)

    @contextlib.asynccontextmanager
    async def _behind(self, own: Any, address: addresses.Address) -> AsyncIterator[addresses.Address]:
        # 2. a directory that only this user may enter
        directory = pathlib.Path(tempfile.mkdtemp(prefix="handfast-wire-"))
        backend = directory / "grpc"
        front = terminator.Terminator(self._tls, backend, self._peers, self._clock)
        try:
            with addresses.listen(address, self._flag) as sock:
                bound = addresses.bound(sock, address)
                own.add_insecure_port(f"unix:{backend}")
                if self._beside_loopback:
                    # 1. for the proxy of its own Pod
                    _add_port(own, addresses.Address(_LOOPBACK, bound.port))
                await own.start()
                try:
                    await front.start(sock)
                    yield bound
                finally:
                    await own.stop(GRACE)
                    await front.stop()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _method(self, service: str, method: Unary | Stream | Duplex) -> Any:
        coding = {
            "request_deserializer": method.request.FromString,
            "response_serializer": _encoded,
        }
        if isinstance(method, Unary):
            return grpc.unary_unary_rpc_method_handler(self._unary(service, method), **coding)
        if isinstance(method, Duplex):
            return grpc.stream_stream_rpc_method_handler(self._stream(service, method), **coding)
        return grpc.unary_stream_rpc_method_handler(self._stream(service, method), **coding)

    def _unary(self, service: str, method: Unary) -> Callable[[Any, Any], Awaitable[Any]]:
        async def answer(message: Any, context: Any) -> Any:
            async with self._refusing(service, method.name, context):
                return await method.handler(message, self._peers.of(context.peer()))

        return answer

    def _stream(self, service: str, method: Stream | Duplex) -> Callable[[Any, Any], AsyncIterator[Any]]:
        async def answer(message: Any, context: Any) -> AsyncIterator[Any]:
            async with self._refusing(service, method.name, context):
                answers = method.handler(message, self._peers.of(context.peer()))
                async with contextlib.aclosing(cast("AsyncGenerator[Any, None]", answers)):
                    async for item in answers:
                        yield item

        return answer

    @contextlib.asynccontextmanager
    async def _refusing(self, service: str, method: str, context: Any) -> AsyncIterator[None]:
        try:
            # 8. marked
            self._require_mark(context)
            yield
        except Refusal as refusal:
            retry = () if refusal.retry_ms is None else (("grpc-retry-pushback-ms", str(refusal.retry_ms)),)
            await context.abort(grpc.StatusCode[refusal.code], refusal.message, retry)
        except (grpc.aio.AbortError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001  every call is answered; what nobody expected is told to the log
            _log.error("answering a call failed", service=service, method=method, exc_info=error)
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")

    def _require_mark(self, context: Any) -> None:
        if self._mark is not None and self._mark not in map(tuple, context.invocation_metadata() or ()):
            raise Refusal("INVALID_ARGUMENT", f"the metadata of the call lacks {': '.join(self._mark)}")


def _add_port(own: Any, address: addresses.Address) -> None:
    try:
        own.add_insecure_port(str(address))
    except RuntimeError as error:
        raise errors.Unavailable(
            f"cannot listen on {address}: it was taken meanwhile", reason="AddressNotAvailable"
        ) from error


def _add_unix_port(own: Any, path: pathlib.Path) -> None:
    if path.is_socket():
        # Of a process that was killed: whoever lives has a directory of its own.
        path.unlink()
    try:
        # gRPC takes it for a URI: a path with % would be another one, and what is there would be removed.
        own.add_insecure_port(f"unix:{urllib.parse.quote(str(path))}")
    except RuntimeError as error:
        raise errors.Unavailable(f"cannot listen on {path}", reason="AddressNotAvailable") from error


def _share(path: pathlib.Path, group: int) -> None:
    try:
        os.chown(path, -1, group)
        path.chmod(0o660)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise errors.Refused(
            f"{path} cannot be given to the group {group}: {(error.strerror or 'it failed').lower()}",
            reason="SocketGroup",
            hint="name a group that this process is in",
        ) from error


def _encoded(message: Any) -> bytes:
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


def require_loopback(address: addresses.Address, flag: str) -> None:
    """Return if only this machine itself gets to the address, else refuse."""
    if not addresses.is_loopback(address.host):
        raise errors.Refused(
            f"{flag} {address}: without TLS only loopback is served, as 127.0.0.1:{address.port}",
            reason="PlaintextNotLoopback",
            hint=f"give {flag} an address of loopback",
        )
