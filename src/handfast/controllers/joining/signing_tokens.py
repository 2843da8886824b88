# SPDX-License-Identifier: Apache-2.0
"""Follows the Secrets that hold bootstrap tokens: those that sign are kept, and those that are no use are told of.

Of the tokens only those that sign are kept in memory, and of these only what signing needs. A Secret with a fault
(`token_secrets.fault`) signs nothing: a signature by the secret half `0123` could be guessed in an instant. Of Secrets that have the
type but lie elsewhere, or have the name but not the type, only metadata is asked for. It signs nothing and writes
nothing: what is to be told waits in `Complaints` for whoever can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from handfast import errors
from handfast.api import objects, resources
from handfast.bootstrap import cluster_info, token_secrets, tokens
from handfast.client import api, events, partial, watch

SECRET_FAULT = "secret"  # noqa: S105 - a topic
STRAY_FAULT = "stray"
ROOM_FAULT = "room"


class View(msgspec.Struct, frozen=True, gc=False):
    """A token Secret, whole."""

    metadata: partial.Meta = partial.Meta()
    type: str = ""
    data: dict[str, str | None] | None = None


TOKENS = watch.Source(
    resource=resources.SECRETS,
    view=View,
    scope=api.Scope(namespace=tokens.NAMESPACE, field_selector=f"type={tokens.SECRET_TYPE}"),
)
OF_ANOTHER_TYPE = watch.Source(
    resource=resources.SECRETS,
    view=partial.Partial,
    scope=api.Scope(namespace=tokens.NAMESPACE, field_selector=f"type!={tokens.SECRET_TYPE}"),
    metadata=True,
)
# It takes the right to read every Secret of a cluster, which a signer is better without (`rules.controller_rights`).
ELSEWHERE = watch.Source(
    resource=resources.SECRETS,
    view=partial.Partial,
    scope=api.Scope(field_selector=f"type={tokens.SECRET_TYPE},metadata.namespace!={tokens.NAMESPACE}"),
    metadata=True,
    optional=True,
)


class Complaints:
    """What is to be told of Secrets: each fault once, as long as this process lives and the Secret does not change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._reported: dict[tuple[str, partial.Key], tuple[str, token_secrets.Fault]] = {}
        self._waiting: dict[tuple[str, partial.Key], tuple[events.Regarding, token_secrets.Fault]] = {}

    def note(self, topic: str, meta: partial.Meta, fault: token_secrets.Fault | None) -> None:
        """This is what is wrong with the Secret, as far as the topic goes; None: nothing."""
        at = (topic, meta.key)
        if fault is None:
            self._reported.pop(at, None)
            self._waiting.pop(at, None)
        elif self._reported.get(at) != (meta.uid, fault):
            self._reported[at] = (meta.uid, fault)
            self._waiting[at] = (_regarding(meta), fault)
            self._changed()

    def next(self) -> tuple[events.Regarding, token_secrets.Fault] | None:
        """One that is to be told now."""
        return self._waiting.pop(next(iter(self._waiting))) if self._waiting else None


def _regarding(meta: partial.Meta) -> events.Regarding:
    return events.Regarding(
        api_version="v1",
        kind="Secret",
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


class _Held(msgspec.Struct, frozen=True):
    meta: partial.Meta
    token: cluster_info.SigningToken


class Tokens:
    """The tokens that sign, by the name of their Secret; the sink of the watch on token Secrets."""

    def __init__(self, complaints: Complaints, changed: Callable[[], None]) -> None:
        self._complaints = complaints
        self._changed = changed
        self._held: dict[str, _Held] = {}
        self._known: dict[partial.Key, partial.Meta] = {}
        self._unseen: dict[partial.Key, partial.Meta] = {}
        self._synced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held)

    def signing(self) -> list[cluster_info.SigningToken]:
        """Those that have expired included."""
        return [held.token for held in self._held.values()]

    def meta(self, token_id: str) -> partial.Meta | None:
        held = self._held.get(tokens.secret_name(token_id))
        return None if held is None else held.meta

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def begin(self) -> None:
        self._unseen = dict(self._known)

    def put(self, item: View) -> None:
        meta = item.metadata
        self._unseen.pop(meta.key, None)
        document: objects.Document = {
            "metadata": {"name": meta.name, "namespace": meta.namespace, "deletionTimestamp": meta.deletion_timestamp},
            "type": item.type,
            "data": item.data,
        }
        fault = token_secrets.fault(document)
        # Nobody can present a token whose Secret is malformed; a signature by it would only help who guesses.
        token = _signing(document) if fault is None else None
        if fault is None and token is None:
            self._known.pop(meta.key, None)
        else:
            self._known[meta.key] = meta
        self._complaints.note(SECRET_FAULT, meta, fault)
        self._hold(meta.name, None if token is None else _Held(meta, token))

    def remove(self, item: partial.Viewed) -> None:
        meta = item.metadata
        self._known.pop(meta.key, None)
        for topic in (SECRET_FAULT, ROOM_FAULT):
            self._complaints.note(topic, meta, None)
        self._hold(meta.name, None)

    def end(self) -> None:
        for meta in tuple(self._unseen.values()):
            self.remove(partial.Partial(meta))
        self._unseen = {}
        self._synced.set()
        self._changed()

    def _hold(self, name: str, held: _Held | None) -> None:
        old = self._held.pop(name, None)
        if held is not None:
            self._held[name] = held
        if (None if old is None else old.token) != (None if held is None else held.token):
            self._changed()


def _signing(document: objects.Document) -> cluster_info.SigningToken | None:
    try:
        return cluster_info.signing_token(tokens.read(document))
    except errors.Refused:
        return None


class Strays:
    """The sink of a watch on Secrets that are no tokens, for those of them that `are_meant` to be, by their names."""

    def __init__(
        self, complaints: Complaints, fault: token_secrets.Fault, are_meant: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._complaints = complaints
        self._fault = fault
        self._are_meant = are_meant

    def begin(self) -> None:
        """What was told stays told."""

    def put(self, item: partial.Partial) -> None:
        if self._are_meant(item.metadata.name):
            self._complaints.note(STRAY_FAULT, item.metadata, self._fault)

    def remove(self, item: partial.Viewed) -> None:
        self._complaints.note(STRAY_FAULT, item.metadata, None)

    def end(self) -> None:
        """Nobody waits for this one."""
