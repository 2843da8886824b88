# SPDX-License-Identifier: Apache-2.0
"""Drift: what lies on a machine, against what its configuration put there. It looks at nothing itself, and repairs nothing.

1. A file that should lie there is there, is a file, has the content by digest, the mode and the owner.
2. A link that should lie there is a link, and leads where it should.
3. What should not be there is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

ABSENT: Final = "absent"
FILE: Final = "file"
LINK: Final = "link"
# A directory, a device, a pipe or a socket: nothing that a configuration may replace.
OTHER: Final = "other"

# How many paths a sentence names; the rest is counted.
_NAMED: Final = 3


class Entry(msgspec.Struct, frozen=True):
    """What lies at one path. `digest` is the SHA-256 of a file's content, in hex; `target` is a link's."""

    kind: str = ABSENT
    digest: str = ""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    target: str = ""


NOTHING: Final = Entry()


class Drift(msgspec.Struct, frozen=True):
    """One path that is not as it should be, and how."""

    path: str
    words: str

    def __str__(self) -> str:
        return f"{self.path} {self.words}"


def compare(wanted: Mapping[str, Entry], seen: Mapping[str, Entry]) -> tuple[Drift, ...]:
    """Every path that is not as it should be, sorted."""
    rows = ((path, difference(entry, seen.get(path, NOTHING))) for path, entry in sorted(wanted.items()))
    return tuple(Drift(path, words) for path, words in rows if words)


def difference(wanted: Entry, seen: Entry) -> str:
    """How what is seen differs from what is wanted; empty: it does not."""
    if seen.kind != wanted.kind:
        return _KINDS[wanted.kind, seen.kind == ABSENT]
    # 2. a link is where it leads
    if wanted.kind == LINK:
        return "" if seen.target == wanted.target else f"leads to {seen.target}, not to {wanted.target}"
    # 1. content, then mode and owner
    if seen.digest != wanted.digest:
        return "has other contents"
    if seen.mode != wanted.mode:
        return f"has the mode {seen.mode:04o}, not {wanted.mode:04o}"
    if (seen.uid, seen.gid) != (wanted.uid, wanted.gid):
        return f"belongs to {seen.uid}:{seen.gid}, not to {wanted.uid}:{wanted.gid}"
    return ""


_KINDS: Final[Mapping[tuple[str, bool], str]] = {
    (FILE, True): "is gone",
    (FILE, False): "is no file any more",
    (LINK, True): "is gone",
    (LINK, False): "is no symbolic link any more",
    # 3. what should not be there
    (ABSENT, False): "is there again",
}


def sentence(drifts: tuple[Drift, ...]) -> str:
    """All of it in one sentence of bounded length; empty: there is none."""
    if not drifts:
        return ""
    shown = "; ".join(_short(str(drift)) for drift in drifts[:_NAMED])
    more = f"; and {len(drifts) - _NAMED} more" if len(drifts) > _NAMED else ""
    return f"not as the configuration left it: {shown}{more}"


def _short(text: str) -> str:
    return text if len(text) <= 240 else f"{text[:200]}…{text[-39:]}"
