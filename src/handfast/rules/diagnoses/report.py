# SPDX-License-Identifier: Apache-2.0
"""Checks for machines to read: as rows of a document, and as JUnit's XML, which CI systems show. It prints nothing.

1. In JUnit a check that failed is a failure, one that could not be made is skipped, and a warning is a check that passed with its words in `system-out`.
2. XML has no words for control characters, not even escaped ones: they become a question mark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from handfast.api import objects
from handfast.rules import check

_CLASS: Final = "handfast.check"
# 2. what XML 1.0 does not allow
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES: Final[Mapping[str, str]] = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def row(each: check.Check) -> dict[str, str]:
    """One check; what there is nothing to say of is left out."""
    fields = {"name": each.name, "verdict": str(each.verdict), "message": each.sentence}
    since = "" if each.since is None else objects.timestamp(each.since)
    more = {"reason": each.reason, "hint": each.hint, "page": each.page, "since": since}
    return fields | {key: value for key, value in more.items() if value}


def junit(checks: Sequence[check.Check]) -> str:
    """A test suite of them (1)."""
    failures = sum(each.verdict is check.Verdict.FAILED for each in checks)
    skipped = sum(each.verdict is check.Verdict.UNKNOWN for each in checks)
    head = f'<testsuite name="{_CLASS}" tests="{len(checks)}" failures="{failures}" errors="0" skipped="{skipped}">'
    cases = [_case(each) for each in checks]
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>"])


def _case(each: check.Check) -> str:
    words = _text(" ".join(part for part in (each.sentence, each.hint and f"next: {each.hint}", each.page) if part))
    bodies = {
        check.Verdict.FAILED: f'<failure type="{_text(each.reason)}" message="{_text(each.sentence)}">{words}</failure>',
        check.Verdict.UNKNOWN: f'<skipped message="{_text(each.sentence)}"/>',
        check.Verdict.WARNING: f"<system-out>{_text(each.reason)}: {words}</system-out>",
    }
    return f'  <testcase classname="{_CLASS}" name="{_text(each.name)}">{bodies.get(each.verdict, "")}</testcase>'


def _text(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in _NO_XML.sub("?", text))
