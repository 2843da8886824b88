# SPDX-License-Identifier: Apache-2.0
"""The functions that Kubernetes adds to CEL and the evaluator lacks: lists, sets, patterns, URLs, quantities, addresses, versions.

They are pure functions of values, each bounded by the size of what it is given. What is no plain value in Kubernetes
(a quantity, an address, a network, a URL, a version) is a map with one key here, so that equality is what it should be.
An error is a `ValueError`, whose text the evaluator hands on.

Not here, since the evaluator gives no way to them: `format.named` and its like, which answer with an optional; macros of two variables. They
are refused when an expression is compiled, as unknown names.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import re2

from handfast.api import field_errors
from handfast.api.schema import quantities

QUANTITY, ADDRESS, NETWORK, URL, VERSION = "quantity", "ip", "cidr", "url", "semver"
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})(?:-([0-9A-Za-z.-]{1,64}))?(?:\+[0-9A-Za-z.-]{1,64})?\Z",
    re.ASCII,
)
_LONGEST_PATTERN: Final = 4096
_MOST_DIGITS: Final = 2048


@dataclass(frozen=True, slots=True)
class Function:
    """One overload. `takes` and `gives` are types by name; with `is_member` the first is what it is called on."""

    name: str
    takes: tuple[str, ...]
    gives: str
    run: Callable[..., Any]
    is_member: bool = False


# --- lists and sets


def is_sorted(values: list[Any]) -> bool:
    return all(_ordered(values[index - 1], values[index]) for index in range(1, len(values)))


def _ordered(left: Any, right: Any) -> bool:
    try:
        return bool(left <= right)
    except TypeError:
        raise ValueError("no such overload: the elements cannot be compared") from None


def total(values: list[Any]) -> Any:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        raise ValueError("no such overload: sum() takes numbers")
    return sum(values)


def least(values: list[Any]) -> Any:
    return functools.reduce(lambda left, right: left if _ordered(left, right) else right, _some(values, "min"))


def greatest(values: list[Any]) -> Any:
    return functools.reduce(lambda left, right: right if _ordered(left, right) else left, _some(values, "max"))


def _some(values: list[Any], name: str) -> list[Any]:
    if not values:
        raise ValueError(f"{name} called on empty list")
    return values


def index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index, value in enumerate(values) if same(value, wanted)), -1)


def last_index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index in range(len(values) - 1, -1, -1) if same(values[index], wanted)), -1)


def same(left: Any, right: Any) -> bool:
    """Equality of CEL: to Python, 1 equals True."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


_MOST_IN_SETS: Final = 1000


def contains_all(values: list[Any], wanted: list[Any]) -> bool:
    """Whether each of `wanted` is among the values."""
    _require_few(values, wanted)
    return all(index_of(values, each) >= 0 for each in wanted)


def _require_few(left: list[Any], right: list[Any]) -> None:
    if len(left) * len(right) > _MOST_IN_SETS**2:
        raise ValueError(f"sets are compared up to {_MOST_IN_SETS} elements each")


def are_equivalent(left: list[Any], right: list[Any]) -> bool:
    return contains_all(left, right) and contains_all(right, left)


def intersect(left: list[Any], right: list[Any]) -> bool:
    _require_few(left, right)
    return any(index_of(left, each) >= 0 for each in right)


# --- patterns


@functools.lru_cache(maxsize=256)
def _pattern(expression: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    # A pattern that only the object knows: its program is bounded by memory, and so is its time.
    options.max_mem = 1 << 16
    if len(expression) > _LONGEST_PATTERN:
        raise ValueError(f"a pattern has at most {_LONGEST_PATTERN} characters")
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError):
        raise ValueError("RE2 does not take this pattern") from None


def matches(text: str, expression: str) -> bool:
    """What `engine` puts in the place of the evaluator's own: see there."""
    return _matched(expression).search(text) is not None


