# SPDX-License-Identifier: Apache-2.0
"""One connection from the moment it is accepted, and what its source has here: the records that `gate` keeps.

`gate`, `rates` and `handshakes` change them, each its own part. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict, deque
from collections.abc import Callable

from handfast.rules import networks
from handfast.runtime import proxied as proxied_module
from handfast.serving import buckets

# Where a connection is.
NEW, HEADER, WAITING, SILENT, READY, SHAKING, OPEN, GONE = range(8)


class Source:
    """What one source has here."""

    __slots__ = ("local", "name", "present", "proven", "shaking", "strangers", "timer", "waiting")

    def __init__(self, name: str, *, local: bool) -> None:
        self.name = name
        # Whether it is this machine, where that has places of its own.
        self.local = local
        # Connections, whatever the stage, and those of them that hold a handshake slot.
        self.present = 0
        self.shaking = 0
        # Those of them on which a good credential was shown, and those let in without one, the oldest first.
        self.proven = 0
        self.strangers: OrderedDict[Visitor, None] = OrderedDict()
        # Those that are over its rate, and when the next one is let in.
        self.waiting: deque[Visitor] = deque()
        self.timer: asyncio.TimerHandle | None = None


class Visitor:
    """One connection, from the moment it is accepted until it is gone."""

    __slots__ = (
        *("address", "counted", "give_up", "paid", "proven", "proxied"),
        *("reading", "sock", "source", "stage", "timer", "unnamed"),
    )

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.sock = sock
        # Where it is from; `proxied`: by the word of a balancer.
        self.address = address
        self.proxied = False
        # … which did not say whose it is: the address is its own.
        self.unnamed = False
        # By what it is counted: whoever has one IPv6 address has the other 2⁶⁴ of its network.
        self.source = networks.neighbourhood(address)
        # Where it is counted, while it is.
        self.counted: Source | None = None
        self.stage = NEW
        # The PROXY header that is being read of it, and the end of its silence.
        self.reading: proxied_module.Reading | None = None
        self.timer: asyncio.TimerHandle | None = None
        # The rate it was let in by, until it is given back.
        self.paid: buckets.Buckets | None = None
        # Whether a good credential was shown on it.
        self.proven = False
        # Ends it, once its handshake has begun: the socket is TLS's then.
        self.give_up: Callable[[], None] = sock.close
