# SPDX-License-Identifier: Apache-2.0
"""Ignition's specification 2 in both directions: MachineConfigs that still have it, and machines that still read it.

What has no word in the other specification is refused by name. Nothing is judged otherwise: `ignition.parse` judges what comes of it.

Up, from 2.0, 2.1 and 2.2:
1. A path, a unit or a user may be there several times in specification 2: the last one counts, and drop-ins and keys of all are kept.
2. Only the file system `root` is known. `append` of a file becomes a list; a file overwrites unless it says otherwise.
3. Disks, RAID and networkd units have no form that is converted here.

Down, to 2.2:
4. What came with 3.1 or later is refused, except in the absence of a value.
5. A file with contents and things to append becomes several entries.
6. Disks, RAID, file systems and encrypted volumes are not converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from handfast import errors
from handfast.rules.machine_config import since

VERSION: Final = "2.2.0"
READ: Final = ("2.0.0", "2.1.0", VERSION)
NOT_CONVERTED: Final = "IgnitionNotConvertible"
_ROOT: Final = "root"
_OLDEST: Final = since.VERSIONS[0]
_KEPT: Final = ("directories", "files", "links")


def is_one(document: Any) -> bool:
    """Whether a configuration says that it is of specification 2."""
    section = document.get("ignition") if isinstance(document, Mapping) else None
    version = section.get("version") if isinstance(section, Mapping) else None
    return version in READ


def upgraded(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same in specification 3. What is malformed stays so, for the reader to name."""
    single = deduplicated(document)
    ignition = {**single["ignition"], "version": since.NEWEST}
    config = ignition.get("config")
    if isinstance(config, Mapping) and "append" in config:
        ignition["config"] = {
            **{key: value for key, value in config.items() if key != "append"},
            "merge": config["append"],
        }
    result = {**single, "ignition": ignition}
    storage = single.get("storage")
    if isinstance(storage, Mapping):
        # 3. what is not converted
        for name in ("disks", "raid"):
            if storage.get(name):
                raise _refused(f"{where}.storage.{name}", f"of {VERSION} is not converted: write it as {since.NEWEST}")
        for number, system in enumerate(_items(storage, "filesystems")):
            if system.get("name") != _ROOT:
                raise _refused(
                    f"{where}.storage.filesystems[{number}]", f'is not "{_ROOT}", the only one that is known'
                )
        rows = {name: _upgraded_nodes(storage, name, where) for name in _KEPT if name in storage}
        result["storage"] = {**_without(storage, "filesystems", "disks", "raid"), **rows}
    systemd = single.get("systemd")
    if isinstance(systemd, Mapping) and isinstance(systemd.get("units"), list):
        result["systemd"] = {**systemd, "units": [_upgraded_unit(unit) for unit in systemd["units"]]}
    return result


def _upgraded_nodes(storage: Mapping[str, Any], name: str, where: str) -> Any:
    nodes = storage[name]
    if not isinstance(nodes, list):
        return nodes
    result = []
    for number, node in enumerate(nodes):
        if not isinstance(node, Mapping):
            return nodes
        # 2. only the root; and overwriting is the rule
        if node.get("filesystem", _ROOT) not in (_ROOT, ""):
            raise _refused(
                f"{where}.storage.{name}[{number}].filesystem", f'is not "{_ROOT}", the only one that is known'
            )
        plain = _without(node, "filesystem")
        result.append(_upgraded_file(plain) if name == "files" else plain)
    return result


def _upgraded_file(file: dict[str, Any]) -> dict[str, Any]:
    is_appended = file.pop("append", False)
    contents = file.get("contents") or {}
    if isinstance(contents, Mapping):
        contents = {"source": "", **contents}
        if contents["source"] == "":
            contents["source"] = "data:,"
    if is_appended:
        return {**_without(file, "contents"), "append": [contents], "overwrite": False}
    return {**file, "contents": contents, "overwrite": file.get("overwrite", True)}


def _upgraded_unit(unit: Any) -> Any:
    if not isinstance(unit, Mapping) or "enable" not in unit:
        return unit
    # `enabled` is the newer word for `enable`, and counts where both are there.
    enabled = {"enabled": True} if unit["enable"] and unit.get("enabled") is None else {}
    return {**_without(unit, "enable"), **enabled}


