# SPDX-License-Identifier: Apache-2.0
"""Where a proxy wants to go: the path of a request for discovery, read as a Service, one instance of it, or an address. It looks nothing up.

1. A path is HOST or HOST:PORT; without a port it is 80. A port is a number of 1 to 65535, in digits alone. An IPv6 address with a port is in
   brackets.
2. A host is an IP address, or `<service>.<namespace>.svc.<cluster-domain>`, or one instance of a headless Service before that. Each part is a
   label. A dot may stand at the end, as in DNS; upper case is read as lower case.
3. Anything else is refused, and quoted in the refusal up to so many characters.
4. What a proxy says about itself, its context, is read where it can be. It is a claim: nothing is decided by it.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects

CLUSTER_DOMAIN: Final = "cluster.local"
DEFAULT_PORT: Final = 80
# Of names, as DNS has it; and of what is quoted.
_LONGEST: Final = 253
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_MOST: Final = 65535
_MOST_CONTEXT: Final = 4096

IP: Final = ipaddress.IPv4Address | ipaddress.IPv6Address


class InvalidAuthority(errors.Refused):
    """A path that names nothing here (1 to 3)."""

    reason = "InvalidAuthority"


@dataclass(frozen=True, slots=True)
class Service:
    """A port of a Service; `instance` is the host name of one endpoint, empty for all."""

    namespace: str
    name: str
    port: int
    instance: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def fqdn(self) -> str:
        """The name in the cluster's DNS, with the instance where there is one."""
        return f"{self.instance}{'.' if self.instance else ''}{self.name}.{self.namespace}.svc.{CLUSTER_DOMAIN}"


class Address(msgspec.Struct, frozen=True):
    """An address with its port; the host in the one form that it is compared in."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a proxy says about itself (4); what it does not say is empty."""

    namespace: str = ""
    node: str = ""
    pod: str = ""


def parse(path: str) -> Service | Address:
    """What a path names; InvalidAuthority where it names nothing."""
    host, port = _split(path)
    ip = canonical(host)
    if ip:
        return Address(ip, port)
    # 2. a name of the cluster
    labels = _own_labels(host)
    if labels is None or any(objects.dns_label(label) is not None for label in labels):
        raise _invalid(path)
    *instance, name, namespace = labels
    return Service(namespace, name, port, "".join(instance))


# Asked for every endpoint at each look: 0.1 µs instead of 4.
@functools.lru_cache(maxsize=1 << 15)
def canonical(text: str) -> str:
    """An IP address in the one form that it is compared in, an IPv4 address in IPv6 as the IPv4 one; empty for what is none."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv6Address):
        # A zone is this machine's own affair.
        return "" if ip.scope_id else str(ip.ipv4_mapped or ip)
    return str(ip)


def context(token: str) -> Context:
    """What a proxy says about itself: JSON, or `ns:NAMESPACE` as older ones write; whatever is wrong says nothing (4)."""
    if len(token) > _MOST_CONTEXT:
        return Context()
    if token.startswith("ns:"):
        return Context(namespace=token.removeprefix("ns:"))
    try:
        said = json.loads(token)
    except (ValueError, RecursionError):
        return Context()
    if not isinstance(said, dict):
        return Context()
    texts = {key: said[key] for key in ("ns", "nodeName", "pod") if isinstance(said.get(key), str)}
    return Context(namespace=texts.get("ns", ""), node=texts.get("nodeName", ""), pod=texts.get("pod", ""))


def _split(path: str) -> tuple[str, int]:
    # 1. HOST or HOST:PORT
    if len(path) > 2 * _LONGEST:
        raise _invalid(path)
    if path.startswith("["):
        host, bracket, port = path[1:].partition("]")
        if not bracket or ":" not in host:
            raise _invalid(path)
        return host, _port(path, port.removeprefix(":")) if port.startswith(":") else _without(path, port)
    if path.count(":") > 1:
        return path, DEFAULT_PORT
    host, colon, port = path.partition(":")
    return host, _port(path, port) if colon else DEFAULT_PORT


def _without(path: str, rest: str) -> int:
    if rest:
        raise _invalid(path)
    return DEFAULT_PORT


def _port(path: str, text: str) -> int:
    if _PORT.fullmatch(text) is None or not 1 <= int(text) <= _MOST:
        raise _invalid(path)
    return int(text)


def _own_labels(host: str) -> list[str] | None:
    """What stands before the cluster's own ending; None where it does not end so, or in too few or too many labels."""
    lower = host.removesuffix(".").lower()
    own = lower.removesuffix(f".svc.{CLUSTER_DOMAIN}")
    labels = own.split(".")
    return labels if own != lower and len(labels) in {2, 3} and len(lower) <= _LONGEST else None


def _invalid(path: str) -> InvalidAuthority:
    # 3. quoted, in bounds
    quoted = path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"
    return InvalidAuthority(
        f"Invalid authority: {quoted}", hint=f"as in web.shop.svc.{CLUSTER_DOMAIN}:80, or an address with a port"
    )
