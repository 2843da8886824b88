# SPDX-License-Identifier: Apache-2.0
"""Machines that an operator declares without a provider: their fields, in the one form that is compared, and as documents.

It reads no file (`inventory_file`) and writes nothing. Everything that is wrong is told, with the line, the field, the value and
what is allowed.

1. `name` is the name of a Machine: a DNS subdomain. Capitals and dots at the end are taken away, with a note.
2. `dns` is the name, or the names, that the machine's node may have: DNS subdomains, at least one. `localhost` is nobody's. Capitals
   and dots at the end are taken away, with a note.
3. `ip` are its addresses. They are written in their canonical form, with a note. An address that is of every machine, or of none
   (loopback, unspecified, link-local, multicast), is refused.
4. `mac` are its hardware addresses: six or eight octets in hex, of one machine. They are written with colons, in lower case.
5. `serial` and `providerID` have no blanks, and 253 characters at most.
6. `role` is master or worker; absent it is worker.
7. No name, DNS name, address, hardware address, serial number or provider id is of two machines.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import machine_config_kinds, machine_kinds, objects
from handfast.pki import names
from handfast.rules.machines import inventory, linking

NAME: Final = "name"
ROLE: Final = "role"
DNS: Final = "dns"
IP: Final = "ip"
MAC: Final = "mac"
SERIAL: Final = "serial"
PROVIDER_ID: Final = "providerID"
FIELDS: Final = (NAME, ROLE, DNS, IP, MAC, SERIAL, PROVIDER_ID)
# Those that may have several values.
SEVERAL: Final = frozenset({DNS, IP, MAC})
# 7. those that no two machines of a file have in common
UNIQUE_IN_FILE: Final = (NAME, DNS, IP, MAC, SERIAL, PROVIDER_ID)
# … and no two of a cluster; names may be the same in two namespaces.
UNIQUE_IN_CLUSTER: Final = (DNS, IP, MAC, SERIAL, PROVIDER_ID)

# On the Machine: the file that it was imported from.
SET_LABEL: Final = "machines.handfast.dev/import"
_NODE_ROLE: Final = "node-role.kubernetes.io"
# What a machine's node is called by its role; masters have an older name and a newer one.
_NODE_ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    machine_config_kinds.MASTER: ("master", "control-plane"),
    machine_config_kinds.WORKER: ("worker",),
}

_MAC: Final = re.compile(r"(?:[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?:(?::[0-9a-f]{2}){2})?)\Z")
_WORD: Final = re.compile(r"[!-~]{1,253}\Z")


class Row(msgspec.Struct, frozen=True):
    """The fields of one machine as they are written, and the line that it begins in; 0: it was typed at a command line."""

    line: int
    values: Mapping[str, tuple[str, ...]]


class Remark(msgspec.Struct, frozen=True):
    """Something about a field of a line: what is wrong with it, or what was changed."""

    line: int
    field: str
    sentence: str

    @property
    def text(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.field}: {self.sentence}"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, in the form that is compared."""

    line: int
    name: str
    role: str = machine_config_kinds.WORKER
    dns: tuple[str, ...] = ()
    ip: tuple[str, ...] = ()
    mac: tuple[str, ...] = ()
    serial: str = ""
    provider_id: str = ""

    def values(self, name: str) -> tuple[str, ...]:
        """Of one of `FIELDS`."""
        value = self.provider_id if name == PROVIDER_ID else getattr(self, name)
        return value if isinstance(value, tuple) else (value,) if value else ()


class Declaration(msgspec.Struct):
    """What was declared. It counts only where there are no problems."""

    entries: list[Entry] = msgspec.field(default_factory=list)
    problems: list[Remark] = msgspec.field(default_factory=list)
    notes: list[Remark] = msgspec.field(default_factory=list)


def declare(rows: Sequence[Row]) -> Declaration:
    """The machines of these rows, with everything that is wrong with them."""
    declaration = Declaration()
    for row in rows:
        entry = _entry(row, declaration)
        if entry is not None:
            declaration.entries.append(entry)
    declaration.problems += _shared(declaration.entries)
    declaration.problems.sort(key=lambda problem: problem.line)
    return declaration


def _entry(row: Row, declaration: Declaration) -> Entry | None:
    taken: dict[str, tuple[str, ...]] = {}
    before = len(declaration.problems)

    def wrong(name: str, sentence: str) -> None:
        declaration.problems.append(Remark(row.line, name, sentence))

    for name, read in _READERS.items():
        values = []
        for text in row.values.get(name, ()):
            try:
                value = read(text)
            except errors.Refused as refused:
                wrong(name, refused.message)
                continue
            if value != text:
                declaration.notes.append(Remark(row.line, name, f'"{text}" is written as "{value}"'))
            values.append(value)
        taken[name] = tuple(dict.fromkeys(values))
    for name, sentence in _MISSING.items():
        if not row.values.get(name):
            wrong(name, sentence)
    if len(declaration.problems) > before:
        return None
    more = {"role": taken[ROLE][0]} if taken[ROLE] else {}
    return Entry(
        line=row.line,
        name=taken[NAME][0],
        dns=taken[DNS],
        ip=taken[IP],
        mac=taken[MAC],
        serial=next(iter(taken[SERIAL]), ""),
        provider_id=next(iter(taken[PROVIDER_ID]), ""),
        **more,
    )


