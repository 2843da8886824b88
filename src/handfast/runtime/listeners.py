# SPDX-License-Identifier: Apache-2.0
"""Whose process listens at an address of this machine, by the kernel's own table. It connects to nobody.

Loopback is every user's: who is connected to says nothing of who it is.

1. The listener of the address itself gets the connections; else that of all addresses, of IPv6 at last, which may take those of IPv4 as well.
2. What cannot be read is nobody's.
"""

from __future__ import annotations

import ipaddress
import pathlib
import socket
import struct
from collections.abc import Iterator
from typing import Final

from handfast import errors
from handfast.runtime import addresses, files

_TABLES: Final = (pathlib.Path("/proc/net/tcp"), pathlib.Path("/proc/net/tcp6"))
_LIMIT: Final = 256 << 20
# The columns of a row: its own address, its state, its user and its inode; and the state of who listens (TCP_LISTEN).
_LOCAL, _STATE, _USER, _INODE = 1, 3, 7, 9
_LISTENS: Final = "0A"
_ANY: Final = ("0.0.0.0", "::")  # noqa: S104 - recognised, not bound


def owner(address: addresses.Address) -> int | None:
    """The user whose process gets connections to this address of IPv4; None: nobody listens."""
    users = {host: user for host, port, user, _ in _listeners() if port == address.port}
    # 1. the nearest
    return next((users[host] for host in (address.host, f"::ffff:{address.host}", *_ANY) if host in users), None)


def addresses_by_inode() -> dict[int, addresses.Address]:
    """Everybody who listens on this machine: the inode of the socket, which a process holds, and its address."""
    return {inode: addresses.Address(host, port) for host, port, _, inode in _listeners()}


def _listeners() -> Iterator[tuple[str, int, int, int]]:
    for table in _TABLES:
        try:
            rows = files.read(table, limit=_LIMIT).decode("ascii", "replace").splitlines()[1:]
        except errors.HandfastError:
            # 2. nobody's
            continue
        for row in map(str.split, rows):
            if row[_STATE] == _LISTENS:
                host, _, port = row[_LOCAL].partition(":")
                yield _host(host), int(port, 16), int(row[_USER]), int(row[_INODE])


def _host(text: str) -> str:
    """An address as the kernel writes it: words of 32 bits, in the order of this machine."""
    octets = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    host = ipaddress.ip_address(octets)
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return str(host) if mapped is None else f"::ffff:{socket.inet_ntoa(mapped.packed)}"
