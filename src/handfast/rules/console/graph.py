# SPDX-License-Identifier: Apache-2.0
"""Where the boxes and lines of a picture of a mesh lie: layers from left to right, callers before whom they call. It draws nothing.

1. The same boxes and lines give the same picture, whatever order they come in: a picture that is drawn again does not jump.
2. There are at most `MOST_BOXES` boxes and `MOST_LINES` lines. Who has more folds them first, or is told how many were left out.
3. Who calls stands to the left of whom it calls. Of a circle of calls one line leads back: the one that a walk in the order of the names meets last.
4. Within a layer, boxes lie where those that they talk to lie, by the mean of their places: so many sweeps, and no more.
5. A layer with more than `_TALLEST` boxes becomes several columns.
6. Boxes without lines lie below the others, side by side.

The work is in proportion to boxes and lines: each walk sees each of them once, and the number of sweeps is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOST_BOXES: Final = 200
MOST_LINES: Final = 1000
WIDTH: Final = 168
HEIGHT: Final = 34
_GAP_X: Final = 92
_GAP_Y: Final = 14
_MARGIN: Final = 16
_TALLEST: Final = 16
_SWEEPS: Final = 4
# How far a line that leads back swings out.
_SWING: Final = 46
# Between the columns of one layer no line needs room.
_NARROW: Final = 24
_LEAST_COLUMNS: Final = 4

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Box:
    """A place, by the name of who is there; `x` and `y` are its left upper corner."""

    key: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Line:
    """From who calls to who is called, as the path of an SVG."""

    client: str
    server: str
    path: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything, and how large it is. `left_out` is how many lines have no room (2)."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: int
    height: int
    left_out: int = 0


def lay_out(boxes: Iterable[str], lines: Sequence[Pair]) -> Picture:
    """The picture. Lines count in the order in which they are given, where there is no room for all; those of unknown boxes do not count."""
    # 2. no more than there is room for
    known = sorted({*boxes})[:MOST_BOXES]
    there = {*known}
    wanted = list(dict.fromkeys(pair for pair in lines if {*pair} <= there))
    drawn = wanted[:MOST_LINES]
    # 1. in the order of their names
    ordered = sorted(drawn)
    talking = {end for pair in ordered for end in pair}
    layers = _ordered(_layers([key for key in known if key in talking], ordered), ordered)
    places, width, height = _placed(layers)
    alone, width, height = _alone([key for key in known if key not in talking], width, height)
    places |= alone
    return Picture(
        boxes=tuple(Box(key, *places[key]) for key in known),
        lines=tuple(_line(pair, places) for pair in drawn),
        width=width,
        height=height,
        left_out=len(wanted) - len(drawn),
    )


def _neighbours(lines: Iterable[Pair]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for client, server in lines:
        if client != server:
            out.setdefault(client, []).append(server)
    return out


def _layers(keys: Sequence[str], lines: Sequence[Pair]) -> list[list[str]]:
    """The boxes of each layer, by name: the longest way to it, without lines that lead back (3)."""
    out = _neighbours(lines)
    order = _walked(keys, lines, out)
    at = {key: place for place, key in enumerate(order)}
    depth = dict.fromkeys(keys, 0)
    for key in order:
        for server in out.get(key, ()):
            # 3. one that leads back moves nobody
            if at[server] > at[key]:
                depth[server] = max(depth[server], depth[key] + 1)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for key in keys:
        layers[depth[key]].append(key)
    return [layer for layer in layers if layer]


def _walked(keys: Sequence[str], lines: Sequence[Pair], out: Mapping[str, Sequence[str]]) -> list[str]:
    """The boxes in an order in which callers come first, but for circles: those whom nobody calls begin."""
    called = {server for client, server in lines if client != server}
    seen: set[str] = set()
    left: list[str] = []
    for start in sorted(keys, key=lambda key: (key in called, key)):
        # Each box with those that are yet to be visited from it: without recursion, since chains may be long.
        trail = [] if start in seen else [(start, iter(out.get(start, ())))]
        seen.add(start)
        while trail:
            key, others = trail[-1]
            following = next((each for each in others if each not in seen), None)
            if following is None:
                left.append(key)
                trail.pop()
            else:
                seen.add(following)
                trail.append((following, iter(out.get(following, ()))))
    return left[::-1]


def _ordered(layers: list[list[str]], lines: Sequence[Pair]) -> list[list[str]]:
    """The layers with their boxes where those lie that they talk to (4)."""
    beside: dict[str, list[str]] = {}
    for client, server in lines:
        beside.setdefault(client, []).append(server)
        beside.setdefault(server, []).append(client)
    place = {key: _share(at, layer) for layer in layers for at, key in enumerate(layer)}
    for sweep in range(_SWEEPS):
        # 4. to the right, and back again
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            mean = {key: sum(place[other] for other in beside[key]) / len(beside[key]) for key in layer}
            layer.sort(key=lambda key, mean=mean: (mean[key], key))  # type: ignore[misc]
            place |= {key: _share(at, layer) for at, key in enumerate(layer)}
    return layers


def _share(at: int, layer: Sequence[str]) -> float:
    """How far down its layer a box is, from 0 to 1: layers differ in length."""
    return (at + 0.5) / len(layer)


def _placed(layers: Sequence[Sequence[str]]) -> tuple[dict[str, tuple[int, int]], int, int]:
    """The corner of each box, and the size of all of it."""
    columns = [(at, column) for at, layer in enumerate(layers) for column in _columns(layer)]
    tallest = max((len(column) for _, column in columns), default=0)
    places: dict[str, tuple[int, int]] = {}
    x = _MARGIN
    for number, (layer, column) in enumerate(columns):
        if number:
            x += WIDTH + (_GAP_X if columns[number - 1][0] != layer else _NARROW)
        top = _MARGIN + (tallest - len(column)) * (HEIGHT + _GAP_Y) // 2
        places |= {key: (x, top + at * (HEIGHT + _GAP_Y)) for at, key in enumerate(column)}
    return places, x + WIDTH + _MARGIN, 2 * _MARGIN + max(0, tallest * (HEIGHT + _GAP_Y) - _GAP_Y)


def _columns(layer: Sequence[str]) -> list[Sequence[str]]:
    # 5. as many columns as it takes, about equally long
    count = math.ceil(len(layer) / _TALLEST)
    size = math.ceil(len(layer) / count)
    return [layer[at : at + size] for at in range(0, len(layer), size)]


def _alone(keys: Sequence[str], width: int, height: int) -> tuple[dict[str, tuple[int, int]], int, int]:
    """Those without lines, in rows below the rest (6), and the size with them."""
    if not keys:
        return {}, width, height
    step = WIDTH + _NARROW
    across = max(_LEAST_COLUMNS, (width - 2 * _MARGIN + _NARROW) // step)
    top = height if height > 2 * _MARGIN else _MARGIN
    places = {
        key: (_MARGIN + at % across * step, top + at // across * (HEIGHT + _GAP_Y)) for at, key in enumerate(keys)
    }
    rows = math.ceil(len(keys) / across)
    wide = 2 * _MARGIN + min(len(keys), across) * step - _NARROW
    return places, max(width, wide), top + rows * (HEIGHT + _GAP_Y) - _GAP_Y + _MARGIN


def _line(pair: Pair, places: Mapping[str, tuple[int, int]]) -> Line:
    client, server = pair
    (left, top), (right, bottom) = places[client], places[server]
    x1, y1, x2, y2 = left + WIDTH, top + HEIGHT // 2, right, bottom + HEIGHT // 2
    if client == server:
        # A small bow over its own right upper corner.
        return Line(client, server, f"M{x1 - 24} {top}C{x1 - 24} {top - 12} {x1 + 12} {top - 12} {x1} {y1 - 8}")
    if x2 >= x1:
        bend = max(24, (x2 - x1) // 2)
        return Line(client, server, f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}")
    # 3. one that leads back goes out at the left, and comes in at the right
    end = right + WIDTH
    return Line(client, server, f"M{left} {y1}C{left - _SWING} {y1} {end + _SWING} {y2} {end} {y2}")
