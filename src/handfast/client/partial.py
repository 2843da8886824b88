# SPDX-License-Identifier: Apache-2.0
"""Small typed views of objects: what is decoded from a list or a watch, and nothing else.

A follower of many objects declares a struct with the few fields it acts upon; everything else on the wire is skipped
without ever becoming a Python object. Nothing here checks what the server has checked already. Optional lists and
maps may be null. An object that does not fit its view all the same is told of once (`Oddities`) and skipped: it must
not end the watch of a whole kind.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import structlog

from handfast.api import metadata
from handfast.client import memory

_log = structlog.get_logger("handfast.client")
_REMEMBERED = 1024

Key = metadata.Key
Meta = metadata.Meta


class OwnerReference(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Who an object belongs to."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class OwnedMeta(Meta, frozen=True, gc=False):
    """… and what decides about an object's end."""

    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class LabelledMeta(Meta, frozen=True, gc=False):
    """… and what selectors look at."""

    labels: dict[str, str] | None = None


class Viewed(Protocol):
    """Any view: it has metadata."""

    @property
    def metadata(self) -> Meta: ...


class Partial(msgspec.Struct, frozen=True, gc=False):
    """An object of which only identity and version matter."""

    metadata: Meta = Meta()


class OwnedPartial(msgspec.Struct, frozen=True, gc=False):
    """An object as the garbage collector sees it."""

    metadata: OwnedMeta = OwnedMeta()


class _AnyMeta(msgspec.Struct, rename="camel", gc=False):
    name: object = None
    namespace: object = None
    uid: object = None
    resource_version: object = None


class _AnyObject(msgspec.Struct, gc=False):
    metadata: _AnyMeta = msgspec.field(default_factory=_AnyMeta)


_any_objects = msgspec.json.Decoder(_AnyObject)
# What decoding may raise: its own errors, and those for octets that are no text, and for depth.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def identify(body: bytes | msgspec.Raw) -> Partial:
    """Who an object is that does not fit its view, as far as it tells; what it does not tell is empty."""
    try:
        meta = _any_objects.decode(body).metadata
    except UNREADABLE:
        return Partial()
    words = (meta.name, meta.namespace, meta.uid, meta.resource_version)
    return Partial(Meta(*(word if isinstance(word, str) else "" for word in words)))


class Oddities:
    """Which objects were skipped: each is told of once, and the oldest of many are forgotten."""

    def __init__(self, size: int = _REMEMBERED) -> None:
        self._reported = memory.Memory(size)

    def skip(self, plural: str, item: Partial, error: Exception) -> None:
        """Warn of an object that is not seen, unless that was done."""
        meta = item.metadata
        key = (plural, meta.namespace, meta.name)
        if key in self._reported:
            return
        self._reported.add(key)
        _log.warning(
            "an object cannot be decoded and is skipped",
            resource=plural,
            namespace=meta.namespace,
            name=meta.name,
            error=str(error),
        )
