# SPDX-License-Identifier: Apache-2.0
"""The Machines that the operator knows, followed, in one index for all of a process.

It decides nothing and writes nothing: `rules.machines.inventory` says what a Machine is found by and which of two counts.

1. Each group is followed in one version, the one that the server prefers of those that can be read. A group that the server
   does not have has no Machines; it is asked for again every half minute, so that definitions may be applied later.
2. Where Machines may not be read, those that were known stay, and of others nothing is known. `refusals` says so as long as it
   lasts, and whoever decides by them waits.
3. Machines may be on another cluster than the requests and the Nodes: the management cluster. `client` reaches it.
4. Who subscribes is told after the index has changed, first of all that there is.
5. One facts object a Machine is kept, and no document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.client import api, cache, partial, watch
from handfast.rules.machines import group_versions, inventory

# 1. how soon definitions that were applied later count
_WITHOUT_SECONDS: Final = 30.0

Changed = Callable[[inventory.Machine | None, inventory.Machine | None], None]


class _Meta(partial.LabelledMeta, frozen=True, gc=False):
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Address(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    address: str = ""


class _NodeRef(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    uid: str = ""


class _NodeMeta(msgspec.Struct, frozen=True, gc=False):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False):
    provider_id: str | None = msgspec.field(name="providerID", default=None)
    metadata: _NodeMeta | None = None
    taints: list[dict[str, Any]] | None = None


class _Status(msgspec.Struct, rename="camel", frozen=True, gc=False):
    addresses: list[_Address] | None = None
    node_ref: _NodeRef | None = None
    phase: str | None = None
    authoritative_api: str | None = msgspec.field(name="authoritativeAPI", default=None)


class View(msgspec.Struct, frozen=True, gc=False):
    """A Machine of any group, as far as its facts go."""

    metadata: _Meta = _Meta()
    spec: _Spec | None = None
    status: _Status | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which Machines: of which groups, in which namespace (empty: in all), and where they are, if not where the Nodes are (3)."""

    groups: tuple[group_versions.GroupVersions, ...] = group_versions.DEFAULT
    namespace: str = ""
    client: api.Client | None = None


DEFAULT: Final = Options()


class Inventory:
    """The followed Machines."""

    def __init__(self, client: api.Client) -> None:
        self.index = inventory.Index()
        # 3. where Machines are read and written
        self.client = client
        self._subscribers: list[Changed] = []
        self._groups: dict[str, _Group] = {}

    def subscribe(self, changed: Changed) -> None:
        """Call `changed(old, new)` on every change: old is None for an addition, new is None for a deletion (4)."""
        self._subscribers.append(changed)
        for machine in self.index:
            changed(None, machine)

    async def wait_answered(self) -> None:
        """Until every group was listed, is known to be absent, or was forbidden."""
        for group in self._groups.values():
            await group.answered.wait()

    @property
    def answered(self) -> bool:
        """Whether every group was listed, is known to be absent, or was forbidden."""
        return all(group.answered.is_set() for group in self._groups.values())

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why Machines cannot be read now, in the server's words; empty while they can (2)."""
        return tuple(group.refusal for group in self._groups.values() if group.refusal)

    def resource(self, machine: inventory.Machine) -> api.Addressable:
        """Where this Machine is written, on `client`: in the version that it is followed in."""
        following = self._groups[machine.group].following
        if following is None:
            raise errors.Misuse(f"{machine.title} is not followed")
        return following.resource

    def follow(self, informers: cache.Informers, row: group_versions.GroupVersions, namespace: str) -> None:
        """Take in the Machines of a group from now on."""
        source = watch.Source(
            resource=api.Resource(row.group, row.versions[0], group_versions.PLURAL, True),
            view=View,
            scope=api.Scope(namespace=namespace),
            if_served=True,
            without_seconds=_WITHOUT_SECONDS,
            versions=row.versions if len(row.versions) > 1 else (),
        )
        group = self._groups[row.group] = _Group(row.group, self.index, self._tell)
        group.following = informers.follow(source, group, group.refused)

    def _tell(self, old: inventory.Machine | None, new: inventory.Machine | None) -> None:
        for changed in self._subscribers:
            changed(old, new)


class _Group:
    """The Machines of one group, as a reflector tells of them."""

    def __init__(self, group: str, index: inventory.Index, changed: Changed) -> None:
        self.following: cache.Following | None = None
        self.refusal = ""
        self.answered = asyncio.Event()
        self._group = group
        self._index = index
        self._changed = changed
        self._here: set[inventory.Key] = set()
        self._unseen: set[inventory.Key] | None = None

    def refused(self, refusal: str) -> None:
        self.refusal = refusal
        self.answered.set()

    def begin(self) -> None:
        self._unseen = set(self._here)

    def put(self, item: View) -> None:
        key = self._key(item)
        if self._unseen is not None:
            self._unseen.discard(key)
        old = self._index.get(key)
        if old is not None and old.version == item.metadata.resource_version:
            return
        machine = inventory.read({"apiVersion": f"{self._group}/", **msgspec.to_builtins(item)})
        self._here.add(key)
        self._index.put(machine)
        self._changed(old, machine)

    def remove(self, item: View) -> None:
        self._gone(self._key(item))

    def end(self) -> None:
        gone, self._unseen = self._unseen or (), None
        for key in sorted(gone):
            self._gone(key)
        self.answered.set()

    def _gone(self, key: inventory.Key) -> None:
        old = self._index.get(key)
        self._here.discard(key)
        self._index.remove(key)
        if old is not None:
            self._changed(old, None)

    def _key(self, item: View) -> inventory.Key:
        return (self._group, item.metadata.namespace, item.metadata.name)


def follow(client: api.Client, informers: cache.Informers, options: Options = DEFAULT) -> Inventory:
    """The Machines of a process, which all that follow them share."""

    def build() -> Inventory:
        there = informers if options.client is None else informers.beside(options.client)
        known = Inventory(options.client or client)
        for row in options.groups:
            known.follow(there, row, options.namespace)
        return known

    return informers.shared((Inventory, options), build)
