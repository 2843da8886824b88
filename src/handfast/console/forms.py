# SPDX-License-Identifier: Apache-2.0
"""The fields of a form that was sent, within bounds. What they mean, it does not know.

1. A body has at most `LONGEST` octets, and arrives in time (`serving.bodies`).
2. It is `application/x-www-form-urlencoded`, in UTF-8, with at most `MANY` fields.
3. A field that comes twice is refused: which of them counts would be somebody's guess. Line breaks are as a browser sends them.
"""

from __future__ import annotations

from typing import Final
from urllib import parse as urls

from handfast import errors
from handfast.serving import bodies, service

LONGEST: Final = 64 << 10
MANY: Final = 64
_SECONDS: Final = 10.0
_TYPE: Final = "application/x-www-form-urlencoded"


async def read(http: service.Request) -> dict[str, str]:
    """The fields by their names."""
    # 2. the form
    if http.content_type != _TYPE:
        raise errors.Refused(f"a form is sent as {_TYPE}, not as {http.content_type[:80]!r}", reason="BadForm")
    # 1. short
    body = await bodies.read(http, _SECONDS, bodies.at_most(LONGEST), lambda _size: None)
    try:
        pairs = urls.parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=MANY,
            errors="strict",
        )
    except (ValueError, UnicodeDecodeError):
        raise errors.Refused("the form cannot be read", reason="BadForm", hint="send it from the page again") from None
    fields = dict(pairs)
    # 3. each once
    if len(fields) != len(pairs):
        raise errors.Refused("a field of the form comes twice", reason="BadForm")
    return fields
