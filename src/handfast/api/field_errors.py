# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own words for what can be wrong with a field, and the few checks every kind uses.

Each function makes one `status.Cause` or yields some; none decides what a kind requires. A value is quoted as Go would
quote it if it is a string and as JSON otherwise. Values of Secrets are never passed to these functions.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from handfast.api import objects, status

Causes = Iterator[status.Cause]

IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"
PORT_RANGE = "must be between 1 and 65535, inclusive"
IP_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR_TEXT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
# Neither an address nor a network is longer. Python takes 24 ms to find out that three million letters are none.
LONGEST_ADDRESS = 64
PROTOCOLS = ("SCTP", "TCP", "UDP")
_PERCENT = re.compile(r"[0-9]+%\Z", re.ASCII)
PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_PORT_NAME_LENGTH = 15
_PORT_NAME = re.compile(r"[-a-z0-9]+\Z")
_LETTER = re.compile(r"[a-z]")


def required(field: str, detail: str = "") -> status.Cause:
    return status.Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", field)


def invalid(field: str, value: Any, detail: str) -> status.Cause:
    return status.Cause("FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}", field)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> status.Cause:
    names = ", ".join(json.dumps(name) for name in supported)
    return status.Cause(
        "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {names}", field
    )


def forbidden(field: str, detail: str) -> status.Cause:
    return status.Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def duplicate(field: str, value: Any) -> status.Cause:
    return status.Cause("FieldValueDuplicate", f"Duplicate value: {_shown(value)}", field)


def not_found(field: str, value: Any) -> status.Cause:
    return status.Cause("FieldValueNotFound", f"Not found: {_shown(value)}", field)


def too_long(field: str, limit: int) -> status.Cause:
    return status.Cause("FieldValueTooLong", f"Too long: must have at most {limit} bytes", field)


def too_many(field: str, count: int, limit: int) -> status.Cause:
    return status.Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", field)


# How much of a wrong value is quoted: it may be as long as the body.
_SHOWN = 512
_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=str)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        text = _encoder.encode(value[: _SHOWN + 1])
        return text if len(value) <= _SHOWN else text[: _SHOWN + 1] + "…"
    text = ""
    for part in _encoder.iterencode(value):
        text += part[: _SHOWN + 1]
        if len(text) > _SHOWN:
            return text[:_SHOWN] + "…"
    return text


def named(field: str, value: str, rule: Callable[[str], str | None]) -> Causes:
    """The value has to be there and to follow one of the rules of `objects`."""
    if not value:
        yield required(field)
    else:
        yield from optional_name(field, value, rule)


def optional_name(field: str, value: str, rule: Callable[[str], str | None]) -> Causes:
    wrong = rule(value) if value else None
    if wrong is not None:
        yield invalid(field, value, wrong)


def one_of(field: str, value: Any, supported: Iterable[str]) -> Causes:
    """The value has to be there and to be one of those."""
    if value in (None, ""):
        yield required(field)
    else:
        yield from optional_one_of(field, value, supported)


def optional_one_of(field: str, value: Any, supported: Iterable[str]) -> Causes:
    if value not in (None, "") and value not in tuple(supported):
        yield not_supported(field, value, supported)


def not_negative(field: str, value: Any) -> Causes:
    if isinstance(value, int) and value < 0:
        yield invalid(field, value, NOT_NEGATIVE)


def amount_or_percent(field: str, value: Any) -> Causes:
    """A number from 0 on, or a percentage up to a hundred; nothing is said of what is absent."""
    if isinstance(value, str):
        if _PERCENT.match(value) is None:
            yield invalid(field, value, PERCENT_TEXT)
        elif len(value.lstrip("0")) > 4 or int(value[:-1].lstrip("0") or 0) > 100:
            yield invalid(field, value, "must not be greater than 100%")
    else:
        yield from not_negative(field, value)


def port_number(field: str, value: Any) -> Causes:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
        yield invalid(field, 0 if value is None else value, PORT_RANGE)


def port_name(field: str, value: str) -> Causes:
    """An IANA service name: everything that is wrong with it, one by one."""
    for is_wrong, detail in (
        (len(value.encode()) > _PORT_NAME_LENGTH, f"must be no more than {_PORT_NAME_LENGTH} characters"),
        (_PORT_NAME.match(value) is None, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (_LETTER.search(value) is None, "must contain at least one letter (a-z)"),
        ("--" in value, "must not contain consecutive hyphens"),
        (value.startswith("-") or value.endswith("-"), "must not begin or end with a hyphen"),
    ):
        if is_wrong:
            yield invalid(field, value, detail)


def address(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, or None; IPv6 zones are not addresses to Kubernetes."""
    try:
        return None if len(value) > LONGEST_ADDRESS or "%" in value else ipaddress.ip_address(value)
    except ValueError:
        return None


def cidr(field: str, value: str) -> Causes:
    if not _is_network(value):
        yield invalid(field, value, CIDR_TEXT)


def _is_network(value: str) -> bool:
    if len(value) > LONGEST_ADDRESS or "/" not in value:
        return False
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return False
    return True


def labels(field: str, pairs: dict[str, Any]) -> Causes:
    """Keys and values of labels, or of a selector made of them."""
    for key, value in pairs.items():
        wrong = objects.qualified_name(key)
        if wrong is not None:
            yield invalid(field, key, wrong)
        if isinstance(value, str):
            yield from optional_name(field, value, objects.label_value)


def immutable(field: str, new: Any, old: Any) -> Causes:
    if differ(new, old):
        yield invalid(field, new, IMMUTABLE)


def differ(new: Any, old: Any) -> bool:
    """Whether two values say different things. Most are equal, or the very same, and need no closer look."""
    return bool(new != old) and meaning(new) != meaning(old)


def meaning(value: Any) -> Any:
    """The value without nulls, empty objects and empty lists, which say the same as an absent field."""
    if isinstance(value, dict):
        kept = {key: meaning(child) for key, child in value.items()}
        return {key: child for key, child in kept.items() if child is not None and child not in ({}, [])}
    if isinstance(value, list):
        return [meaning(child) for child in value]
    return value
