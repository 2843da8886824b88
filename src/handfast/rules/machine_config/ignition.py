# SPDX-License-Identifier: Apache-2.0
"""An Ignition configuration of specification 3 as frozen types, read and judged. It merges and converts none.

What Ignition refuses is refused here, and so is what looks like a mistake.

1. It is an object whose `ignition.version` is one of `VERSIONS`. An empty object is an empty configuration, as in OpenShift.
2. Every field is one of that version's, and has its type. Ignition warns of others and ignores them; here they are refused.
3. At most `MAX_ENTRIES` files, directories, links, units and drop-ins.
4. A path is absolute and clean: no `..`, `.`, empty segment, NUL or slash at its end. Each path is there once.
5. The mode of a file has the nine bits of permissions, as in OpenShift; a directory may have the special ones too.
6. An owner has a name or a number, not both. The number is one that the kernel has.
7. Contents can be read (`data_urls`), are compressed with gzip or not at all, and have at most `FILE_LIMIT` bytes unpacked. A file that
   overwrites has contents. Sources other than `data:` are kept: an agent that cannot fetch them says so.
8. The name of a unit has systemd's characters and one of its suffixes; that of a drop-in ends in `.conf`. Neither has a slash.
9. A unit says something: contents, drop-ins, enabled or mask. One that has no contents is legal, since the operating system may bring it.
10. A link has a target.
11. Other configurations to merge and authorities to trust have a source. Headers are sent over HTTP only, and have names.
12. The text of a unit is one that Ignition reads (`unit_text`).

Not checked: whether a unit means anything to systemd, and the partitions of disks. The machine finds that out.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_ignition.py |
|---|---|---|---|---|
| who writes MachineConfigs | the right to create one | a path that leaves the root of the machine | 4 | test_a_path_that_escapes_is_refused |
| … | … | a unit or a drop-in named `../../x` | 8 | test_a_unit_is_named_as_systemd_has_it |
| … | … | a program that is set-user-ID | 5 | test_the_mode_of_a_file_has_no_special_bits |
| … | … | kilobytes that unpack to gigabytes | 7 | test_a_bomb_is_not_unpacked |
| … | … | many bombs, each within the limit | 7 | test_many_small_bombs_are_not_unpacked_either |
| … | … | a million entries | 3 | test_there_are_not_too_many_entries |
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.rules.machine_config import data_urls, sections, since, unit_text, wrong_fields

FILE_LIMIT: Final = 4 << 20
MAX_ENTRIES: Final = 5_000
NEWEST: Final = since.NEWEST
VERSIONS: Final = since.VERSIONS
INVALID: Final = data_urls.INVALID

# A segment is what a file system takes as a name; the whole is what the kernel takes as a path.
_PATH: Final = re.compile(rb"(?:/(?!\.{1,2}(?:/|\Z))[^/\0]{1,255})+")
_MAX_PATH: Final = 4095
_UNIT: Final = re.compile(
    r"[A-Za-z0-9:_.\\@-]+\.(?:service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)"
)
_DROPIN: Final = re.compile(r"(?!\.)[^/\0]+\.conf")
_MAX_NAME: Final = 255
# 4294967295 is the kernel's word for "leave it as it is".
_MAX_ID: Final = (1 << 32) - 2
_PERMISSIONS: Final = 0o777
_MODES: Final = 0o7777


class Owner(sections.Part, frozen=True):
    """A user or a group, by number or by name."""

    id: int | None = None
    name: str | None = None

    @property
    def value(self) -> str | int | None:
        return self.name or self.id


class Node(sections.Part, frozen=True):
    """What a file, a directory and a link have in common."""

    path: str
    owner_group: Owner | None = msgspec.field(name="group", default=None)
    overwrite: bool | None = None
    owner: Owner | None = msgspec.field(name="user", default=None)

    @property
    def user(self) -> str | int | None:
        return self.owner.value if self.owner else None

    @property
    def group(self) -> str | int | None:
        return self.owner_group.value if self.owner_group else None


class File(Node, frozen=True):
    """A file: its contents, then what is appended to it."""

    appended: list[data_urls.Source] | None = msgspec.field(name="append", default=None)
    contents: data_urls.Source | None = None
    mode: int | None = None

    @property
    def append(self) -> tuple[data_urls.Source, ...]:
        return tuple(self.appended or ())

    @property
    def source(self) -> data_urls.Source | None:
        """Where its contents come from; None: they stay as they are, or the file is made empty."""
        return self.contents if self.contents is not None and self.contents.url is not None else None


class Directory(Node, frozen=True):
    """A directory."""

    mode: int | None = None


class Link(Node, frozen=True):
    """A symbolic or hard link."""

    hard: bool | None = None
    target: str | None = None


class Dropin(sections.Part, frozen=True):
    """A file that adds to a unit. Its contents are not printed."""

    name: str
    contents: str | None = None

    def __repr__(self) -> str:
        return f"Dropin({self.name!r})"


class Unit(sections.Part, frozen=True):
    """A unit of systemd. Its contents are not printed."""

    name: str
    contents: str | None = None
    dropin_list: list[Dropin] | None = msgspec.field(name="dropins", default=None)
    enabled: bool | None = None
    mask: bool | None = None

    def __repr__(self) -> str:
        return f"Unit({self.name!r})"

    @property
    def dropins(self) -> tuple[Dropin, ...]:
        return tuple(self.dropin_list or ())


class Storage(sections.Part, frozen=True):
    """What lies on disks."""

    directories: list[Directory] | None = None
    disks: list[sections.Disk] | None = None
    files: list[File] | None = None
    filesystems: list[sections.Filesystem] | None = None
    links: list[Link] | None = None
    luks: list[sections.Luks] | None = None
    raid: list[sections.Raid] | None = None


class Systemd(sections.Part, frozen=True):
    """The units."""

    units: list[Unit] | None = None


class Config(sections.Part, frozen=True):
    """A configuration, as the newest specification has it."""

    ignition: sections.Ignition
    kernel_arguments: sections.KernelArguments | None = None
    passwd: sections.Passwd | None = None
    storage: Storage | None = None
    systemd: Systemd | None = None

    @property
    def version(self) -> str:
        return self.ignition.version

    @property
    def files(self) -> tuple[File, ...]:
        return tuple((self.storage and self.storage.files) or ())

    @property
    def directories(self) -> tuple[Directory, ...]:
        return tuple((self.storage and self.storage.directories) or ())

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple((self.storage and self.storage.links) or ())

    @property
    def units(self) -> tuple[Unit, ...]:
        return tuple((self.systemd and self.systemd.units) or ())

    @property
    def other(self) -> Mapping[str, Any]:
        """Everything but files and units, by the dotted name of the section: `passwd.users`, `storage.links`."""
        return {
            f"{section}.{name}": value
            for section, fields in self.document().items()
            for name, value in fields.items()
            if value and (section, name) not in _UNDERSTOOD
        }

    def document(self) -> dict[str, Any]:
        """The configuration as JSON has it."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


