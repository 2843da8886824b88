# SPDX-License-Identifier: Apache-2.0
"""Fetches a manifest from an https URL. It follows no redirect and sends no credential, and does not know what a manifest means."""

from __future__ import annotations

from typing import Protocol

from handfast import errors
from handfast.bootstrap import diagnosis
from handfast.client import anonymous


class _Ask(Protocol):
    async def __call__(self, url: str, trust: anonymous.Trust) -> anonymous.Answer: ...


async def fetch(url: str, ask: _Ask = anonymous.ask) -> bytes:
    """What is at the URL, by the roots of the system."""
    # Whatever follows the question mark may be a secret.
    shown = url.partition("?")[0]
    try:
        answer = await ask(url, anonymous.Trust(None))
    except anonymous.Troubled as troubled:
        raise diagnosis.explain(troubled.trouble, shown, troubled.detail, None, by="a CA of the system") from None
    if answer.code >= 500 or answer.code == 429:
        raise errors.Unavailable(f"{shown} answered {answer.code}", reason="ServerNotReady", hint="try again later")
    if answer.code != 200:
        raise errors.Refused(
            f"{shown} answered {answer.code}",
            reason="NoManifest",
            hint="check the URL; redirects are not followed, and no credentials are sent",
        )
    return answer.body
