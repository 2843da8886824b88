# SPDX-License-Identifier: Apache-2.0
"""The texts that stand for something else in JSON: times, quantities, base64. Each check returns what Go would say.

A check gives the error's text, or "" if the value is fine, because all of them are reported, none is raised here.
It does not know where in a document the value stands.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_QUANTITY = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?\Z",
)
_QUANTITY_TEXT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})\Z"
)
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_LAYOUT_MICROS: Final = "2006-01-02T15:04:05.000000Z07:00"
_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")

# Forms that need no second look: a subset of what the checks below accept, as one pattern for the fast path.
PLAIN_TIME: Final = (
    r"^[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
)
PLAIN_SECONDS: Final = PLAIN_TIME + r"Z\Z"
PLAIN_MICROS: Final = PLAIN_TIME + r"\.[0-9]{6}Z\Z"
QUANTITY: Final = "^" + _QUANTITY.pattern


def time_error(text: str, *, micros: bool) -> str:
    """RFC 3339; a MicroTime has exactly six digits of fraction, a Time any number or none."""
    layout = _LAYOUT_MICROS if micros else _LAYOUT
    refusal = f'parsing time "{text[:64]}" as "{layout}"'
    match = _TIME.match(text)
    if match is None or (micros and len(match[2] or "") != 7):
        return f"{refusal}: the text is not of that form"
    if match[3] != "Z" and not (int(match[3][1:3]) < 24 and int(match[3][4:]) < 60):
        return f"{refusal}: time zone offset out of range"
    try:
        # Year 0 is a year to Go, and a leap year like year 4, which Python knows.
        datetime.fromisoformat(re.sub("^0000", "0004", match[1]) + "+00:00")
    except ValueError:
        return f"{refusal}: a part is out of range"
    return ""


def quantity_error(text: str) -> str:
    """`250m`, `1.5Gi`, `1e3`."""
    return "" if _QUANTITY.match(text) else _QUANTITY_TEXT


def base64_error(text: str) -> str:
    """Standard base64 with padding; line breaks are ignored, as Go does.

    1. Only letters of the alphabet count, four at a time.
    2. Padding may stand third and fourth, or fourth only.
    3. Nothing but line breaks follows it.
    """
    count = 0
    padding = 0
    for at, letter in enumerate(text):
        if letter in "\r\n":
            continue
        if padding:
            # 2. and 3. after "=" only the "=" that completes the four may come
            if letter != "=" or (count + padding) % 4 == 0:
                return _illegal(text, at)
            padding += 1
        elif letter == "=":
            if count % 4 < 2:
                return _illegal(text, at)
            padding = 1
        elif letter in _BASE64:
            count += 1
        else:
            return _illegal(text, at)
    if (count + padding) % 4:
        return _illegal(text, len(text) if padding else _start_of_rest(text, count % 4))
    return ""


def _start_of_rest(text: str, letters: int) -> int:
    """Where the unfinished last group of four begins: Go points there."""
    at = len(text)
    while letters:
        at -= 1
        letters -= text[at] not in "\r\n"
    return at


def _illegal(text: str, at: int) -> str:
    """Go counts bytes, not characters."""
    return f"illegal base64 data at input byte {len(text[:at].encode('utf-8', 'surrogatepass'))}"
