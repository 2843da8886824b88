# SPDX-License-Identifier: Apache-2.0
"""Server-side apply: merge a configuration into an object by ownership, and keep the record of who owns what.

It decides from documents alone and changes none of them; the schema's part in it is `fieldsets`. It does not find the
object, default it, check the configuration's uid and resourceVersion, or look at the field manager's name: that is the
caller's.

What applying does, in order (the numbers are those in the code):

1. refuse a configuration that carries `managedFields`, or lists whose elements cannot be told apart;
2. drop from it nulls and what only the server sets; the rest is what this applier owns from now on;
3. merge it into the live object, field by field as the schema allows;
4. remove what this applier applied before, does no longer, and nobody else owns;
5. compare with the live object: a change to a field that another owns is a conflict, unless forced;
6. take changed and removed fields from the others, and write down the new record.

An object without a record gets one by its first apply, which gives everything that is there to `before-first-apply`: it is
from before records were kept, or of a kind that has none from its creation.

A manager does not conflict with itself across /status: what it wrote through one door it may change through the other.
`kubectl` does not conflict with what it applied before in its own way, the client's (`last_applied`), and the annotation in
which it kept that follows. What ordinary writes do to the record is `updates`; how the record is read, written and kept
within bounds is `managed_fields`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from handfast.api import objects, status
from handfast.api.merging import differences, fieldsets, last_applied, managed_fields, patch, shapes

Document = dict[str, Any]
Types = differences.Types

BEFORE_FIRST_APPLY = "before-first-apply"
_GONE: Any = object()


def server_side_apply(
    live: Document | None,
    applied: Any,
    *,
    manager: str,
    force: bool,
    types: Types,
    api_version: str,
    now_text: str,
    subresource: str = "",
    ignored: differences.Ignored | None = None,
) -> tuple[Document, list[Document]]:
    """The object after `applied` was applied to `live` (None: there is none yet), and its `managedFields`.

    The document carries the record too. `types` is the schema's message name, a CRD's openAPIV3Schema, or None; `ignored`
    are the fields that a write through this subresource leaves alone.
    Applying the same again gives back an equal document with equal `managedFields`, times included.
    """
    shape = shapes.shape_of(types)
    # 1. and 2. refuse what cannot be applied, drop nulls and what only the server sets
    configuration = differences.without(_configuration(applied), ignored or {})
    _check_elements(shape, configuration, ())
    owned = fieldsets.FieldSet.of(configuration, shape).difference(differences.UNOWNED)
    own = managed_fields.Entry(
        manager=manager,
        operation="Apply",
        api_version=api_version,
        subresource=subresource,
        time=now_text,
        fields=owned,
    )
    entries = _owners(live, shape, own, ignored or {})
    last = next((entry for entry in entries if entry.identity == own.identity), None)
    others = [entry for entry in entries if entry.identity != own.identity]
    managed_fields.check_appliers(entries, [own, *(entry for entry in others if entry.fields)])

    # 3. merge field by field
    merged = _merge(shape, live or {}, configuration)
    # 4. remove what this applier no longer applies and nobody else owns
    if last is not None:
        merged = _without(merged, last.fields, [own, *others], shape)
    # 5. a change to a field that another owns is a conflict, unless forced
    changed, removed = differences.compare(live or {}, merged, shape)
    if not force:
        disputed = changed.difference(_own_before(own, live, shape)) if _touched(others, changed) else changed
        _check_conflicts(_rivals(own, others), disputed)
    if last is not None and last.fields == owned and last.api_version == api_version and not changed and not removed:
        own = last
    # 6. take changed and removed fields from the others, and write down the record
    lost = changed.union(removed)
    kept = [replace(entry, fields=entry.fields.difference(lost)) for entry in others]
    left = [entry for entry in (own, *kept) if entry.fields]
    # Applying nothing to an object without a record does not begin one.
    managed = managed_fields.write_entries(left) if owned or managed_fields.read_entries(live) else []
    if manager == last_applied.MANAGER:
        merged = last_applied.in_step(merged, applied)
    return _with_record(merged, managed), managed


def merged_by_policy(live: Document, applied: Any, types: Types) -> Document:
    """The object with the apply configuration of a mutating policy merged in (1 to 3): nobody owns what it sets.

    A list or a struct that is merged as a whole is refused, as in Kubernetes: what the policy does not name would be lost.
    """
    shape = shapes.shape_of(types)
    configuration = _configuration(applied)
    whole = sorted(fieldsets.path_text(path) for path in _whole(shape, configuration, ()))
    if whole:
        raise status.bad_request(f"may not mutate atomic arrays, maps or structs: {', '.join(whole)}")
    _check_elements(shape, configuration, ())
    merged: Document = _merge(shape, live, configuration)
    return merged


def _whole(shape: shapes.Shape, value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Where a configuration names something that is merged as a whole."""
    is_list = isinstance(value, list)
    if (isinstance(value, dict) and shape.atomic) or (is_list and shape.list_type not in {"map", "set"}):
        yield path
    elif is_list or isinstance(value, dict):
        for name, part, below in fieldsets.children(shape, value):
            yield from _whole(below, part, (*path, name))


