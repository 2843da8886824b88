# SPDX-License-Identifier: Apache-2.0
"""How people write the two ends of a call: `NS/NAME`, `sa/NS/NAME`, `pod/NS/NAME`, `svc/NS/NAME`, or `none`. It looks nothing up.

1. Two parts are a namespace and a name: of an account where the client is meant, and of a Service where the server is. Three parts begin with
   what is meant. So a namespace may be called `pod`.
2. A client is an account, a Pod, or `none`: one that is not in the mesh. A server is a Service, a Pod or an account, and may have `:PORT`.
3. Anything else is refused, with what is allowed.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects

_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_LAST_PORT: Final = 65535
_SHOWN: Final = 100


class Kind(enum.StrEnum):
    """What an end is; the values are what people write."""

    ACCOUNT = "sa"
    POD = "pod"
    SERVICE = "svc"
    NOBODY = "none"


class BadEnd(errors.Refused):
    """A text that is no end of a call (3)."""

    reason = "BadMeshEnd"


class End(msgspec.Struct, frozen=True, kw_only=True):
    """One end. Port 0 is none."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    port: int = 0

    def __str__(self) -> str:
        port = f":{self.port}" if self.port else ""
        return str(self.kind) if self.kind is Kind.NOBODY else f"{self.kind}/{self.namespace}/{self.name}{port}"


def client(text: str) -> End:
    """Who calls."""
    if text == Kind.NOBODY:
        return End(kind=Kind.NOBODY)
    return _end(text, text, (Kind.ACCOUNT, Kind.POD), "NS/ACCOUNT, sa/NS/ACCOUNT, pod/NS/POD or none")


def server(text: str) -> End:
    """Who is called."""
    allowed = "NS/SERVICE, svc/NS/SERVICE, pod/NS/POD or sa/NS/ACCOUNT, and :PORT behind it"
    before, colon, port = text.partition(":")
    # 2. a port
    if colon and (_PORT.fullmatch(port) is None or not 1 <= int(port) <= _LAST_PORT):
        raise _bad(text, allowed)
    end = _end(text, before, (Kind.SERVICE, Kind.POD, Kind.ACCOUNT), allowed)
    return End(kind=end.kind, namespace=end.namespace, name=end.name, port=int(port) if colon else 0)


def _end(whole: str, text: str, kinds: Sequence[Kind], allowed: str) -> End:
    parts = text.split("/")
    # 1. two parts, or three
    kind = kinds[0]
    if len(parts) == 3:
        kind = next((each for each in kinds if each == parts[0]), Kind.NOBODY)
        parts = parts[1:]
    if kind is Kind.NOBODY or len(parts) != 2 or objects.dns_label(parts[0]) or objects.dns_subdomain(parts[1]):
        raise _bad(whole, allowed)
    return End(kind=kind, namespace=parts[0], name=parts[1])


def _bad(text: str, allowed: str) -> BadEnd:
    return BadEnd(f"{text[:_SHOWN]!r} is no end of a call", hint=f"allowed: {allowed}")
