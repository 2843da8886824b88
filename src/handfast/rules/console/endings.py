# SPDX-License-Identifier: Apache-2.0
"""What ends and is not counted by days: CAs, the server's certificate, one's own, the mesh's root and issuer, tokens. Certificates of nodes are `expiring`'s.

1. The first to end stands first. What ends within 30 days is marked, unless it was made to.
2. A bundle that cannot be read has no end here: a check tells of it.
3. Tokens are many and short-lived: the first to end is told, and how many more end within 30 days.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.pki import certificates, pem

SOON: Final = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Ending:
    """Something that ends: when, and the page that shows it (empty: none). `short`: it was made to end soon, and nobody has to act."""

    what: str
    at: datetime.datetime
    link: str = ""
    short: bool = False


def of_bundle(what: str, bundle: bytes | None, link: str = "") -> list[Ending]:
    """Each certificate of a bundle (2)."""
    try:
        ends = [certificates.validity(der)[1] for der in pem.certificates_from_pem(bundle)] if bundle else []
    except errors.Refused:
        return []
    return [Ending(what, end, link) for end in ends]


def of_tokens(ends: Iterable[datetime.datetime | None], now: datetime.datetime) -> list[Ending]:
    """The first token to end (3)."""
    ahead = sorted(end for end in ends if end is not None and now < end <= now + SOON)
    if not ahead:
        return []
    more = len(ahead) - 1
    return [
        Ending(f"A token, and {more:,} more within 30 days" if more else "A token", ahead[0], "/tokens", short=True)
    ]


def ordered(rows: Sequence[Ending], now: datetime.datetime) -> list[tuple[Ending, bool]]:
    """The first to end first, and whether it is soon (1); the same one is told once."""
    return [
        (each, each.at <= now + SOON and not each.short)
        for each in sorted(dict.fromkeys(rows), key=lambda each: each.at)
    ]
