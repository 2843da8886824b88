# SPDX-License-Identifier: Apache-2.0
"""The nodes and the ledger, as rules keep them, fed by watches. It keeps no object, and judges nothing: `rules.console` does.

An informer would keep the views of every Node, Lease and segment: three kilobytes a node. What is kept here is one.

1. A keeper is what a reflector feeds. It hands each object to the table or the ledger and forgets it. After a list, what was not in it is gone.
2. Nodes are judged in portions while lists come, so that no page waits for ten thousand of them.
3. Whoever listens is told when a page would look different. A Lease that is renewed in time changes nothing, and is not told of.
4. States change with time, too: somebody looks every few seconds whether one has, and tells.
5. An object that no rule can read, and a node that no rule can judge, is left out and counted (`unread`). It ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

from handfast.client import cache, partial
from handfast.console import needs
from handfast.console import unread as unread_module
from handfast.rules.console import ledger as ledger_module
from handfast.rules.console import node_table
from handfast.rules.console import nodes as nodes_module
from handfast.rules.ledger import segments
from handfast.runtime import clock as clocks

V = TypeVar("V", bound=partial.Viewed)
# 2. so many at once take a few milliseconds
_PORTION: Final = 256
# 4. how often somebody looks
_LOOK_SECONDS: Final = 3.0
# 5. what is counted: Nodes as objects, and nodes as they are judged
_NODES: Final = "nodes"
_JUDGED: Final = "nodes, as they stand"


class Keeper(Generic[V]):
    """Takes what a reflector says of one source (1)."""

    def __init__(
        self,
        put: Callable[[V], None],
        remove: Callable[[str], None],
        names: Callable[[], Iterable[str]],
        *,
        plural: str,
        unread: unread_module.Unread,
    ) -> None:
        self._plural = plural
        self._unread = unread
        self._put = put
        self._remove = remove
        self._names = names
        self._unseen: set[str] | None = None
        self.synced = False
        # As an informer's: why the server forbids to follow it now.
        self.refusal = ""
        self.on_answer: Callable[[], None] = lambda: None

    def refused(self, refusal: str) -> None:
        self.refusal = refusal
        self.on_answer()

    def begin(self) -> None:
        self._unseen = set(self._names())

    def put(self, item: V) -> None:
        name = item.metadata.name
        if self._unseen is not None:
            self._unseen.discard(name)
        self._unread.forget(self._plural, "", name)
        try:
            self._put(item)
        except Exception as error:  # noqa: BLE001  5. whatever it is, the others go on
            self._remove(name)
            self._unread.failed(self._plural, "", name, error)

    def remove(self, item: V) -> None:
        self._gone(item.metadata.name)

    def _gone(self, name: str) -> None:
        self._unread.forget(self._plural, "", name)
        self._remove(name)

    def end(self) -> None:
        gone, self._unseen = self._unseen or (), None
        for name in gone:
            self._gone(name)
        self.synced = True
        self.on_answer()


class Fleet:
    """The table of nodes, and the ledger; `changed` is called with the name of a need when something of it looks different."""

    def __init__(self, clock: clocks.Clock, changed: Callable[[str], None], unread: unread_module.Unread) -> None:
        self.table = node_table.Table()
        self.nodes = nodes_module.Nodes(self.table)
        self.ledger = ledger_module.Ledger()
        self._clock = clock
        self._changed = changed
        self._unread = unread
        self._unjudged: set[str] = set()
        self._nodes: Keeper[needs.Labelled] = Keeper(
            self._put_node, self._remove_node, self._node_names, plural=_NODES, unread=unread
        )
        self._leases: Keeper[needs.Lease] = Keeper(
            self._put_lease, self._remove_lease, self._lease_names, plural="leases of nodes", unread=unread
        )
        self._segments: Keeper[needs.Segment] = Keeper(
            self._put_segment, self._remove_segment, self.ledger.names, plural="segments of the ledger", unread=unread
        )
        # By the name of the need.
        self.keepers: dict[str, Keeper[Any]] = {
            needs.NODES.name: self._nodes,
            needs.LEASES.name: self._leases,
            needs.LEDGER.name: self._segments,
        }
        for keeper in self.keepers.values():
            keeper.on_answer = self._answered
        self.table.set_read(leases=False, ledger=False)

    def follow(self, requests: cache.Informer[Any], revocations: cache.Informer[Any]) -> None:
        """Take in what informers have that others need, too."""
        requests.subscribe(self._request_changed)
        revocations.subscribe(self._revocation_changed)

    async def run(self) -> None:
        """Never returns (4)."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Whether a state has changed with time."""
        version = self.table.version
        self.table.settle(self._clock.now())
        self._count_unjudged()
        if self.table.version != version:
            self._changed(needs.NODES.name)

    def _count_unjudged(self) -> None:
        # 5. nodes that cannot be judged, by now
        failures = self.table.failures
        for name in self._unjudged - failures.keys():
            self._unread.forget(_JUDGED, "", name)
        for name, error in failures.items():
            self._unread.failed(_JUDGED, "", name, error)
        self._unjudged = set(failures)

    def _answered(self) -> None:
        # What is not read yet, or is forbidden, is no trouble of a node. An API server without a ledger has none of its segments.
        ledger = self._segments.synced and not self._segments.refusal and self.ledger.segment_count > 0
        self.table.set_read(leases=self._leases.synced and not self._leases.refusal, ledger=ledger)
        self._settle(needs.NODES.name)

    # --- what comes

    def _put_node(self, item: needs.Labelled) -> None:
        self.table.put_node(item.metadata.name, item.metadata.labels or {})
        self._settle(needs.NODES.name)

    def _remove_node(self, name: str) -> None:
        self.table.remove_node(name)
        self._settle(needs.NODES.name)

    def _node_names(self) -> Iterable[str]:
        return (record.name for record in self.table if record.registered)

    def _put_lease(self, item: needs.Lease) -> None:
        marked = self.table.marked
        self.table.put_lease(item.metadata.name, item.spec.renew_time, item.spec.lease_duration_seconds)
        # 3. in time it is not told of
        if self.table.marked != marked:
            self._settle(needs.LEASES.name)

    def _remove_lease(self, name: str) -> None:
        self.table.remove_lease(name)
        self._settle(needs.LEASES.name)

    def _lease_names(self) -> Iterable[str]:
        return (record.name for record in self.table if record.renewed)

    def _put_segment(self, item: needs.Segment) -> None:
        spec = item.spec
        segment = segments.Segment(
            sequence=spec.sequence,
            previous=spec.previous,
            entries=spec.entries,
            sealed=spec.sealed,
            hash=spec.hash,
            chain=spec.chain,
        )
        self.table.put_lines(self.ledger.put(segment))
        if not self.table.ledger_read:
            self._answered()
        self._settle(needs.LEDGER.name)

    def _remove_segment(self, name: str) -> None:
        self.ledger.remove(name)
        self.table.remove_segment(name)
        self._settle(needs.LEDGER.name)

    def _request_changed(self, old: Any, new: Any) -> None:
        if new is None:
            self.table.remove_request(old.metadata.name)
        else:
            self.table.put_request(new.document())

    def _revocation_changed(self, old: Any, new: Any) -> None:
        if new is None:
            self.table.remove_revocation(old.metadata.name)
        else:
            self.table.put_revocation(msgspec.to_builtins(new))

    def _settle(self, need: str) -> None:
        # 2. in portions
        if self.table.marked >= _PORTION:
            self.table.settle(self._clock.now())
        self._changed(need)
