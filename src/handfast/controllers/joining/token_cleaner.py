# SPDX-License-Identifier: Apache-2.0
"""Deletes bootstrap tokens at the instant at which they expire.

Each token that expires has a timer (`timed`). It does not take signatures out of cluster-info (`bootstrap_signer`). Nobody relies
on it: an expired token is refused anyway.

When a timer fires, the Secret is looked at again, and deleted only as it was seen, by UID and version:

1. It is of the type of token Secrets, in `kube-system`. Name and data name the same id; any other is nobody's token, and
   is left alone.
2. Its expiration has passed, or cannot be read. One that was put off meanwhile gets a new timer.
"""

from __future__ import annotations

import datetime

import msgspec

from handfast import errors
from handfast.api import resources
from handfast.bootstrap import tokens
from handfast.client import api, partial, timers, watch
from handfast.controllers import loop, timed
from handfast.runtime import clock as clocks

NAME = "token-cleaner-controller"


class _Data(msgspec.Struct, frozen=True, gc=False):
    expiration: str | None = None


class View(msgspec.Struct, frozen=True, gc=False):
    """A token Secret: when does it expire?"""

    metadata: partial.Meta = partial.Meta()
    data: _Data | None = None

    def due(self) -> datetime.datetime | None:
        """See `_due`."""
        text = self.data.expiration if self.data is not None else None
        if not text:
            return None
        return _due({"metadata": {}, "type": tokens.SECRET_TYPE, "data": {tokens.KEY_EXPIRATION: text}})


_SOURCE = watch.Source(
    resource=resources.SECRETS,
    view=View,
    scope=api.Scope(namespace=tokens.NAMESPACE, field_selector=f"type={tokens.SECRET_TYPE}"),
)


def _due(document: object) -> datetime.datetime | None:
    """When the token expires: at once where that cannot be read, None where it has no end."""
    try:
        return tokens.parse_expiration(tokens.read(document).expiration)
    except errors.Refused:
        return timers.AT_ONCE


class TokenCleaner:
    """Handles one Secret, by name."""

    def __init__(self, client: api.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock

    async def reconcile(self, name: str) -> datetime.datetime | None:
        secret = await self._client.find(resources.SECRETS, name, namespace=tokens.NAMESPACE)
        # 1. it is a token
        if secret is None or not _is_token(secret, name):
            return None
        # 2. its time has come
        due = _due(secret)
        if due is None or due > self._clock.now():
            return due
        meta = secret["metadata"]
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
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock, workers=2)
    timed.follow(context, controller, _SOURCE, lambda item: item.metadata.name, View.due)
    return controller
