# SPDX-License-Identifier: Apache-2.0
"""What a machine does with the configuration that it was served: the files and links that are to lie on it afterwards.

It reads and writes none of them: see `node.configuration_state`. What was served is Ignition, and three files in it say what it is: the
annotations of the node, the rendered MachineConfig, and the same without its Ignition configuration.

1. It is Ignition of specification 3 (`ignition.parse`).
2. It is the rendering that was wanted. All three files name it, its name is the digest of what the MachineConfig has (`rendering.read`), and
   what is served is the same, apart from the files that only the server has (`host_paths.ADDED`). The machine knows the name from the
   API server, so a machine-config server cannot change what belongs to it. At the first boot nobody has said which rendering is wanted,
   and this is not checked.
3. The bootstrap kubeconfig is the one whose digest the rendering names. Only its owner may read it, wherever it lies, whatever mode it was
   served with.
4. Everything in it can be done here. These cannot: `osImageURL`, `kernelArguments`, `extensions`, `fips`, `kernelType`; users, disks, links
   and directories, unless Ignition has done the same at the first boot; files that have to be fetched, or are appended to. All of them
   are named, and nothing of such a configuration is written.
5. Each path is there once, none lies below another, and none is the agent's own: its certificates, its kubeconfig, its records.
6. Units become files and links, as `planned_units` says.
7. Files that only the server has belong to whoever runs the agent, and nobody else may write them: no digest is of their owner and mode. The
   MachineConfig among them has the contents of every file, and is not for others to read.

Not done: no service is started, stopped or reloaded. What runs goes on as it is until somebody restarts it.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_applying.py |
|---|---|---|---|---|
| who stands between | an old answer of the server | bring a revoked credential back | 2, 3 | test_another_rendering_is_not_taken_for_the_one_that_was_wanted |
| a machine-config server taken over | answers of its own | write files as root on every node | 2 | test_a_server_cannot_add_to_a_rendering_or_change_it |
| … | another kubeconfig | give a machine a credential that the rendering does not have | 3 | test_a_kubeconfig_of_another_digest_is_refused |
| … | a user of the nodes as owner of the kubeconfig, or a CA that all may write | give that user the credential, or the kubelet | 7 | test_the_files_of_the_server_belong_to_nobody_else |
| a user of the nodes | the MachineConfig that lies there whole | read what is in files of mode 0600 | 7 | test_what_is_its_owners_alone_lies_nowhere_else_for_all_to_read |
| who writes MachineConfigs | a copy of the kubeconfig's bytes | have it lie readable by all | 3 | test_the_kubeconfig_is_its_owners_alone_wherever_it_lies |
| … | a path | replace the node's identity, or the records by which it restores | 5 | test_the_agents_own_files_are_not_written |
| … | `WantedBy=../../x` | a link outside the directory of units | 6 | test_a_unit_cannot_be_enabled_outside_the_directory_of_units |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath
from handfast.rules.machine_config import data_urls, drift, host_paths, ignition, names, planned_units, rendering

# Written at the first boot by who knew the machine's name, and left alone by renderings that do not say it.
STAYS: Final = frozenset({host_paths.HOSTNAME})
TOTAL_LIMIT: Final = 64 << 20
# Of `ignition` itself, what only says how to fetch.
_HOW_TO_FETCH: Final = frozenset({"ignition.proxy", "ignition.security", "ignition.timeouts"})
_WHERE: Final = "the served configuration"
# How many things that cannot be done a sentence names.
_NAMED: Final = 6


class CannotApply(errors.Refused):
    """There is something in it that this agent cannot do; `state` is what the Node then says."""

    reason = "CannotApply"
    hint = "take it out of the MachineConfigs of the pool, or have something else configure these nodes"

    def __init__(self, message: str, *, unreconcilable: bool) -> None:
        super().__init__(message)
        self.state = names.UNRECONCILABLE if unreconcilable else names.DEGRADED


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that is to lie on the machine. Without user or group it belongs to whoever runs the agent.

    `overwrite`: something else may lie there at the first boot. An agent that follows always replaces.
    """

    path: str
    content: bytes = field(repr=False)
    mode: int
    user: str | int | None = None
    group: str | int | None = None
    overwrite: bool = True

    def same_as(self, entry: drift.Entry) -> bool:
        """Whether that is what lies there already, mode and owner apart."""
        return entry.kind == drift.FILE and entry.digest == hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to lie on a machine. `absent` are links of units that are not to be enabled.

    `sections` are the digests of what Ignition did at the first boot, by name.
    """

    rendering: str
    files: tuple[PlannedFile, ...]
    links: Mapping[str, str]
    absent: tuple[str, ...] = ()
    sections: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is known of the machine: its own files, the units it brings, and what Ignition did at its first boot, by digest."""

    own: tuple[str, ...] = ()
    vendor_units: Mapping[str, planned_units.VendorUnit] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)


