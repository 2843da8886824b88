# SPDX-License-Identifier: Apache-2.0
"""Answers of the console, with the headers that every one of them has. What they say, it does not know.

1. Nothing comes from elsewhere, and nothing is in line: scripts, styles and pictures are our own files, and forms go to us.
2. No other page shows ours in a frame, opens it with a hold on it, or reads it.
3. Nobody on the way and no browser keeps a page; scripts and styles are kept by their digest.
4. The address of a page is told to no other site (Referrer-Policy).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handfast.serving import answers

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
GUARDED: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not "no-referrer": with that a browser says of its own forms that they come from nowhere (Origin: null).
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
UNKEPT: Final[Mapping[str, str]] = {**GUARDED, "Cache-Control": "no-store"}
_PAGE: Final[Mapping[str, str]] = {**UNKEPT, "Content-Type": "text/html; charset=utf-8"}
_TEXT: Final[Mapping[str, str]] = {**UNKEPT, "Content-Type": "text/plain; charset=utf-8"}


def page(text: str, code: int = 200) -> answers.Answer:
    """A page, or a part of one."""
    return answers.Answer(text.encode(), status=code, headers=_PAGE)


def text(content: str, code: int = 200) -> answers.Answer:
    """A plain text: what is answered to what is no request, for one."""
    return answers.Answer(content.encode(), status=code, headers=_TEXT)


def go_to(path: str) -> answers.Answer:
    """On to another page, by GET."""
    # The address that opens a console has a code: it is told to nobody at all.
    answer = answers.Answer(b"", status=303, headers={**UNKEPT, "Referrer-Policy": "no-referrer"})
    answer.add("Location", path)
    return answer


def asset(body: bytes, content_type: str) -> answers.Answer:
    """A script or a style: its address has its digest, so that it may be kept (3)."""
    headers = {**GUARDED, "Content-Type": content_type, "Cache-Control": "private, max-age=86400, immutable"}
    return answers.Answer(body, headers=headers)
