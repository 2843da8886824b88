# SPDX-License-Identifier: Apache-2.0
"""Every node, judged as `handfast node list` judges it, and kept in order while objects come and go. It reads nothing.

To judge ten thousand nodes takes a third of a second, so that no page does it: a node is judged when something of it has changed, or when an
instant has come at which its state may change by itself.

1. What is kept of a node is a `node_record`, and no object.
2. Whatever changes marks its node. Whoever looks settles first: those that are marked are judged, and take their places in the order.
3. A node is marked, too, when an instant has come that matters to it: its Lease ends, its renewal is due, its certificate ends, its
   Revocation ends. A Lease that is renewed in time only moves that instant: a thousand of them come in a second.
4. The order is that of `overview`: those that need somebody first, then by the end of the certificate, then by name.
5. A node is listed where there is a Node, a request that waits, or a certificate in force. Others are kept, and come back with one of these.
6. Nodes write Leases themselves, with any instant from year 1 to year 9999. One that cannot be judged is left out, with its error in `failures`, and
   takes no other with it.

| who | holding | tries | stopped by | shown in tests/unit/rules/console/test_node_table.py |
|---|---|---|---|---|
| a node | its own Lease | end whoever judges nodes, with an instant that cannot be reckoned with | 6 | test_whatever_a_lease_says_its_node_is_judged |
| whoever may write objects | a node that no rule can judge | have no node shown | 6 | test_a_node_that_cannot_be_judged_is_left_out_and_takes_no_other_with_it |
"""

from __future__ import annotations

import bisect
import datetime
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from handfast.api import objects
from handfast.rules import revocation, user_names
from handfast.rules.console import ledger_index, node_record
from handfast.rules.ledger import entries
from handfast.rules.nodes import liveness, overview, serving

_RANK: Final = {state: rank for rank, state in enumerate(overview.ORDER)}
# 2. with more than that to judge, it is quicker to sort anew
_MANY: Final = 256
# To judge one takes 30 µs, and the sentences about all of them name a few.
_SHOWN: Final = 100
# What a Revocation of a certificate names, in the words of `Revocation.targets`.
_KEY: Final = "key"
_SERIAL: Final = "serial number"


def order(record: node_record.Record) -> tuple[int, float, str]:
    """Those that need somebody first (4)."""
    return _RANK[record.state], record.ends or math.inf, record.name


