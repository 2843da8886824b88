# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end of a gRPC call: by the name to which the TLS terminator bound its end of a socket.

The server itself is told nothing but that name (`context.peer()`), and looks up here what the terminator has verified. It
verifies nothing itself, and a name that is not known is somebody anonymous.
"""

from __future__ import annotations

import datetime
from typing import Final

import msgspec

from handfast import errors
from handfast.pki import chains
from handfast.runtime import addresses

_UNIX: Final = "unix:"
# How gRPC begins the address of a client that came without TLS, which only those on loopback do.
_PLAIN: Final = ("ipv4:", "ipv6:", _UNIX)


class Peer(msgspec.Struct, frozen=True):
    """The address of a client, and what its certificate proved; None where it showed none, or one that is not in force."""

    address: str
    verified: chains.Verified | None = None

    @property
    def place(self) -> str:
        """By which bounds of one client are counted: the host, however many connections it has; on loopback each connection."""
        host = self.address.rpartition(":")[0]
        return self.address if self.address.startswith(_PLAIN) or addresses.is_loopback(host) else host

    def identity(self, now: datetime.datetime) -> str:
        """The first DNS name of its certificate, while that is in force; empty for somebody anonymous."""
        if self.verified is None or not self.verified.sans.dns:
            return ""
        try:
            self.verified.require_current(now)
        except errors.Refused:
            return ""
        return self.verified.sans.dns[0]


class Peers:
    """The clients that the terminator holds, by the name of its end of each socket."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def add(self, name: str, peer: Peer) -> None:
        self._peers[name] = peer

    def remove(self, name: str) -> None:
        self._peers.pop(name, None)

    def of(self, described: str) -> Peer:
        """The peer of a call, by what `context.peer()` says: `unix:NAME`, or `ipv4:HOST:PORT` where there is no TLS."""
        name = described.removeprefix(_UNIX)
        return self._peers.get(name) or Peer(described)
