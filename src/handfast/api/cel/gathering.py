# SPDX-License-Identifier: Apache-2.0
"""What the evaluator does in more than linear time: lists that a loop gathers (`map`, `filter`), and texts that are cut into pieces.

The evaluator copies the list that it gathers in each round: of 1,000 elements in 20 ms, of 10,000 in 2 s, and no other thread runs
meanwhile. What an object may have is counted on the object itself, before an expression runs on it.

1. A loop has no more rounds than the widest list or map of the values has elements. Each `+` of lists may make it
   wider by as much. Where a text is cut into pieces, there may be as many as the longest text has letters.
2. All copies of one evaluation are at most `MAX_COPIES`. Loops in loops have 10,000 rounds in all, each with a list as wide.
3. A text that is cut has at most `MAX_PIECES` letters.

Everything else that an expression costs is `estimate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handfast.api.cel import estimate, tree

# 20 ns each: 40 ms.
MAX_COPIES: Final = 2_000_000
# 80 ns each: 32 ms.
MAX_PIECES: Final = 400_000
_CUTS: Final = frozenset({"split", "findAll"})
_ADD: Final = "_+_"
_SCALARS: Final = frozenset(
    {"string", "size", "int", "double", "lowerAscii", "upperAscii", "replace", "join", "format"}
)


class Extent(msgspec.Struct, frozen=True):
    """How far some values extend: the elements of the widest list or map, and the letters of the longest text."""

    widest: int
    longest: int

    @property
    def words(self) -> str:
        return f"a list or map of {self.widest} elements, or a text of {self.longest} letters"


class Gathering(msgspec.Struct, frozen=True):
    """What an expression gathers: in loops so deep (0: in none), over lists that are put together of so many others."""

    depth: int
    sums: int
    literal: int
    cuts: bool

    def copies(self, extent: Extent) -> int:
        """How many elements are copied at most when it is evaluated on such values."""
        if not self.depth:
            return 0
        # 1. no more rounds than there are elements
        width = max(self.sums * extent.widest, self.literal, extent.longest if self.cuts else 0)
        # 2. in loops in loops, too
        return width * min(estimate.MAX_ROUNDS, int(width**self.depth))

    def is_affordable(self, extent: Extent) -> bool:
        # 3. a text that is cut
        return self.copies(extent) <= MAX_COPIES and not (self.cuts and extent.longest > MAX_PIECES)


def of(root: tree.Node) -> Gathering | None:
    """What an expression gathers; None if it neither gathers nor cuts."""
    depth = _depth(root)
    calls = [node.name for node in root.walk() if node.kind == tree.CALL]
    cuts = not _CUTS.isdisjoint(calls)
    if not depth and not cuts:
        return None
    literal = max((len(node.parts) for node in root.walk() if node.kind in {tree.LIST, tree.MAP}), default=0)
    gathered = {node.accumulator for node in root.walk() if node.kind == tree.LOOP}
    sums = sum(1 for node in root.walk() if node.name == _ADD and _puts_lists_together(node, gathered))
    return Gathering(depth, 1 + sums, literal, cuts)


def _puts_lists_together(node: tree.Node, gathered: set[str]) -> bool:
    """Whether a sum may be one of lists: not of texts and numbers, and not the one that a loop gathers by."""
    return not any(_is_scalar(part) or (part.kind == tree.IDENT and part.name in gathered) for part in node.parts)


def _is_scalar(node: tree.Node) -> bool:
    if node.kind == tree.CALL and node.name == _ADD:
        return any(_is_scalar(part) for part in node.parts)
    return node.kind == tree.CONST or (node.kind == tree.CALL and node.name in _SCALARS)


def _depth(root: tree.Node) -> int:
    """How deep the deepest loop stands that gathers; 0: none does."""
    deepest, waiting = 0, [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if node.kind == tree.LOOP and not _is_bind(node):
            depth += 1
            if node.parts[1].kind == tree.LIST:
                deepest = max(deepest, depth)
        waiting += [(part, depth) for part in node.parts]
    return deepest


def _is_bind(node: tree.Node) -> bool:
    """Whether it is no loop: `cel.bind` is one over nothing."""
    return node.parts[0].kind == tree.LIST and not node.parts[0].parts


def extent(*values: Any) -> Extent:
    """How far values extend."""
    widest = longest = 0
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            longest = max(longest, len(value))
        elif isinstance(value, Mapping):
            widest = max(widest, len(value))
            waiting += value.values()
        elif isinstance(value, list):
            widest = max(widest, len(value))
            waiting += value
    return Extent(widest, longest)
