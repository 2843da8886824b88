# SPDX-License-Identifier: Apache-2.0
"""Takes TLS connections and passes what is inside on to a gRPC server's unix socket, with a name for who it is.

grpcio refuses TLS without ALPN, which is what proxies of the mesh speak, and believes an expired client certificate not even
as far as to be asked for the next one. So TLS ends here. Without TLS it only accepts, for a gRPC server on a socket that is bound already, which
grpcio does not take: everybody is anonymous then. It reads nothing of what it passes on, and decides no call.

1. So many connections at once, and no more, nor more than there are descriptors for: each takes three, and the process needs some for
   itself. They count from the moment they are accepted, before TLS. One host has a quarter of them at most, unless it is this machine. A handshake has a deadline. Who is closed for it is told of once a second.
2. The end of each unix connection is bound to a fresh name in the server's own directory, which nobody else may enter. The
   gRPC server sees that name as the peer of a call, and `peers` says who it is.
3. Before the first octet is passed on, the peer is known under that name. The file of the name is removed at once: the name
   itself stays with the socket.
4. Who does not read is not written to (`relay`).

| who | holding | tries | stopped by | shown in tests/unit/wire/test_terminator.py |
|---|---|---|---|---|
| another user of the machine | the path of the socket | go round TLS | 2 | test_the_socket_lies_where_only_its_owner_goes |
| a client | nothing | be taken for the client before it | 2, 3 | test_each_call_has_the_peer_of_its_own_connection |
| a vandal | many connections | use up memory | 1 | test_connections_over_the_bound_are_closed |
| … | … | use up descriptors, so that nothing can be reviewed or written down | 1 | test_connections_leave_descriptors_for_the_process_itself |
| … | one address | all connections that there are, so that nobody else has one | 1 | test_one_host_does_not_take_all_connections |
| … | connections that say nothing | the same, without a handshake | 1 | test_connections_that_say_nothing_are_counted_too |
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import pathlib
import socket
from typing import Final

import structlog

from handfast.runtime import addresses, crowd, descriptors, tls
from handfast.runtime import clock as clocks
from handfast.wire import peers as peers_module
from handfast.wire import relay, server_tls

CONNECTIONS: Final = 16_384
# Of a connection: the client's, and both ends of the unix socket.
_DESCRIPTORS_EACH: Final = 3
_DESCRIPTORS_KEPT: Final = 512
_SAY_SECONDS: Final = 1.0
_HANDSHAKE_SECONDS: Final = 10.0
_BACKLOG: Final = 1024
# Of a whole: what one host may have.
_SHARE: Final = 4
_ACCEPTED_AT_ONCE: Final = 64
_PAUSE_SECONDS: Final = 1.0
_log = structlog.get_logger("handfast.wire")


class Terminator:
    """TLS on one listening socket, or none, in front of the gRPC server at `backend`; names are made beside that."""

    def __init__(
        self,
        server: server_tls.ServerTLS | None,
        backend: pathlib.Path,
        peers: peers_module.Peers,
        clock: clocks.Clock,
        limit: int = CONNECTIONS,
    ) -> None:
        self._tls = server
        self._backend = backend
        self._peers = peers
        self._clock = clock
        # 1. no more than there are descriptors for
        self.limit = min(limit, max(0, (descriptors.allowed() - _DESCRIPTORS_KEPT) // _DESCRIPTORS_EACH))
        self._said = -_SAY_SECONDS
        self._numbers = itertools.count(1)
        self._fronts: set[_Front] = set()
        self._of_one: collections.Counter[str] = collections.Counter()
        self._crowd = crowd.Crowd("wire/connect")
        self._socket: socket.socket | None = None
        self._resuming: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._fronts)

    async def start(self, sock: socket.socket) -> None:
        """Accept on a socket that is bound already."""
        sock.setblocking(False)
        sock.listen(_BACKLOG)
        self._socket = sock
        self._resume(sock)

    async def stop(self) -> None:
        """Accept no more, and close what is open."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
        if self._resuming is not None:
            self._resuming.cancel()
        await self._crowd.stop()
        for front in tuple(self._fronts):
            front.close()

    def _resume(self, sock: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(sock.fileno(), self._accept, sock)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of descriptors: wait for one instead of spinning.
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener.fileno())
                self._resuming = loop.call_later(_PAUSE_SECONDS, self._resume, listener)
                return
            # 1. no more than the limit, before TLS
            if len(self._fronts) >= self.limit or self._has_its_share(address[0]):
                self._say_full()
                sock.close()
                continue
            sock.setblocking(False)
            front = _Front(self, sock, f"{address[0]}:{address[1]}")
            self._fronts.add(front)
            self._of_one[address[0]] += 1
            self._crowd.start(self._serve(front))

    async def _serve(self, front: _Front) -> None:
        is_served = False
        try:
            # 1. a handshake has a deadline
            context, seconds = (None, None) if self._tls is None else (self._tls.context, _HANDSHAKE_SECONDS)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: front, front.sock, ssl=context, ssl_handshake_timeout=seconds
            )
            await self._connect(front)
            is_served = True
        except (OSError, TimeoutError):
            # A failed handshake is the peer's affair.
            pass
        finally:
            # Whatever it failed of: nobody else would close it.
            if not is_served:
                front.close()
                self.closed(front)

    def _has_its_share(self, host: str) -> bool:
        """Whether a host has all that one may have (1). On this machine many share one address."""
        return self._of_one[host] >= max(1, self.limit // _SHARE) and not addresses.is_loopback(host)

    def _say_full(self) -> None:
        now = self._clock.monotonic()
        if now - self._said >= _SAY_SECONDS:
            self._said = now
            _log.warning("too many connections; new ones are closed", limit=self.limit)

    def closed(self, front: _Front) -> None:
        self._peers.remove(front.name)
        if front in self._fronts:
            self._fronts.remove(front)
            host = front.address.rpartition(":")[0]
            self._of_one[host] -= 1
            if not self._of_one[host]:
                del self._of_one[host]

    async def _connect(self, front: _Front) -> None:
        # 2. a fresh name in the server's own directory
        path = self._backend.with_name(f"c{next(self._numbers)}")
        front.name = str(path)
        # 3. known before anything is passed on
        self._peers.add(front.name, self._peer(front))
        try:
            await self._open(front, path)
        except OSError as error:
            _log.warning("the gRPC server is not there; a connection is closed", error=type(error).__name__)
            front.close()
        finally:
            path.unlink(missing_ok=True)
            if front.transport.is_closing():
                self.closed(front)

    def _peer(self, front: _Front) -> peers_module.Peer:
        if self._tls is None:
            return peers_module.Peer(front.address)
        chain = tls.presented_chain(front.transport)
        return peers_module.Peer(front.address, self._tls.judge(chain, self._clock.now()))

    async def _open(self, front: _Front, path: pathlib.Path) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind(str(path))
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, str(self._backend))
        except BaseException:
            sock.close()
            raise
        try:
            transport, back = await loop.create_unix_connection(relay.Half, sock=sock)
        except BaseException:
            # uvloop has closed the descriptor, and the socket does not know: closed again, it would be whosever it is by then.
            sock.detach()
            raise
        # Joined only now, so that neither end closes the other before, for the same reason; and only if both are there: what came first is written
        # to the other, which raises where that is gone.
        if front.transport.is_closing() or transport.is_closing():
            front.close()
            transport.close()
            return
        back.join(front)
        # What it said first is kept until they are joined, and so it is paused.
        for half in (front, back):
            half.transport.resume_reading()


class _Front(relay.Half):
    """The side of the client: paused until the gRPC server is there."""

    def __init__(self, terminator: Terminator, sock: socket.socket, address: str) -> None:
        self._terminator = terminator
        self.sock = sock
        self.address = address
        self.name = ""
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.is_open = True
        self.transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._terminator.closed(self)

    def close(self) -> None:
        if self.is_open:
            super().close()
        else:
            self.sock.close()
