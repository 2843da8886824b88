# SPDX-License-Identifier: Apache-2.0
"""Annotations about ports: which are opaque to the proxy, and which go past it; and whether the application is told who calls. It changes no object.

An opaque port carries a protocol in which the server may speak first: the proxy passes its bytes on, and waits for no request line. A port
that is skipped does not go through the proxy at all, and has no identity.

1. A value is a list of ports and ranges, 1 to 65535, with commas between; opaque ports may also be names of container ports, and subnets are
   CIDR blocks. Anything else is refused: a redirect that was half understood would leave connections without an identity. So is a value of more
   than `MAX_LENGTH` characters: it would be read for every Pod.
2. What a Pod says stands over what its namespace says. Of the namespace's annotations only those that are read here are taken over.
3. Without a value, the ports whose protocols are known to be opaque are.
4. Annotations of Linkerd's that are not read here are named to whoever wrote them.
5. A list has so many parts, and what has more is refused: a Pod may carry a megabyte of them, and everybody else waits for its review.
6. Whether the proxy tells the application who calls, in headers, is `enabled` or `disabled` [BadIdentityHeaders]: an application that believes the
   headers, and a proxy that was not to set them, would not go together.
7. A subnet has no zone (`fe80::%eth0`): the text behind the sign could be anything, and gets to a program that is root in the Pod's network.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_port_annotations.py |
|---|---|---|---|---|
| a tenant | a Pod with a list of a megabyte | hold the injector, so that other Pods start without a proxy | 5 | test_a_list_with_too_many_parts_is_refused |
| … | a name of a port many times, on many ports | the same | 5 | test_a_name_is_looked_up_once_however_many_ports_have_it |
| … | a subnet with rules of iptables in its zone | change the Pod's network with rights that it does not have | 7 | test_a_zone_is_no_part_of_a_subnet |
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.rules.mesh import workloads

PREFIX: Final = "config.linkerd.io/"
OPAQUE: Final = f"{PREFIX}opaque-ports"
SKIP_INBOUND: Final = f"{PREFIX}skip-inbound-ports"
SKIP_OUTBOUND: Final = f"{PREFIX}skip-outbound-ports"
SKIP_SUBNETS: Final = f"{PREFIX}skip-subnets"
IDENTITY_HEADERS: Final = "mesh.handfast.dev/identity-headers"
READ: Final = (OPAQUE, SKIP_INBOUND, SKIP_OUTBOUND, SKIP_SUBNETS, IDENTITY_HEADERS)
ENABLED: Final = "enabled"
_DISABLED: Final = "disabled"
# SMTP, SMTP submission, MySQL, Galera, PostgreSQL, Redis, Elasticsearch, Memcached.
OPAQUE_PORTS: Final = (25, 587, 3306, 4444, 5432, 6379, 9300, 11211)
MAX_LENGTH: Final = 4096
MOST_PARTS: Final = 1024
_MOST: Final = 65535
_MOST_SHOWN: Final = 80
_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?", re.ASCII)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadPorts(errors.Refused):
    """An annotation about ports has a value that is none (1)."""

    reason = "BadPortsAnnotation"


class BadIdentityHeaders(errors.Refused):
    """An annotation about headers that says neither yes nor no (6)."""

    reason = "BadIdentityHeaders"


def inherited(own: Mapping[str, Any], namespace: Mapping[str, str]) -> dict[str, str]:
    """The annotations that an object takes over from its namespace (2)."""
    return {key: namespace[key] for key in READ if key in namespace and key not in own}


def unread(annotations: Mapping[str, Any]) -> list[str]:
    """Annotations of Linkerd's that say nothing here (4)."""
    return sorted(key for key in annotations if key.startswith(PREFIX) and key not in READ)


def skipped(annotations: Mapping[str, Any], key: str) -> str:
    """The ports of an annotation, as the container takes them that redirects; empty where there are none (1)."""
    return ",".join(_written(*_range(key, item)) for item in _items(annotations, key))


def subnets(annotations: Mapping[str, Any]) -> str:
    """The subnets that go past the proxy, likewise."""
    return ",".join(str(_subnet(item)) for item in _items(annotations, SKIP_SUBNETS))


