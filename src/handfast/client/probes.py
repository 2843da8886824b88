# SPDX-License-Identifier: Apache-2.0
"""Asks a role of this machine for its health, in plain HTTP on loopback, and says what it answered. It judges nothing."""

from __future__ import annotations

from typing import Final

import aiohttp

from handfast.client import trouble
from handfast.rules.diagnoses import facts

_SECONDS: Final = 5.0
_MAX_BYTES: Final = 1 << 16


async def readiness(url: str, path: str = "/readyz?verbose") -> facts.Probe:
    """What it says of its health there."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout) as session,
            session.get(f"{url}{path}", allow_redirects=False) as answer,
        ):
            text = (await answer.content.read(_MAX_BYTES)).decode("utf-8", "replace")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        met = trouble.of(error)
        return facts.Probe(url, False, f"{met.trouble.value} {met.detail}".strip())
    wrong = [line.removeprefix("[-]") for line in text.splitlines() if line.startswith("[-]")]
    return facts.Probe(url, answer.status == 200, "; ".join(wrong) or f"it answered {answer.status}")
