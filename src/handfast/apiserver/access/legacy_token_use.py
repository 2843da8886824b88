# SPDX-License-Identifier: Apache-2.0
"""Writes down on which day a service account token that lives in a Secret was last used, so that unused ones can go.

The request that used it does not wait. It judges no token; see `service_account_tokens`. The uses of bootstrap tokens are
counted in `admission.token_limits`.
"""

from __future__ import annotations

import asyncio

import structlog

from handfast import errors
from handfast.api import resources
from handfast.apiserver.state import storage
from handfast.rules.tokens import service_accounts as rules
from handfast.runtime import clock as clocks

_log = structlog.get_logger("handfast.token_use")
_WAITING = 1024


class TokenUse:
    """A bounded queue of Secrets to be labelled; what does not fit is noted at the next use."""

    def __init__(self, store: storage.Storage, clock: clocks.Clock) -> None:
        self._storage = store
        self._clock = clock
        self._kind = resources.SECRETS
        # In the order of their first use; a dict, because many requests come with the same token.
        self._waiting: dict[tuple[str, str], None] = {}
        self._some = asyncio.Event()

    def note(self, namespace: str, name: str) -> None:
        """The token in this Secret was accepted."""
        if len(self._waiting) < _WAITING:
            self._waiting[namespace, name] = None
            self._some.set()

    async def run(self) -> None:
        """Label Secrets for ever; the caller runs it as a task."""
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                place = next(iter(self._waiting))
                try:
                    await self._label(*place)
                except errors.HandfastError as error:
                    # Whatever is wrong with the Secret, one line is enough. The next use tries again.
                    _log.info("the use of a token was not noted", secret="/".join(place), error=str(error))
                del self._waiting[place]

    async def _label(self, namespace: str, name: str) -> None:
        item = await self._storage.find(self._kind, namespace, name)
        if item is None:
            return
        document = item.document()
        labels = document["metadata"].setdefault("labels", {})
        labels[rules.LAST_USED] = f"{self._clock.now():%Y-%m-%d}"
        await self._storage.replace(self._kind, document, item)