_UNDERSTOOD: Final = frozenset({("ignition", "version"), ("storage", "files"), ("systemd", "units")})
EMPTY: Final = Config(sections.Ignition(NEWEST))


def parse(document: object, where: str, budget: data_urls.Budget | None = None) -> Config:
    """The configuration, or an error that names the field, its value and what is allowed. `where` is what it is the value of."""
    # 1. an object of a known version; empty is one too
    if document == {}:
        return EMPTY
    version = _version(document, where)
    # 2. fields and types
    try:
        config = msgspec.convert(document, Config)
    except msgspec.ValidationError as error:
        raise errors.Refused(wrong_fields.sentence(error, document, Config, where), reason=INVALID) from None
    if version != NEWEST and (newer := since.lacking(document, version)):
        raise refused(where, newer.field[1:], newer.sentence)
    _check(config, where, budget or data_urls.Budget())
    return config if version == NEWEST else _newest(config)


def refused(where: str, field: str, sentence: str) -> errors.Refused:
    return errors.Refused(f"{where}.{field} {sentence}", reason=INVALID)


def quoted(value: str) -> str:
    """A value as errors show it: in quotes, and not too long."""
    text = value if len(value) <= 80 else f"{value[:77]}..."
    return '"' + text.encode("unicode_escape").decode("ascii") + '"'


