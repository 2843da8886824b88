# SPDX-License-Identifier: Apache-2.0
"""Which specification of Ignition a field came with. One table: for documents that are older, and for clients that are.

Nothing is changed here: `lacking` names the first field that a version does not have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

VERSIONS: Final = ("3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0")
NEWEST: Final = VERSIONS[-1]

# A segment of a path that stands for every item of a list.
_EACH: Final = "*"
# Values that every version can say by leaving the field out.
_UNSET: Final[tuple[Any, ...]] = (None, False, "", [], {}, ())
_SPECIAL: Final = 0o7000
_ARN: Final = "begins with arn:, which"

_Path = tuple[str, ...]
_REFERENCES: Final = (
    ("ignition", "config", "merge", _EACH),
    ("ignition", "config", "replace"),
    ("ignition", "security", "tls", "certificateAuthorities", _EACH),
)
_CONTENTS: Final = (("storage", "files", _EACH, "contents"), ("storage", "files", _EACH, "append", _EACH))
_LUKS: Final = ("storage", "luks", _EACH)


@dataclass(frozen=True)
class Lacking:
    """A field with a value that a version has no word for."""

    field: str
    sentence: str


@dataclass(frozen=True)
class _Came:
    """A field came with a version, or some values of an older field did; `needs` tells whether a value needs it."""

    version: str
    needs: Callable[[Any], bool]
    what: str = ""
    is_older: bool = False


def _is_set(value: Any) -> bool:
    return value not in _UNSET


def _is_false(value: Any) -> bool:
    return value is False


def _is_special(value: Any) -> bool:
    return isinstance(value, int) and bool(value & _SPECIAL)


def _is_arn(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("arn:")


_ROWS: Final[tuple[tuple[_Path, _Came], ...]] = (
    *(((*path, "httpHeaders"), _Came("3.1.0", _is_set)) for path in (*_REFERENCES, *_CONTENTS)),
    *(((*path, "compression"), _Came("3.1.0", _is_set)) for path in _REFERENCES),
    (("ignition", "proxy"), _Came("3.1.0", _is_set)),
    (("storage", "filesystems", _EACH, "mountOptions"), _Came("3.1.0", _is_set)),
    (("storage", "disks", _EACH, "partitions", _EACH, "resize"), _Came("3.2.0", _is_set)),
    # It is true where it is absent, so that only false needs the field.
    (("passwd", "users", _EACH, "shouldExist"), _Came("3.2.0", _is_false, "is false, which")),
    (("passwd", "groups", _EACH, "shouldExist"), _Came("3.2.0", _is_false, "is false, which")),
    (("kernelArguments",), _Came("3.3.0", lambda value: _is_set(value) and any(map(_is_set, value.values())))),
    (("storage", "directories", _EACH, "mode"), _Came("3.4.0", _is_special, "has special bits, which", is_older=True)),
    *(((*path, "source"), _Came("3.4.0", _is_arn, _ARN, is_older=True)) for path in (*_REFERENCES, *_CONTENTS)),
    ((*_LUKS, "discard"), _Came("3.4.0", _is_set)),
    ((*_LUKS, "openOptions"), _Came("3.4.0", _is_set)),
    ((*_LUKS, "clevis", "tang", _EACH, "advertisement"), _Came("3.4.0", _is_set)),
    ((*_LUKS, "cex"), _Came("3.5.0", _is_set)),
)
# The volumes themselves are a row of their own: there is no tree below them in a version that lacks them.
_VOLUMES: Final = (_LUKS[:2], _Came("3.2.0", _is_set))


def lacking(document: Any, version: str, called: str = "") -> Lacking | None:
    """The first field of a document that a version of specification 3 lacks. `called` is what errors call the version.

    One walk over what the table and the document have in common.
    """
    return _first(document, _tree(version), called or version)


def stripped(document: Any, version: str) -> Any:
    """A document that lacks nothing, without the fields that came later: they say what is so without them."""
    return _stripped(document, _tree(version))


def _stripped(value: Any, tree: Mapping[str, Any]) -> Any:
    if not value or not tree:
        return value
    if _EACH in tree:
        return [_stripped(item, tree[_EACH]) for item in value]
    result = {}
    for name, item in value.items():
        branch = tree.get(name, {})
        if not isinstance(branch, _Came):
            result[name] = _stripped(item, branch)
        elif branch.is_older:
            result[name] = item
    return result


@functools.cache
def _tree(version: str) -> Mapping[str, Any]:
    """The rows of everything that came later, by the segments of their paths."""
    root: dict[str, Any] = {}
    for path, came in (*_ROWS, _VOLUMES):
        if VERSIONS.index(came.version) > VERSIONS.index(version):
            branch = root
            for name in path[:-1]:
                branch = branch.setdefault(name, {})
            branch[path[-1]] = came
    return root


def _first(value: Any, tree: Mapping[str, Any] | _Came, called: str) -> Lacking | None:
    if isinstance(tree, _Came):
        if not tree.needs(value):
            return None
        return Lacking("", f"{tree.what or 'is a field that'} came with {tree.version}: {called} lacks it")
    below: Iterable[tuple[str, Any, Any]]
    if _EACH in tree:
        below = ((f"[{number}]", item, tree[_EACH]) for number, item in enumerate(value or ()))
    else:
        below = ((f".{name}", value[name], branch) for name, branch in tree.items() if name in (value or ()))
    for name, item, branch in below:
        if newer := _first(item, branch, called):
            return Lacking(f"{name}{newer.field}", newer.sentence)
    return None
