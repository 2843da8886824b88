# SPDX-License-Identifier: Apache-2.0
"""The Revocations, followed: whom one of them refuses at this instant. `rules.revocation` decides.

It refuses nobody itself. Where the API server is another there may be no such kind, and nobody is revoked: it is optional.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import msgspec

from handfast.api import handfast_kinds
from handfast.client import cache, partial, watch
from handfast.controllers import loop
from handfast.rules import revocation


class Revocation(msgspec.Struct, frozen=True, gc=False):
    """All of it: there are few."""

    metadata: partial.Meta = partial.Meta()
    spec: dict[str, Any] = {}


SOURCE = watch.Source(resource=handfast_kinds.REVOCATION, view=Revocation, optional=True)


class Revoked:
    """The index of a process; `told` is called when one of them comes, changes or goes."""

    def __init__(self, informer: cache.Informer[Revocation], told: Callable[[], None] = lambda: None) -> None:
        self.index = revocation.Index()
        self._informer = informer
        self._told = told
        informer.subscribe(self._changed)

    async def wait_synced(self) -> None:
        await self._informer.wait_synced()

    def next_end(self, node: str, now: datetime.datetime) -> float | None:
        """In how many seconds the Revocation of a node ends by itself; None: not by itself, or it has none."""
        found = self.index.of_node(node, now)
        return None if found is None or found.expires is None else (found.expires - now).total_seconds()

    def _changed(self, _old: Revocation | None, new: Revocation | None) -> None:
        if new is None:
            self.index.remove((_old or Revocation()).metadata.name)
        else:
            self.index.add(revocation.read(msgspec.to_builtins(new)))
        self._told()


def follow(context: loop.Context, told: Callable[[], None] = lambda: None) -> Revoked:
    """The Revocations of this process's watch, which all its controllers share."""
    return Revoked(context.informers.get(SOURCE), told)