def _newest(config: Config) -> Config:
    return msgspec.structs.replace(config, ignition=msgspec.structs.replace(config.ignition, version=NEWEST))


def _version(document: object, where: str) -> str:
    allowed = f"there are {', '.join(VERSIONS)}"
    if not isinstance(document, Mapping):
        raise errors.Refused(f"{where} is no object: it is an Ignition configuration", reason=INVALID)
    section = document.get("ignition")
    if not isinstance(section, Mapping) or "version" not in section:
        raise refused(where, "ignition.version", f"is missing: {allowed}")
    version = section["version"]
    if version not in VERSIONS:
        raise refused(where, "ignition.version", f"is {quoted(str(version))}: {allowed}")
    return str(version)


def _check(config: Config, where: str, budget: data_urls.Budget) -> None:
    # 3. not too many
    check_count(config, where)
    for number, file in enumerate(config.files):
        _check_file(file, where, number, budget)
    for number, directory in enumerate(config.directories):
        _check_node(directory, where, f"storage.directories[{number}]", _MODES)
    for number, link in enumerate(config.links):
        _check_node(link, where, f"storage.links[{number}]", _MODES)
    for number, unit in enumerate(config.units):
        _check_unit(unit, where, f"systemd.units[{number}]")
    for field, source in _references(config.ignition):
        # 11. other configurations, and authorities
        if not source.url:
            raise refused(where, f"{field}.source", "is missing")
        _check_source(source, where, field, budget)
    # 4. each path once
    nodes: list[Node] = [*config.files, *config.directories, *config.links]
    _once([node.path for node in nodes], where, "storage", "path")
    _once([unit.name for unit in config.units], where, "systemd.units", "name")


def check_count(config: Config, where: str, most: int = MAX_ENTRIES) -> None:
    """Refuses more entries than that."""
    nodes = len(config.files) + len(config.directories) + len(config.links)
    count = nodes + sum(1 + len(unit.dropin_list or ()) for unit in config.units)
    if count > most:
        raise errors.Refused(
            f"{where}: {count:,} files, directories, links, units and drop-ins are too many: there may be {most:,}",
            reason=INVALID,
        )


def _references(section: sections.Ignition) -> Iterator[tuple[str, data_urls.Source]]:
    config, tls = section.config, section.security and section.security.tls
    for number, source in enumerate((config and config.merge) or ()):
        yield f"ignition.config.merge[{number}]", source
    if config and config.replace is not None:
        yield "ignition.config.replace", config.replace
    for number, source in enumerate((tls and tls.certificate_authorities) or ()):
        yield f"ignition.security.tls.certificateAuthorities[{number}]", source


def _check_node(node: File | Directory | Link, where: str, field: str, highest: int) -> None:
    # 4. the path
    if not _is_path(node.path):
        raise refused(where, f"{field}.path", f"is {quoted(node.path)}: {_about_path(node.path)}")
    # 6. its owner
    for name, owner in (("user", node.owner), ("group", node.owner_group)):
        if owner is not None and owner.id is not None and owner.name:
            raise refused(
                where, f"{field}.{name}", f"has the id {owner.id} and the name {quoted(owner.name)}: only one"
            )
        if owner is not None and owner.id is not None and not 0 <= owner.id <= _MAX_ID:
            raise refused(where, f"{field}.{name}.id", f"is {owner.id}: it is from 0 to {_MAX_ID}")
    if isinstance(node, Link):
        # 10. the target
        if not node.target:
            raise refused(where, f"{field}.target", f"is missing: the link {quoted(node.path)} leads to something")
        return
    # 5. the mode
    if node.mode is not None and not 0 <= node.mode <= highest:
        raise refused(
            where, f"{field}.mode", f"is {node.mode} ({node.mode:#o}): it is from 0 to {highest} ({highest:#o})"
        )


def _is_path(path: str) -> bool:
    try:
        # In bytes, as the kernel counts them.
        data = path.encode()
    except UnicodeEncodeError:
        return False
    return len(data) <= _MAX_PATH and _PATH.fullmatch(data) is not None


