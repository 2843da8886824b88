# SPDX-License-Identifier: Apache-2.0
"""The `format`s of a structural schema that are checked: whether a value is a date, an address, a number of 32 bits.

A format that is not here is only a remark, as in Kubernetes. Every pattern here takes linear time. It reports nothing.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final

from handfast.api import field_errors as fields

_DATE_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d{1,18})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):?[0-5]\d)\Z",
    re.ASCII,
)
_UUID: Final = re.compile(
    r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?([0-9a-fA-F])[0-9a-fA-F]{3}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\Z"
)
_MAC: Final = re.compile(r"[0-9a-fA-F]{2}([:-])[0-9a-fA-F]{2}(?:\1[0-9a-fA-F]{2}){4}(?:(?:\1[0-9a-fA-F]{2}){2})?\Z")
_HOST_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[-_A-Za-z0-9]*[A-Za-z0-9])?\Z")
_HEX_COLOR: Final = re.compile(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})\Z")
_RGB_COLOR: Final = re.compile(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)\Z", re.ASCII)
# What Go reads as a duration (`1h30m`), and the words that go-openapi adds (`5 days`).
_DURATION: Final = re.compile(r"[+-]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)\Z", re.ASCII)
_WORDY_DURATION: Final = re.compile(
    r"\d+\s*(?:nanos?|micros?|millis?|secs?|seconds?|mins?|minutes?|hrs?|hours?|days?|d|weeks?|wks?|w)\Z",
    re.ASCII,
)


def _date(text: str) -> bool:
    try:
        return len(text) == 10 and text.isascii() and datetime.date.fromisoformat(text) is not None
    except ValueError:
        return False


def _date_time(text: str) -> bool:
    found = _DATE_TIME.match(text)
    return found is not None and _date(found[1])


def _duration(text: str) -> bool:
    return bool(_DURATION.match(text) or _WORDY_DURATION.match(text))


def _ip(text: str, version: int) -> bool:
    try:
        return len(text) <= fields.LONGEST_ADDRESS and ipaddress.ip_address(text).version == version and "%" not in text
    except ValueError:
        return False


def _cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    # A mask in dots is no CIDR.
    if (
        len(text) > fields.LONGEST_ADDRESS
        or not slash
        or not length.isascii()
        or not length.isdigit()
        or "%" in address
    ):
        return False
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _uuid(text: str, version: str = "") -> bool:
    found = _UUID.match(text)
    return found is not None and (not version or found[1] == version)


def _byte(text: str) -> bool:
    try:
        base64.b64decode(text.encode("utf-8", "replace"), validate=True)
    except binascii.Error:
        return False
    return True


def _uri(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme or text.startswith("/")) and not any(letter.isspace() for letter in text)


def _hostname(text: str) -> bool:
    labels = text.rstrip(".").split(".")
    return len(text) <= 255 and all(len(label) <= 63 and _HOST_LABEL.match(label) for label in labels)


def _email(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    return bool(at and local) and not any(letter.isspace() for letter in text) and _hostname(domain)


_TEXTS: Final[Mapping[str, Callable[[str], bool]]] = {
    "date": _date,
    "date-time": _date_time,
    "datetime": _date_time,
    "duration": _duration,
    "ipv4": lambda text: _ip(text, 4),
    "ipv6": lambda text: _ip(text, 6),
    "cidr": _cidr,
    "mac": lambda text: _MAC.match(text) is not None,
    "uuid": _uuid,
    "uuid3": lambda text: _uuid(text, "3"),
    "uuid4": lambda text: _uuid(text, "4"),
    "uuid5": lambda text: _uuid(text, "5"),
    "byte": _byte,
    "uri": _uri,
    "hostname": _hostname,
    "email": _email,
    "hexcolor": lambda text: _HEX_COLOR.match(text) is not None,
    "rgbcolor": lambda text: _RGB_COLOR.match(text) is not None,
}
_INTEGERS: Final = {"int32": 2**31, "int64": 2**63}


def holds(name: str, value: Any) -> bool:
    """Whether a text or a number has the format; one that is unknown, or is for other types, always holds."""
    if isinstance(value, str):
        check = _TEXTS.get(name)
        return check is None or check(value)
    limit = _INTEGERS.get(name)
    return limit is None or -limit <= value < limit