def deduplicated(document: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of specification 2 in which every path, unit and user is there once (1)."""
    result = dict(document)
    for section, name, key, combine in _ROWS:
        rows = _items(document.get(section), name)
        if rows and all(isinstance(row.get(key), str) for row in rows):
            result[section] = {**result[section], name: list(_last(rows, key, combine))}
    return result


_Rows = list[Mapping[str, Any]]


def _last(rows: _Rows, key: str, combine: Callable[[_Rows], Any]) -> Iterator[Any]:
    groups: dict[str, _Rows] = {}
    for row in reversed(rows):
        groups.setdefault(row[key], []).append(row)
    return map(combine, reversed(groups.values()))


def _newest(rows: _Rows) -> Mapping[str, Any]:
    return rows[0]


def _with_dropins(rows: _Rows) -> Mapping[str, Any]:
    """The newest unit, its drop-ins first and then those of older ones that have other names."""
    dropins = [dropin for row in rows for dropin in _items(row, "dropins")]
    if not dropins or not all(isinstance(dropin.get("name"), str) for dropin in dropins):
        return rows[0]
    by_name = {dropin["name"]: dropin for dropin in reversed(dropins)}
    return {**rows[0], "dropins": list(reversed(by_name.values()))}


def _with_keys(rows: _Rows) -> Mapping[str, Any]:
    keys = dict.fromkeys(key for row in rows for key in _texts(row.get("sshAuthorizedKeys")))
    return {**rows[0], "sshAuthorizedKeys": list(keys)} if keys else rows[0]


def _texts(value: Any) -> list[str]:
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else []


_ROWS: Final = (
    ("storage", "files", "path", _newest),
    ("systemd", "units", "name", _with_dropins),
    ("passwd", "users", "name", _with_keys),
)


def downgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of the newest specification as 2.2 says it."""
    # 4. what came later
    if newer := since.lacking(document, _OLDEST, VERSION):
        raise _refused(newer.field[1:], newer.sentence)
    document = since.stripped(document, _OLDEST)
    storage = document.get("storage") or {}
    # 6. what is not converted
    for name, value in storage.items():
        if value and name not in _KEPT:
            raise _refused(f"storage.{name}", f"is not converted to {VERSION}")
    result: dict[str, Any] = {"ignition": _downgraded_ignition(document["ignition"])}
    result |= {name: document[name] for name in ("passwd", "systemd") if document.get(name)}
    rows: dict[str, list[dict[str, Any]]] = {
        name: [_downgraded_node(node) for node in storage[name]] for name in _KEPT[::2] if storage.get(name)
    }
    if storage.get("files"):
        rows["files"] = [entry for file in storage["files"] for entry in _downgraded_file(file)]
    return result | ({"storage": rows} if rows else {})


def _downgraded_ignition(section: Mapping[str, Any]) -> dict[str, Any]:
    result = {**section, "version": VERSION}
    config = section.get("config") or {}
    if config.get("merge"):
        result["config"] = {**_without(config, "merge"), "append": config["merge"]}
    return result


def _downgraded_node(node: Mapping[str, Any]) -> dict[str, Any]:
    return {"filesystem": _ROOT, **node}


def _downgraded_file(file: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    # 5. an entry for the contents, and one for each that is appended
    plain = _downgraded_node(_without(file, "append", "contents"))
    contents, appended = file.get("contents") or {}, file.get("append") or ()
    if contents or not appended:
        yield {**plain, "overwrite": bool(file.get("overwrite")), "contents": contents}
    for source in appended:
        yield {**plain, "overwrite": False, "contents": source, "append": True}


def _items(section: Any, name: str) -> list[Mapping[str, Any]]:
    rows = section.get(name) if isinstance(section, Mapping) else None
    return rows if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows) else []


def _without(section: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key not in names}


def _refused(field: str, sentence: str) -> errors.Refused:
    return errors.Refused(f"{field} {sentence}", reason=NOT_CONVERTED)
