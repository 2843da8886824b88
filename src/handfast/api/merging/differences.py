# SPDX-License-Identifier: Apache-2.0
"""Which fields of a document a write set, changed or took away: the sets of fields that ownership is made of.

It compares documents by what the schema says of lists and maps (`fieldsets`), in one pass. What nobody can own is in none
of the sets: what names an object, and what only the server sets. Who gets the fields, and who loses them, is decided in
`updates` and `apply`.

A struct that every object of a kind has, if only empty, is nobody's, and so is a list that is always written: what is in them
is owned. That holds where the struct around them is such a frame, too; in one that somebody added, all is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handfast.api import objects
from handfast.api.merging import fieldsets, patch, shapes

Document = dict[str, Any]
Types = str | Mapping[str, Any] | None
# Fields that the write leaves alone, and nobody gets by it: a field of the object, and which parts of it (none: all).
Ignored = Mapping[str, frozenset[str]]

_OF_OBJECT = frozenset({"apiVersion", "kind"})
_OF_METADATA = frozenset({"name", "namespace", *objects.SERVER_SET})
# An empty frame: what is always there.
_NOTHING: fieldsets.Tree = {}
# Nobody owns what names an object, nor what only the server sets.
UNOWNED = fieldsets.FieldSet.parse(
    {
        **{f"f:{name}": {} for name in _OF_OBJECT},
        "f:metadata": {".": {}} | {f"f:{name}": {} for name in _OF_METADATA},
    }
)


def without(document: Mapping[str, Any], ignored: Ignored) -> Document:
    """A document without the fields that a write leaves alone; it shares the others."""
    rest = {name: value for name, value in document.items() if name not in ignored or ignored[name]}
    for name, parts in ignored.items():
        held = rest.get(name)
        if isinstance(held, dict):
            rest[name] = {part: value for part, value in held.items() if part not in parts}
    return rest


def created(document: Mapping[str, Any], shape: shapes.Shape, ignored: Ignored) -> fieldsets.FieldSet:
    """All that can be owned of a new object."""
    return fieldsets.FieldSet(_created(document, shape, ignored, fieldsets.LEAF))


def created_fields_v1(document: Mapping[str, Any], shape: shapes.Shape, ignored: Ignored) -> dict[str, Any]:
    """The same as FieldsV1: the set itself is not made (half of the time for a ConfigMap with ten keys)."""
    return _created(document, shape, ignored, {})


def _created(
    document: Mapping[str, Any], shape: shapes.Shape, ignored: Ignored, leaf: fieldsets.Tree
) -> fieldsets.Tree:
    owned = {name: value for name, value in without(document, ignored).items() if name not in _OF_OBJECT}
    metadata = owned.get("metadata")
    if isinstance(metadata, dict):
        owned["metadata"] = {name: value for name, value in metadata.items() if name not in _OF_METADATA}
    return _parts_added(shape, owned, leaf, framed=True)


def compare(
    before: Mapping[str, Any], after: Mapping[str, Any], shape: shapes.Shape
) -> tuple[fieldsets.FieldSet, fieldsets.FieldSet]:
    """The fields added or changed, and the fields removed, without those that nobody owns."""
    changed, removed = _compare(shape, before, after)
    return fieldsets.FieldSet(changed).difference(UNOWNED), fieldsets.FieldSet(removed).difference(UNOWNED)


def _compare(shape: shapes.Shape, before: Any, after: Any) -> tuple[fieldsets.Tree, fieldsets.Tree]:
    changed: fieldsets.Tree = {}
    removed: fieldsets.Tree = {}
    old = {name: (part, below) for name, part, below in fieldsets.children(shape, before)}
    for name, part, below in fieldsets.children(shape, after):
        if name not in old:
            more = _added(below, part, fieldsets.LEAF, framed=True)
            if more is not _NOTHING:
                changed[name] = more
            continue
        was, _ = old.pop(name)
        if patch.json_equal(was, part):
            continue
        if _comparable(below, was, part):
            more, less = _compare(below, was, part)
        else:
            more = {".": {}} | _added(below, part, fieldsets.LEAF, framed=False)
            less = _removed(below, was)
            del less["."]
        if more:
            changed[name] = more
        if less:
            removed[name] = less
    for name, (part, below) in old.items():
        removed[name] = _removed(below, part)
    return changed, removed


def _comparable(shape: shapes.Shape, before: Any, after: Any) -> bool:
    """Whether two values are to be compared part by part."""
    if isinstance(before, dict) and isinstance(after, dict):
        return not shape.atomic
    return isinstance(before, list) and isinstance(after, list) and shape.list_type in {"map", "set"}


def _added(shape: shapes.Shape, value: Any, leaf: fieldsets.Tree, *, framed: bool) -> fieldsets.Tree:
    """A value that was not there: all that is in it and, unless it is a frame that is always there, itself."""
    is_frame = framed and shape.implied
    if fieldsets.is_leaf(shape, value):
        return _NOTHING if is_frame and value in ({}, []) else leaf
    parts = _parts_added(shape, value, leaf, framed=is_frame)
    return parts or _NOTHING if is_frame else {".": {}, **parts}


def _parts_added(shape: shapes.Shape, value: Any, leaf: fieldsets.Tree, *, framed: bool) -> fieldsets.Tree:
    tree: fieldsets.Tree = {}
    for name, part, below in fieldsets.children(shape, value):
        # Nearly all are: not worth a call (a quarter of the time for a Pod).
        if type(part) is str:
            tree[name] = leaf
            continue
        more = _added(below, part, leaf, framed=framed)
        if more is not _NOTHING:
            tree[name] = more
    return tree


def _removed(shape: shapes.Shape, value: Any) -> fieldsets.Tree:
    """A value that is no longer there: itself and all that was in it."""
    if fieldsets.is_leaf(shape, value):
        return {".": {}}
    return {".": {}} | {name: _removed(below, part) for name, part, below in fieldsets.children(shape, value)}
