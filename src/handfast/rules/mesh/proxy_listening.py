# SPDX-License-Identifier: Apache-2.0
"""Where a proxy listens, by the variables of its container and by its options; which ports are opaque, and whether the workload is told who calls.

It binds nothing.

| what | variable |
|---|---|
| connections that are redirected to the proxy | `LINKERD2_PROXY_INBOUND_LISTEN_ADDR` |
| connections that the workload opens | `LINKERD2_PROXY_OUTBOUND_LISTEN_ADDR` |
| the admin port | `LINKERD2_PROXY_ADMIN_LISTEN_ADDR` |
| the addresses of the Pod | `LINKERD2_PROXY_INBOUND_IPS` |
| opaque ports | `LINKERD2_PROXY_INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION` |
| headers that say who calls | `LINKERD2_PROXY_IDENTITY_HEADERS`: `enabled` or `disabled` |

1. What listens is IP:PORT, and an address of the Pod is an IP address [BadProxyListen]. What is not set is for the caller to choose.
2. A list of opaque ports has ports and ranges. What is none of them is refused [BadProxyListen]: a port that was taken for HTTP would wait for a
   client that waits for its server.
3. A port that clients call leads to a port of the application, the same number where nothing else is said. No port is named twice.
4. Headers that say who calls are wanted, or not: any other word is refused [BadProxyListen].
5. In explicit mode there is an address of the Pod [ProxyVariableMissing].
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from handfast.rules.envoy import ports as ports_module
from handfast.rules.mesh import addresses, port_annotations, port_lists, proxy_environment, sidecar

INBOUND: Final = f"{sidecar.PREFIX}INBOUND_LISTEN_ADDR"
OUTBOUND: Final = f"{sidecar.PREFIX}OUTBOUND_LISTEN_ADDR"
ADMIN: Final = f"{sidecar.PREFIX}ADMIN_LISTEN_ADDR"
IPS: Final = f"{sidecar.PREFIX}INBOUND_IPS"
OPAQUE: Final = f"{sidecar.PREFIX}INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION"
_PAIR: Final = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?", re.ASCII)
_MOST: Final = 65535


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """What the variables say; None where they say nothing. Addresses are IP:PORT."""

    inbound: str | None = None
    outbound: str | None = None
    admin: str | None = None
    ips: tuple[str, ...] = ()
    opaque: port_lists.Ports = msgspec.field(default_factory=port_lists.Ports)
    identity_headers: bool = False

    def require_pod_ip(self, option: str | None) -> str:
        """The address that ports are bound on: that of the option, else the first of the Pod (5)."""
        if option is not None:
            return option
        # 5. there
        if not self.ips:
            raise proxy_environment.Invalid(
                f"there is no address to bind ports on: neither --pod-ip nor {IPS} is given",
                hint="name an address of this machine, as in --pod-ip 192.0.2.1",
            )
        return self.ips[0]

    def ports(self, pairs: Iterable[tuple[int, int]]) -> tuple[ports_module.Port, ...]:
        """Ports by number and application; opaque are those that the variables name."""
        return tuple(
            ports_module.Port(number=number, application=application, opaque=number in self.opaque)
            for number, application in pairs
        )


def read(variables: Mapping[str, str]) -> Listening:
    """Where the variables say that it listens."""
    return Listening(
        inbound=_address(variables, INBOUND),
        outbound=_address(variables, OUTBOUND),
        admin=_address(variables, ADMIN),
        ips=tuple(_ip(text) for text in variables.get(IPS, "").split(",") if text.strip()),
        opaque=_opaque(variables.get(OPAQUE, "")),
        identity_headers=_identity_headers(variables.get(sidecar.IDENTITY_HEADERS, "disabled")),
    )


def parse_ports(texts: Sequence[str]) -> list[tuple[int, int]]:
    """`PORT` or `PORT:APPLICATION_PORT`, each (3); a ValueError says what is wrong."""
    pairs = []
    for text in texts:
        match = _PAIR.fullmatch(text)
        number, application = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
        if not (1 <= number <= _MOST and 1 <= application <= _MOST):
            raise ValueError(f"{text!r} is not PORT or PORT:APPLICATION_PORT")
        pairs.append((number, application))
    # 3. once
    if len({number for number, _ in pairs}) < len(pairs):
        raise ValueError("a port is named twice")
    return pairs


def _address(variables: Mapping[str, str], variable: str) -> str | None:
    text = variables.get(variable)
    if text is None:
        return None
    # 1. IP:PORT
    try:
        addresses.require(text)
        ipaddress.ip_address(text.rpartition(":")[0].strip("[]"))
    except (addresses.BadAddress, ValueError):
        raise _bad(variable, text, "IP:PORT, as in 127.0.0.1:4140") from None
    return text


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        raise _bad(IPS, text, "IP addresses, with commas between") from None


def _opaque(text: str) -> port_lists.Ports:
    for part in filter(None, map(str.strip, text.split(","))):
        # 2. ports and ranges
        if port_annotations.port_range(part) is None:
            raise _bad(OPAQUE, part, "ports and ranges of 1 to 65535, as in 25,8000-8010")
    return port_lists.parse(text)


def _identity_headers(text: str) -> bool:
    # 4. yes, or no
    if text not in {"enabled", "disabled"}:
        raise _bad(sidecar.IDENTITY_HEADERS, text, "enabled, disabled")
    return text == "enabled"


def _bad(variable: str, text: str, allowed: str) -> proxy_environment.Invalid:
    return proxy_environment.Invalid(
        f"{variable}: {text[:80]!r} is not allowed", reason="BadProxyListen", hint=f"allowed: {allowed}"
    )
