# SPDX-License-Identifier: Apache-2.0
"""Which of this machine's addresses leads where. It asks the kernel's table of routes, and sends nothing."""

from __future__ import annotations

import socket
from typing import Final

# Addresses of documentation (RFC 5737, RFC 3849): the way to them is the way out of this machine.
ANYWHERE: Final = ("192.0.2.1", "2001:db8::1")


def source(host: str) -> str:
    """From which address this machine would send to `host`; empty where it has no way there."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as opened:
            opened.connect(address)
            return str(opened.getsockname()[0]).partition("%")[0]
    except OSError:
        return ""