def pool_of(name: str) -> str:
    """The pool that a rendering is for; refused where it is no name of one."""
    pool = rendering.pool_of(name)
    if pool is None:
        raise errors.Refused(
            f'"{name[:80]}" is no name of a rendering: rendered-<pool>-<32 hexadecimal digits>',
            reason="BadRendering",
            hint=f"the annotation {names.DESIRED} of the Node is written by the machine-config-pool-controller alone",
        )
    return pool


def parse(body: bytes) -> ignition.Config:
    """The configuration in an answer (1)."""
    try:
        # Not `json`: that one takes characters that no file system, record or annotation has.
        document = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise errors.Refused(f"{_WHERE} is no JSON", reason=ignition.INVALID) from None
    return ignition.parse(document, _WHERE)


def named(config: ignition.Config) -> str:
    """The rendering that a configuration says it is; empty: it does not say."""
    return jsonpath.text(_document(config, host_paths.NODE_ANNOTATIONS), names.CURRENT)


def sections_of(config: ignition.Config) -> dict[str, str]:
    """Everything but files and units, by digest: what Ignition does at the first boot, and nobody afterwards."""
    rows = ((name, value) for name, value in config.other.items() if name not in _HOW_TO_FETCH)
    return {name: hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest() for name, value in rows}


def credential_alone(before: bytes | None, plan: Plan) -> bool:
    """Whether a plan differs in the credential alone from the rendering whose MachineConfig is in `before`."""
    after = next((file.content for file in plan.files if file.path == host_paths.CONTENT), None)
    digests = [
        jsonpath.text(_object(content), "metadata", "annotations", names.CONFIGURATION) for content in (before, after)
    ]
    return digests[0] != "" and digests[0] == digests[1]


def adopted(annotations: bytes | None, content: bytes | None) -> Plan | None:
    """What Ignition did at the first boot, by the two files that it left; None where they do not say the same."""
    name = jsonpath.text(_object(annotations), names.CURRENT)
    document = _object(content)
    if not name or jsonpath.text(document, "metadata", "name") != name:
        return None
    try:
        config = ignition.parse(jsonpath.at(document, "spec", "config") or {}, _WHERE)
        files = (*_files(config, ""), *_unit_files(config))
    except errors.Refused:
        return None
    return Plan(rendering=name, files=files, links={}, sections=sections_of(config))


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def plan(config: ignition.Config, wanted: str | None, machine: Machine) -> Plan:
    """What is to be done; without `wanted` any rendering will do, as at the first boot."""
    # 2. the rendering that was wanted
    if wanted is not None:
        _require_wanted(config, wanted)
    # 3. the credential that it names
    digest = _require_credential(config, required=wanted is not None)
    # 4. all of it can be done here
    _require_possible(config, machine)
    # 6. units, and 7. the files of the server
    files = [*_files(config, digest), *_unit_files(config)]
    links, absent = planned_units.links(config, machine.vendor_units)
    # 5. each path once, apart, and not the agent's own
    paths = [*(file.path for file in files), *links]
    _require_apart(paths, machine)
    gone = tuple(sorted(set(absent) - set(paths)))
    return Plan(rendering=named(config), files=tuple(files), links=links, absent=gone, sections=sections_of(config))


def _file(config: ignition.Config, path: str) -> ignition.File | None:
    return next((file for file in config.files if file.path == path), None)


def _content(file: ignition.File) -> bytes:
    if file.source is None:
        return b""
    return data_urls.decode(file.source, ignition.FILE_LIMIT, f"the file {file.path}")


def _document(config: ignition.Config, path: str) -> dict[str, Any]:
    file = _file(config, path)
    return _object(_content(file)) if file is not None and _is_here(file) else {}


def _is_here(file: ignition.File) -> bool:
    return file.source is None or file.source.is_data


def _require_wanted(config: ignition.Config, wanted: str) -> None:
    # 2. all three name the one that was wanted
    content, inner = _document(config, host_paths.CONTENT), _document(config, host_paths.ENCAPSULATED)
    seen = {named(config), *(jsonpath.text(document, "metadata", "name") for document in (content, inner))}
    if seen != {wanted}:
        raise errors.Unavailable(
            f"the machine-config server serves {' and '.join(sorted(name or 'no rendering' for name in seen))}, and {wanted} is wanted",
            reason="OtherRendering",
            hint="the server follows the Node, and is asked again",
        )
    # 2. its name is the digest of what it has, and it has what is served
    if _own_parts(config) != _own_parts(_as_rendered(content).config):
        raise errors.Refused(
            f"the machine-config server serves other files or units than {wanted} has",
            reason="OtherContents",
            hint="the answer is not used; look at who runs that server, and restart it",
        )


def _as_rendered(content: Mapping[str, Any]) -> rendering.Rendered:
    try:
        return rendering.read(content)
    except errors.Refused as refused:
        release = jsonpath.text(content, "metadata", "annotations", names.RENDERED_BY) or "of no release"
        raise errors.Refused(
            f"{refused.message} (rendered by {release[:80]})",
            reason=refused.reason,
            hint="the answer is not used; an agent of another release may compute another digest: run the same one on both",
        ) from None


