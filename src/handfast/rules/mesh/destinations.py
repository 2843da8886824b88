# SPDX-License-Identifier: Apache-2.0
"""Where an application wants to go, read from the authority of its request: a name of the mesh, or an address. It looks nothing up.

1. An authority is HOST or HOST:PORT; without a port it is 80. Upper case is lower case, and a dot at the end of a name is none: so all spellings are one
   destination.
2. A host is an IP address in one of the usual forms, or a name. What a resolver might take for an address, and is none, is refused [BadDestination].
3. `NAME.NAMESPACE.svc` is a name in the cluster, as its DNS has it.
4. What leads to this machine itself, or to a port of the proxy's own, is known as such (`Own.is_home`): nobody comes there in plaintext by the proxy.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast import errors
from handfast.rules.mesh import authorities

_SHORT: Final = ".svc"
# What the names of the mesh end in, as routes have it.
DOMAINS: Final = (f"svc.{authorities.CLUSTER_DOMAIN}", "svc")
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_LONGEST: Final = 253
_QUOTED: Final = 80


class BadDestination(errors.Refused):
    """An authority that names nothing (1, 2)."""

    reason = "BadDestination"


class Target(msgspec.Struct, frozen=True):
    """One destination, in the one spelling that it is known by; `is_address` says that the host is an IP address."""

    host: str
    port: int
    is_address: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Addresses of this workload, and the ports that its proxy has for itself (4)."""

    hosts: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()

    def is_home(self, host: str, port: int) -> bool:
        """Whether it is this machine, or a port of the proxy's own on an address of the workload."""
        return is_loopback(host) or (host in self.hosts and port in self.ports)

    def is_own_port(self, host: str, port: int) -> bool:
        """Whether a port of the proxy's own answers there."""
        return port in self.ports and (is_loopback(host) or host in self.hosts)


def is_loopback(host: str) -> bool:
    """Whether an IP address leads to this machine: the unspecified one does, too."""
    ip = ipaddress.ip_address(host)
    return ip.is_loopback or ip.is_unspecified


def read(authority: str) -> Target:
    """The destination of an authority."""
    try:
        address = authorities.parse(authority)
    except authorities.InvalidAuthority:
        return _named(authority)
    if isinstance(address, authorities.Address):
        return Target(address.host, address.port, is_address=True)
    return Target(address.fqdn, address.port)


def _named(authority: str) -> Target:
    host, colon, digits = authority.lower().partition(":")
    # 1. one spelling
    host = host.removesuffix(".")
    port = _port(authority, digits) if colon else authorities.DEFAULT_PORT
    # 2. a name, and nothing like an address
    if len(host) > _LONGEST or _NAME.fullmatch(host) is None or _NUMBER.fullmatch(host.rpartition(".")[2]):
        raise _bad(authority)
    # 3. as the cluster's DNS has it
    return Target(f"{host}.{authorities.CLUSTER_DOMAIN}" if host.endswith(_SHORT) else host, port)


def _port(authority: str, digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 1 <= int(digits) <= 65535):
        raise _bad(authority)
    return int(digits)


def _bad(authority: str) -> BadDestination:
    return BadDestination(
        f"{authority[:_QUOTED]!r} is neither a name with a port nor an address",
        hint="as in web.shop.svc.cluster.local:80",
    )
