# SPDX-License-Identifier: Apache-2.0
"""The requests that wait in the names of Machines, so that of several keys the first one stands first.

`rules.machines.rivals` decides which that is. It judges and approves nothing.

1. Every open request for a kubelet's client certificate is known by the name of its node, also one that was not judged yet: after a
   start they are judged in any order. What is inside is read when somebody asks for rivals, a few at a time.
2. The version at which each was seen first is remembered: later ones say when it was written on last.
3. Which request stands first for a Machine is remembered, too. A thousand requests in one name are not all compared with each
   other.
4. Whoever subscribes is told the names of the Machine when that one is gone, denied or approved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from handfast import errors
from handfast.api import objects, signer_names, signing_requests
from handfast.client import machine_requests
from handfast.controllers.certificates import requests as certificate_requests
from handfast.rules.certificates import kubelet
from handfast.rules.machines import inventory, revocation, rivals
from handfast.runtime import clock as clocks

# 1. so many are read in one turn, which takes about 10 ms
_AT_ONCE: Final = 50


class Rivals:
    """The open requests by the names of their nodes."""

    def __init__(self, requests: certificate_requests.Requests, clock: clocks.Clock) -> None:
        self._requests = requests
        self._clock = clock
        # 2. UID and version of each, as it was seen first
        self._seen: dict[str, tuple[str, int]] = {}
        # 1. those that were not read yet, and the nodes of the others
        self._unread: dict[str, None] = {}
        self._node_of: dict[str, inventory.Canonical] = {}
        self._names: dict[inventory.Canonical, set[str]] = {}
        # 3. who stands first for which Machine
        self._first: dict[inventory.Key, str] = {}
        self._leads: dict[str, inventory.Machine] = {}
        self._subscribers: list[Callable[[inventory.Canonical], None]] = []
        requests.subscribe(self._changed, self.gone)

    def subscribe(self, changed: Callable[[inventory.Canonical], None]) -> None:
        """Call `changed` with each node name whose requests are to be judged again (4.)."""
        self._subscribers.append(changed)

    async def before(
        self,
        item: signing_requests.Request,
        machine: inventory.Machine,
        counts: Callable[[rivals.Asking], bool],
    ) -> rivals.Asking | None:
        """The request that this one waits for; `counts`: that would be approved if it were alone."""
        await self._read()
        mine = self._asking(item)
        known = self._requests.get(self._first.get(machine.key, ""))
        # 3. mostly the one that is known
        leader = None if known is None else self._asking(known)
        if leader is not None and rivals.keeps_waiting(leader, mine, machine, counts):
            return leader
        others = (each for each in self._others(machine) if each.facts.name != mine.facts.name)
        older = rivals.first(mine, others, machine, counts)
        self._lead(machine, mine if older is None else older)
        return older

    def gone(self, name: str) -> None:
        """The request was deleted, or waits no more."""
        self._seen.pop(name, None)
        self._unread.pop(name, None)
        node = self._node_of.pop(name, None)
        if node is not None:
            self._names[node].discard(name)
            if not self._names[node]:
                del self._names[node]
        machine = self._leads.pop(name, None)
        if machine is not None and self._first.get(machine.key) == name:
            del self._first[machine.key]
            # 4. somebody else may stand first now
            for each in machine.values(inventory.INTERNAL_DNS):
                for changed in self._subscribers:
                    changed(each)

    def _changed(self, item: signing_requests.Request) -> None:
        name, meta = item.metadata.name, item.metadata
        is_pending = revocation.is_pending(item)
        seen = self._seen.get(name)
        if seen is not None and (not is_pending or seen[0] != meta.uid):
            self.gone(name)
        if is_pending and item.spec.signer_name == signer_names.KUBELET_CLIENT and name not in self._seen:
            self._seen[name] = (meta.uid, certificate_requests.number(meta.resource_version))
            self._unread[name] = None

    async def _read(self) -> None:
        # 1. a few at a time
        count = 0
        while self._unread:
            name, _ = self._unread.popitem()
            self._read_one(name)
            count += 1
            if count % _AT_ONCE == 0:
                await self._clock.sleep(0)

    def _read_one(self, name: str) -> None:
        item = self._requests.get(name)
        if item is None:
            return
        try:
            text = self._requests.facts(item).node_name
        except errors.Refused:
            return
        if objects.dns_subdomain(text) is not None:
            # Nobody can approve it, and its name may be long.
            return
        node = kubelet.canonical(text)
        self._node_of[name] = node
        self._names.setdefault(node, set()).add(name)

    def _others(self, machine: inventory.Machine) -> Iterator[rivals.Asking]:
        for node in machine.values(inventory.INTERNAL_DNS):
            for name in self._names.get(node, ()):
                item = self._requests.get(name)
                if item is not None:
                    yield self._asking(item)

    def _asking(self, item: signing_requests.Request) -> rivals.Asking:
        latest = (item.metadata.uid, certificate_requests.number(item.metadata.resource_version))
        _, version = self._seen.get(item.metadata.name, latest)
        return rivals.Asking(self._requests.facts(item), machine_requests.created(item), version)

    def _lead(self, machine: inventory.Machine, asking: rivals.Asking) -> None:
        self._leads.pop(self._first.get(machine.key, ""), None)
        self._first[machine.key] = asking.facts.name
        self._leads[asking.facts.name] = machine
