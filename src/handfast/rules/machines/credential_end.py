# SPDX-License-Identifier: Apache-2.0
"""Until when the CAs of a bootstrap ConfigMap count: an instant that lies beside them. It deletes nothing, and reads no clock.

1. Without the key `revoke-at` they count until somebody revokes them.
2. From that instant on they do not count, whether somebody has deleted the ConfigMap or not.
3. What is no instant counts as over: whoever wrote it wanted an end.
4. A CA that several ConfigMaps hold counts for as long as one of them has it count.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, objects

KEY: Final = "revoke-at"
ENDED: Final = "BootstrapCredentialEnded"
LONG_AGO: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)


def parse(text: str) -> datetime.datetime:
    """The instant, or Refused."""
    try:
        return objects.parse_timestamp(text)
    except ValueError:
        raise errors.Refused(
            "it is no instant, as in 2027-01-31T12:00:00Z: the CAs beside it do not count", reason="NoInstant"
        ) from None


def require_readable(document: Mapping[str, Any]) -> None:
    """Return if a bootstrap ConfigMap says nothing of an end, or an instant; else refuse."""
    text = jsonpath.at(document, "data", KEY)
    if text is not None:
        parse(str(text))


def of(document: Mapping[str, Any]) -> datetime.datetime | None:
    """When the CAs of a bootstrap ConfigMap stop counting; None: not by themselves (1)."""
    text = jsonpath.at(document, "data", KEY)
    if text is None:
        return None
    # 3. what cannot be read is over
    try:
        return parse(str(text))
    except errors.Refused:
        return LONG_AGO


def is_over(end: datetime.datetime | None, now: datetime.datetime) -> bool:
    """Whether they count no more (2)."""
    return end is not None and now >= end


def is_readable(end: datetime.datetime) -> bool:
    """Whether somebody wrote this instant; else it stands for what is none (3)."""
    return end != LONG_AGO


def by_authority(
    held: Iterable[tuple[Collection[str], datetime.datetime | None]],
) -> dict[str, datetime.datetime]:
    """The end of each CA that has one, by its SHA-256, out of what each ConfigMap holds and when that ends (4)."""
    ends: dict[str, list[datetime.datetime | None]] = {}
    for fingerprints, end in held:
        for one in fingerprints:
            ends.setdefault(one, []).append(end)
    return {one: max(known) for one, every in ends.items() if len(known := [end for end in every if end]) == len(every)}


def sentence(end: datetime.datetime) -> str:
    """What is said when it is over."""
    return f"the bootstrap credential was to count until {objects.timestamp(end)} ({KEY}), and does not any more"
