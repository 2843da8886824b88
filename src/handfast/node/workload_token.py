# SPDX-License-Identifier: Apache-2.0
"""The token of a workload's proxy, as a kubelet keeps it: a file that is replaced in time. Which token that is, `rules.mesh.workload_pod` says.

1. The file has a whole token, and is for this user alone.
2. The next one is asked for long before this one ends. Where the API server is away, or refuses, the old one stays, and it is asked for again.
"""

from __future__ import annotations

import datetime
import pathlib
from typing import Final

import structlog

from handfast import errors
from handfast.api import objects
from handfast.client import account_tokens
from handfast.node import workload_pods
from handfast.rules.mesh import workload_pod
from handfast.runtime import backoff, files
from handfast.runtime import clock as clocks

# Of a token's life, after which the next one is asked for.
_RENEW_AT: Final = 0.8
_LONGEST_SLEEP: Final = 60.0
_RETRY: Final = backoff.Schedule(initial=1.0, cap=30.0)
_log = structlog.get_logger("handfast.workload")


class TokenFile:
    """The token of one Pod, in a file."""

    def __init__(
        self,
        pods: workload_pods.Pods,
        pod: objects.Document,
        projected: workload_pod.ProjectedToken,
        path: pathlib.Path,
        clock: clocks.Clock,
    ) -> None:
        self._pods = pods
        self._pod = pod
        self._projected = projected
        self._path = path
        self._clock = clock

    async def write(self) -> account_tokens.Token:
        """Ask for a token, and put it there."""
        token = await self._pods.token(self._pod, self._projected)
        # 1. whole, and this user's
        files.write_atomically(self._path, token.text.encode("ascii"), mode=0o400)
        return token

    async def keep(self, token: account_tokens.Token) -> None:
        """Replace it in time, until cancelled."""
        while True:
            now = self._clock.now()
            await self._sleep_until(now + (token.expires - now) * _RENEW_AT)
            token = await self._next()

    async def _next(self) -> account_tokens.Token:
        delays = backoff.Backoff(_RETRY)
        while True:
            try:
                await self._pods.refresh()
                return await self.write()
            except (errors.Refused, errors.Unavailable) as error:
                # 2. the old one stays
                title = workload_pod.title(self._pod)
                _log.warning("no new token", pod=title, reason=error.reason, error=error.message)
                await self._clock.sleep(next(delays))

    async def _sleep_until(self, instant: datetime.datetime) -> None:
        # In steps: a machine that was suspended is late already.
        while (seconds := (instant - self._clock.now()).total_seconds()) > 0:
            await self._clock.sleep(min(seconds, _LONGEST_SLEEP))
