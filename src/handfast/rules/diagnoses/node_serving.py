# SPDX-License-Identifier: Apache-2.0
"""The check of the certificates that nodes serve with, by which the API server reaches their kubelets. It reads nothing.

1. A certificate that should have been renewed by now fails, and so does one that is over: whoever asks the node at its endpoint does not believe it.
2. One that is over, and whose node asks for no other, is a warning: a node that signs its own again leaves its last one behind in the ledger.
3. What is not in the ledger is not known. A node that never had one from the cluster serves with its own, and is no trouble.
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from handfast.api import durations, jsonpath, objects, signer_names
from handfast.rules import check, user_names
from handfast.rules.diagnoses import facts, members
from handfast.rules.nodes import overview, serving

NAME: Final = "node-serving"
_OK: Final = check.Verdict.OK
_FAILED: Final = check.Verdict.FAILED
_ON_THE_MACHINE: Final = "on the machine: handfast node status"
_OWN: Final = (
    "nothing, if it signs its own now; else start its agent with --rotate-server-certificates, and see its log"
)


def every(known: facts.Facts) -> check.Check:
    """Of all nodes."""
    read = known.nodes
    if isinstance(read, check.Unread):
        return check.unread(NAME, read)
    return _judged(read.serving if isinstance(read, overview.Standing) else overview.served(read, known.now), known)


def of_node(node: str, known: facts.Facts) -> check.Check:
    """Of one node."""
    read = known.nodes
    if not isinstance(read, overview.Objects):
        return every(known)
    own = [each for each in read.nodes if jsonpath.text(each, "metadata", "name") == node]
    return _judged(overview.served(msgspec.structs.replace(read, nodes=own), known.now), known)


def _judged(standing: serving.Standing, known: facts.Facts) -> check.Check:
    unread = isinstance(known.requests, check.Unread)
    asking = _asking(known.requests)
    # 2. what was left behind
    left: list[serving.Served] = []
    urgent: list[serving.Served] = []
    for each in standing.late:
        is_left = not unread and each.ends <= known.now and each.node not in asking
        (left if is_left else urgent).append(each)
    if urgent:
        # 1. the first to end
        first = urgent[0]
        reason = "ServingExpired" if first.ends <= known.now else "ServingRenewalLate"
        title = asking.get(first.node)
        hint = f"handfast csr explain {shlex.quote(title)}" if title else _ON_THE_MACHINE
        return check.Check(NAME, _FAILED, _said(urgent, known.now), reason, hint)
    if left:
        said = f"{_said(left, known.now)}; nobody asks for another"
        return check.Check(NAME, check.Verdict.WARNING, said, "ServingLeftOver", _OWN)
    if not standing.whole and known.hidden:
        # 3. what is not known could hide one that is late
        return members.not_known(NAME, known)
    if standing.first is None:
        return check.Check(NAME, _OK, "no node has a serving certificate of this cluster")
    end = objects.timestamp(standing.first.ends)
    return check.Check(
        NAME, _OK, f"{standing.count} of this cluster; the first, of {standing.first.node}, ends at {end}"
    )


def _said(rows: Sequence[serving.Served], now: datetime.datetime) -> str:
    return check.several([f"{each.node}: {_trouble(each, now)}" for each in rows])


def _trouble(served: serving.Served, now: datetime.datetime) -> str:
    if served.ends <= now:
        return f"its serving certificate ended {durations.short(now - served.ends)} ago"
    return f"the renewal of its serving certificate is {durations.short(now - served.due)} late"


def _asking(requests: facts.Requests | check.Unread) -> Mapping[str, str]:
    """Who asks for a serving certificate and has not got it, and by which request; one that is open counts before others."""
    by_node: dict[str, str] = {}
    for document in () if isinstance(requests, check.Unread) else requests.documents:
        if jsonpath.text(document, "spec", "signerName") != signer_names.KUBELET_SERVING:
            continue
        if jsonpath.text(document, "status", "certificate"):
            continue
        username = jsonpath.text(document, "spec", "username")
        node = username.removeprefix(user_names.NODE_PREFIX)
        # Others than nodes may ask, too, and be called as a node is.
        if node != username and (members.is_open(document) or node not in by_node):
            by_node[node] = jsonpath.text(document, "metadata", "name")
    return by_node
