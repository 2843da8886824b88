# SPDX-License-Identifier: Apache-2.0
"""One process of controllers: starts them for each term of leadership, makes them anew, and says whether it is ready.

Which controllers there are is not known here: `assembly.controllers` hands over how to build them.

The role is ready when every controller has seen what there is, the API server answers (`client.hearing`), and no list or watch is
forbidden.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from handfast.client import api, cache
from handfast.controllers import leader, loop
from handfast.rules import controller_rights
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

Build = Callable[[loop.Context], loop.Controller[Any]]

_log = structlog.get_logger("handfast.controllers")

_DRAIN_SECONDS = 5.0


class Role:
    """One process of controllers; started anew for each term of leadership, and when what they are made from changes."""

    def __init__(self, client: api.Client, clock: clocks.Clock, builds: Callable[[], Sequence[Build]]) -> None:
        self._client = client
        self._clock = clock
        self._builds = builds
        self._controllers: Sequence[loop.Controller[Any]] = ()
        self._informers: cache.Informers | None = None
        self.lock: leader.Lock | None = None
        self._group: tasks.Group | None = None
        self._anew = False

    def remake(self) -> None:
        """Make the controllers anew; what they are made from must be readable, else this raises and they stay."""
        self._builds()
        if self._group is not None:
            self._anew = True
            self._group.end()

    async def work(self) -> None:
        """Run every controller until cancelled; a watch left over from an earlier term would only cost memory."""
        self._anew = True
        while self._anew:
            self._anew = False
            await self._term()

    async def _term(self) -> None:
        informers = cache.Informers(self._client, self._clock)
        context = loop.Context(client=self._client, informers=informers, clock=self._clock)
        controllers = [build(context) for build in self._builds()]
        self._controllers, self._informers = controllers, informers
        try:
            async with tasks.Group("controllers") as group:
                self._group = group
                informers.start(group)
                for controller in controllers:
                    group.start(controller.run(), name=controller.name)
                _log.info("controllers started", count=len(controllers))
                _log.debug("these controllers run", controllers=[controller.name for controller in controllers])
                await group.wait()
        finally:
            self._controllers, self._informers, self._group = (), None, None

    def not_ready(self) -> str | None:
        """What keeps the role from being ready; one that waits for its turn is ready."""
        if self.lock is not None and not self.lock.leading:
            trouble = self.lock.trouble
            return None if trouble is None else f"the lease cannot be taken: {trouble.reason}: {trouble.message}"
        waiting = [controller.name for controller in self._controllers if not controller.ready]
        if self._informers is None:
            return "not synced: nothing has started"
        troubles = [f"not synced: {', '.join(waiting)}"] if waiting else []
        if forbidden := self._informers.missing_rights():
            troubles.append(forbidden)
        return "; ".join(troubles) or None

    async def take_turns(self) -> None:
        """Run the controllers whenever this process holds the Lease, until cancelled."""
        identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
        lock = leader.Lock(self._client, self._clock, name=controller_rights.LEASE, identity=identity)
        self.lock = lock
        try:
            await lock.run(self.work)
        finally:
            async with tasks.deadline(_DRAIN_SECONDS):
                await lock.release()
