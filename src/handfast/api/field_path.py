# SPDX-License-Identifier: Apache-2.0
"""Where a value stands in a document, written as Kubernetes does: `spec.containers[0].image`.

A path is a chain of links and becomes text only when someone reports it: a walk that wrote its path at every step
would copy a megabyte-long key once for each of its children. It does not look anything up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# An error is read by a person, who needs no more than this; a key may be as long as the body.
MAX_TEXT = 512


class Key(str):
    """The key of an entry, which stands in brackets: `data[a.b]`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Path:
    """A key or an index, below another path or at the top."""

    step: str | int
    parent: Path | None = None

    def __str__(self) -> str:
        steps = []
        link: Path | None = self
        while link is not None:
            steps.append(link.step)
            link = link.parent
        return render(reversed(steps))


def render(steps: Iterable[str | int]) -> str:
    """The text of a path from the top down, cut off at `MAX_TEXT` characters."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif isinstance(step, Key):
            text += f"[{step[: MAX_TEXT + 1]}]"
        else:
            text += ("." if text else "") + step[: MAX_TEXT + 1]
        if len(text) > MAX_TEXT:
            return text[:MAX_TEXT] + "…"
    return text
