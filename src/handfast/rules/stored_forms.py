# SPDX-License-Identifier: Apache-2.0
"""In which form values are stored, while servers of several versions share a store.

A new version may bring a new form of what is stored. During a roll-out some servers do not know it yet, and one of the old
version may have to come back. So each server announces the forms that it can read, and every server decides by itself which
one it writes:

1. The newest form that every server knows whose announcement is in force. A server that was killed counts until its
   announcement ends.
2. Never an older form than the marker of the store. The marker says what may be found there: it is raised before the first
   value of a form is written, and never lowered, since values of that form stay.
3. Never a form that this server does not know itself.

A server that does not know the form of the marker must not serve: it could not read all of the store. What it reads nevertheless,
because the marker was raised while it started, has the form in its first octet, and stops it there.

Nothing is rewritten when a form is raised: old forms are read for as long as there are any.

| who                        | holding            | tries                                    | check | shown by (test_stored_forms.py)                     |
| -------------------------- | ------------------ | ---------------------------------------- | ----- | --------------------------------------------------- |
| a server of before         | its announcement   | goes on among newer ones                 | 1     | test_nobody_writes_what_one_of_them_cannot_read     |
| a server of before         | –                  | starts after the form was raised         | 2     | test_a_server_that_does_not_know_the_marker_is_refused |
| whoever may write Leases   | an announcement    | brings back an older form                | 2     | test_a_form_once_written_is_not_given_up            |
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from handfast import errors

_TEXT: Final = re.compile(r"([0-9]{1,4})-([0-9]{1,4})", re.ASCII)


class StoreTooNew(errors.Refused):
    """The store holds values of a form that this version does not know."""

    reason = "StoreTooNew"


class Forms(msgspec.Struct, frozen=True):
    """The forms that a server can read: from the oldest to the newest."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"{self.oldest}-{self.newest}"


class Announcement(msgspec.Struct, frozen=True):
    """What a server has said of itself, and until when it counts."""

    server: str
    forms: Forms
    until: datetime.datetime


def parse(text: str) -> Forms | None:
    """Forms as they are announced, or None if that is no announcement."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    oldest, newest = int(match[1]), int(match[2])
    return Forms(oldest, newest) if 0 < oldest <= newest else None


def require_known(marker: int, own: Forms) -> None:
    """Refuse to serve from a store that holds what this server cannot read."""
    if marker > own.newest:
        raise StoreTooNew(
            f"the store holds values of form {marker}, and this version knows forms up to {own.newest}",
            hint="start the version that wrote them, or a later one, or restore a backup from before the upgrade",
        )


def to_write(marker: int, own: Forms, announcements: Iterable[Announcement], now: datetime.datetime) -> int:
    """The form to write now."""
    # 1. what all know whose announcement is in force; 3. and this server
    known = min([own.newest, *(each.forms.newest for each in announcements if each.until > now)])
    # 2. not older than what may be found there
    return min(max(known, marker), own.newest)


def holding_back(own: Forms, announcements: Iterable[Announcement], now: datetime.datetime) -> tuple[str, ...]:
    """The servers for whose sake an older form is written than this one knows."""
    return tuple(each.server for each in announcements if each.until > now and each.forms.newest < own.newest)
