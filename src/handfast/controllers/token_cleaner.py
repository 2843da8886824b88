# SPDX-License-Identifier: Apache-2.0
"""Deletes bootstrap tokens at the instant at which they expire.

Each token that expires has a timer of its own in the queue; nothing is polled, and no token is kept in memory. It does
not take signatures out of cluster-info (`bootstrap_signer`), and nobody relies on it: an expired token opens nothing.

When a timer fires, the Secret is looked at again, and deleted only as it was seen, by UID and version:

1. It is of the type of token Secrets, in `kube-system`. Name and data name the same id; any other is nobody's token, and
   is left alone.
2. Its expiration has passed, or cannot be read. One that was put off meanwhile gets a new timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from handfast import errors
from handfast.api import resources
from handfast.bootstrap import tokens
from handfast.client import api, partial, watch
from handfast.controllers import loop
from handfast.runtime import clock as clocks

NAME = "token-cleaner-controller"


class _Data(msgspec.Struct, frozen=True, gc=False):
    expiration: str | None = None


class View(msgspec.Struct, frozen=True, gc=False):
    """A token Secret: when does it expire?"""

    metadata: partial.Meta = partial.Meta()
    data: _Data | None = None


_SOURCE = watch.Source(
    resource=resources.SECRETS,
    view=View,
    scope=api.Scope(namespace=tokens.NAMESPACE, field_selector=f"type={tokens.SECRET_TYPE}"),
)


class Timers:
    """Sets a timer for each token seen that expires; deletions need none."""

    def __init__(self, clock: clocks.Clock, later: Callable[[str, float], None]) -> None:
        self._clock = clock
        self._later = later
        self._synced = asyncio.Event()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def begin(self) -> None:
        """Timers that are set already stay."""

    def put(self, item: View) -> None:
        text = item.data.expiration if item.data is not None else None
        if text:
            data = {tokens.KEY_EXPIRATION: text}
            left = _seconds_left({"metadata": {}, "type": tokens.SECRET_TYPE, "data": data}, self._clock)
            if left is not None:
                self._later(item.metadata.name, left)

    def remove(self, item: partial.Viewed) -> None:
        """The timer finds nothing when it fires."""

    def end(self) -> None:
        self._synced.set()


def _seconds_left(document: object, clock: clocks.Clock) -> float | None:
    """How long the token lasts: nothing where that cannot be read, None where it has no end."""
    try:
        until = tokens.parse_expiration(tokens.read(document).expiration)
    except errors.Refused:
        return 0.0
    return None if until is None else max(0.0, (until - clock.now()).total_seconds())


class TokenCleaner:
    """Handles one Secret, by name."""

    def __init__(self, client: api.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock

    async def reconcile(self, name: str) -> float | None:
        found = await self._client.find(resources.SECRETS, name, namespace=tokens.NAMESPACE)
        # 1.
        if found is None or not _is_token(found, name):
            return None
        # 2.
        left = _seconds_left(found, self._clock)
        if left is None or left > 0:
            return left
        meta = found["metadata"]
        with api.MISSING_OK:
            await self._client.delete(
                resources.SECRETS,
                name,
                namespace=tokens.NAMESPACE,
                uid=meta["uid"],
                resource_version=meta["resourceVersion"],
            )
        return None


def _is_token(document: object, name: str) -> bool:
    try:
        return tokens.parse_secret_name(name) == tokens.read(document).token.id
    except errors.Refused:
        return False


def build(context: loop.Context) -> loop.Controller[str]:
    handler = TokenCleaner(context.client, context.clock)
    controller: loop.Controller[str] = loop.Controller(
        NAME, handler.reconcile, clock=context.clock, workers=2, wall=True
    )
    timers = Timers(context.clock, controller.queue.add_after)
    context.informers.follow(_SOURCE, timers)
    controller.needs(timers)
    return controller