def _owners(
    live: Document | None, shape: shapes.Shape, own: managed_fields.Entry, ignored: differences.Ignored
) -> list[managed_fields.Entry]:
    """The record of the live object or, if it has none yet, one that gives everything to nobody known."""
    entries = managed_fields.read_entries(live)
    if live is None or entries:
        return entries
    fields = differences.created(live, shape, ignored)
    return [replace(own, manager=BEFORE_FIRST_APPLY, operation="Update", subresource="", fields=fields)]


def _rivals(own: managed_fields.Entry, others: Sequence[managed_fields.Entry]) -> list[managed_fields.Entry]:
    """Those whom an applier can conflict with: not itself at the other of the two doors, the object and its /status."""
    doors = {"", "status"}
    return [entry for entry in others if entry.manager != own.manager or {entry.subresource, own.subresource} != doors]


def _touched(others: Sequence[managed_fields.Entry], changed: fieldsets.FieldSet) -> bool:
    return any(entry.fields.intersection(changed) for entry in others)


def _own_before(own: managed_fields.Entry, live: Document | None, shape: shapes.Shape) -> fieldsets.FieldSet:
    """What the applier has set in another way, and is as it left it: kubectl, by client-side apply."""
    if own.manager != last_applied.MANAGER or live is None:
        return fieldsets.FieldSet()
    return last_applied.still_there(live, shape, own.api_version)


def _configuration(applied: Any) -> Document:
    if not isinstance(applied, dict):
        raise status.bad_request("an applied configuration must be an object")
    metadata = applied.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise status.bad_request("metadata must be an object")
    if metadata.get("managedFields") is not None:
        raise status.bad_request("metadata.managedFields must be nil")
    named = {key: value for key, value in metadata.items() if key not in objects.SERVER_SET}
    configuration: Document = _without_nulls({**applied, "metadata": named})
    return configuration


def _without_nulls(value: Any) -> Any:
    # In a typed object a null is the same as nothing said.
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _check_elements(shape: shapes.Shape, value: Any, path: tuple[str, ...]) -> None:
    """Every element of a list that is owned by element must have its keys, and be the only one with them."""
    if fieldsets.is_leaf(shape, value):
        return
    if isinstance(value, list):
        seen: set[str] = set()
        where = f"failed to create typed patch object: {fieldsets.path_text(path)}"
        for index, part in enumerate(value):
            for key in shape.keys if shape.list_type == "map" else ():
                if not isinstance(part, dict) or (part.get(key) is None and shape.default(key) is None):
                    raise status.bad_request(
                        f"{where}: element {index}: associative list with keys has an element that omits key field "
                        f'"{key}" (and doesn\'t have default value)'
                    )
            name = fieldsets.element_name(shape, part)
            if name in seen:
                raise status.bad_request(f"{where}: duplicate entries for key {fieldsets.path_text((name,))}")
            seen.add(name)
    for name, part, below in fieldsets.children(shape, value):
        _check_elements(below, part, (*path, name))