class Table:
    """All nodes. What comes is put in; `settle` judges what has to be judged."""

    def __init__(self) -> None:
        self.revocations = revocation.Index()
        self.version = 0
        self.leases_read = True
        self.ledger_read = True
        self._records: dict[str, node_record.Record] = {}
        self._ordered: list[node_record.Record] = []
        self._marked: set[str] = set()
        self._wakes: list[tuple[float, str]] = []
        self._request_nodes: dict[str, str] = {}
        # Keys and serial numbers that Revocations have come to name, or to name no more.
        self._named_certificates: set[tuple[str, str]] = set()
        self._counts = dict.fromkeys(overview.ORDER, 0)
        # Labels and rules are alike on thousands of nodes: each text is kept once.
        self._texts: dict[str, str] = {}
        # 6. nodes that cannot be judged, and why
        self.failures: dict[str, Exception] = {}

    # --- what is looked at

    @property
    def ordered(self) -> list[node_record.Record]:
        """Those that are listed, in order, as they were settled last. Not to be changed."""
        return self._ordered

    @property
    def counts(self) -> Mapping[overview.State, int]:
        """How many are listed in each state."""
        return self._counts

    @property
    def marked(self) -> int:
        """How many wait to be judged."""
        return len(self._marked)

    def __iter__(self) -> Iterator[node_record.Record]:
        """All that is kept, listed or not."""
        return iter(self._records.values())

    def get(self, name: str) -> node_record.Record | None:
        return self._records.get(name)

    def row(self, record: node_record.Record, now: datetime.datetime) -> overview.Row:
        """One node, as it stands at this instant."""
        return overview.judge(record.name, self._facts(record, now), now)

    def standing(self, now: datetime.datetime, *, unreadable: int = 0) -> overview.Standing:
        """How all of them stand: of each state that needs somebody the first rows, and of silent nodes those that are silent longest.

        So many entries of the ledger are `unreadable`.
        """
        self.settle(now)
        rows: list[overview.Row] = []
        begin = 0
        for state in overview.ORDER:
            count = self._counts[state]
            if state not in overview.CALM:
                rows += [self.row(record, now) for record in self._first(state, begin, count)]
            begin += count
        served = [
            (record.name, record.served, record.served_until)
            for record in self._ordered
            if record.served and record.registered and record.state is not overview.State.REVOKED
        ]
        whole = self.ledger_read and not unreadable
        return overview.Standing(
            counts=dict(self._counts), needing=rows, serving=serving.of_seconds(served, now, whole=whole)
        )

    def _first(self, state: overview.State, begin: int, count: int) -> list[node_record.Record]:
        records = self._ordered[begin : begin + count]
        if state is overview.State.SILENT and count > _SHOWN:
            # When the first of them fell silent is told.
            return sorted(
                heapq.nsmallest(_SHOWN, records, key=lambda record: record.renewed or record.issued or math.inf),
                key=order,
            )
        return records[:_SHOWN]

    def lifetimes(self) -> Iterator[tuple[int, int]]:
        """When the newest certificate of each node was issued, and when it ends."""
        return ((record.issued, record.ends) for record in self._records.values() if record.issued)

    # --- what comes

    def put_node(self, name: str, labels: Mapping[str, str]) -> None:
        """A Node is there."""
        record = self._of(name)
        texts = tuple(self._once(f"{key}={value}") for key, value in labels.items())
        if record.registered and texts == record.labels:
            return
        record.registered, record.labels = True, texts
        self._mark(name)

    def remove_node(self, name: str) -> None:
        if (record := self._records.get(name)) is not None:
            record.registered, record.labels = False, ()
            self._mark(name)

    def put_lease(self, name: str, renewed: str | None, seconds: int | None) -> None:
        """A Lease is there, or was renewed."""
        lease = {"spec": {"renewTime": renewed, "leaseDurationSeconds": seconds}}
        pulse = liveness.seen(lease, None, 0.0, beat=False)
        record = self._of(name)
        counted = record.renewed != 0 and record.state is not overview.State.SILENT
        record.renewed, record.seconds = (0.0, 0) if pulse is None else (pulse.renewed.timestamp(), pulse.seconds)
        # 3. in time it changes nothing
        if not counted or pulse is None:
            self._mark(name)

    def remove_lease(self, name: str) -> None:
        if (record := self._records.get(name)) is not None:
            record.renewed, record.seconds = 0.0, 0
            self._mark(name)

    def put_lines(self, lines: Iterable[ledger_index.Line]) -> None:
        """Entries of the ledger; those of others than nodes are left out."""
        for line in lines:
            if line.entry is None:
                continue
            if name := overview.node_of(line.entry):
                self._take(self._of(name), line, line.entry)
            elif name := serving.node_of(line.entry):
                self._take_serving(self._of(name), line, line.entry)

    def remove_segment(self, segment: str) -> None:
        """A segment of the ledger is gone, and what was known by it."""
        for record in self._records.values():
            if record.segment == segment:
                self._take_out(record)
                record.issued = record.ends = record.number = 0
                record.serial = record.rule = record.segment = ""
                record.key = b""
                self._mark(record.name)
            if record.joined_in == segment:
                record.came_by, record.token_maker, record.joined, record.joined_in = "", "", 0, ""
                self._mark(record.name)
            if record.served_in == segment:
                record.served, record.served_until, record.served_in = 0, 0, ""
                self._mark(record.name)

    def put_request(self, document: objects.Document) -> None:
        """A request for a certificate; one that waits for nobody, or is no node's, is forgotten."""
        name = objects.metadata(document).get("name", "")
        # Before it is read: of one that cannot be read nothing is kept.
        self.remove_request(name)
        waiting = overview.waiting(document)
        if waiting is not None:
            node, request = waiting
            self._request_nodes[name] = node
            self._of(node).requests += (request,)
            self._mark(node)

    def remove_request(self, name: str) -> None:
        node = self._request_nodes.pop(name, None)
        if node is not None:
            record = self._records[node]
            record.requests = tuple(each for each in record.requests if each.name != name)
            self._mark(node)

    def put_revocation(self, document: objects.Document) -> None:
        self.remove_revocation(objects.metadata(document).get("name", ""))
        read = revocation.read(document)
        self.revocations.add(read)
        self._mark_named(read)

    def remove_revocation(self, name: str) -> None:
        known = self.revocations.get(name)
        self.revocations.remove(name)
        if known is not None:
            self._mark_named(known)

    def set_read(self, *, leases: bool, ledger: bool) -> None:
        """Whether Leases, and the ledger, can be read: what cannot is no trouble of a node."""
        if (leases, ledger) != (self.leases_read, self.ledger_read):
            self.leases_read, self.ledger_read = leases, ledger
            self._marked.update(self._records)

    # --- judging

    def settle(self, now: datetime.datetime) -> None:
        """Judge those that have changed (2), and those whose instant has come (3)."""
        self._mark_by_certificate()
        self._wake(now.timestamp())
        if not self._marked:
            return
        self.version += 1
        marked = [self._records[name] for name in self._marked if name in self._records]
        self._marked.clear()
        if len(marked) > max(_MANY, len(self._ordered) // 8):
            self._settle_many(marked, now)
        else:
            for record in marked:
                self._take_out(record)
                if self._guarded(self._judge, record, now):
                    self._put_in(record)
        for record in marked:
            if record.is_over:
                self._records.pop(record.name, None)
                self.failures.pop(record.name, None)

    def _settle_many(self, marked: Iterable[node_record.Record], now: datetime.datetime) -> None:
        for record in marked:
            record.listed = self._guarded(self._judge, record, now)
        self._ordered = sorted((record for record in self._records.values() if record.listed), key=order)
        self._counts = dict.fromkeys(overview.ORDER, 0)
        for record in self._ordered:
            self._counts[record.state] += 1

    def _guarded(
        self,
        ask: Callable[[node_record.Record, datetime.datetime], bool],
        record: node_record.Record,
        now: datetime.datetime,
    ) -> bool:
        """The answer about one node; False, with the error kept, where there is none (6)."""
        self.failures.pop(record.name, None)
        try:
            return ask(record, now)
        except Exception as error:  # noqa: BLE001  6. whatever it is, the others go on
            self.failures[record.name] = error
            return False

    def _judge(self, record: node_record.Record, now: datetime.datetime) -> bool:
        """Whether it is listed (5), with its state, and with the instant at which to look again."""
        facts = self._facts(record, now)
        record.state = overview.judge(record.name, facts, now).state
        self._schedule(record, facts, now.timestamp())
        return record.registered or bool(record.requests) or now.timestamp() < record.ends

    def _schedule(self, record: node_record.Record, facts: overview.Facts, now: float) -> None:
        # 3. the next instant that matters
        instants = [record.renewed + record.seconds, float(record.ends)]
        if facts.newest is not None:
            instants.append(overview.window(facts.newest)[1].timestamp())
        if facts.revoked is not None and facts.revoked.expires is not None:
            instants.append(facts.revoked.expires.timestamp())
        wakes = min((instant for instant in instants if instant > now), default=math.inf)
        # One that is awaited before comes earlier, and looks for the next.
        if wakes < record.wakes:
            record.wakes = wakes
            heapq.heappush(self._wakes, (wakes, record.name))

    def _wake(self, now: float) -> None:
        while self._wakes and self._wakes[0][0] <= now:
            instant, name = heapq.heappop(self._wakes)
            record = self._records.get(name)
            if record is None or record.wakes != instant:
                continue
            record.wakes = math.inf
            if (
                record.state is overview.State.GOOD
                and record.renewed + record.seconds > now
                and self._guarded(self._calm, record, node_record.instant(now))
            ):
                continue
            self._marked.add(name)

    def _calm(self, record: node_record.Record, now: datetime.datetime) -> bool:
        """Whether a good node only has renewed its Lease, so that nothing is to be judged; its next instant is awaited."""
        facts = self._facts(record, now)
        if facts.newest is None or overview.window(facts.newest)[1] <= now:
            return False
        self._schedule(record, facts, now.timestamp())
        return True

    def _facts(self, record: node_record.Record, now: datetime.datetime) -> overview.Facts:
        return overview.Facts(
            registered=record.registered,
            pulse=node_record.pulse(record),
            newest=node_record.certificate(record),
            came_by=record.came_by,
            requests=record.requests,
            revoked=self.revocations.of_node(record.name, now, serial=record.serial, key=node_record.key_text(record))
            if len(self.revocations)
            else None,
            leases_read=self.leases_read,
            ledger_read=self.ledger_read,
        )

    # --- places

    def _take_out(self, record: node_record.Record) -> None:
        """Out of its place, before something changes by which the place is found: its state, its end."""
        if record.listed:
            at = bisect.bisect_left(self._ordered, order(record), key=order)
            del self._ordered[at]
            self._counts[record.state] -= 1
            record.listed = False

    def _put_in(self, record: node_record.Record) -> None:
        bisect.insort(self._ordered, record, key=order)
        self._counts[record.state] += 1
        record.listed = True

    def _of(self, name: str) -> node_record.Record:
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = node_record.Record(name)
        return record

    def _once(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def _mark(self, name: str) -> None:
        self._marked.add(name)

    def _mark_named(self, known: revocation.Revocation) -> None:
        for kind, text in known.targets():
            name = text.removeprefix(user_names.NODE_PREFIX)
            if kind == "user" and name in self._records:
                self._mark(name)
            elif kind in {_KEY, _SERIAL}:
                self._named_certificates.add((kind, text))

    def _mark_by_certificate(self) -> None:
        """Those whose certificate a Revocation names, or named: looked for once, however many Revocations came."""
        for record in self._records.values() if self._named_certificates else ():
            named = ((_KEY, node_record.key_text(record)), (_SERIAL, revocation.normal_serial(record.serial)))
            if not self._named_certificates.isdisjoint(named):
                self._mark(record.name)
        self._named_certificates.clear()

    def _take(self, record: node_record.Record, line: ledger_index.Line, entry: entries.Entry) -> None:
        issued = int(entry.issued_at.timestamp())
        if entry.rule not in {entries.RENEWAL, entries.SERVING} and issued >= record.joined:
            record.joined, record.joined_in = issued, self._once(line.segment)
            record.came_by = self._once(overview.came_by((entry,)))
            record.token_maker = self._once(entry.token_maker)
            self._mark(record.name)
        if issued >= record.issued:
            self._take_out(record)
            record.issued, record.ends = issued, int(entry.not_after.timestamp())
            record.serial, record.key = entry.serial, node_record.packed(entry.key_fingerprint)
            record.rule = self._once(entry.rule)
            record.segment, record.number = self._once(line.segment), line.number
            self._mark(record.name)

    def _take_serving(self, record: node_record.Record, line: ledger_index.Line, entry: entries.Entry) -> None:
        issued = int(entry.issued_at.timestamp())
        if issued >= record.served:
            record.served, record.served_until = issued, int(entry.not_after.timestamp())
            record.served_in = self._once(line.segment)
