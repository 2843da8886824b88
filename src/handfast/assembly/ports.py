# SPDX-License-Identifier: Apache-2.0
"""The ports of one start: bound before anything starts, so that what is taken is found out first. It accepts nothing.

A port that nobody named may be another where it is taken, which is told. The socket is handed to the process that serves on it, and stays open here, too:
from the first moment to the end nobody else can have the port, also while a process starts, or starts again. Another `up` that starts meanwhile takes
the next port.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass

from handfast.assembly import config
from handfast.runtime import addresses

_ROWS = {row.key: row for row in config.SETTINGS}


@dataclass(frozen=True, slots=True)
class Port:
    """One that is bound: the setting that names it, its flag, and where it really is."""

    field: str
    flag: str
    sock: socket.socket
    at: addresses.Address

    @property
    def words(self) -> tuple[str, str]:
        """How a child is told the address."""
        return self.flag, str(self.at)

    @property
    def handed(self) -> tuple[str, str, str, str]:
        """How a child is told the address, and the descriptor of the socket, which it is to be started with."""
        return *self.words, "--socket", f"{self.field}={self.sock.fileno()}"


@dataclass(frozen=True, slots=True)
class Ports:
    """Takes ports by the keys of their settings; `stack` closes them, and `unnamed` are the flags that nobody gave."""

    stack: contextlib.ExitStack
    chosen: config.Configuration
    unnamed: Collection[str]
    tell: Callable[[str, str], None]

    def take(self, key: str) -> Port:
        """The port of a setting."""
        row = _ROWS[key]
        address: addresses.Address = getattr(self.chosen, row.field)
        sock = self.stack.enter_context(self._listen(row.flag, address))
        return Port(row.field, row.flag, sock, addresses.bound(sock, address))

    def _listen(self, flag: str, address: addresses.Address) -> socket.socket:
        """A socket for `address`; one that nobody named may be another, which is told."""
        if flag not in self.unnamed:
            return addresses.listen(address, flag)
        sock = addresses.listen_near(address, flag)
        port = addresses.bound(sock, address).port
        if port != address.port:
            self.tell("warning", f"port {address.port} is taken, so that port {port} is used; {flag} names another")
        return sock