@functools.lru_cache(maxsize=64)
def _matched(expression: str) -> Any:
    """A pattern as the evaluator takes it: mostly one that the author of a rule wrote. 64 of them are at most 64 MiB."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError):
        raise ValueError("RE2 does not take this pattern") from None


def find(text: str, expression: str) -> str:
    match = _pattern(expression).search(text)
    return "" if match is None else str(match.group(0))


def find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    matches: list[str] = []
    for match in _pattern(expression).finditer(text):
        if 0 <= limit <= len(matches):
            break
        matches.append(str(match.group(0)))
    return matches


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


def escaped_key(key: str) -> str:
    """A key as a JSON pointer has it."""
    return key.replace("~", "~0").replace("/", "~1")


def _members(names: Mapping[str, Callable[..., Any]], takes: tuple[str, ...], gives: str) -> Iterable[Function]:
    return (Function(name, takes, gives, run, is_member=True) for name, run in names.items())


# The evaluator's `matches` by another name.
MATCHES: Final = "matches_kept"
FUNCTIONS: Final = (
    Function(MATCHES, ("string", "string"), "bool", matches),
    *_members({MATCHES: matches}, ("string", "string"), "bool"),
    *_members({"isSorted": is_sorted}, ("list",), "bool"),
    *_members({"sum": total, "min": least, "max": greatest}, ("list",), "dyn"),
    *_members({"indexOf": index_of, "lastIndexOf": last_index_of}, ("list", "dyn"), "int"),
    Function("sets.contains", ("list", "list"), "bool", contains_all),
    Function("sets.equivalent", ("list", "list"), "bool", are_equivalent),
    Function("sets.intersects", ("list", "list"), "bool", intersect),
    *_members({"find": find}, ("string", "string"), "string"),
    *_members({"findAll": find_all}, ("string", "string"), "strings"),
    *_members({"findAll": find_all}, ("string", "string", "int"), "strings"),
    Function("quantity", ("string",), "map", quantity),
    Function("isQuantity", ("string",), "bool", is_quantity),
    *_members({"add": add, "sub": subtract}, ("map", "dyn"), "map"),
    *_members({"sign": sign, "asInteger": as_integer}, ("map",), "int"),
    *_members({"isInteger": is_integer}, ("map",), "bool"),
    *_members({"asApproximateFloat": as_float}, ("map",), "double"),
    *_members({"compareTo": compare}, ("map", "map"), "int"),
    *_members({"isLessThan": lambda left, right: compare(left, right) < 0}, ("map", "map"), "bool"),
    *_members({"isGreaterThan": lambda left, right: compare(left, right) > 0}, ("map", "map"), "bool"),
    Function("semver", ("string",), "map", version),
    Function("isSemver", ("string",), "bool", is_version),
    *_members(
        {name: part_of_version(index) for index, name in enumerate(("major", "minor", "patch"))}, ("map",), "int"
    ),
    Function("ip", ("string",), "map", address),
    Function("isIP", ("string",), "bool", is_address),
    Function("ip.isCanonical", ("string",), "bool", is_canonical),
    *_members({"family": about_address(lambda parsed: parsed.version)}, ("map",), "int"),
    *_members(
        {
            "isUnspecified": about_address(lambda parsed: parsed.is_unspecified),
            "isLoopback": about_address(lambda parsed: parsed.is_loopback),
            "isLinkLocalMulticast": about_address(lambda parsed: parsed.is_multicast and _is_local(parsed)),
            "isLinkLocalUnicast": about_address(lambda parsed: parsed.is_link_local),
            "isGlobalUnicast": about_address(is_global),
        },
        ("map",),
        "bool",
    ),
    Function("cidr", ("string",), "map", network),
    Function("isCIDR", ("string",), "bool", is_network),
    *_members({"containsIP": contains_address, "containsCIDR": contains_network}, ("map", "dyn"), "bool"),
    *_members({"ip": address_in, "masked": masked}, ("map",), "map"),
    *_members({"prefixLength": prefix_length}, ("map",), "int"),
    Function("url", ("string",), "map", url),
    Function("isURL", ("string",), "bool", is_url),
    *_members(
        {
            "getScheme": about_url(lambda parts: parts.scheme),
            "getHost": about_url(host),
            "getHostname": about_url(lambda parts: parts.hostname or ""),
            "getPort": about_url(lambda parts: str(parts.port or "")),
            "getEscapedPath": about_url(lambda parts: parts.path),
        },
        ("map",),
        "string",
    ),
    *_members({"getQuery": about_url(query)}, ("map",), "map"),
    Function("jsonpatch.escapeKey", ("string",), "string", escaped_key),
)
NAMES: Final = frozenset(function.name for function in FUNCTIONS)


def _is_local(parsed: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether a multicast address is for the local link: 224.0.0.0/24, or ff02::/16."""
    return parsed.packed[:3] == b"\xe0\x00\x00" if parsed.version == 4 else parsed.packed[:2] == b"\xff\x02"