def opaque(annotations: Mapping[str, Any], workload: workloads.Workload) -> str:
    """The opaque ports of a workload, as the proxy takes them; names are those of its container ports (1)."""
    ports: dict[str, None] = {}
    named = _named(workload)
    # 5. each part once
    for item in dict.fromkeys(_items(annotations, OPAQUE)):
        if _NAME.fullmatch(item) is not None:
            # A namespace may name a port that this Pod does not have.
            ports |= dict.fromkeys(map(str, named.get(item, ())))
        else:
            ports[_written(*_range(OPAQUE, item))] = None
    return ",".join(ports)


def identity_headers(annotations: Mapping[str, Any]) -> bool:
    """Whether the application is told who calls (6)."""
    value = str(annotations.get(IDENTITY_HEADERS, _DISABLED))
    # 6. yes, or no
    if value not in {ENABLED, _DISABLED}:
        raise BadIdentityHeaders(
            f"annotation {IDENTITY_HEADERS}: {value[:_MOST_SHOWN]!r} is not allowed",
            hint=f"allowed: {ENABLED}, {_DISABLED}",
        )
    return value == ENABLED


def _named(workload: workloads.Workload) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for name, number in container_ports(workload):
        rows.setdefault(name, []).append(number)
    return rows


def usually_opaque(ports: Iterable[tuple[int, int]]) -> str:
    """Of pairs of a port and where it leads, the ports that are opaque unless somebody says otherwise (3)."""
    return ",".join(dict.fromkeys(str(port) for port, leads_to in ports if leads_to in OPAQUE_PORTS))


def container_ports(workload: workloads.Workload) -> Iterator[tuple[str, int]]:
    """Names and numbers of the ports of the application's containers."""
    for row in workload.containers.get("containers", ()):
        for port in jsonpath.mappings(row, "ports"):
            if number := jsonpath.number(port, "containerPort"):
                yield jsonpath.text(port, "name"), number


def service_ports(service: objects.Document) -> Iterator[tuple[int, int]]:
    """The ports of a Service, and where each leads; one that leads to a name counts for itself."""
    for row in jsonpath.mappings(service, "spec", "ports"):
        port = jsonpath.number(row, "port")
        yield port, jsonpath.number(row, "targetPort") or port


def _items(annotations: Mapping[str, Any], key: str) -> Iterator[str]:
    text = str(annotations.get(key, ""))
    if len(text) > MAX_LENGTH:
        raise _bad(key, text, f"at most {MAX_LENGTH} characters")
    # 5. so many parts
    if text.count(",") >= MOST_PARTS:
        raise _bad(key, text, f"a list of {MOST_PARTS} parts at most")
    for item in text.split(","):
        if item.strip():
            yield item.strip()


def port_range(item: str) -> tuple[int, int] | None:
    """The ends of a port or a range; None for what is none."""
    match = _RANGE.fullmatch(item)
    first, last = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
    return (first, last) if 1 <= first <= last <= _MOST else None


def _range(key: str, item: str) -> tuple[int, int]:
    # 1. ports, in order
    ends = port_range(item)
    if ends is None:
        raise _bad(key, item, "ports and ranges of 1 to 65535, as in 25,8000-8010")
    return ends


def _written(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _subnet(item: str) -> Network:
    network = subnet(item)
    if network is None:
        raise _bad(SKIP_SUBNETS, item, "CIDR blocks, as in 192.0.2.0/24")
    return network


def subnet(item: str, *, strict: bool = True) -> Network | None:
    """A CIDR block; None for what is none. Without `strict` the bits of a host may be in it."""
    # 7. Python takes a zone, which may be any text
    if "%" in item:
        return None
    try:
        return ipaddress.ip_network(item, strict=strict)
    except ValueError:
        return None


def _bad(key: str, item: str, allowed: str) -> BadPorts:
    return BadPorts(f"annotation {key}: {item[:_MOST_SHOWN]!r} is not allowed", hint=f"allowed: {allowed}")