def _shared(entries: Sequence[Entry]) -> Iterator[Remark]:
    """What two machines have in common (7); the second of them is told, with the line of the first."""
    for name in UNIQUE_IN_FILE:
        owners: dict[str, Entry] = {}
        for entry in entries:
            for value in entry.values(name):
                owner = owners.setdefault(value, entry)
                if owner is not entry:
                    yield Remark(entry.line, name, f'"{value}" is also that of {owner.name} in line {owner.line}')


# --- the fields -------------------------------------------------------------------------------------------------------


def _refused(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadInventory")


def _subdomain(text: str) -> str:
    # 1. in the form that is compared
    value = text.lower().rstrip(".")
    if objects.dns_subdomain(value) is not None:
        raise _refused(f'"{text}" is no DNS name: it has letters, digits, - and dots, and 253 characters at most')
    return value


def _dns(text: str) -> str:
    value = _subdomain(text)
    # 2. nobody's
    if value.startswith("localhost"):
        raise _refused(
            f'"{text}" is what every machine calls itself before it knows its name: write the name of its node'
        )
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return value
    raise _refused(f'"{text}" is an IP address: write it as ip')


def _ip(text: str) -> str:
    try:
        address = names.ip_address(text)
    except errors.Refused:
        raise _refused(f'"{text}" is no IP address, as in 10.0.0.11 or fd00::11, without a zone or a prefix') from None
    # 3. one machine's
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified or address.is_link_local or address.is_multicast:
        raise _refused(f'"{text}" is of every machine or of none: write an address that only this machine has')
    return str(address)


def mac(text: str) -> str:
    """A hardware address in the form that is compared (4); errors.Refused where it is none."""
    value = text.lower().replace("-", ":")
    digits = value.replace(".", "")
    if "." in value or ":" not in value:
        # 4. as switches write it, and without separators
        value = ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))
    if _MAC.match(value) is None:
        raise _refused(f'"{text}" is no hardware address: six or eight octets in hex, as in 52:54:00:12:34:56')
    if not int(value.replace(":", ""), 16) or int(value[:2], 16) & 1:
        raise _refused(f'"{text}" is no hardware address of one machine')
    return value


def word(text: str) -> str:
    """A text without blanks, as it is compared (5); errors.Refused where it is none."""
    if _WORD.match(text) is None:
        raise _refused(f'"{text}" has blanks or characters that are not ASCII, or more than 253 characters')
    return text


def _role(text: str) -> str:
    if text not in machine_kinds.ROLES:
        raise _refused(f'"{text}" is no role: write {" or ".join(machine_kinds.ROLES)}')
    return text


_READERS: Final[Mapping[str, Callable[[str], str]]] = {
    NAME: _subdomain,
    ROLE: _role,
    DNS: _dns,
    IP: _ip,
    MAC: mac,
    SERIAL: word,
    PROVIDER_ID: word,
}
_MISSING: Final = {
    NAME: "is missing: write the name of the Machine",
    DNS: "is missing: a machine without it has no address that its node could join by",
}


# --- documents --------------------------------------------------------------------------------------------------------


def machine_labels(entry: Entry, import_set: str) -> dict[str, str]:
    """The labels of its Machine."""
    return {machine_kinds.ROLE_LABEL: entry.role, **({SET_LABEL: import_set} if import_set else {})}


def machine_annotations(entry: Entry) -> dict[str, str]:
    """The annotations of its Machine."""
    pairs = ((linking.DECLARED, "true"), (inventory.MAC, ",".join(entry.mac)), (inventory.SERIAL, entry.serial))
    return {key: value for key, value in pairs if value}


def node_labels(role: str) -> dict[str, str]:
    """The labels of its Node, which a node cannot give itself."""
    return {f"{_NODE_ROLE}/{word}": "" for word in _NODE_ROLES.get(role, ())}


def addresses(entry: Entry) -> list[dict[str, str]]:
    """The addresses of its Machine."""
    rows = [(inventory.INTERNAL_DNS, text) for text in entry.dns] + [(inventory.INTERNAL_IP, text) for text in entry.ip]
    return [{"type": kind, "address": text} for kind, text in rows]


def document(entry: Entry, namespace: str, import_set: str) -> dict[str, Any]:
    """Its Machine, without the status, which is written by itself."""
    spec: dict[str, Any] = {"metadata": {"labels": node_labels(entry.role)}}
    if entry.provider_id:
        spec["providerID"] = entry.provider_id
    return {
        "apiVersion": machine_kinds.MACHINE.api_version,
        "kind": machine_kinds.MACHINE.kind,
        "metadata": {
            "name": entry.name,
            "namespace": namespace,
            "labels": machine_labels(entry, import_set),
            "annotations": machine_annotations(entry),
        },
        "spec": spec,
    }


def status(entry: Entry) -> dict[str, Any]:
    """The status of its Machine when it is new."""
    return {"phase": linking.PROVISIONED, "addresses": addresses(entry)}


def set_name(file_name: str) -> str:
    """The name of the import of a file: the file's own, as far as a label can say it."""
    stem = file_name.replace("\\", "/").rpartition("/")[2]
    stem = stem.rpartition(".")[0] or stem
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")
    return plain[:63].rstrip("-._") or "inventory"


def of_machine(machine: Mapping[str, Any]) -> Entry:
    """What a Machine says of the same fields, so that it can be compared."""
    facts = inventory.read(machine)
    return Entry(
        line=0,
        name=facts.name,
        role=facts.role,
        dns=facts.texts(inventory.INTERNAL_DNS),
        ip=facts.texts(inventory.INTERNAL_IP),
        mac=facts.macs,
        serial=facts.serial,
        provider_id=facts.provider_id,
    )
