# SPDX-License-Identifier: Apache-2.0
"""The pages of the mesh: whom it trusts, how far a rotation is, who talks to whom; its workloads; its edges. What is said is in `rules.console.mesh` and beside it.

1. Everything is made once for all who look, when something has changed, in a thread of its own: thousands of Pods take longer than a request may hold the others. Ten
   thousand workloads with five edges each took 2 s of one processor, so that between two makings lies `_SHARE` times what the last one took.
2. No private key is read: the views of Secrets have no field for one.
3. A line of the ledger that cannot be read costs itself, and no page.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from handfast import errors
from handfast.api import objects, signer_names
from handfast.console import known as known_module
from handfast.console import needs, page
from handfast.rules.console import graph, ledger_index, mesh, mesh_graph, mesh_trust, questions, rows
from handfast.rules.ledger import entries as ledger_entries
from handfast.rules.ledger import segments as ledger_segments
from handfast.rules.mesh import control_plane, settings

# How often it is made anew at most, when something has changed; and at least, since certificates end by themselves.
_SECONDS: Final = 2.0
_OLD_SECONDS: Final = 15.0
_SHARE: Final = 10
_MOST_POLICIES: Final = 100
_MOST_LINES: Final = 200
_NEEDS: Final = (
    needs.MESH_CONFIG,
    needs.MESH_SECRETS,
    needs.MESH_PODS,
    needs.MESH_WORKLOADS,
    needs.MESH_POLICIES,
    needs.LEDGER,
)
WORKLOADS: Final = "/mesh/workloads"
EDGES: Final = "/mesh/edges"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known of the mesh. `installed` is None while that is being read, or may not be; `problem` is why its settings cannot be used."""

    installed: bool | None
    problem: str = ""
    trust_domain: str = ""
    trust: mesh_trust.Trust = field(default_factory=mesh_trust.Trust)
    workloads: tuple[mesh.Workload, ...] = ()
    edges: tuple[mesh.Edge, ...] = ()
    policies: tuple[mesh.Policy, ...] = ()


@dataclass(frozen=True, slots=True)
class _Taken:
    """What the informers hold, taken at one moment: another thread reads it."""

    now: datetime.datetime
    namespace: str
    config: Mapping[str, str] | None
    anchors: str | None
    issuer: str | None
    record: Mapping[str, str] | None
    pods: Sequence[mesh.Pod]
    workloads: Sequence[needs.MeshWorkload]
    policies: Sequence[needs.Whole]
    segments: Sequence[ledger_index.Kept]
    answered: bool


class Pictures:
    """The view of a console's mesh, made when it is asked for and was not made lately (1)."""

    def __init__(self, known: known_module.Known) -> None:
        self._known = known
        self._ledger = _Ledger()
        self._turn = asyncio.Lock()
        self._made_at = float("-inf")
        self._made_of: tuple[int, ...] = ()
        self._took = 0.0
        self._view = View(installed=None)

    async def view(self) -> View:
        """What is known now, or was a moment ago; whoever comes while it is made waits for the same."""
        async with self._turn:
            began, version = self._known.monotonic(), self._known.version(_NEEDS)
            age = began - self._made_at
            if age >= max(_SECONDS, _SHARE * self._took) and (age >= _OLD_SECONDS or version != self._made_of):
                # 1. in a thread of its own
                self._view = await asyncio.to_thread(_made, _take(self._known), self._ledger)
                self._made_of, self._made_at = version, self._known.monotonic()
                self._took = self._made_at - began
            return self._view


