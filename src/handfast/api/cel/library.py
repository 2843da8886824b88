# SPDX-License-Identifier: Apache-2.0
"""The functions that Kubernetes adds to CEL and the evaluator lacks: the table of their names and types.

What they do is in `lists` (lists and sets), `patterns` (regular expressions) and `tagged_values` (quantities, versions, addresses,
networks, URLs). All are pure functions of values, each bounded by the size of what it is given. An error is a `ValueError`, whose text
the evaluator hands on.

Two things are missing, since the evaluator gives no way to them: functions that answer with an optional, such as `format.named`, and macros
of two variables. They are refused as unknown names when an expression is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from handfast.api.cel import lists, patterns, tagged_values


class Function(msgspec.Struct, frozen=True):
    """One overload. `takes` and `gives` are types by name; with `is_member` the first is what it is called on."""

    name: str
    takes: tuple[str, ...]
    gives: str
    run: Callable[..., Any]
    is_member: bool = False


def escaped_key(key: str) -> str:
    """A key as a JSON pointer has it."""
    return key.replace("~", "~0").replace("/", "~1")


def _members(names: Mapping[str, Callable[..., Any]], takes: tuple[str, ...], gives: str) -> Iterable[Function]:
    return (Function(name, takes, gives, run, is_member=True) for name, run in names.items())


# The evaluator's `matches` by another name.
MATCHES: Final = "matches_kept"
FUNCTIONS: Final = (
    Function(MATCHES, ("string", "string"), "bool", patterns.matches),
    *_members({MATCHES: patterns.matches}, ("string", "string"), "bool"),
    *_members({"isSorted": lists.is_sorted}, ("list",), "bool"),
    *_members({"sum": lists.total, "min": lists.least, "max": lists.greatest}, ("list",), "dyn"),
    *_members({"indexOf": lists.index_of, "lastIndexOf": lists.last_index_of}, ("list", "dyn"), "int"),
    Function("sets.contains", ("list", "list"), "bool", lists.contains_all),
    Function("sets.equivalent", ("list", "list"), "bool", lists.are_equivalent),
    Function("sets.intersects", ("list", "list"), "bool", lists.intersect),
    *_members({"find": patterns.find}, ("string", "string"), "string"),
    *_members({"findAll": patterns.find_all}, ("string", "string"), "strings"),
    *_members({"findAll": patterns.find_all}, ("string", "string", "int"), "strings"),
    Function("quantity", ("string",), "map", tagged_values.quantity),
    Function("isQuantity", ("string",), "bool", tagged_values.is_quantity),
    *_members({"add": tagged_values.add, "sub": tagged_values.subtract}, ("map", "dyn"), "map"),
    *_members({"sign": tagged_values.sign, "asInteger": tagged_values.as_integer}, ("map",), "int"),
    *_members({"isInteger": tagged_values.is_integer}, ("map",), "bool"),
    *_members({"asApproximateFloat": tagged_values.as_float}, ("map",), "double"),
    *_members({"compareTo": tagged_values.compare}, ("map", "map"), "int"),
    *_members({"isLessThan": lambda left, right: tagged_values.compare(left, right) < 0}, ("map", "map"), "bool"),
    *_members({"isGreaterThan": lambda left, right: tagged_values.compare(left, right) > 0}, ("map", "map"), "bool"),
    Function("semver", ("string",), "map", tagged_values.version),
    Function("isSemver", ("string",), "bool", tagged_values.is_version),
    *_members(
        {name: tagged_values.part_of_version(index) for index, name in enumerate(("major", "minor", "patch"))},
        ("map",),
        "int",
    ),
    Function("ip", ("string",), "map", tagged_values.address),
    Function("isIP", ("string",), "bool", tagged_values.is_address),
    Function("ip.isCanonical", ("string",), "bool", tagged_values.is_canonical),
    *_members({"family": tagged_values.about_address(lambda parsed: parsed.version)}, ("map",), "int"),
    *_members(
        {
            "isUnspecified": tagged_values.about_address(lambda parsed: parsed.is_unspecified),
            "isLoopback": tagged_values.about_address(lambda parsed: parsed.is_loopback),
            "isLinkLocalMulticast": tagged_values.about_address(tagged_values.is_local_multicast),
            "isLinkLocalUnicast": tagged_values.about_address(lambda parsed: parsed.is_link_local),
            "isGlobalUnicast": tagged_values.about_address(tagged_values.is_global),
        },
        ("map",),
        "bool",
    ),
    Function("cidr", ("string",), "map", tagged_values.network),
    Function("isCIDR", ("string",), "bool", tagged_values.is_network),
    *_members(
        {"containsIP": tagged_values.contains_address, "containsCIDR": tagged_values.contains_network},
        ("map", "dyn"),
        "bool",
    ),
    *_members({"ip": tagged_values.address_in, "masked": tagged_values.masked}, ("map",), "map"),
    *_members({"prefixLength": tagged_values.prefix_length}, ("map",), "int"),
    Function("url", ("string",), "map", tagged_values.url),
    Function("isURL", ("string",), "bool", tagged_values.is_url),
    *_members(
        {
            "getScheme": tagged_values.about_url(lambda parts: parts.scheme),
            "getHost": tagged_values.about_url(tagged_values.host),
            "getHostname": tagged_values.about_url(lambda parts: parts.hostname or ""),
            "getPort": tagged_values.about_url(lambda parts: str(parts.port or "")),
            "getEscapedPath": tagged_values.about_url(lambda parts: parts.path),
        },
        ("map",),
        "string",
    ),
    *_members({"getQuery": tagged_values.about_url(tagged_values.query)}, ("map",), "map"),
    Function("jsonpatch.escapeKey", ("string",), "string", escaped_key),
)
NAMES: Final = frozenset(function.name for function in FUNCTIONS)
