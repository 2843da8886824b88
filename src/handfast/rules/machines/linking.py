# SPDX-License-Identifier: Apache-2.0
"""Which Machine a Node is, and what is then written on both.

It writes nothing. Nobody decides by the Node's annotation: a node can write that itself.

1. The Machine is looked for by the Node's provider id. If none has it, by the Node's InternalIPs. If none has one of those either, by
   the Node's name, among Machines that have neither an id nor an InternalIP to be compared.
2. More than one is none: the Node is not linked, and all of them are named.
3. The Machine has the Node's name as an InternalDNS name. A node tells its id and its addresses itself, and could tell those of
   another machine. Its name it cannot choose: that is in its certificate.
4. The Machine is not linked to another Node that is there. A Node of the same name that was made anew is the same.
5. Machines of Cluster API are linked by Cluster API itself. While a Machine migrates nobody changes it.

A link is never taken back by itself. When a Node is deleted, its Machine keeps `status.nodeRef`: else whoever can delete a Node, or
a controller that does so after a silence, would open the machine's name to anyone with the bootstrap credential. The node itself
comes back with its certificate, and is linked again. An operator who installs the machine anew says so
(`handfast machine readmit`), or makes the Machine anew.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_linking.py |
|---|---|---|---|---|
| a node, taken over | its certificate, its own Node | keep another machine from joining, by that one's address | 3 | test_a_node_that_tells_anothers_address_is_not_linked |
| … | … | serve as that machine, by its provider id | 3 | test_a_node_that_tells_anothers_provider_id_is_not_linked |
| … | … | both, once that machine has joined | 3, 4 | test_a_machine_keeps_the_node_that_it_has |
| … | … | be looked for by its name, though it is elsewhere | 1 | test_a_name_alone_links_only_a_machine_that_has_nothing_else |
| … | … | pass for a Machine by writing its annotation | nobody reads it | test_the_annotation_of_a_node_decides_nothing |
| who may delete Nodes | a leaked bootstrap credential | make a joined machine's name free | no link is taken back | test_a_machine_whose_node_is_gone_stays_linked |
| a writer of Machines | a second Machine with the same address | take over a Node | 2 | test_more_than_one_machine_is_none_and_all_are_named |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from handfast.api import jsonpath
from handfast.rules.certificates import kubelet
from handfast.rules.machines import inventory

# On the Node: namespace and name of its Machine.
ANNOTATION: Final = "machine.openshift.io/machine"
# On a Machine that `handfast machine` declared: no provider looks after its phase.
DECLARED: Final = "machines.handfast.dev/declared"
PROVISIONED: Final = "Provisioned"
RUNNING: Final = "Running"

# Why a Node is not linked. Of these an operator is told:
AMBIGUOUS: Final = "AmbiguousMachine"
NOT_ITS_MACHINE: Final = "NotItsMachine"
ANOTHER_NODE: Final = "MachineHasAnotherNode"
DIFFERENT: Final = "MachineDiffers"
TOLD: Final = frozenset({AMBIGUOUS, NOT_ITS_MACHINE, ANOTHER_NODE, DIFFERENT})
# … and of these not:
NO_MACHINE: Final = "NoMachine"
CLUSTER_API: Final = "LinkedByClusterAPI"
MIGRATING: Final = "MachineMigrating"
_MIGRATING: Final = "Migrating"
# Why nobody decides by a link: more than one Machine is linked to the Node.
AMBIGUOUS_LINK: Final = "AmbiguousLink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What is compared of a Node, and what is there already of what it is to have."""

    name: str
    uid: str = ""
    version: str = ""
    provider_id: str = ""
    ips: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()


class Link(msgspec.Struct, frozen=True):
    """The Node is this Machine."""

    machine: inventory.Machine


class NoLink(msgspec.Struct, frozen=True):
    """The Node is no Machine, or not sure to be; `TOLD` says which reasons an operator is told."""

    reason: str
    sentence: str


def read_node(document: Mapping[str, Any]) -> Node:
    """The facts of a Node. What has another shape than the schema says counts as absent."""
    rows = jsonpath.mappings(document, "status", "addresses")
    return Node(
        name=jsonpath.text(document, "metadata", "name"),
        uid=jsonpath.text(document, "metadata", "uid"),
        version=jsonpath.text(document, "metadata", "resourceVersion"),
        provider_id=jsonpath.text(document, "spec", "providerID"),
        ips=tuple(jsonpath.text(row, "address") for row in rows if row.get("type") == inventory.INTERNAL_IP),
        labels=jsonpath.mapping(document, "metadata", "labels"),
        annotations=jsonpath.mapping(document, "metadata", "annotations"),
        taints=tuple(jsonpath.mappings(document, "spec", "taints")),
    )