class _Ledger:
    """The certificates of the mesh, decoded once for each segment: those that are sealed never change."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], list[ledger_entries.Entry]] = {}

    def entries(self, segments: Sequence[ledger_index.Kept]) -> list[ledger_entries.Entry]:
        read = {}
        for segment in segments:
            key = (segment.name, segment.last_link)
            read[key] = self._read[key] if key in self._read else _decoded(segment)
        self._read = read
        return [entry for each in read.values() for entry in each]


def _decoded(segment: ledger_index.Kept) -> list[ledger_entries.Entry]:
    rows_of = []
    for line in segment.lines():
        if signer_names.MESH_IDENTITY not in line:
            continue
        try:
            rows_of.append(ledger_entries.decode_stored(line))
        except errors.Refused:
            # 3. that line alone
            continue
    return rows_of


def _take(known: known_module.Known) -> _Taken:
    def of(name: str) -> needs.MeshSecret | None:
        return known.of(needs.MESH_SECRETS).get(known.mesh_namespace, name)

    def config(name: str) -> Mapping[str, str] | None:
        there = known.of(needs.MESH_CONFIG).get(known.mesh_namespace, name)
        return None if there is None else there.data or {}

    signing, rotation = of(control_plane.SIGNING), of(control_plane.ROTATION)
    anchors = config(control_plane.TRUST_ANCHOR)
    return _Taken(
        now=known.now(),
        namespace=known.mesh_namespace,
        config=config(control_plane.CONFIG),
        anchors=None if anchors is None else anchors.get(control_plane.ANCHORS_KEY, ""),
        issuer=None if signing is None or signing.data is None else signing.data.certificate,
        record=None if rotation is None or rotation.data is None else rotation.data.record(),
        pods=[each.fact() for each in known.of(needs.MESH_PODS)],
        workloads=list(known.of(needs.MESH_WORKLOADS)),
        policies=list(known.of(needs.MESH_POLICIES)),
        segments=[each for each in known.fleet.ledger.kept() if each.head.chain == ledger_segments.MESH],
        answered=known.of(needs.MESH_CONFIG).synced,
    )


def _made(taken: _Taken, ledger: _Ledger) -> View:
    if taken.config is None:
        return View(installed=False if taken.answered else None)
    try:
        chosen = settings.parse(dict(taken.config))
        called = chosen.mesh(taken.namespace)
    except errors.Refused as refused:
        return View(installed=True, problem=refused.message)
    stored = mesh_trust.Stored(
        anchors=None if taken.anchors is None else taken.anchors.encode(),
        issuer=None if taken.issuer is None else _octets(taken.issuer),
        record=None if taken.record is None else {key: _octets(value) for key, value in taken.record.items()},
    )
    variables = mesh_trust.variables(stored)
    facts = mesh.Facts(
        mesh=called,
        now=taken.now,
        lifetime=chosen.lifetime,
        pods=[mesh.document(pod, variables) for pod in taken.pods],
        workloads=[each.document() for each in taken.workloads],
        ledger=ledger.entries(taken.segments),
    )
    there = mesh.known(facts)
    trust = mesh_trust.trust(stored, there, taken.now)
    roots = frozenset(root.clock.fingerprint for root in trust.roots)
    return View(
        installed=True,
        trust_domain=chosen.trust_domain,
        trust=trust,
        workloads=mesh.workloads(facts, there, roots),
        edges=mesh.talk(facts),
        policies=mesh.policies(each.document() for each in taken.policies),
    )


def _octets(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


async def _view(known: known_module.Known) -> View:
    return await known.kept("mesh", lambda: Pictures(known)).view()


def _common(known: known_module.Known, view: View) -> dict[str, Any]:
    return {
        "mesh": view,
        "namespace": known.mesh_namespace,
        "workload_counts": mesh.counted((each.state for each in view.workloads), mesh.WORKLOAD_STATES),
        "edge_counts": mesh.counted((each.state for each in view.edges), mesh.EDGE_STATES),
    }


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """The mesh as a whole."""
    view = await _view(known)
    unfolded = question.more.get("namespace", "")
    identities = {f"{each.namespace}/{each.account}" for each in view.workloads}
    picture = await asyncio.to_thread(mesh_graph.picture, view.edges, identities, unfolded)
    return {
        **_common(known, view),
        "picture": picture,
        "unfolded": unfolded,
        "box": {"width": graph.WIDTH, "height": graph.HEIGHT},
        "lines": picture.lines[:_MOST_LINES],
        "more_lines": max(0, len(picture.lines) - _MOST_LINES) + picture.left_out,
        "policies": view.policies[:_MOST_POLICIES],
        "more_policies": max(0, len(view.policies) - _MOST_POLICIES),
    }


async def show_workloads(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """Every workload."""
    view = await _view(known)
    wanted = question.more.get("state", "")
    chosen = [each for each in view.workloads if wanted in {"", each.state}]
    return {
        **_common(known, view),
        "states": mesh.WORKLOAD_STATES,
        "wanted": wanted,
        "range": await asyncio.to_thread(rows.select, chosen, question, text=_workload_text, columns=_WORKLOAD_COLUMNS),
    }


async def show_edges(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """Every edge."""
    view = await _view(known)
    wanted = question.more.get("state", "")
    chosen = [each for each in view.edges if wanted in {"", each.state}]
    return {
        **_common(known, view),
        "states": mesh.EDGE_STATES,
        "wanted": wanted,
        "range": await asyncio.to_thread(rows.select, chosen, question, text=_edge_text, columns=_EDGE_COLUMNS),
    }


_LATEST: Final = objects.parse_timestamp("9999-12-31T00:00:00Z")


def _workload_text(row: mesh.Workload) -> str:
    return (
        f"{row.namespace}/{row.pod} {row.namespace}/{row.account} {row.identity} {row.proxy} {row.state} {row.serial}"
    )


_WORKLOAD_COLUMNS: Final = {
    "pod": lambda row: (row.namespace, row.pod),
    "account": lambda row: (row.namespace, row.account),
    "state": lambda row: mesh.WORKLOAD_STATES.index(row.state),
    "ends": lambda row: row.ends or _LATEST,
    "proxy": lambda row: row.proxy,
}


def _edge_text(row: mesh.Edge) -> str:
    return f"{row.client or mesh_graph.NOBODY} {row.server} {row.edge.port} {row.state} {row.edge.unsecured} {row.judgement}"


_EDGE_COLUMNS: Final = {
    "client": lambda row: row.client,
    "server": lambda row: (row.server, row.edge.port),
    "state": lambda row: mesh.EDGE_STATES.index(row.state),
    "count": lambda row: row.edge.count,
    "last": lambda row: row.edge.last or _LATEST,
}


PAGE: Final = page.Page(
    path="/mesh",
    name="Mesh",
    title="Mesh",
    template="mesh.html",
    needs=_NEEDS,
    show=show,
    live=("mesh_summary", "mesh_trust", "mesh_picture", "mesh_policies"),
)
WORKLOADS_PAGE: Final = page.Page(
    path=WORKLOADS,
    title="Workloads of the mesh",
    template="mesh_workloads.html",
    needs=_NEEDS,
    show=show_workloads,
    live=("mesh_workloads_summary",),
    rows=True,
)
EDGES_PAGE: Final = page.Page(
    path=EDGES,
    title="Who talks to whom",
    template="mesh_edges.html",
    needs=_NEEDS,
    show=show_edges,
    live=("mesh_edges_summary",),
    rows=True,
)
