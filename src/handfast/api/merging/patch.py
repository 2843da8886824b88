# SPDX-License-Identifier: Apache-2.0
"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386): a document and a patch make a new document.

Neither input is ever changed; the new document shares with them whatever the patch left alone, so documents are to be
treated as immutable. It does not know kinds or schemas: strategic merge is `strategic`, server-side apply is `apply`.

A patch that is not one is a 400; one that does not fit the document is a 422 that names the operation. Both are
bounded: at most `MAX_OPERATIONS` operations, `MAX_COPIED` characters multiplied by `copy`, and a result at most
`nesting.MAX_DEPTH` levels deep.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from handfast.api import status
from handfast.api.codec import nesting

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 * 1024 * 1024
# A key has at most a few hundred characters, a path some ten keys.
MAX_POINTER = 8192

_REJECTED = "the server rejected our request due to an error in our request"
_INDEX = re.compile(r"(0|[1-9][0-9]{0,8})\Z", re.ASCII)
_BAD_ESCAPE = re.compile(r"~(?![01])")


def json_equal(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, but true does not equal 1 as it would in Python."""
    if one is other:
        return True
    if one != other:
        return False
    if isinstance(one, dict):
        return all(json_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(json_equal, one, other))
    return isinstance(one, bool) is isinstance(other, bool)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2: objects merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def check_depth(patch: Any) -> None:
    """Refuse what nobody could walk by recursion."""
    if nesting.is_too_deep(patch):
        raise status.bad_request(nesting.TOO_DEEP)


def apply_merge_patch(document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The document after a merge patch, which must be an object: anything else would replace the whole resource."""
    if not isinstance(patch, dict):
        raise status.bad_request("a JSON merge patch must be an object")
    check_depth(patch)
    merged: dict[str, Any] = merge(document, patch)
    return merged


def apply_json_patch(document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The document after all operations of a JSON patch, or the error of the first that fails."""
    operations = parse_json_patch(patch)
    editor = _Editor(document)
    for operation in operations:
        try:
            _APPLY[operation.op](editor, operation)
        except _Untrue as failed:
            raise TestFailed(f"{operation.op} operation does not apply: {failed}", operation.path) from None
        except _Failed as failed:
            raise _rejected(f"{operation.op} operation does not apply: {failed}", operation.path) from None
    if not isinstance(editor.root, dict):
        raise _rejected("the patched document is not an object", "")
    if nesting.is_too_deep(editor.root):
        raise _rejected(f"the patched document is nested deeper than {nesting.MAX_DEPTH} levels", "")
    return editor.root


class Operation(msgspec.Struct, frozen=True):
    """One operation, its pointers already split into unescaped tokens."""

    op: str
    path: str
    tokens: tuple[str, ...]
    source: str = ""
    source_tokens: tuple[str, ...] = ()
    value: Any = None


def parse_json_patch(patch: Any) -> list[Operation]:
    """The operations of a patch; 400 if it is not one, 413 if there are too many."""
    if not isinstance(patch, list):
        raise status.bad_request("a JSON patch must be an array of operations")
    if len(patch) > MAX_OPERATIONS:
        raise status.StatusError(
            "RequestEntityTooLarge",
            "Request entity is too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(patch)}",
        )
    check_depth(patch)
    return [_operation(index, row) for index, row in enumerate(patch)]


def _operation(index: int, row: Any) -> Operation:
    if not isinstance(row, dict):
        raise status.bad_request(f"JSON patch operation {index} must be an object")
    op = row.get("op")
    if not isinstance(op, str) or op not in _APPLY:
        raise status.bad_request(f"JSON patch operation {index} has op {op!r}: allowed are {', '.join(_APPLY)}")
    tokens = _pointer(row, "path", index)
    if op in {"move", "copy"}:
        return Operation(op, row["path"], tokens, row.get("from", ""), _pointer(row, "from", index))
    if op != "remove" and "value" not in row:
        raise status.bad_request(f'JSON patch operation {index} ({op}) needs a "value"')
    return Operation(op, row["path"], tokens, value=row.get("value"))


def _pointer(row: dict[str, Any], member: str, index: int) -> tuple[str, ...]:
    text = row.get(member)
    if not isinstance(text, str):
        raise status.bad_request(f'JSON patch operation {index} needs a JSON pointer as "{member}"')
    if not text:
        return ()
    if len(text) > MAX_POINTER:
        raise status.bad_request(
            f'JSON patch operation {index} has a "{member}" of {len(text)} characters: at most {MAX_POINTER} are allowed'
        )
    if not text.startswith("/") or _BAD_ESCAPE.search(text):
        raise status.bad_request(
            f'JSON patch operation {index} has "{member}" {text!r}, which is no JSON pointer: '
            'it must be empty or start with "/", and "~" must be followed by 0 or 1'
        )
    parts = text[1:].split("/")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts) if "~" in text else tuple(parts)


def _rejected(why: str, path: str) -> status.StatusError:
    cause = status.Cause("FieldValueInvalid", why, path)
    return status.StatusError("Invalid", f"{_REJECTED}: {why}", causes=[cause])


class TestFailed(status.StatusError):
    """The patch asks whether something is so, and it is not."""

    def __init__(self, why: str, path: str) -> None:
        super().__init__("Invalid", f"{_REJECTED}: {why}", causes=[status.Cause("FieldValueInvalid", why, path)])


class _Failed(Exception):
    """Why an operation does not apply; it never leaves this module."""


class _Untrue(_Failed):
    """A test of the patch fails."""


def _missing(path: str) -> _Failed:
    return _Failed(f"doc is missing path: {path!r}: missing value")


def _index(token: str, length: int, path: str) -> int:
    """RFC 6901, section 4: digits without leading zeros, below `length`."""
    if not _INDEX.match(token):
        raise _Failed(f"{path!r}: {token!r} is not an array index")
    if int(token) >= length:
        raise _Failed(f"{path!r}: unable to access invalid index: {token}")
    return int(token)


def _child(container: Any, token: str, path: str) -> Any:
    if isinstance(container, dict):
        if token not in container:
            raise _missing(path)
        return container[token]
    if isinstance(container, list):
        return container[_index(token, len(container), path)]
    raise _missing(path)


class _Editor(msgspec.Struct):
    """The document being edited. Containers it made itself are edited in place, all others are copied first."""

    root: Any
    copied: int = 0
    # By identity; the values keep the containers alive, so that no identity is used again.
    owned: dict[int, Any] = msgspec.field(default_factory=dict)

    def own(self, container: Any) -> Any:
        """The container itself if made here, else a shallow copy that is."""
        if id(container) in self.owned:
            return container
        mine = container.copy()
        self.owned[id(mine)] = mine
        return mine

    def get(self, tokens: tuple[str, ...], path: str) -> Any:
        value = self.root
        for token in tokens:
            value = _child(value, token, path)
        return value

    def parent(self, tokens: tuple[str, ...], path: str) -> Any:
        """The container of the last token, owned like everything on the way to it."""
        if not isinstance(self.root, dict | list):
            raise _missing(path)
        container = self.root = self.own(self.root)
        for token in tokens[:-1]:
            value = _child(container, token, path)
            if not isinstance(value, dict | list):
                raise _missing(path)
            mine = self.own(value)
            container[int(token) if isinstance(container, list) else token] = mine
            container = mine
        return container

    def add(self, tokens: tuple[str, ...], path: str, value: Any) -> None:
        if not tokens:
            self.root = value
            return
        container, token = self.parent(tokens, path), tokens[-1]
        if isinstance(container, dict):
            container[token] = value
        elif token == "-":  # noqa: S105  the RFC's index after the last
            container.append(value)
        else:
            container.insert(_index(token, len(container) + 1, path), value)

    def replace(self, tokens: tuple[str, ...], path: str, value: Any) -> None:
        if not tokens:
            self.root = value
            return
        container, token = self.parent(tokens, path), tokens[-1]
        _child(container, token, path)
        container[int(token) if isinstance(container, list) else token] = value

    def remove(self, tokens: tuple[str, ...], path: str) -> Any:
        if not tokens:
            value, self.root = self.root, None
            return value
        container, token = self.parent(tokens, path), tokens[-1]
        value = _child(container, token, path)
        del container[int(token) if isinstance(container, list) else token]
        return value

    def duplicate(self, value: Any, depth: int = 0) -> Any:
        """A deep copy, whose size counts against the limit: otherwise forty copies could fill the memory."""
        if depth > nesting.MAX_DEPTH:
            raise _Failed(f"the value to copy is nested deeper than {nesting.MAX_DEPTH} levels")
        self.copied += 1 + (len(value) if isinstance(value, str) else 0)
        if isinstance(value, dict):
            self.copied += sum(map(len, value))
        if self.copied > MAX_COPIED:
            raise _Failed(f"the accumulated size of copies exceeds the limit {MAX_COPIED}")
        if isinstance(value, dict):
            mine: Any = {key: self.duplicate(child, depth + 1) for key, child in value.items()}
        elif isinstance(value, list):
            mine = [self.duplicate(child, depth + 1) for child in value]
        else:
            return value
        self.owned[id(mine)] = mine
        return mine


def _move(editor: _Editor, operation: Operation) -> None:
    tokens, source = operation.tokens, operation.source_tokens
    if len(tokens) > len(source) and tokens[: len(source)] == source:
        raise _Failed(f"{operation.source!r} cannot be moved into itself")
    editor.get(source, operation.source)
    if tokens != source:
        editor.add(tokens, operation.path, editor.remove(source, operation.source))


def _copy(editor: _Editor, operation: Operation) -> None:
    value = editor.get(operation.source_tokens, operation.source)
    editor.add(operation.tokens, operation.path, editor.duplicate(value))


def _test(editor: _Editor, operation: Operation) -> None:
    if not json_equal(editor.get(operation.tokens, operation.path), operation.value):
        raise _Untrue(f"testing value {operation.path!r} failed: test failed")


_APPLY: dict[str, Callable[[_Editor, Operation], object]] = {
    "add": lambda editor, operation: editor.add(operation.tokens, operation.path, operation.value),
    "remove": lambda editor, operation: editor.remove(operation.tokens, operation.path),
    "replace": lambda editor, operation: editor.replace(operation.tokens, operation.path, operation.value),
    "move": _move,
    "copy": _copy,
    "test": _test,
}
