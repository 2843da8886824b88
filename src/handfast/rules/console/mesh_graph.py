# SPDX-License-Identifier: Apache-2.0
"""Which boxes and lines the picture of a mesh has, and what is said of each. Where they lie is `graph`'s; it draws nothing.

1. A box is an identity, called by namespace and account. Clients without an identity are one box, and what is called outside of the mesh is one for each name.
2. With more than `graph.MOST_BOXES` boxes, each namespace is one, with how many identities it has. One of them may be unfolded: its identities are boxes then.
   What has no namespace is folded into one box, too.
3. If there are still too many, those with the most urgent lines are kept, then those with the most lines, then by name. The others are one box.
4. A line is everything between two boxes: as urgent as the most urgent edge in it. Which ones are drawn where there is no room for all, their urgency decides.
5. Names are shortened in the middle, where a name differs least; what cannot be printed is marked before that, so that a mark takes no room from the next box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from handfast.rules.console import graph, marks, mesh

NOBODY: Final = "without an identity"
OUTSIDE: Final = "outside of the mesh"
OTHERS: Final = "others"
_SHOWN: Final = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What stands in a box, and where. `kind` is `identity`, `namespace`, `nobody`, `outside` or `others`; `count` is how many identities it stands for.

    `name` is the whole name, and `label` what there is room for. `state` is that of its most urgent line; empty where it has none.
    """

    id: str
    kind: str
    name: str
    label: str
    count: int
    state: str
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line: from box to box by their ids, its path, its state, and how many edges and calls it stands for."""

    client: str
    server: str
    client_name: str
    server_name: str
    path: str
    state: str
    edges: int
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The picture. `folded` is whether namespaces are boxes; `left_out` is how many lines have no room."""

    boxes: tuple[Box, ...] = ()
    lines: tuple[Line, ...] = ()
    width: int = 0
    height: int = 0
    folded: bool = False
    left_out: int = 0


@dataclass(slots=True)
class _Sum:
    state: int = len(mesh.EDGE_STATES) - 1
    edges: int = 0
    calls: int = 0

    def add(self, edge: mesh.Edge) -> None:
        # 4. as urgent as the most urgent
        self.state = min(self.state, mesh.EDGE_STATES.index(edge.state))
        self.edges += 1
        self.calls += edge.edge.count


# (kind, name) of a box.
_End = tuple[str, str]


@dataclass(slots=True)
class _Drawing:
    """Boxes with how many identities each stands for, and lines with their sums."""

    boxes: dict[_End, int] = field(default_factory=dict)
    lines: dict[tuple[_End, _End], _Sum] = field(default_factory=dict)


def picture(rows: Sequence[mesh.Edge], identities: Iterable[str], unfolded: str = "") -> Picture:
    """The picture of these edges, and of identities (`NAMESPACE/ACCOUNT`) that were seen to talk to nobody, too."""
    ends = {("identity", name) for name in identities}
    ends |= {end for row in rows for end in (_client(row), _server(row))}
    # 2. namespaces
    folded = len(ends) > graph.MOST_BOXES
    place: Callable[[_End], _End] = (lambda end: _fold(end, unfolded)) if folded else (lambda end: end)
    drawing = _drawn(rows, ends, place)
    # 3. still too many
    if len(drawing.boxes) > graph.MOST_BOXES:
        kept = _kept(drawing)
        drawing = _drawn(rows, ends, lambda end: place(end) if place(end) in kept else (OTHERS, OTHERS))
    return _laid_out(drawing, folded=folded)


def _client(row: mesh.Edge) -> _End:
    return ("identity", row.client) if row.client else ("nobody", NOBODY)


def _server(row: mesh.Edge) -> _End:
    # 1. outside of the mesh
    return ("identity", row.server) if row.edge.server else ("outside", row.server or OUTSIDE)


def _fold(end: _End, unfolded: str) -> _End:
    kind, name = end
    if kind == "outside":
        return "outside", OUTSIDE
    namespace, slash, _ = name.partition("/")
    if kind != "identity" or not slash or namespace == unfolded:
        return end
    return "namespace", namespace


def _drawn(rows: Iterable[mesh.Edge], ends: Iterable[_End], place: Callable[[_End], _End]) -> _Drawing:
    drawing = _Drawing()
    for end in ends:
        drawing.boxes[place(end)] = drawing.boxes.get(place(end), 0) + 1
    for row in rows:
        pair = place(_client(row)), place(_server(row))
        drawing.lines.setdefault(pair, _Sum()).add(row)
    return drawing


def _kept(drawing: _Drawing) -> set[_End]:
    """The boxes that are drawn; one is left for the others (3)."""
    worst = dict.fromkeys(drawing.boxes, len(mesh.EDGE_STATES))
    count = dict.fromkeys(drawing.boxes, 0)
    for pair, told in drawing.lines.items():
        for end in {*pair}:
            worst[end] = min(worst[end], told.state)
            count[end] += told.edges
    ordered = sorted(drawing.boxes, key=lambda end: (worst[end], -count[end], end))
    return {*ordered[: graph.MOST_BOXES - 1]}


def _laid_out(drawing: _Drawing, *, folded: bool) -> Picture:
    keys = {end: "\0".join(end) for end in drawing.boxes}
    # 4. the most urgent first, then those with the most calls
    ordered = sorted(drawing.lines, key=lambda pair: (drawing.lines[pair].state, -drawing.lines[pair].calls, pair))
    laid = graph.lay_out(keys.values(), [(keys[client], keys[server]) for client, server in ordered])
    ids = {box.key: f"box{number}" for number, box in enumerate(laid.boxes)}
    places = {box.key: (box.x, box.y) for box in laid.boxes}
    ends = {key: end for end, key in keys.items()}
    worst = _worst(drawing)
    boxes = [
        Box(
            id=ids[key],
            kind=ends[key][0],
            name=ends[key][1],
            label=shortened(marks.flat(ends[key][1])),
            count=drawing.boxes[ends[key]],
            state=worst.get(ends[key], ""),
            x=x,
            y=y,
        )
        for key, (x, y) in places.items()
    ]
    return Picture(
        boxes=tuple(boxes),
        lines=tuple(_line(line, ids, ends, drawing.lines) for line in laid.lines),
        width=laid.width,
        height=laid.height,
        folded=folded,
        left_out=laid.left_out,
    )


def _worst(drawing: _Drawing) -> dict[_End, str]:
    """Of each box the most urgent state of its lines."""
    worst: dict[_End, int] = {}
    for pair, told in drawing.lines.items():
        for end in pair:
            worst[end] = min(worst.get(end, told.state), told.state)
    return {end: mesh.EDGE_STATES[state] for end, state in worst.items()}


def _line(
    line: graph.Line, ids: Mapping[str, str], ends: Mapping[str, _End], sums: Mapping[tuple[_End, _End], _Sum]
) -> Line:
    client, server = ends[line.client], ends[line.server]
    told = sums[client, server]
    return Line(
        client=ids[line.client],
        server=ids[line.server],
        client_name=client[1],
        server_name=server[1],
        path=line.path,
        state=mesh.EDGE_STATES[told.state],
        edges=told.edges,
        calls=told.calls,
    )


def shortened(name: str) -> str:
    """As much of a name as there is room for (5)."""
    if len(name) <= _SHOWN:
        return name
    head = (_SHOWN - 1) // 2
    return f"{name[:head]}…{name[head + 1 - _SHOWN :]}"
