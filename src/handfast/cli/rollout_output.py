# SPDX-License-Identifier: Apache-2.0
"""How a roll-out looks to people and to machines: a line for each pool, who is behind and why, and documents of the same.

It reads nothing and decides nothing. On a terminal the lines of pools are written over as they change; elsewhere a line is written
when it has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from handfast.cli import output

if TYPE_CHECKING:
    from handfast.rules.machine_config import following, rollout_progress

# How many names a line has.
_SHOWN: Final = 5


class Live:
    """Lines on stderr, by what they are about."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._lines: dict[str, str] = {}

    def show(self, lines: dict[str, str]) -> None:
        """Show these lines from now on."""
        changed = [text for about, text in lines.items() if self._lines.get(about) != text]
        if self._quiet or not changed:
            return
        if self._terminal:
            output.live(list(lines.values()), instead_of=len(self._lines))
        else:
            for text in changed:
                output.progress(text)
        self._lines = lines

    def clear(self) -> None:
        """The result follows: what was written over is not left above it."""
        if self._terminal and self._lines:
            output.live([], instead_of=len(self._lines))


def line(pool: rollout_progress.Progress, *, patient: bool) -> str:
    """One pool in one line."""
    if not pool.rendering:
        return f"{pool.pool}: nobody renders this pool, so that nothing is rolled out"
    if pool.missing:
        return f"{pool.pool}: no credential to hand out yet: {pool.missing}"
    if not pool.rendered:
        return f"{pool.pool}: not rendered with the new credential yet"
    if not pool.nodes:
        return f"{pool.pool}: rendered with the new credential, and without machines"
    text = f"{pool.pool}: {len(pool.have)} of {len(pool.nodes)} machines have the new credential"
    waits = pool.expected if patient else pool.able
    return text + (f"; waits for {_names(waits)}" if waits else "")


def behind(pools: Iterable[rollout_progress.Progress], outside: Iterable[following.Follower] = ()) -> list[str]:
    """Those without it, each with the reason."""
    rows = [(pool.pool, node) for pool in pools if pool.rendered for node in pool.without]
    lines = [f"{node.node} of {name} does not have it: {node.reason}: {node.sentence}" for name, node in rows]
    return lines + [f"{node.node} is not configured: {node.reason}: {node.sentence}" for node in outside]


def _names(nodes: Sequence[following.Follower]) -> str:
    shown = ", ".join(f"{node.node} ({node.reason})" if node.reason else node.node for node in nodes[:_SHOWN])
    return shown + (f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else "")


def pool_document(pool: rollout_progress.Progress, without: Sequence[following.Follower]) -> dict[str, Any]:
    """A pool for machines, and those of it that are without what it is about."""
    return {
        "name": pool.pool,
        "rendering": pool.rendering,
        "state": pool.state,
        "paused": pool.paused,
        "trouble": pool.trouble,
        "credential": pool.kind,
        "rendered": pool.rendered,
        "machines": len(pool.nodes),
        "have": len(pool.nodes) - len(without),
        "behind": [node_document(node) for node in without],
    }


def node_document(node: following.Follower) -> dict[str, str]:
    """A node that is behind, for machines."""
    return {"node": node.node, "rendering": node.rendering, "reason": node.reason, "message": node.sentence}
