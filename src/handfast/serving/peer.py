# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end of a connection, as transport knows it: the only thing authentication sees of TLS.

Python's `ssl` fills in the chain (`connection`), and the socket the address, or a balancer's PROXY header (`gate`): `via` is
"tls", "proxy", `BALANCER` where a balancer passed a connection on without saying whose it is, or "plain" where there is no TLS. It judges
nothing.
"""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass, field
from typing import Final

# The address is the balancer's own, and says nothing of who is behind it.
BALANCER: Final = "balancer"


@dataclass(frozen=True, slots=True)
class Peer:
    """The certificate chain presented (DER, leaf first; empty: none), the source address, and who vouches for both."""

    chain: tuple[bytes, ...]
    address: str
    via: str
    chain_hash: bytes = field(default=b"", compare=False)

    @classmethod
    def of(cls, chain: tuple[bytes, ...], address: str, via: str) -> Peer:
        if not chain:
            return cls(chain, address, via)
        digest = hashlib.sha256()
        for certificate in chain:
            digest.update(len(certificate).to_bytes(4, "big"))
            digest.update(certificate)
        return cls(chain, address, via, digest.digest())


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own; what is no address is not."""
    try:
        host = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return bool((getattr(host, "ipv4_mapped", None) or host).is_loopback)
