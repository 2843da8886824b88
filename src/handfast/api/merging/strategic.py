# SPDX-License-Identifier: Apache-2.0
"""Strategic merge patch: a merge patch that knows from the schema which lists are sets and which have keys.

It changes neither the document nor the patch; the result shares with them what it did not touch. It is for built-in
kinds only (custom resources have no schema here: their caller answers 415), and it does not validate the result.

What a patch may say, beyond a plain merge in which null removes:

1. `$patch: replace | delete | merge` in an object, or in an element of a list with a merge key.
2. `$retainKeys: [...]` in an object: every other key of the original goes.
3. `$deleteFromPrimitiveList/<field>: [...]`: these scalars leave the list.
4. `$setElementOrder/<field>: [...]`: the order of the elements named; elements that only the server has stay where
   they stood before one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from handfast.api import status
from handfast.api.merging import patch as patches
from handfast.api.schema import schema

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_MAX_BITS = 64

# Where an object stands: in a message, in a map field (whose entries share one type), or where nothing is known.
_Where = schema.Message | schema.Field | None
_Identity = Callable[[Any], Hashable]


def apply_strategic(document: dict[str, Any], patch: Any, message_name: str) -> dict[str, Any]:
    """The document after the patch; `message_name` is the schema's name of its kind, e.g. `core.v1.Pod`."""
    if not isinstance(patch, dict):
        raise status.bad_request("a strategic merge patch must be an object")
    patches.check_depth(patch)
    return _merge_map(document, patch, schema.message(message_name))


def _is_directive(key: str) -> bool:
    # Not every "$": `$ref` and `$schema` are fields of JSON schemas.
    return key.startswith("$") and (key in {_PATCH, _RETAIN} or key.startswith((_DELETE, _ORDER)))


def _below(where: _Where, key: str) -> tuple[schema.Field | None, _Where]:
    """The field behind a key (None: unknown, or an entry of a map), and where an object under it stands."""
    if where is None:
        return None, None
    if isinstance(where, schema.Field):
        return None, _message(where.type)
    field = where.fields.get(key)
    if field is None:
        return None, None
    return field, field if field.is_map else _message(field.type)


def _message(type_name: str) -> schema.Message | None:
    if schema.is_scalar(type_name):
        return None
    message = schema.message(type_name)
    return None if message.json_form else message


def _merge_map(original: dict[str, Any], patch: dict[str, Any], where: _Where) -> dict[str, Any]:
    directive = _directive(patch)
    if directive == "delete":
        return {}
    if directive == "replace":
        return _plain_map(patch)
    merged = _retained(original, patch)
    orders = {}
    for key, value in patch.items():
        if key.startswith(_DELETE):
            _delete_scalars(merged, key.removeprefix(_DELETE), value)
        elif key.startswith(_ORDER):
            orders[key.removeprefix(_ORDER)] = value
    for key, value in patch.items():
        if not _is_directive(key):
            _merge_key(merged, key, value, where)
    for key, order in orders.items():
        _set_order(merged, original, patch, _below(where, key)[0], (key, order))
    return merged


def _directive(patch: dict[str, Any]) -> str:
    directive = patch.get(_PATCH, "merge")
    if not isinstance(directive, str) or directive not in {"replace", "delete", "merge"}:
        raise status.bad_request(f"unknown patch type: {directive!r}: $patch must be replace, delete or merge")
    return directive


def _merge_key(merged: dict[str, Any], key: str, value: Any, where: _Where) -> None:
    if value is None:
        merged.pop(key, None)
        return
    current = merged.get(key)
    if isinstance(value, dict):
        if isinstance(current, dict):
            merged[key] = _merge_map(current, value, _below(where, key)[1])
        elif _directive(value) != "delete":
            merged[key] = _plain_map(value)
    elif isinstance(value, list):
        field, _ = _below(where, key)
        if isinstance(current, list) and field is not None and "merge" in field.patch.split(","):
            merged[key] = _merge_list(current, value, field)
        else:
            merged[key] = _plain_list(value)
    else:
        merged[key] = value


def _plain(value: Any) -> Any:
    """A value that meets nothing to merge with: directives and nulls have done their work and go."""
    if isinstance(value, dict):
        return _plain_map(value)
    return _plain_list(value) if isinstance(value, list) else value


def _plain_map(value: dict[str, Any]) -> dict[str, Any]:
    return {key: _plain(child) for key, child in value.items() if child is not None and not _is_directive(key)}


def _plain_list(value: list[Any]) -> list[Any]:
    kept = []
    for child in value:
        if isinstance(child, dict) and _PATCH in child and _directive(child) != "merge":
            continue
        kept.append(_plain(child))
    return kept


