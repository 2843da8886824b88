# SPDX-License-Identifier: Apache-2.0
"""Change a JSON document inside a fuzzer's input: one place of its tree at a time. It does not choose what is a good change.

libFuzzer changes bytes, after which most texts are no JSON any more. Half of the changes are therefore made here. The same seed gives
the same change.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

Change = Callable[[bytes, int], bytes]

# What code may not have thought of.
ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    -(2**63),
    2**64,
    0.5,
    1e308,
    "",
    "a",
    "-",
    "\x00",
    "\U0001f600",
    "1Gi",
    "100%",
    "2026-01-02T03:04:05Z",
    "a" * 300,
    "$patch",
    "/metadata/labels",
    [],
    [None],
    [[]],
    [1, 1],
    ["a", "a"],
    {},
    {"": ""},
    {"a": {}},
    {"name": "a"},
    {"$patch": "delete"},
    {"type": "object"},
    {"op": "copy", "from": "/spec", "path": "/spec/a"},
)


def json_change(data: bytes, seed: int, max_size: int, change_bytes: Change) -> bytes:
    """A changed input: its tree behind the first byte if it is JSON, else, or as often, its bytes."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        return change_bytes(data, max_size)
    try:
        tree = [msgspec.json.decode(data[1:])]
    except (ValueError, RecursionError):
        return change_bytes(data, max_size)
    for _ in range(chance.choice((1, 1, 2, 4))):
        _change(tree, chance)
    changed = data[:1] + b"".join(map(msgspec.json.encode, tree))
    return changed if len(changed) <= max_size else data


def _change(tree: list[Any], chance: random.Random) -> None:
    places = list(_places(tree))
    holder, key = chance.choice(places)
    value = copy.deepcopy(chance.choice(ODD))
    match chance.randrange(5):
        case 0:
            holder[key] = value
        case 1 if holder is not tree:
            del holder[key]
        case 2:
            # A value that belongs somewhere else.
            other, name = chance.choice(places)
            holder[key] = copy.deepcopy(other[name])
        case 3 if isinstance(holder[key], list) and holder[key]:
            holder[key].append(copy.deepcopy(chance.choice(holder[key])))
        case _ if isinstance(holder[key], dict):
            # A field of another object.
            names = [name for other, name in places if isinstance(other, dict)]
            holder[key][chance.choice([*names, "$patch", "a"])] = value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in pairs:
        yield value, key
        yield from _places(child)
