# SPDX-License-Identifier: Apache-2.0
"""Keeps the tokens of the mesh's services fresh while `up` runs. A child asks for them: see `client.account_tokens`.

Each service logs in with a token of its own account, which lives for an hour.

1. They are renewed when half of their life is over, by the clock on the wall. That is looked at often: a machine that slept, or a clock that
   was set, is noticed within seconds. A clock that was set back makes tokens that are not good yet, so that they are renewed, too.
2. Where they cannot be renewed, as while the API server is down, that is told, and tried again after a growing pause. The old ones stay.
3. A service that stays unready may hold a token that no longer counts, as when its account was made anew. Then they are renewed early,
   each time after a longer wait, since the cause may be another.

It loads no HTTP and no crypto library, as everything in the supervisor.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from handfast import errors
from handfast.runtime import backoff, children
from handfast.runtime import clock as clocks

_LOOK: Final = 5.0
# As much as a clock may go back before its tokens count as made in the future.
_SET_BACK: Final = datetime.timedelta(seconds=30)
_NOT_RENEWED: Final = "the tokens of the mesh's services were not renewed"


@dataclass(slots=True)
class Accounts:
    """The tokens of one start; `healthy` tells whether every service that has one is ready."""

    role: children.Role
    tell: Callable[..., None]
    healthy: Callable[[], Awaitable[bool]]
    clock: clocks.Clock = field(default_factory=clocks.SystemClock)
    _made: datetime.datetime | None = None
    _due: datetime.datetime | None = None
    _failures: backoff.Backoff = field(default_factory=lambda: backoff.Backoff(backoff.Schedule(initial=2.0, cap=60.0)))
    _doubts: backoff.Backoff = field(
        default_factory=lambda: backoff.Backoff(backoff.Schedule(initial=15.0, cap=1800.0))
    )
    # Until when a service that is not ready is waited for.
    _patience: float | None = None

    async def renew(self) -> None:
        """Ask for tokens now; a failure is told (2)."""
        now = self.clock.now()
        try:
            answer: dict[str, Any] = json.loads(await children.run_once(self.role))
        except errors.HandfastError as error:
            # 2. told, and tried again
            self._due = now + datetime.timedelta(seconds=next(self._failures))
            self.tell("warning", f"{_NOT_RENEWED}: {error.message}", reason=error.reason)
            return
        self._failures.reset()
        self._made = now
        # 1. when half of their life is over
        self._due = now + datetime.timedelta(seconds=float(answer["seconds"]) / 2)

    async def run(self) -> None:
        """Look after them, until cancelled."""
        while True:
            await self.clock.sleep(_LOOK)
            if self._is_due(self.clock.now()) or await self._is_doubtful():
                await self.renew()

    def _is_due(self, now: datetime.datetime) -> bool:
        # 1. late, or set back
        is_late = self._due is None or now >= self._due
        return is_late or (self._made is not None and now < self._made - _SET_BACK)

    async def _is_doubtful(self) -> bool:
        """Whether a service has been unready for so long that its token may be why (3)."""
        if await self.healthy():
            self._doubts.reset()
            self._patience = None
            return False
        now = self.clock.monotonic()
        if self._patience is None:
            self._patience = now + next(self._doubts)
        if now < self._patience:
            return False
        self._patience = None
        return True
