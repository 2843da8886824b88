# SPDX-License-Identifier: Apache-2.0
"""Approves or denies one certificate request, as the caller's own request to the API. It decides nothing by itself.

1. A request that has the opposite condition is refused; one that has the condition already is left as it is.
2. If somebody else writes it at the same time, that is a conflict. It is read and tried again, ten times at most.
3. Whoever has looked at a request before names it by its UID, too: another one of the same name is not decided.

| who | holding | tries | stopped by | shown in tests/unit/client/test_request_decisions.py |
|---|---|---|---|---|
| a holder of a token | the name of a request that somebody reads | have another one approved in its place | 3 | test_another_request_of_the_same_name_is_not_decided |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.api import objects, resources, signing_requests, status
from handfast.client import api

_TRIES: Final = 10
_OPPOSITE: Final = {
    signing_requests.APPROVED: signing_requests.DENIED,
    signing_requests.DENIED: signing_requests.APPROVED,
}


@dataclass(frozen=True, slots=True)
class Deciding:
    """Which condition is written, with which reason and message; `now` gives its time."""

    verdict: str
    reason: str
    message: str
    now: Callable[[], datetime.datetime]

    async def decide(self, client: api.Client, name: str, uid: str = "") -> bool:
        """Whether anything was changed."""
        opposite = _OPPOSITE[self.verdict]
        for _ in range(_TRIES):
            request = await client.view(resources.SIGNING_REQUESTS, name, signing_requests.DECODER)
            # 3. the one that was looked at
            if uid and request.metadata.uid != uid:
                raise errors.Refused(
                    f'certificate signing request "{name}" was deleted, and there is another one of that name',
                    reason="RequestReplaced",
                    hint="look at the new one before you decide",
                )
            # 1. a decision stands
            if request.condition(opposite) is not None:
                raise errors.Refused(
                    f'certificate signing request "{name}" is already {opposite}',
                    reason=f"Already{opposite}",
                    hint="an approval or denial cannot be taken back; create a new request",
                )
            if request.condition(self.verdict) is not None:
                return False
            if await self._written(client, request):
                return True
        raise errors.Unavailable(f'others keep writing certificate request "{name}"', reason="Conflict")

    async def _written(self, client: api.Client, request: signing_requests.Request) -> bool:
        """False: somebody else wrote it in between (2)."""
        now = objects.timestamp(self.now())
        update = request.updated(added=signing_requests.condition(self.verdict, self.reason, self.message, now))
        try:
            await client.replace(
                resources.SIGNING_REQUESTS,
                request.metadata.name,
                update,
                signing_requests.DECODER,
                subresource="approval",
            )
        except status.StatusError as error:
            # 2. somebody else wrote it
            if error.reason != "Conflict":
                raise
            return False
        return True
