# SPDX-License-Identifier: Apache-2.0
"""PROXY headers at the start of a connection: refused, read, or awaited; a longer input never makes a shorter header."""

from __future__ import annotations

from handfast.rules import proxy_protocol
from tests.fuzz import promises


def _read(data: bytes) -> None:
    header = proxy_protocol.read(data)
    if header is None:
        promises.require(len(data) < 1 << 16, "a header that never ends")
        return
    promises.require(0 < header.size <= len(data), "a header that is longer than what has come")
    promises.require(proxy_protocol.read(data[: header.size]) == header, "what follows a header is read as part of it")
    promises.require(proxy_protocol.looks_like(data), "a header that does not look like one")


run = promises.refusing(_read)
