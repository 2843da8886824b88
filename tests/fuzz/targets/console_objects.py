# SPDX-License-Identifier: Apache-2.0
"""Objects as the console reads them, written by whoever may: JSON behind a first byte that picks the kind.

1. What the API would refuse is refused. All else is read: no object ends the console, or has another one left out.
2. It is judged and shown, now and later.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from handfast.api import kinds
from handfast.apiserver import bodies
from handfast.client import partial
from handfast.console import fleet, needs, unread
from handfast.rules.console import machines, mesh, questions, requests, tokens
from handfast.rules.machines import inventory
from handfast.rules.mesh import edges, names
from handfast.rules.nodes import join_failures
from tests.fuzz import promises
from tests.world.clock import MovableClock

LATER = datetime.timedelta(hours=1)
MESH = names.Mesh("cluster.local")
QUESTION = questions.read("/nodes", {}, "")
NEEDS = (needs.LEASES, needs.NODES, needs.REQUESTS, needs.REVOCATIONS, needs.TOKENS, needs.FAILED_JOINS)
READERS = (*(need.name for need in NEEDS), "mesh-workloads", "machines")


class _Raising(unread.Unread):
    """Nothing is left out here: what cannot be read is a broken promise."""

    def failed(self, plural: str, namespace: str, name: str, error: Exception) -> None:
        raise error


def _read(data: bytes) -> None:
    first = data[0] if data else 0
    name = READERS[first % len(READERS)]
    need = {each.name: each for each in (*NEEDS, needs.MESH_WORKLOADS, needs.MACHINES)}[name]
    document = _document(data[1:], need)
    # As the server sends it, and the view takes it: what does not fit is skipped there.
    try:
        item: Any = msgspec.json.decode(msgspec.json.encode(document), type=need.source.view)
    except msgspec.DecodeError:
        return
    if name == "mesh-workloads":
        _mesh(item)
    elif name == "machines":
        machine = inventory.read({"apiVersion": "machine.openshift.io/", **msgspec.to_builtins(item)})
        machines.page(machines.all_rows([machine], None, lambda _name: (), MovableClock().now()), QUESTION)
    else:
        _fleet(name, item)


def _document(body: bytes, need: needs.Need[Any]) -> dict[str, Any]:
    builtin = next(
        (row for row in kinds.builtin() if row.plural == need.kind.plural and row.group == need.kind.group), None
    )
    if builtin is not None:
        return bodies.for_kind(body, "application/json", builtin, bodies.IGNORE)[0]
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _fleet(name: str, item: Any) -> None:
    clock = MovableClock()
    made = fleet.Fleet(clock, lambda _need: None, _Raising())
    made.table.set_read(leases=True, ledger=True)
    if name in made.keepers:
        for keeper in made.keepers.values():
            keeper.begin()
        made.keepers["nodes"].put(needs.Labelled(partial.LabelledMeta(name=item.metadata.name)))
        made.keepers[name].put(item)
    elif name == "requests":
        made.table.put_request(item.document())
        rows = requests.ordered([requests.row(item)])
        requests.summary(rows, clock.now())
        requests.asked(item)
    elif name == "revocations":
        made.table.put_revocation(msgspec.to_builtins(item))
    elif name == "tokens":
        _token(item, clock.now())
    else:
        list(join_failures.of_events([item.document()]))
    # 2. now and later
    for now in (clock.now(), clock.now() + LATER):
        made.table.settle(now)
        promises.require(not made.table.failures, "a node cannot be judged")
        made.nodes.page(QUESTION, now)


def _token(item: needs.Token, now: datetime.datetime) -> None:
    rows = [tokens.read(item.document()).at(now)]
    tokens.sentence(rows, now)


def _mesh(item: needs.MeshWorkload) -> None:
    documents = [item.document()]
    now = MovableClock().now()
    facts = mesh.Facts(mesh=MESH, now=now, lifetime=LATER, workloads=documents)
    mesh.workloads(facts, mesh.known(facts), frozenset())
    mesh.talk(facts)
    edges.joined([each for each in map(edges.read, documents) if each is not None])


run = promises.refusing(_read)
