# SPDX-License-Identifier: Apache-2.0
"""Small typed views of objects: what is decoded from a list or a watch, and nothing else.

A follower of many objects declares a struct with the few fields it acts upon; everything else on the wire is skipped
without ever becoming a Python object. Nothing here checks what the server has checked already. Optional lists and
maps may be null: one odd object must not end the watch of a whole kind.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

Key = tuple[str, str]


class OwnerReference(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Who an object belongs to."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Meta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The metadata nearly everyone needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None

    @property
    def key(self) -> Key:
        """Namespace and name; the namespace of a cluster-scoped object is empty."""
        return (self.namespace, self.name)


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
