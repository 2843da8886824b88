# SPDX-License-Identifier: Apache-2.0
"""Looks at a workload from outside, as a kubelet does: what its proxy answers, and whether its application accepts connections. It judges nothing.

That the identity service refuses a certificate is read from `/identity`, where the proxy says what its last attempt failed by, and when.

What answers at the proxy's address counts only where it is this user's: loopback is everybody's, and the proxy may have been too late.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

import msgspec

from handfast.rules.mesh import certify
from handfast.runtime import addresses, listeners

_SECONDS: Final = 3.0
_LIMIT: Final = 4096
_OK: Final = "200"
SILENT: Final = "the proxy does not answer"


class _Failure(msgspec.Struct):
    at: str = ""
    reason: str = ""
    message: str = ""


class _Standing(msgspec.Struct, rename="camel"):
    """Of what `/identity` says, how the last attempt failed."""

    last_error: _Failure | None = None


async def why_not_ready(admin: addresses.Address) -> str | None:
    """Why the proxy at this address is not ready, in its own words; None where it is."""
    answer = await _ask(admin, "/ready")
    if answer is None:
        return SILENT
    head, _, body = answer.partition("\r\n\r\n")
    if head.split(" ", 2)[1:2] == [_OK]:
        return None
    return body.strip().removeprefix("not ready: ") or "the proxy does not say why"


async def refusal(admin: addresses.Address) -> tuple[str, str] | None:
    """When the identity service refused the proxy a certificate, and by which words; None where its last attempt did not end so."""
    answer = await _ask(admin, "/identity")
    body = (answer or "").partition("\r\n\r\n")[2]
    try:
        last = msgspec.json.decode(body.encode(), type=_Standing).last_error
    except (msgspec.DecodeError, UnicodeError):
        return None
    return (last.at, last.message) if last is not None and last.reason == certify.REFUSED else None


async def _ask(admin: addresses.Address, path: str) -> str | None:
    """What the proxy at this address answers; None where it does not."""
    if listeners.owner(admin) != os.geteuid():
        return None
    request = f"GET {path} HTTP/1.1\r\nHost: {admin}\r\nUser-Agent: handfast-mesh-run\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(admin.host, admin.port)
            try:
                writer.write(request.encode("ascii"))
                return (await _read(reader)).decode("utf-8", "replace")
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return None


async def _read(reader: asyncio.StreamReader) -> bytes:
    """An answer to its end, or as much of it as is looked at."""
    octets = b""
    while len(octets) < _LIMIT and (more := await reader.read(_LIMIT)):
        octets += more
    return octets


async def accepts(port: int) -> bool:
    """Whether somebody accepts connections at this port of 127.0.0.1."""
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True
