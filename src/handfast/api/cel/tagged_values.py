# SPDX-License-Identifier: Apache-2.0
"""Values of Kubernetes' CEL that are no plain values: quantities, versions, addresses, networks and URLs.

Each is a map with one key, its tag, so that equality is what it should be. Here they are made from texts, compared, and asked
for their parts. `library` gives these functions their names. An error is a `ValueError`, whose text the evaluator hands on.
"""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from handfast.api import field_errors
from handfast.api.schema import quantities

QUANTITY, ADDRESS, NETWORK, URL, VERSION = "quantity", "ip", "cidr", "url", "semver"
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})(?:-([0-9A-Za-z.-]{1,64}))?(?:\+[0-9A-Za-z.-]{1,64})?\Z",
    re.ASCII,
)
_MOST_DIGITS: Final = 2048


# --- quantities


def quantity(text: str) -> dict[str, str]:
    number = quantities.parse(text)
    if number is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return {QUANTITY: _plain(number)}


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}" if number else "0"


def is_quantity(text: str) -> bool:
    return quantities.parse(text) is not None


def _amount(value: Any) -> Decimal:
    """A number. Written out it has as many digits as its exponent says: a short text may be a megabyte."""
    number = Decimal(_tagged(value, QUANTITY) if isinstance(value, Mapping) else value)
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"a quantity has at most {_MOST_DIGITS} digits")
    return number


def add(left: Any, right: Any) -> dict[str, str]:
    return {QUANTITY: _plain(_amount(left) + _amount(right))}


def subtract(left: Any, right: Any) -> dict[str, str]:
    return {QUANTITY: _plain(_amount(left) - _amount(right))}


def sign(value: Any) -> int:
    amount = _amount(value)
    return (amount > 0) - (amount < 0)


def is_integer(value: Any) -> bool:
    amount = _amount(value)
    return amount == amount.to_integral_value() and -(2**63) <= amount < 2**63


def as_integer(value: Any) -> int:
    if not is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(_amount(value))


def as_float(value: Any) -> float:
    return float(_amount(value))


# --- versions


def version(text: str) -> dict[str, str]:
    if _VERSION.match(text) is None:
        raise ValueError("not a semantic version such as 1.2.3")
    return {VERSION: text}


def is_version(text: str) -> bool:
    return _VERSION.match(text) is not None


def part_of_version(index: int) -> Callable[[Any], int]:
    return lambda value: int(_tagged(value, VERSION).split("-")[0].split("+")[0].split(".")[index])


def _order(value: Any) -> tuple[Any, ...]:
    """A version in the order of semver 2.0: one with an addition comes before the one without."""
    match = _VERSION.match(_tagged(value, VERSION))
    if match is None:
        raise ValueError("no such overload: this is no version")
    rest = [(not word.isdigit(), int(word) if word.isdigit() else 0, word) for word in (match[4] or "").split(".")]
    return int(match[1]), int(match[2]), int(match[3]), match[4] is None, tuple(rest)


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1: quantities, or versions."""
    if isinstance(left, Mapping) and VERSION in left:
        before, after = _order(left), _order(right)
        return (before > after) - (before < after)
    first, second = _amount(left), _amount(right)
    return (first > second) - (first < second)


def _tagged(value: Any, tag: str) -> str:
    text = value.get(tag) if isinstance(value, Mapping) else None
    if isinstance(text, str):
        return text
    raise ValueError(f"no such overload: this is no {tag}")


# --- addresses


def address(text: str) -> dict[str, str]:
    return {ADDRESS: str(_address(text))}


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        # A zone is no part of an address; a text that is too long for one is not even read.
        parsed = ipaddress.ip_address("" if len(text) > field_errors.LONGEST_ADDRESS or "%" in text else text)
    except ValueError:
        raise ValueError(f"IP Address {text[:64]!r} parse error during conversion from string") from None
    if parsed.version == 6 and parsed.ipv4_mapped is not None:
        raise ValueError("IPv4-mapped IPv6 address is not allowed")
    return parsed


def _holds(read: Callable[[str], Any], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def is_address(text: str) -> bool:
    return _holds(_address, text)


def is_canonical(text: str) -> bool:
    return str(_address(text)) == text


def about_address(ask: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: ask(_address(_tagged(value, ADDRESS)))


def is_global(parsed: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    odd = parsed.is_unspecified or parsed.is_loopback or parsed.is_multicast or parsed.is_link_local
    return not odd and str(parsed) != "255.255.255.255"


def is_local_multicast(parsed: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is multicast for the local link: 224.0.0.0/24, or ff02::/16."""
    prefix = b"\xe0\x00\x00" if parsed.version == 4 else b"\xff\x02"
    return parsed.packed.startswith(prefix)


def network(text: str) -> dict[str, str]:
    return {NETWORK: str(_network(text))}


def _network(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    where, slash, length = text.partition("/")
    if slash and length.isascii() and length.isdigit() and len(length) <= 3:
        _address(where)
        try:
            return ipaddress.ip_interface(text)
        except ValueError:
            pass
    raise ValueError(f"network address parse error during conversion from string: {text[:64]!r}")


def is_network(text: str) -> bool:
    return _holds(_network, text)


def _of(value: Any) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    return _network(_tagged(value, NETWORK))


def contains_address(value: Any, other: Any) -> bool:
    text = other if isinstance(other, str) else _tagged(other, ADDRESS)
    return _address(text) in _of(value).network


def contains_network(value: Any, other: Any) -> bool:
    outer, inner = _of(value).network, (_network(other) if isinstance(other, str) else _of(other)).network
    return outer.version == inner.version and inner.network_address in outer and inner.prefixlen >= outer.prefixlen


def address_in(value: Any) -> dict[str, str]:
    return {ADDRESS: str(_of(value).ip)}


def masked(value: Any) -> dict[str, str]:
    return {NETWORK: str(_of(value).network)}


def prefix_length(value: Any) -> int:
    return int(_of(value).network.prefixlen)


# --- URLs


def url(text: str) -> dict[str, str]:
    _parsed(text)
    return {URL: text}


def _parsed(text: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(text)
        parts.port  # noqa: B018 - raises on a port that is none
    except ValueError:
        raise ValueError("URL parse error during conversion from string") from None
    if not (parts.scheme or text.startswith("/")) or any(letter <= " " for letter in text):
        raise ValueError("URL parse error during conversion from string: invalid URI for request")
    return parts


def is_url(text: str) -> bool:
    return _holds(_parsed, text)


def about_url(ask: Callable[[urllib.parse.SplitResult], Any]) -> Callable[[Any], Any]:
    return lambda value: ask(_parsed(_tagged(value, URL)))


def host(parts: urllib.parse.SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def query(parts: urllib.parse.SplitResult) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for key, value in urllib.parse.parse_qsl(parts.query, keep_blank_values=True, max_num_fields=1000):
        values.setdefault(key, []).append(value)
    return values