def _machine_config(config: ignition.Config) -> dict[str, Any]:
    """The rendered MachineConfig: whole, which is the one that was compared, or at least without its Ignition."""
    return _document(config, host_paths.CONTENT) or _document(config, host_paths.ENCAPSULATED)


def _own_parts(config: ignition.Config) -> tuple[Any, ...]:
    """What a rendering itself has: everything but the files that the server adds."""
    files = {file.path: file for file in config.files if file.path not in host_paths.ADDED}
    return files, {unit.name: unit for unit in config.units}, sections_of(config)


def _require_credential(config: ignition.Config, *, required: bool) -> str:
    """The digest of the bootstrap kubeconfig; empty: the rendering has none (3)."""
    annotation = jsonpath.text(_machine_config(config), "metadata", "annotations", names.CREDENTIAL)
    digest = annotation.rpartition(" sha256:")[2] if " sha256:" in annotation else ""
    file = _file(config, host_paths.KUBECONFIG)
    if not digest and not required:
        return ""
    seen = "" if file is None or not _is_here(file) else hashlib.sha256(_content(file)).hexdigest()
    if not digest or seen != digest:
        raise errors.Refused(
            f"the bootstrap kubeconfig {host_paths.KUBECONFIG} has the digest {seen or 'of no file'}, and the rendering has "
            f"{digest or 'none'}",
            reason="OtherCredential",
            hint="the answer is not used; `handfast machine pools` says which rendering is in force",
        )
    return digest


def _require_possible(config: ignition.Config, machine: Machine) -> None:
    spec = jsonpath.mapping(_machine_config(config), "spec")
    fields = [name for name, unset in _OF_MACHINE_CONFIGS.items() if spec.get(name) not in (None, *unset)]
    sections = [name for name, digest in sections_of(config).items() if machine.sections.get(name) != digest]
    appended = [f"append of {file.path}" for file in config.files if file.append]
    fetched = [f"{file.path} from {_scheme(file)}" for file in config.files if not _is_here(file)]
    impossible = [*fields, *sections, *appended, *fetched]
    if impossible:
        more = f" and {len(impossible) - _NAMED} more" if len(impossible) > _NAMED else ""
        shown = ", ".join(word[:120] for word in impossible[:_NAMED]) + more
        raise CannotApply(
            f"this agent cannot apply {shown}; nothing of this rendering was written",
            unreconcilable=bool(sections or appended or "fips" in fields),
        )


# Fields of a MachineConfig beside Ignition, and the values that ask for nothing.
_OF_MACHINE_CONFIGS: Final[Mapping[str, tuple[Any, ...]]] = {
    "osImageURL": ("",),
    "baseOSExtensionsContainerImage": ("",),
    "kernelArguments": ([],),
    "extensions": ([],),
    "fips": (False,),
    "kernelType": ("", "default"),
}


def _scheme(file: ignition.File) -> str:
    return str(file.source.url if file.source else "").partition(":")[0]


def _files(config: ignition.Config, digest: str) -> Iterator[PlannedFile]:
    total = 0
    for file in config.files:
        content = _content(file)
        total += len(content)
        if total > TOTAL_LIMIT:
            raise errors.Refused(f"{_WHERE} has files of more than {TOTAL_LIMIT:,} bytes together", reason="TooLarge")
        secret = file.path in host_paths.PRIVATE or (digest and hashlib.sha256(content).hexdigest() == digest)
        mode = 0o600 if secret else (0o644 if file.mode is None else file.mode)
        if file.path in host_paths.ADDED:
            # 7. nobody else may write it, nor has it, whatever the server says
            yield PlannedFile(file.path, content, mode & 0o644, overwrite=bool(file.overwrite))
            continue
        yield PlannedFile(file.path, content, mode, file.user, file.group, overwrite=bool(file.overwrite))


def _unit_files(config: ignition.Config) -> Iterator[PlannedFile]:
    return (PlannedFile(path, content, 0o644) for path, content in planned_units.files(config))


def _require_apart(paths: list[str], machine: Machine) -> None:
    known = set(paths)
    if len(known) != len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise errors.Refused(f"{twice} is there twice: as a file and by a unit", reason="PathsCollide")
    for path in paths:
        above = [path[:end] for end in (at.start() for at in re.finditer("/", path)) if end]
        if both := next((place for place in above if place in known), None):
            raise errors.Refused(
                f"{path} lies below {both}, which is a file or a link in the same configuration", reason="PathsCollide"
            )
        if own := next((place for place in (*above, path) if place in machine.own), None):
            raise errors.Refused(
                f"{path} belongs to this agent ({own}), and is not for a configuration to write",
                reason="AgentsOwnFile",
                hint="take it out of the MachineConfigs of the pool",
            )