def _retained(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A copy of the original to merge into, without the keys that `$retainKeys` does not name."""
    if _RETAIN not in patch:
        return dict(original)
    listed = patch[_RETAIN]
    if not isinstance(listed, list) or not all(isinstance(key, str) for key in listed):
        raise status.bad_request("invalid patch format of retainKeys")
    keys = frozenset(listed)
    if any(not _is_directive(key) and key not in keys for key in patch):
        raise status.bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in original.items() if key in keys}


def _scalar_identity(value: Any) -> Hashable:
    if isinstance(value, str):
        return value
    # No field holds such integers. Endlessly many of them share one hash: a set of them would be searched one by one.
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return (None, hex(value))
    # In Python true equals 1; in a list of scalars they are two.
    return (isinstance(value, bool), value)


def _delete_scalars(merged: dict[str, Any], key: str, gone: Any) -> None:
    if not isinstance(gone, list) or any(isinstance(value, dict | list) for value in gone):
        raise status.bad_request("invalid patch format of primitive list")
    current = merged.get(key)
    if isinstance(current, list):
        leaving = {_scalar_identity(value) for value in gone}
        merged[key] = [
            value for value in current if isinstance(value, dict | list) or _scalar_identity(value) not in leaving
        ]


def _key_identity(merge_key: str) -> _Identity:
    def identity(element: Any) -> Hashable:
        value = element.get(merge_key) if isinstance(element, dict) else None
        # An element of the original without the key is like no other, so it is left alone.
        return ("", id(element)) if value is None or isinstance(value, dict | list) else _scalar_identity(value)

    return identity


def _merge_list(original: list[Any], patch: list[Any], field: schema.Field) -> list[Any]:
    elements = [*original, *patch]
    if any(isinstance(element, list) for element in elements):
        raise status.bad_request(f"{field.name}: lists of lists are not supported")
    maps = sum(isinstance(element, dict) for element in elements)
    if not maps:
        merged = list({_scalar_identity(element): element for element in elements}.values())
        return _in_order(merged, patch, original, _scalar_identity)
    if maps < len(elements):
        raise status.bad_request(f"{field.name}: a list must hold either objects or scalars, not both")
    if not field.patch_key:
        raise status.bad_request(f"cannot merge lists without merge key for {field.name}")
    return _merge_elements(original, patch, field)


def _merge_elements(original: list[Any], patch: list[Any], field: schema.Field) -> list[Any]:
    identity = _key_identity(field.patch_key)
    ordinary = [element for element in patch if _directive(element) == "merge"]
    if any(_directive(element) == "replace" for element in patch):
        return _plain_list(ordinary)
    for element in patch:
        if element.get(field.patch_key) is None:
            raise status.bad_request(f"{field.name}: an element does not contain declared merge key: {field.patch_key}")
    gone = {identity(element) for element in patch if _directive(element) == "delete"}
    merged = [element for element in original if identity(element) not in gone]
    places: dict[Hashable, int] = {}
    for place, element in enumerate(merged):
        places.setdefault(identity(element), place)
    where = _message(field.type)
    for element in ordinary:
        place = places.setdefault(identity(element), len(merged))
        if place < len(merged):
            merged[place] = _merge_map(merged[place], element, where)
        else:
            merged.append(_plain_map(element))
    return _in_order(merged, ordinary, original, identity)


def _in_order(merged: list[Any], order: Sequence[Any], original: list[Any], identity: _Identity) -> list[Any]:
    """Elements named in `order` in that order; the rest before the first of them that they preceded originally."""
    rank = {identity(element): place for place, element in reversed(list(enumerate(order)))}
    before = {identity(element): place for place, element in reversed(list(enumerate(original)))}
    ordered = sorted(
        (element for element in merged if identity(element) in rank), key=lambda element: rank[identity(element)]
    )
    result: list[Any] = []
    waiting = [element for element in merged if identity(element) not in rank]
    left = 0
    for element in ordered:
        place = before.get(identity(element), -1)
        while left < len(waiting) and before.get(identity(waiting[left]), place) < place:
            result.append(waiting[left])
            left += 1
        result.append(element)
    return result + waiting[left:]


def _set_order(
    merged: dict[str, Any],
    original: dict[str, Any],
    patch: dict[str, Any],
    field: schema.Field | None,
    directive: tuple[str, Any],
) -> None:
    key, order = directive
    if not isinstance(order, list):
        raise status.bad_request("invalid patch format of setElementOrder list")
    current = merged.get(key)
    if not isinstance(current, list):
        return
    merge_key = field.patch_key if field is not None else ""
    if any(isinstance(element, list) or isinstance(element, dict) is not bool(merge_key) for element in order):
        raise status.bad_request("invalid patch format of setElementOrder list")
    identity = _key_identity(merge_key) if merge_key else _scalar_identity
    if not merge_key and any(isinstance(element, dict | list) for element in current):
        raise status.bad_request("invalid patch format of setElementOrder list")
    _check_order(patch.get(key), order, identity, key)
    before = original.get(key)
    merged[key] = _in_order(current, order, before if isinstance(before, list) else [], identity)


def _check_order(patched: Any, order: list[Any], identity: _Identity, key: str) -> None:
    """The elements that the patch sets must be named in the order, and follow it themselves."""
    rank = {identity(element): place for place, element in reversed(list(enumerate(order)))}
    last = -1
    for element in patched if isinstance(patched, list) else ():
        if isinstance(element, dict) and _directive(element) != "merge":
            continue
        place = rank.get(identity(element), -1)
        if place < last or place < 0:
            raise status.bad_request(f"The order in patch list {key} doesn't match $setElementOrder list")
        last = place
