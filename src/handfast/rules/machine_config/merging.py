# SPDX-License-Identifier: Apache-2.0
"""Several MachineConfigs as one. It gives the result no name: `rendering` does.

1. They are in the order of their names, those of the role `worker` first: what is written for a pool of its own wins over what all workers have.
2. Ignition is merged as Ignition does it: files by path, units and drop-ins by name, users by name, disks by device. What is said once is
   kept; of what is said twice the later one counts, field by field. Lists of words are joined, each word once.
3. The contents of a file are one thing: source, compression and hash come from the same MachineConfig.
4. A file that has contents and does not say whether it overwrites does.
5. Kernel arguments and extensions are joined. FIPS is on if one of them has it on. Of kernel types the last one that is not the default
   counts, and of images the last one.
6. What contradicts is refused, with both MachineConfigs: one path that is a file here and a link or directory there; a path below
   another one that is a file or a link; a path that is also a unit's; a link or directory where the server adds a file.
7. At most `MAX_ENTRIES` files, directories, links and units together, and `data_urls.UNPACKED_LIMIT` unpacked.

That one MachineConfig overrides another is no contradiction: they are meant for that.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_merging.py |
|---|---|---|---|---|
| who writes MachineConfigs | the right to create one | a link where the bootstrap kubeconfig is written, to have it elsewhere | 6 | test_two_that_contradict_are_both_named |
| … | … | a link in one and a file below it in another, to write where the link leads | 6 | test_two_that_contradict_are_both_named |
| … | … | many MachineConfigs, each within the limits | 7 | test_all_together_unpack_not_too_much |
"""

from __future__ import annotations

import functools
import itertools
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from handfast import errors
from handfast.api import machine_config_kinds
from handfast.rules.machine_config import data_urls, host_paths, ignition, names, sections, spec2, wrong_fields