def judge(node: Node, index: inventory.Index, there: Callable[[str], bool]) -> Link | NoLink:
    """Which Machine this Node is; `there` says whether there is a Node of a name."""
    # 1. by id, by address, by name
    machines, how = _candidates(node, index)
    if not machines:
        return _none(node, index)
    # 2. more than one is none
    if len(machines) > 1:
        return NoLink(AMBIGUOUS, f"{_listed(machines)} all have its {how}: it is linked to none of them")
    (machine,) = machines
    # 3. the machine is of the node's name
    if kubelet.canonical(node.name) not in machine.values(inventory.INTERNAL_DNS):
        names = ", ".join(machine.texts(inventory.INTERNAL_DNS)) or "none"
        sentence = f"it tells the {how} of {machine.title}, whose InternalDNS names are other than its own: {names}"
        return NoLink(NOT_ITS_MACHINE, sentence)
    # 4. the machine has no other node
    if machine.node not in {"", node.name} and there(machine.node):
        return NoLink(ANOTHER_NODE, f"{machine.title} has its {how} and is linked to the Node {machine.node}")
    return _ours(machine)


def _ours(machine: inventory.Machine) -> Link | NoLink:
    # 5. nobody else's
    if machine.group != inventory.OPENSHIFT:
        return NoLink(CLUSTER_API, f"{machine.title} is linked by Cluster API")
    if machine.authoritative == _MIGRATING:
        return NoLink(MIGRATING, f"{machine.title} is not changed while it migrates")
    return Link(machine)


def _candidates(node: Node, index: inventory.Index) -> tuple[tuple[inventory.Machine, ...], str]:
    """The Machines that this Node may be, and what they have in common with it."""
    if machines := index.by_provider_id(node.provider_id):
        return machines, f"provider id {node.provider_id}"
    by_ip = {machine.key: machine for address in node.ips for machine in index.by_ip(address)}
    if by_ip:
        return tuple(by_ip[key] for key in sorted(by_ip)), f"InternalIP {' or '.join(node.ips)}"
    named = tuple(machine for machine in index.by_dns(node.name) if not _comparable(machine))
    return named, f"name {node.name}"


def _comparable(machine: inventory.Machine) -> bool:
    return bool(machine.provider_id or machine.texts(inventory.INTERNAL_IP))


def _none(node: Node, index: inventory.Index) -> NoLink:
    """No Machine, or one of its name that is elsewhere. A Node that tells nothing yet may still become that Machine's."""
    machines = index.by_dns(node.name)
    if not machines or not (node.provider_id or node.ips):
        return NoLink(NO_MACHINE, "no Machine has its provider id, its InternalIP or its name")
    theirs = "; ".join(
        f"{machine.title} has provider id {machine.provider_id or 'none'}, "
        f"InternalIP {', '.join(machine.texts(inventory.INTERNAL_IP)) or 'none'}"
        for machine in machines
    )
    ours = f"provider id {node.provider_id or 'none'}, InternalIP {', '.join(node.ips) or 'none'}"
    return NoLink(DIFFERENT, f"it tells {ours}, and the Machine of its name is another: {theirs}")


def _listed(machines: Iterable[inventory.Machine]) -> str:
    return ", ".join(machine.title for machine in machines)


def machine_patch(node: Node, machine: inventory.Machine) -> dict[str, Any] | None:
    """The merge patch of the Machine's status that links it, at the version that it was judged in; None: it is linked."""
    status: dict[str, Any] = {}
    if (machine.node, machine.node_uid) != (node.name, node.uid):
        status["nodeRef"] = {"kind": "Node", "name": node.name, "uid": node.uid}
    if DECLARED in machine.annotations and machine.phase in {"", PROVISIONED}:
        status["phase"] = RUNNING
    return {"metadata": {"resourceVersion": machine.version}, "status": status} if status else None


def node_patch(node: Node, machine: inventory.Machine) -> dict[str, Any] | None:
    """The merge patch of the Node: the name of its Machine, and the labels, annotations and taints that it is to have.

    A taint that is there with the same key and effect stays as it is, whatever its value. None: all of it is there.
    """
    annotations = {**machine.node_annotations, ANNOTATION: f"{machine.namespace}/{machine.name}"}
    parts = {
        "annotations": {key: value for key, value in annotations.items() if node.annotations.get(key) != value},
        "labels": {key: value for key, value in machine.node_labels.items() if node.labels.get(key) != value},
    }
    metadata: dict[str, Any] = {key: values for key, values in parts.items() if values}
    known = {_taint(row) for row in node.taints}
    taints = [dict(row) for row in machine.node_taints if _taint(row) not in known]
    spec = {"spec": {"taints": [*map(dict, node.taints), *taints]}} if taints else {}
    if not metadata and not spec:
        return None
    return {"metadata": {**metadata, "resourceVersion": node.version}, **spec}


def _taint(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get("key"), row.get("effect")


def affected(machine: inventory.Machine, index: inventory.Index) -> set[str]:
    """The names of the Nodes that a Machine which came, changed or went may make a difference to.

    By 3. a Machine is linked to Nodes of its own names alone. It can also stand in the way of others' by 2.
    """
    rivals = [*index.by_provider_id(machine.provider_id)]
    for address in machine.texts(inventory.INTERNAL_IP):
        rivals += index.by_ip(address)
    names = {
        name for each in (machine, *rivals) for name in each.values(inventory.INTERNAL_DNS) if isinstance(name, str)
    }
    return names | ({machine.node} if machine.node else set())
