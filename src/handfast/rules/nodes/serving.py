# SPDX-License-Identifier: Apache-2.0
"""The certificates that nodes serve with, where the cluster issues them: which are late, or over. It reads nothing.

1. A node's serving certificate is the newest of the signer kubelet-serving in the ledger. A node without one serves with one that it has signed itself.
2. It counts as long as there is a Node. That of a node that is revoked, by its name or by its certificate, needs nobody.
3. It is late when it should have been renewed by now, as a client certificate is (`overview`).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast.api import jsonpath, signer_names
from handfast.pki import renewal
from handfast.rules import user_names
from handfast.rules.ledger import entries

_SUBJECT: Final = f"CN={user_names.NODE_PREFIX}"


class Served(msgspec.Struct, frozen=True):
    """The newest serving certificate of a node: when it was issued, and when it ends."""

    node: str
    issued: datetime.datetime
    ends: datetime.datetime

    @property
    def due(self) -> datetime.datetime:
        """When it should have been renewed by (3)."""
        return renewal.deadline(self.issued, self.ends, renewal.LATEST)


class Standing(msgspec.Struct, frozen=True):
    """How many nodes have one, which of these ends first, and those that are late or over, the first to end first."""

    count: int = 0
    first: Served | None = None
    late: Sequence[Served] = ()
    # Whether the ledger could be read, all of it.
    whole: bool = True


def node_of(entry: entries.Entry, signer: str = signer_names.KUBELET_SERVING) -> str:
    """The node whose certificate of this signer it is; empty: it is none."""
    if entry.signer != signer or not entry.names or not entry.names[0].startswith(_SUBJECT):
        return ""
    return entry.names[0].removeprefix(_SUBJECT)


def newest(issued: Iterable[entries.Entry]) -> dict[str, Served]:
    """That of each node (1)."""
    by_node: dict[str, Served] = {}
    for entry in issued:
        node = node_of(entry)
        if node and (node not in by_node or by_node[node].issued <= entry.issued_at):
            by_node[node] = Served(node, entry.issued_at, entry.not_after)
    return by_node


def standing(
    nodes: Iterable[Mapping[str, Any]],
    issued: Iterable[entries.Entry] | None,
    revoked: Container[str],
    now: datetime.datetime,
) -> Standing:
    """How those of all nodes stand, but for the `revoked` ones; `issued` is None where the ledger could not be read."""
    there = {jsonpath.text(node, "metadata", "name") for node in nodes}
    served = newest(issued or ())
    # 2. of a node that is there, and let in
    counting = [each for name, each in served.items() if name in there and name not in revoked]
    return stand(counting, now, whole=issued is not None)


def stand(counting: Collection[Served], now: datetime.datetime, *, whole: bool) -> Standing:
    """How these stand (3)."""
    return Standing(
        count=len(counting),
        first=min(counting, key=_end, default=None),
        late=sorted((each for each in counting if each.due <= now), key=_end),
        whole=whole,
    )


def of_seconds(rows: Sequence[tuple[str, int, int]], now: datetime.datetime, *, whole: bool) -> Standing:
    """How these stand: nodes, with the seconds since 1970 at which their certificates were issued, and end.

    To judge each of ten thousand takes 24 ms, and three where those that are too young to be renewed, and so not late, are passed over.
    """
    instant = now.timestamp()
    judged = [row for row in rows if instant >= row[1] + (row[2] - row[1]) * renewal.EARLIEST]
    if rows:
        judged.append(min(rows, key=lambda row: (row[2], row[0])))
    known = {name: Served(name, _instant(issued), _instant(ends)) for name, issued, ends in judged}
    return msgspec.structs.replace(stand(known.values(), now, whole=whole), count=len(rows))


def _instant(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _end(served: Served) -> tuple[datetime.datetime, str]:
    return served.ends, served.node
