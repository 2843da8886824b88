# SPDX-License-Identifier: Apache-2.0
"""The machines that the operator knows: the facts of Machine objects, whichever API group they are of, found by index.

It follows nothing and decides nothing about requests.

1. The kinds are Machine of machine.openshift.io/v1beta1, and of cluster.x-k8s.io/v1beta1 and v1beta2. What is read of them is
   the same: all of them have `spec.providerID`, `status.addresses` and `status.nodeRef.name`.
2. Names are compared in lower case, without a dot at their end. Addresses are compared by value, not by how they are
   written: ::1 and 0:0:0:0:0:0:0:1 are one.
3. While a machine moves from one group to the other, both hold a Machine of its name, each in the namespace that OpenShift has for its
   group. `status.authoritativeAPI` of the machine.openshift.io one says which of them counts. While that says Migrating, neither is
   changed by anyone, and the machine.openshift.io one counts as it was. In any other namespace nothing is said by it, and both count.
4. Two Machines that claim the same InternalDNS name are both found: whoever looks up a name has to refuse more than one.
5. What comes close is found, too, so that people can be told: a Machine that has the name as another type of address, and one whose
   InternalDNS name only begins alike. Neither counts as having the name. Of many a handful is looked at: a fleet may have ten thousand
   names with one first label, and everybody who asks would have all of them looked through.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_inventory.py |
|---|---|---|---|---|
| who may write Machines in a namespace of their own | the name of another's Machine | have that one not count, and theirs count alone | 3, 4 | test_elsewhere_a_machine_in_both_groups_is_two |
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from handfast.api import jsonpath, machine_kinds, objects
from handfast.pki import names
from handfast.rules.certificates import kubelet

# 1. the API groups of Machines
OPENSHIFT: Final = machine_kinds.GROUP
CLUSTER_API: Final = "cluster.x-k8s.io"
GROUPS: Final = (OPENSHIFT, CLUSTER_API)

INTERNAL_DNS: Final = "InternalDNS"
EXTERNAL_DNS: Final = "ExternalDNS"
HOSTNAME: Final = "Hostname"
INTERNAL_IP: Final = "InternalIP"
EXTERNAL_IP: Final = "ExternalIP"
NAME_TYPES: Final = (INTERNAL_DNS, EXTERNAL_DNS, HOSTNAME)
IP_TYPES: Final = (INTERNAL_IP, EXTERNAL_IP)

FAILED: Final = "Failed"
# Which key was approved for a machine, on its Machine: the SHA-256 of its SubjectPublicKeyInfo, in hex.
APPROVED_KEY: Final = "machines.handfast.dev/approved-key"
# Since an operator had that key forgotten: only requests that were created after this instant count.
REQUESTS_AFTER: Final = "machines.handfast.dev/requests-after"
# What its hardware says of itself, on its Machine: several addresses are separated by commas.
MAC: Final = "machines.handfast.dev/mac"
SERIAL: Final = "machines.handfast.dev/serial"
# A day after the first, so that a little before it is an instant, too.
_NEVER: Final = datetime.datetime(1, 1, 2, tzinfo=datetime.UTC)

# How many near misses are looked at.
_HANDFUL: Final = 6
_BY_CLUSTER_API: Final = "ClusterAPI"
# 3. between which namespaces machines move
_HOMES: Final = {OPENSHIFT: machine_kinds.NAMESPACE, CLUSTER_API: "openshift-cluster-api"}
# What Machines are looked up by beside their addresses.
_OTHER_NAME: Final = "other name"
_FIRST_LABEL: Final = "first label"
_ADDRESS: Final = "internal or external IP"
_NODE: Final = "node"
_PROVIDER_ID: Final = "provider id"
_MAC: Final = "hardware address"
_SERIAL: Final = "serial number"

_K = TypeVar("_K", bound=Hashable)
# Group, namespace and name.
Key = tuple[str, str, str]
Canonical = names.IP | str


class Address(msgspec.Struct, frozen=True):
    """One of a machine's addresses, as it is written."""

    type: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is decided by. `node` is the Node that it is linked to, empty where it is linked to none."""

    group: str
    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: datetime.datetime = _NEVER
    addresses: tuple[Address, ...] = ()
    node: str = ""
    # Of that Node; Cluster API's v1beta2 does not say it.
    node_uid: str = ""
    provider_id: str = ""
    phase: str = ""
    # What it is for: master or worker, or a word of the operator's.
    role: str = ""
    deleting: bool = False
    # Which group's Machine counts, as the machine.openshift.io one says: MachineAPI, ClusterAPI or Migrating.
    authoritative: str = ""
    approved_key: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    # What its Node is to have.
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_annotations: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[Mapping[str, Any], ...] = ()

    @property
    def key(self) -> Key:
        return (self.group, self.namespace, self.name)

    @property
    def title(self) -> str:
        """As people name it."""
        return f"Machine {self.namespace}/{self.name}" + ("" if self.group == OPENSHIFT else f" of {self.group}")

    @property
    def macs(self) -> tuple[str, ...]:
        """Its hardware addresses, as far as they are known."""
        return tuple(text for text in self.annotations.get(MAC, "").split(",") if text)

    @property
    def serial(self) -> str:
        return self.annotations.get(SERIAL, "")

    def texts(self, *types: str) -> tuple[str, ...]:
        """Its addresses of these types, as they are written."""
        return tuple(row.address for row in self.addresses if row.type in types)

    def values(self, *types: str) -> frozenset[Canonical]:
        """Its addresses of these types, as they are compared (2)."""
        return frozenset(kubelet.canonical(text) for text in self.texts(*types) if text)


def read(document: Mapping[str, Any]) -> Machine:
    """The facts of a Machine. What has another shape than the schema says counts as absent."""
    meta = jsonpath.mapping(document, "metadata")
    annotations = _texts(meta, "annotations")
    return Machine(
        group=jsonpath.text(document, "apiVersion").partition("/")[0],
        namespace=jsonpath.text(meta, "namespace"),
        name=jsonpath.text(meta, "name"),
        uid=jsonpath.text(meta, "uid"),
        version=jsonpath.text(meta, "resourceVersion"),
        created=_instant(jsonpath.text(meta, "creationTimestamp")),
        addresses=tuple(
            Address(jsonpath.text(row, "type"), jsonpath.text(row, "address"))
            for row in jsonpath.mappings(document, "status", "addresses")
        ),
        node=jsonpath.text(document, "status", "nodeRef", "name"),
        node_uid=jsonpath.text(document, "status", "nodeRef", "uid"),
        provider_id=jsonpath.text(document, "spec", "providerID"),
        phase=jsonpath.text(document, "status", "phase"),
        role=jsonpath.text(meta, "labels", machine_kinds.ROLE_LABEL),
        deleting=jsonpath.at(meta, "deletionTimestamp") is not None,
        authoritative=jsonpath.text(document, "status", "authoritativeAPI"),
        approved_key=annotations.get(APPROVED_KEY, ""),
        annotations=annotations,
        node_labels=_texts(document, "spec", "metadata", "labels"),
        node_annotations=_texts(document, "spec", "metadata", "annotations"),
        node_taints=tuple(jsonpath.mappings(document, "spec", "taints")),
    )


def _texts(document: Mapping[str, Any], *path: str) -> dict[str, str]:
    return {key: value for key, value in jsonpath.mapping(document, *path).items() if isinstance(value, str)}


def _instant(text: str) -> datetime.datetime:
    try:
        return objects.parse_timestamp(text)
    except ValueError:
        return _NEVER


class Index:
    """Machines by what they are looked up by. A lookup gives only those that count (3), in the order of their keys."""

    def __init__(self) -> None:
        self._machines: dict[Key, Machine] = {}
        self._names: dict[str, set[Key]] = {}
        self._places: dict[tuple[str, Canonical], set[Key]] = {}

    def __len__(self) -> int:
        return len(self._machines)

    def __iter__(self) -> Iterator[Machine]:
        return iter(tuple(self._machines.values()))

    def get(self, key: Key) -> Machine | None:
        return self._machines.get(key)

    def put(self, machine: Machine) -> None:
        """Take in a Machine that is new or has changed."""
        self.remove(machine.key)
        self._machines[machine.key] = machine
        self._names.setdefault(machine.name, set()).add(machine.key)
        for place in _places(machine):
            self._places.setdefault(place, set()).add(machine.key)

    def remove(self, key: Key) -> None:
        """Forget a Machine, if it is here."""
        machine = self._machines.pop(key, None)
        if machine is None:
            return
        _drop(self._names, machine.name, key)
        for place in _places(machine):
            _drop(self._places, place, key)

    def by_dns(self, name: str) -> tuple[Machine, ...]:
        """The Machines with this InternalDNS name."""
        return self._at(INTERNAL_DNS, kubelet.canonical(name))

    def by_other_name(self, name: str) -> tuple[Machine, ...]:
        """Some Machines that have this name, and not as their InternalDNS name: near misses (5)."""
        return self._some(_OTHER_NAME, kubelet.canonical(name))

    def by_first_label(self, name: str) -> tuple[Machine, ...]:
        """Some Machines with an InternalDNS name that begins with the same label: near misses (5)."""
        return self._some(_FIRST_LABEL, _first_label(name))

    def by_ip(self, address: str) -> tuple[Machine, ...]:
        """The Machines with this InternalIP."""
        return self._at(INTERNAL_IP, kubelet.canonical(address))

    def by_address(self, address: str) -> tuple[Machine, ...]:
        """The Machines with this InternalIP or ExternalIP."""
        return self._at(_ADDRESS, kubelet.canonical(address))

    def by_node(self, node: str) -> tuple[Machine, ...]:
        """The Machines that are linked to this Node."""
        return self._at(_NODE, node)

    def by_provider_id(self, provider_id: str) -> tuple[Machine, ...]:
        return self._at(_PROVIDER_ID, provider_id)

    def by_mac(self, mac: str) -> tuple[Machine, ...]:
        """The Machines with this hardware address, in the form that `declaration` writes."""
        return self._at(_MAC, mac)

    def by_serial(self, serial: str) -> tuple[Machine, ...]:
        return self._at(_SERIAL, serial)

    def named(self, name: str) -> tuple[Machine, ...]:
        """The Machines of this name, in whichever namespace and group."""
        return self._counting(self._names.get(name, ()))

    def _at(self, kind: str, value: Canonical) -> tuple[Machine, ...]:
        return self._counting(self._places.get((kind, value), ())) if value else ()

    def _some(self, kind: str, value: Canonical) -> tuple[Machine, ...]:
        # 5. a handful, whatever their number is
        keys = self._places.get((kind, value), ()) if value else ()
        return self._counting(key for _, key in zip(range(_HANDFUL), keys, strict=False))

    def _counting(self, keys: Iterable[Key]) -> tuple[Machine, ...]:
        return tuple(self._machines[key] for key in sorted(keys) if self._counts(self._machines[key]))

    def _counts(self, machine: Machine) -> bool:
        # 3. of a machine that moves, the one that is authoritative
        twin = self._twin(machine)
        if twin is None:
            return True
        if machine.group == OPENSHIFT:
            return machine.authoritative != _BY_CLUSTER_API
        return twin.authoritative in {"", _BY_CLUSTER_API}

    def _twin(self, machine: Machine) -> Machine | None:
        """The same machine in the other group, where both are at home; None: it does not move."""
        if machine.namespace != _HOMES.get(machine.group):
            return None
        other = CLUSTER_API if machine.group == OPENSHIFT else OPENSHIFT
        return self._machines.get((other, _HOMES[other], machine.name))


def _places(machine: Machine) -> Iterator[tuple[str, Canonical]]:
    for kind in (INTERNAL_DNS, INTERNAL_IP):
        yield from ((kind, value) for value in machine.values(kind))
    yield from ((_OTHER_NAME, value) for value in machine.values(EXTERNAL_DNS, HOSTNAME))
    yield from ((_FIRST_LABEL, label) for label in {_first_label(text) for text in machine.texts(INTERNAL_DNS)})
    yield from ((_ADDRESS, value) for value in machine.values(*IP_TYPES))
    yield _NODE, machine.node
    yield _PROVIDER_ID, machine.provider_id
    yield from ((_MAC, text) for text in machine.macs)
    yield _SERIAL, machine.serial


def _first_label(name: str) -> str:
    return str(kubelet.canonical(name)).partition(".")[0]


def _drop(index: dict[_K, set[Key]], place: _K, key: Key) -> None:
    index[place].discard(key)
    if not index[place]:
        del index[place]
