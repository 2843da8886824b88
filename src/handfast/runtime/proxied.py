# SPDX-License-Identifier: Apache-2.0
"""Whose connection it is: the address it comes from or, from a balancer that was named, the one its PROXY header says.

What a header says is read by `rules.proxy_protocol`. Nothing is counted, limited or encrypted here: that comes after it.

1. From a named address every connection begins with a header. Without one it is closed, and so it is with half of one.
2. From any other address a header is refused, and from a balancer's client a second one: both would be a choice of address.
3. The header is taken off the connection, and not one octet more: what follows is the client's.
4. Each has `SECONDS`, and at most `MOST` are on their way.
5. Refusals are counted by reason, and told to the log, the first of each reason at once and then once in `TELL_SECONDS`.

| who | holding | tries | stopped by | shown in tests/unit/runtime/test_proxied.py |
|---|---|---|---|---|
| anyone on the network | nothing | to be another address, by a header of its own | 2 | test_a_header_from_anybody_else |
| a client of a balancer | a connection | the same, behind the balancer's header | 2 | test_a_second_header |
| whoever can send from a named address | no balancer | do without a header | 1 | test_a_connection_without_a_header |
| anyone there | many connections | half a header, for ever | 4 | test_half_a_header_ends |
| anyone on the network | many connections | fill the log | 5 | test_the_log_is_told_once_in_a_while |
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import structlog

from handfast import errors
from handfast.rules import decision, networks, proxy_protocol

SECONDS: Final = 3.0
MOST: Final = 2048
TELL_SECONDS: Final = 10.0
FLAG: Final = "--proxy-protocol-from"
# Why a connection is refused, besides what is wrong with a header.
NOT_NAMED: Final = "NotNamed"
SECOND_HEADER: Final = "SecondHeader"
TIMEOUT: Final = "Timeout"
GONE: Final = "Gone"
# Not told to the log: balancers look in this way whether somebody is there.
EMPTY: Final = "Empty"
TOO_MANY: Final = "TooMany"
_NAMED_FLAG: Final = f"name balancers with {FLAG}"
_HINTS: Final = {
    NOT_NAMED: f"a PROXY header came from an address that is not named; {_NAMED_FLAG}",
    SECOND_HEADER: "a client of a balancer sent a PROXY header of its own, or two balancers are in a row",
    TIMEOUT: "the PROXY header did not come in time",
    GONE: "the connection ended before its PROXY header was whole",
    TOO_MANY: "too many connections have not sent their PROXY header yet",
    proxy_protocol.NO_HEADER: f"an address that {FLAG} names sent no PROXY header; is it a balancer, and told to send one?",
}
NOBODY: Final = networks.Networks.parse("none")
_log = structlog.get_logger("handfast.proxied")

Then = Callable[[str], None]


def begins(sock: socket.socket) -> bytes | None:
    """The first octets of a connection, left where they are; None: there are none yet. Empty: it is over."""
    try:
        return sock.recv(16, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


class Reading:
    """A header on its way."""

    __slots__ = ("_address", "_end", "_proxied", "_sock", "_taken", "_then", "_timer")

    def __init__(
        self, proxied: Proxied, sock: socket.socket, address: str, then: Then, end: Callable[[], None]
    ) -> None:
        self._proxied = proxied
        self._sock = sock
        self._address = address
        self._then = then
        self._end = end
        self._taken = b""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        if not self._go_on():
            loop = asyncio.get_running_loop()
            self._proxied.reading.add(self)
            self._timer = loop.call_later(SECONDS, self._refuse, TIMEOUT)
            loop.add_reader(self._sock.fileno(), self._go_on)

    def cancel(self) -> None:
        """Stop looking. The connection stays whose it was."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._proxied.reading.discard(self)
            asyncio.get_running_loop().remove_reader(self._sock.fileno())

    def _go_on(self) -> bool:
        """Whether it has ended, one way or another."""
        try:
            part = self._sock.recv(proxy_protocol.MAX_BYTES + 1 - len(self._taken), socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            part = b""
        if not part:
            return self._refuse(GONE if self._taken else EMPTY)
        try:
            header = proxy_protocol.read(self._taken + part)
        except errors.Refused as refused:
            return self._refuse(refused.reason, refused.message)
        # 3. not one octet more than the header: while it is not whole, all that came belongs to it
        size = len(part) if header is None else header.size - len(self._taken)
        self._taken += self._sock.recv(size)
        if header is None:
            return False
        self.cancel()
        self._then(header.client or self._address)
        return True

    def _refuse(self, reason: str, message: str = "") -> bool:
        self.cancel()
        self._proxied.refuse(reason, self._address, message)
        self._end()
        return True


class Proxied:
    """The balancers that are named, headers on their way, and refusals by reason."""

    def __init__(self, named: networks.Networks = NOBODY) -> None:
        self._named = named
        self._anybody = bool(named.members)
        self.reading: set[Reading] = set()
        self.refused: dict[str, int] = {}
        self._logged: dict[str, tuple[float, int]] = {}

    def names(self, address: str) -> bool:
        """Whether connections from there begin with a header."""
        return self._anybody and isinstance(self._named.holds(address), decision.Approve)

    def read(self, sock: socket.socket, address: str, then: Then, end: Callable[[], None]) -> Reading | None:
        """Have `then` called with the client's address once the header is off, or `end`; None: the latter, at once."""
        # 4. so many at most
        if len(self.reading) >= MOST:
            self.refuse(TOO_MANY, address)
            end()
            return None
        reading = Reading(self, sock, address, then, end)
        reading.begin()
        return reading

    def is_forged(self, data: bytes | None, address: str, *, proxied: bool = False) -> bool:
        """Whether a connection begins with a header that nobody may send there; it is counted as refused."""
        # 2. a choice of address
        if not data or data[0] not in b"P\r" or not proxy_protocol.looks_like(data):
            return False
        self.refuse(SECOND_HEADER if proxied else NOT_NAMED, address)
        return True

    def enter(self, sock: socket.socket, address: str, then: Then) -> None:
        """All of it, for whoever has no other use for the first octets: `then` gets the client's address, or it is closed."""
        if self.names(address):
            self.read(sock, address, lambda client: self._first(sock, client, then, proxied=True), sock.close)
        else:
            self._first(sock, address, then, proxied=False)

    # One that has said nothing yet is let go: to what follows, TLS or HTTP, a header is garbage, which it refuses.
    def _first(self, sock: socket.socket, client: str, then: Then, *, proxied: bool) -> None:
        if self.is_forged(begins(sock), client, proxied=proxied):
            sock.close()
        else:
            then(client)

    def stop(self) -> None:
        """Let go of headers on their way, and close their connections."""
        for reading in tuple(self.reading):
            reading.cancel()
            reading._end()

    def refuse(self, reason: str, address: str, message: str = "") -> None:
        """Count and tell one that is refused."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        if reason == EMPTY:
            return
        # 5. not more often than that
        now = asyncio.get_running_loop().time()
        logged_at, total = self._logged.get(reason, (-TELL_SECONDS, 0))
        if now - logged_at < TELL_SECONDS:
            return
        self._logged[reason] = (now, self.refused[reason])
        _log.warning(
            "connection refused for its PROXY header",
            source=address,
            reason=reason,
            detail=_HINTS.get(reason, message),
            flag=FLAG,
            others=self.refused[reason] - total - 1,
        )