def _merge(shape: shapes.Shape, live: Any, applied: Any) -> Any:
    if isinstance(live, dict) and isinstance(applied, dict) and not shape.atomic:
        merged = dict(live)
        for name, value in applied.items():
            merged[name] = _merge(shape.child(name), live[name], value) if name in live else value
        return merged
    if isinstance(live, list) and isinstance(applied, list) and shape.list_type in {"map", "set"}:
        return _merge_elements(shape, live, applied)
    # What is equal stays as it was written, so that 1 does not become 1.0.
    return live if patch.json_equal(live, applied) else applied


def _merge_elements(shape: shapes.Shape, live: list[Any], applied: list[Any]) -> list[Any]:
    """Applied elements in their own order, in the places of those that are there; a new one comes after the one before it."""
    names = [fieldsets.element_name(shape, part) for part in live]
    there = dict(reversed(list(zip(names, live, strict=True))))
    wanted = {fieldsets.element_name(shape, part): part for part in applied}
    shared = [name for name in wanted if name in there]
    if not shared:
        return [*live, *applied]
    following: dict[str, list[Any]] = {name: [] for name in ("", *shared)}
    last = ""
    for name, part in wanted.items():
        if name in there:
            last = name
        else:
            following[last].append(part)
    result: list[Any] = []
    free = set(shared)
    places = iter(shared)
    for name, part in zip(names, live, strict=True):
        if name not in free:
            result.append(part)
            continue
        if len(free) == len(shared):
            result.extend(following[""])
        free.remove(name)
        taken = next(places)
        result.append(_merge(shape.element(), there[taken], wanted[taken]))
        result.extend(following[taken])
    return result


def _without(
    document: Document, gone: fieldsets.FieldSet, entries: Sequence[managed_fields.Entry], shape: shapes.Shape
) -> Document:
    """The document without those fields of `gone` in which none of `entries` owns anything."""
    kept = fieldsets.FieldSet.union_of(entry.fields for entry in entries)
    pruned: Document = _prune(shape, document, gone.tree, {".": {}} | kept.tree)
    return pruned


def _prune(shape: shapes.Shape, value: Any, gone: fieldsets.Tree, kept: fieldsets.Tree) -> Any:
    if "." in gone and not kept:
        return _GONE
    if isinstance(value, dict):
        rest: Any = dict(value)
        for name, below in gone.items():
            field = name[2:]
            if name.startswith("f:") and field in rest:
                rest[field] = _prune(shape.child(field), rest[field], below, kept.get(name, {}))
                if rest[field] is _GONE:
                    del rest[field]
    elif isinstance(value, list) and shape.list_type in {"map", "set"}:
        rest = []
        for part in value:
            name = fieldsets.element_name(shape, part)
            if name in gone:
                part = _prune(shape.element(), part, gone[name], kept.get(name, {}))
            if part is not _GONE:
                rest.append(part)
    else:
        return value
    # What held nothing but fields now gone was made by applying them.
    return _GONE if value and not rest and not kept else rest


def _check_conflicts(others: Sequence[managed_fields.Entry], changed: fieldsets.FieldSet) -> None:
    conflicts = [
        (str(entry), fieldsets.path_text(path))
        for entry in sorted(others, key=str)
        for path in entry.fields.intersection(changed).paths()
    ]
    if not conflicts:
        return
    causes = [status.Cause("FieldManagerConflict", f"conflict with {who}", where) for who, where in conflicts]
    if len(conflicts) == 1:
        ((who, where),) = conflicts
        text = f"1 conflict: conflict with {who}: {where}"
    else:
        places: dict[str, list[str]] = {}
        for who, where in conflicts:
            places.setdefault(who, [f"conflicts with {who}:"]).append(f"- {where}")
        lines = [line for group in places.values() for line in group]
        text = f"{len(conflicts)} conflicts: " + "\n".join(lines)
    raise status.StatusError("Conflict", f"Apply failed with {text}", causes=causes)


def _with_record(document: Document, managed: list[Document]) -> Document:
    metadata = {key: value for key, value in (document.get("metadata") or {}).items() if key != "managedFields"}
    if managed:
        metadata["managedFields"] = managed
    return {**document, "metadata": metadata}
