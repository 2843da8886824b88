# SPDX-License-Identifier: Apache-2.0
"""Where the services of the mesh are, as workloads are told: HOST:PORT. It looks nothing up.

1. An address is a host name, with or without a dot at its end, or an IP address, IPv6 in brackets; and a port.
2. A loopback address is this Pod itself. No identity belongs to it, since nothing but the Pod can answer there. `a.localhost` is none: it is
   looked up like any other name, and whoever answers for it would be shown tokens in plaintext.
3. A stock proxy takes `localhost` for this Pod only with a dot at its end; without it, and without an identity, it does not start.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Final

from handfast import errors
from handfast.api import objects
from handfast.rules.mesh import control_plane

_PORT: Final = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_MOST: Final = 65535
# In the cluster, every service of the control plane listens here.
PORTS: Final = {control_plane.IDENTITY: 8080, control_plane.DESTINATION: 8086, control_plane.POLICY: 8090}
# The channel to agents is another port of the Service of destination.
AGENTS_PORT: Final = 8089


class BadAddress(errors.Refused):
    """What is no HOST:PORT (1)."""

    reason = "BadMeshAddress"


def service(name: str, namespace: str) -> str:
    """The address of a Service of the control plane, by the cluster's DNS."""
    return f"{name}.{namespace}.svc.cluster.local:{PORTS[name]}"


def agents(namespace: str, host: str = "") -> str:
    """The channel to agents, by the cluster's DNS, or on another host."""
    return f"{host or f'{control_plane.DESTINATION}.{namespace}.svc.cluster.local'}:{AGENTS_PORT}"


def local(name: str) -> str:
    """The same service, where it is in the same Pod."""
    return f"localhost:{PORTS[name]}"


def absolute(text: str) -> str:
    """The same address, as a stock proxy reads it (3)."""
    host, _, port = text.rpartition(":")
    # 3. with the dot
    return f"localhost.:{port}" if host.lower() == "localhost" else text


def require(text: str) -> None:
    """Return if it is HOST:PORT, else refuse (1)."""
    host, _, port = text.rpartition(":")
    # 1. a port, and a host
    if _PORT.fullmatch(port) is None or int(port) > _MOST or not _is_host(host):
        raise BadAddress(f"{text[:253]!r} is not HOST:PORT", hint="as in 192.0.2.1:8080 or [2001:db8::1]:8080")


@functools.lru_cache(maxsize=64)
def is_loopback(text: str) -> bool:
    """Whether an address leads to the Pod itself (2)."""
    host = text.rpartition(":")[0].strip("[]").removesuffix(".").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        return ":" not in host and objects.dns_subdomain(host.removesuffix(".")) is None
    try:
        return host.endswith("]") and "%" not in host and bool(ipaddress.IPv6Address(host[1:-1]))
    except ValueError:
        return False