CONTRADICTION: Final = "MachineConfigsContradict"
# MachineConfigs that a `Reader` keeps.
KEPT: Final = 1_000
KERNEL_TYPES: Final = ("default", "realtime", "64k-pages")
_KERNEL_DEVEL: Final = "kernel-devel"
# With what the server adds it is still a configuration.
MAX_ENTRIES: Final = ignition.MAX_ENTRIES - len(host_paths.ADDED)
# What a path is written as.
_FILE: Final = "file"
_DIRECTORY: Final = "directory"
_LINK: Final = "link"
_UNIT: Final = "unit"


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The spec of a MachineConfig, with its Ignition configuration read."""

    base_extensions_image: str = msgspec.field(name="baseOSExtensionsContainerImage", default="")
    config: Any = None
    extensions: list[str] | None = None
    fips: bool | None = False
    kernel_arguments: list[str] | None = msgspec.field(name="kernelArguments", default=None)
    kernel_type: str = msgspec.field(name="kernelType", default="")
    os_image_url: str = msgspec.field(name="osImageURL", default="")


@dataclass(frozen=True, slots=True)
class Piece:
    """A MachineConfig that was read: what it has, what it is called, and whether it may set images."""

    name: str
    role: str
    is_generated: bool
    spec: Spec
    config: ignition.Config
    # How much was unpacked to judge it (7).
    unpacked: int


def read(document: Mapping[str, Any], budget: data_urls.Budget | None = None) -> Piece:
    """A MachineConfig, or an error that names it, the field, its value and what is allowed."""
    budget = budget or data_urls.Budget()
    left = budget.left
    metadata = document["metadata"]
    name = metadata["name"]
    where = f"MachineConfig {name}: spec"
    try:
        spec = msgspec.convert(document.get("spec") or {}, Spec)
    except msgspec.ValidationError as error:
        sentence = wrong_fields.sentence(error, document.get("spec"), Spec, where)
        raise errors.Refused(sentence, reason=ignition.INVALID) from None
    if spec.kernel_type and spec.kernel_type not in KERNEL_TYPES:
        raise ignition.refused(
            where, "kernelType", f"is {ignition.quoted(spec.kernel_type)}: there are {', '.join(KERNEL_TYPES)}"
        )
    config = ignition.EMPTY if spec.config is None else _config(spec.config, f"{where}.config", budget)
    is_generated = names.RENDERED_BY in (metadata.get("annotations") or ())
    role = (metadata.get("labels") or {}).get(names.ROLE_LABEL, "")
    return Piece(name, role, is_generated, spec, config, left - budget.left)


def _config(document: Any, where: str, budget: data_urls.Budget) -> ignition.Config:
    if spec2.is_one(document):
        document = spec2.upgraded(document, where)
    return ignition.parse(document, where, budget)


def read_all(documents: Iterable[Mapping[str, Any]]) -> list[Piece]:
    """All that one rendering is made from (7)."""
    return Reader().read_all(documents)


class Reader:
    """Reads MachineConfigs and keeps them: an object that has not changed is not judged again, which is most of the work.

    A version of an object is known by its uid and resourceVersion. The oldest of more than `KEPT` are forgotten.
    """

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, str], Piece] = {}

    def read_all(self, documents: Iterable[Mapping[str, Any]]) -> list[Piece]:
        """All that one rendering is made from; what is kept counts as if it were unpacked again."""
        budget = data_urls.Budget()
        return [self._piece(document, budget) for document in documents]

    def _piece(self, document: Mapping[str, Any], budget: data_urls.Budget) -> Piece:
        metadata = document["metadata"]
        version = (metadata.get("uid", ""), metadata.get("resourceVersion", ""))
        piece = self._pieces.get(version)
        if piece is not None and piece.unpacked <= budget.left:
            budget.left -= piece.unpacked
            return piece
        piece = read(document, budget)
        if all(version):
            self._pieces[version] = piece
            if len(self._pieces) > KEPT:
                del self._pieces[next(iter(self._pieces))]
        return piece


def ordered(pieces: Iterable[Piece]) -> list[Piece]:
    """In the order in which they are merged (1)."""
    return sorted(pieces, key=lambda piece: (piece.role != machine_config_kinds.WORKER, piece.name))


def merge(pieces: Iterable[Piece]) -> Spec:
    """The spec of all of them; `config` is an `ignition.Config`."""
    # 1. in order
    parts = ordered(pieces)
    # 2. Ignition, as Ignition does it
    config = _defaulted(merged([ignition.EMPTY, *(part.config for part in parts if part.config is not ignition.EMPTY)]))
    # 6. no contradictions, and 7. not too many entries
    _check(config, parts)
    # 5. what MachineConfigs have beside Ignition
    specs = [part.spec for part in parts]
    images = [part.spec for part in parts if not part.is_generated]
    kernel_type = _last([spec.kernel_type for spec in specs if spec.kernel_type != KERNEL_TYPES[0]]) or KERNEL_TYPES[0]
    extensions = [word for spec in specs for word in spec.extensions or ()]
    if kernel_type != KERNEL_TYPES[0] and _KERNEL_DEVEL in extensions:
        raise errors.Refused(
            f"the extension {_KERNEL_DEVEL} is there only with the default kernel, and kernelType is {kernel_type}",
            reason=CONTRADICTION,
        )
    return Spec(
        base_extensions_image=_last([spec.base_extensions_image for spec in images]),
        config=config,
        extensions=extensions,
        fips=any(spec.fips for spec in specs),
        kernel_arguments=[word for spec in specs for word in spec.kernel_arguments or ()],
        kernel_type=kernel_type,
        os_image_url=_last([spec.os_image_url for spec in images]),
    )


def _last(values: Sequence[str]) -> str:
    return next((value for value in reversed(values) if value), "")


def _defaulted(config: ignition.Config) -> ignition.Config:
    # 4. overwrites unless it says otherwise
    if config.storage is None or not config.storage.files:
        return config
    files = [
        msgspec.structs.replace(file, overwrite=True) if file.overwrite is None and file.source is not None else file
        for file in config.storage.files
    ]
    return msgspec.structs.replace(config, storage=msgspec.structs.replace(config.storage, files=files))


_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_Rule = Callable[[list[Any]], Any]


def merged(parts: Sequence[_Struct]) -> _Struct:
    """One of many of the same type, all at once: a fold would copy the files of the first for each of the others."""
    if len(parts) == 1:
        return parts[0]
    kind = type(parts[0])
    columns = zip(*map(msgspec.structs.astuple, parts), strict=True)
    values = {}
    for (name, rule), column in zip(_rules(kind), columns, strict=True):
        present = [value for value in column if value is not None]
        if present:
            values[name] = present[0] if len(present) == 1 else rule(present)
    return kind(**values)


@functools.cache
def _rules(kind: type[msgspec.Struct]) -> tuple[tuple[str, _Rule], ...]:
    """How each field of a type is merged."""
    return tuple(
        (field.name, _OWN_RULES.get((kind, field.name)) or _rule(field.type)) for field in msgspec.structs.fields(kind)
    )


def _rule(annotation: Any) -> _Rule:
    """How the values of a field are merged, by its type."""
    # The first is the value's; None is the other one of an optional field.
    kind = next((part for part in typing.get_args(annotation) if part is not type(None)), annotation)
    if typing.get_origin(kind) is list:
        item = typing.get_args(kind)[0]
        return _words if item is str else functools.partial(_keyed, _KEYS[item])
    return merged if isinstance(kind, type) and kind in _FIELD_BY_FIELD else _whole


def _whole(values: list[Any]) -> Any:
    return values[-1]


def _contents(values: list[data_urls.Source]) -> data_urls.Source:
    # 3. one thing
    return next((value for value in reversed(values) if value.url is not None), values[-1])


def _joined(values: list[list[Any]]) -> list[Any]:
    return [item for value in values for item in value]


def _words(values: list[list[str]]) -> list[str]:
    return list(dict.fromkeys(word for value in values for word in value))


def _keyed(key: Callable[[Any], Any], values: list[list[Any]]) -> list[Any]:
    groups: dict[Any, list[Any]] = {}
    for value in values:
        for item in value:
            groups.setdefault(key(item), []).append(item)
    return [items[0] if len(items) == 1 else merged(items) for items in groups.values()]


def _arguments(values: list[sections.KernelArguments]) -> sections.KernelArguments:
    """An argument is wanted or unwanted: the later word counts."""
    wanted: dict[str, bool] = {}
    for value in values:
        for words, is_wanted in ((value.should_exist, True), (value.should_not_exist, False)):
            for word in words or ():
                if wanted.get(word, is_wanted) != is_wanted:
                    del wanted[word]
                wanted[word] = is_wanted
    return sections.KernelArguments(
        [word for word, is_wanted in wanted.items() if is_wanted] or None,
        [word for word, is_wanted in wanted.items() if not is_wanted] or None,
    )


def _by(name: str) -> Callable[[Any], Any]:
    return lambda item: getattr(item, name)


_KEYS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    data_urls.Header: _by("name"),
    data_urls.Source: _by("url"),
    ignition.Directory: _by("path"),
    ignition.Dropin: _by("name"),
    ignition.File: _by("path"),
    ignition.Link: _by("path"),
    ignition.Unit: _by("name"),
    sections.Disk: _by("device"),
    sections.Filesystem: _by("device"),
    sections.Group: _by("name"),
    sections.Luks: _by("name"),
    sections.Partition: lambda item: item.number or item.label,
    sections.Raid: _by("name"),
    sections.Tang: _by("url"),
    sections.User: _by("name"),
}
_FIELD_BY_FIELD: Final = frozenset(
    {
        ignition.Storage,
        ignition.Systemd,
        sections.Cex,
        sections.Clevis,
        sections.Ignition,
        sections.Passwd,
        sections.Proxy,
        sections.References,
        sections.Security,
        sections.TLS,
        sections.Timeouts,
    }
)
_OWN_RULES: Final[Mapping[tuple[type, str], _Rule]] = {
    (ignition.Config, "kernel_arguments"): _arguments,
    (ignition.File, "appended"): _joined,
    (ignition.File, "contents"): _contents,
    (sections.Filesystem, "mount_options"): _joined,
    (sections.Filesystem, "options"): _joined,
    (sections.Luks, "options"): _joined,
    (sections.Raid, "options"): _joined,
}


def _check(config: ignition.Config, parts: Sequence[Piece]) -> None:
    ignition.check_count(config, f"{len(parts)} MachineConfigs together", MAX_ENTRIES)
    entries = list(_entries(config))
    kinds = dict(entries)
    # The server adds files: one of the configuration at the same path is replaced, and nothing else may be there.
    added = dict.fromkeys(host_paths.ADDED, _FILE)
    if len(kinds) != len(entries) or any(kinds.get(path, _FILE) != _FILE for path in added):
        raise _clash([*added.items(), *entries], parts)
    kinds |= added
    # With the slash as the smallest character, what lies below a path comes right after it.
    in_order = sorted(kinds, key=lambda path: path.replace("/", "\0"))
    for upper, lower in itertools.pairwise(in_order):
        if kinds[upper] != _DIRECTORY and lower.startswith(f"{upper}/"):
            raise _contradict(parts, (upper, kinds[upper]), (lower, kinds[lower]))


def _entries(config: ignition.Config) -> Iterator[tuple[str, str]]:
    """Every path that is written, and as what."""
    yield from ((node.path, _FILE) for node in config.files)
    yield from ((node.path, _DIRECTORY) for node in config.directories)
    yield from ((node.path, _LINK) for node in config.links)
    for unit in config.units:
        if unit.contents:
            yield f"{host_paths.UNITS}/{unit.name}", _UNIT
        for dropin in unit.dropin_list or ():
            if dropin.contents:
                yield f"{host_paths.UNITS}/{unit.name}.d/{dropin.name}", _UNIT


def _clash(entries: Iterable[tuple[str, str]], parts: Sequence[Piece]) -> errors.Refused:
    """The first path that is there as two things."""
    kinds: dict[str, str] = {}
    path, kind = next((path, kind) for path, kind in entries if kinds.setdefault(path, kind) != kind)
    return _contradict(parts, (path, kinds[path]), (path, kind))


def _contradict(parts: Sequence[Piece], one: tuple[str, str], other: tuple[str, str]) -> errors.Refused:
    sides = [f"{_whose(parts, *side)} has the {side[1]} {ignition.quoted(side[0])}" for side in (one, other)]
    return errors.Refused(
        f"{sides[0]}, and {sides[1]}: a machine cannot have both",
        reason=CONTRADICTION,
        hint="Take one of them out of its MachineConfig.",
    )


def _whose(parts: Sequence[Piece], path: str, kind: str) -> str:
    owner = next((part.name for part in parts if (path, kind) in set(_entries(part.config))), None)
    return f"MachineConfig {owner}" if owner is not None else "the machine-config server"