def _about_path(path: str) -> str:
    if not path.startswith("/"):
        return "a path is absolute, and begins with /"
    if "\0" in path:
        return "a path has no NUL"
    if len(path.encode("utf-8", "replace")) > _MAX_PATH:
        return f"a path has at most {_MAX_PATH:,} bytes"
    if path.endswith("/"):
        return "a path does not end with /, and is not the root"
    return "a path has no segment that is empty, . or .. or longer than 255 bytes, and is Unicode"


def _check_file(file: File, where: str, number: int, budget: data_urls.Budget) -> None:
    field = f"storage.files[{number}]"
    _check_node(file, where, field, _PERMISSIONS)
    # 7. contents
    try:
        _check_contents(file, where, field, budget)
    except errors.Refused as refusal:
        # By its path, too: who wrote many files does not count them.
        raise errors.Refused(f"{refusal.message}: the file is {quoted(file.path)}", reason=refusal.reason) from None
    if file.overwrite and file.source is None:
        raise refused(where, f"{field}.overwrite", f"is true: then {quoted(file.path)} has contents.source")


def _check_contents(file: File, where: str, field: str, budget: data_urls.Budget) -> None:
    if file.contents is not None:
        _check_source(file.contents, where, f"{field}.contents", budget)
    for position, source in enumerate(file.append):
        _check_source(source, where, f"{field}.append[{position}]", budget)


def _check_source(source: data_urls.Source, where: str, field: str, budget: data_urls.Budget) -> None:
    if source.compression not in (None, "", data_urls.GZIP):
        raise refused(
            where, f"{field}.compression", f"is {quoted(source.compression)}: it is {data_urls.GZIP} or absent"
        )
    if source.url is None and source.hash is not None:
        raise refused(where, f"{field}.verification.hash", "is there without a source")
    if source.http_headers and not (source.url or "").startswith(_HTTP):
        raise refused(
            where, f"{field}.httpHeaders", f"are there, and the source begins with neither {' nor '.join(_HTTP)}"
        )
    if any(not header.name for header in source.http_headers or ()):
        raise refused(where, f"{field}.httpHeaders", "has one without a name")
    if source.is_data:
        data_urls.check(source, FILE_LIMIT, f"{where}.{field}.source", budget)
    elif source.url and not source.url.startswith(_SCHEMES):
        schemes = ", ".join(scheme for scheme in (data_urls.PREFIX, *_SCHEMES))
        raise refused(where, f"{field}.source", f"is {quoted(source.url)}: it begins with one of {schemes}")


_HTTP: Final = ("http:", "https:")
_SCHEMES: Final = (*_HTTP, "tftp:", "s3:", "gs:", "arn:")


def _check_unit(unit: Unit, where: str, field: str) -> None:
    # 8. names
    if len(unit.name) > _MAX_NAME or not _UNIT.fullmatch(unit.name):
        raise refused(
            where,
            f"{field}.name",
            f"is {quoted(unit.name)}: it has letters, digits and :_.\\@- and ends in .service, .socket, .timer or another"
            " suffix of systemd",
        )
    for number, dropin in enumerate(unit.dropins):
        if len(dropin.name) > _MAX_NAME or not _DROPIN.fullmatch(dropin.name):
            raise refused(
                where,
                f"{field}.dropins[{number}].name",
                f"is {quoted(dropin.name)}: it has no slash, does not begin with a dot, and ends in .conf",
            )
        _check_text(dropin.contents, where, f"{field}.dropins[{number}]")
    _once([dropin.name for dropin in unit.dropins], where, f"{field}.dropins", "name")
    _check_text(unit.contents, where, field)
    # 9. it says something
    if unit.contents is None and not unit.dropins and unit.enabled is None and unit.mask is None:
        raise refused(
            where, field, f"is {quoted(unit.name)} without contents: it has contents, dropins, enabled or mask"
        )


def _check_text(contents: str | None, where: str, field: str) -> None:
    # 12. readable
    if contents and (problem := unit_text.problem(contents)):
        raise refused(where, f"{field}.contents", f"cannot be read by Ignition: {problem}")


def _once(names: Sequence[str], where: str, field: str, what: str) -> None:
    if len(set(names)) != len(names):
        twice = next(name for name, count in collections.Counter(names).items() if count > 1)
        raise refused(where, field, f"has the {what} {quoted(twice)} twice: each is there once")
