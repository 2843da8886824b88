# SPDX-License-Identifier: Apache-2.0
"""May a node have this serving certificate: what its Machine's addresses say, or what its kubelet serves now?

It dials nobody and follows nothing: the caller brings the Machines, the EgressIPs, and what the kubelet presented. Whether a
request that is not approved is judged again is the caller's, too: nothing here changes but by one of these.

1. The request has the form of a node's serving request (`rules.certificates.kubelet`), sent by the node itself.
2. The requester is in the groups `system:nodes` and `system:authenticated`. More groups are fine.
3. None of its names is of every machine or of a Service, whoever says that it is theirs.
4. Where a Machine is linked to the Node, that Machine alone counts. Two that are linked to one Node are none. Where a Machine
   has the Node's name as its InternalDNS name, it is that one that has to be linked: node-link also goes by what a Node
   reports of itself.
5. The Machine has addresses. Without, the request waits for them.
6. Each DNS name is an InternalDNS, ExternalDNS or Hostname address of the Machine. Each IP address is an InternalIP or
   ExternalIP, or an EgressIP that is assigned to this Node. Names of a Machine with a wildcard count for nothing.
7. Where no Machine is linked, the kubelet presents a certificate now, at the Node's first InternalIP and its kubelet's port.
   That address is one that only one machine has: not loopback, link-local, multicast or unspecified.
8. That certificate is verified by the kubelets' CA, for that address and at this instant. Its subject is the node's.
9. The request has the same names as that certificate, each as often: it asks for nothing new.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_serving.py |
|---|---|---|---|---|
| a node | its client certificate | a certificate for another machine's name or address | 6 | test_authorize_csr |
| … | … | one for localhost or the API server's Service, by a Machine that says so | 3 | test_names_of_everybody_are_nobodys |
| … | … | be linked to another's Machine by reporting its providerID | 4 | test_a_link_to_another_machine_than_the_one_of_that_name_counts_for_nothing |
| … | … | more names than its certificate has now | 9 | test_serving_renewal |
| … | … | one of another node, which it copies from that one's kubelet | 1, 8 | test_serving_renewal |
| … | an address of another host in its Node's status | have somebody else's certificate taken for its own | 8: the subject | test_serving_renewal |
| … | … | have us connect to ourselves, or to a metadata service | 7 | test_where_a_kubelet_is |
| who has the key of another CA | a host at the node's address | answer for the kubelet | 8 | test_serving_renewal |
| a joining machine | a bootstrap credential | a serving certificate | 1, 2 | test_authorize_csr |

Not stopped: whoever may write Machines, their status or EgressIPs decides what nodes may serve as.
"""

from __future__ import annotations

import collections
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath
from handfast.pki import bundles, chains, names
from handfast.rules import user_names
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, inventory, linking

# The names of the checks, which explanations refer to.
GROUPS: Final = "requester's groups"
LINK: Final = "linked Machine"
KNOWN: Final = "addresses of the Machine"
WITHIN: Final = "among the Machine's addresses"
SERVED: Final = "certificate that the kubelet serves"
SAME: Final = "same names as it serves"

# Why a request is not approved, by the check that failed; those on its form have one reason together.
NO_ADDRESSES: Final = "MachineWithoutAddresses"
NOT_ITS_ADDRESS: Final = "NotAnAddressOfTheMachine"
NOT_SERVED: Final = "KubeletNotVerified"
NOT_AS_SERVED: Final = "NotAsServed"
_REASONS: Final[Mapping[str, str]] = {
    kubelet.RESERVED: "ReservedName",
    LINK: linking.AMBIGUOUS_LINK,
    KNOWN: NO_ADDRESSES,
    WITHIN: NOT_ITS_ADDRESS,
    SERVED: NOT_SERVED,
    SAME: NOT_AS_SERVED,
}

# What would make a failed check pass; of one on the request alone only a new request.
_CHANGES: Final[Mapping[str, str]] = {
    GROUPS: "send the request as the node itself, by its client certificate",
    kubelet.RESERVED: "create a new request without them",
    LINK: "correct status.nodeRef of the Machines, so that the one of this node is linked to it and no other",
    KNOWN: "wait until the Machine has addresses, and see whether its provider reports them",
    WITHIN: "have the Machine list every name and address of the request, or leave the others out of it",
    SERVED: "have the node's kubelet answer there with its certificate, or link a Machine to the Node",
    SAME: "ask for the names that the kubelet serves now, or link a Machine to the Node",
}
_NEW_REQUEST: Final = "create a new request without this fault"
_BY_HAND: Final = frozenset({SERVED, SAME})
# What can turn a check; the others are on the request alone, which never changes.
_WAITS_FOR: Final[Mapping[str, frozenset[str]]] = {
    LINK: frozenset({approval.MACHINE}),
    KNOWN: frozenset({approval.MACHINE}),
    WITHIN: frozenset({approval.MACHINE}),
    SERVED: frozenset({approval.MACHINE, approval.NODE}),
    SAME: frozenset({approval.MACHINE, approval.NODE}),
}

# Where the CA of kubelets is published, in `bootstrapper.MANAGED_NAMESPACE`.
CA_CONFIG_MAP: Final = "csr-controller-ca"
# The kind that says which address for egress is on which Node.
EGRESS_GROUP: Final = "k8s.ovn.org"
EGRESS_VERSION: Final = "v1"
EGRESS_PLURAL: Final = "egressips"

# Both, beside which there may be others.
_WANTED: Final = (user_names.NODES, user_names.AUTHENTICATED)
_PORTS: Final = range(1, 1 << 16)


class Place(msgspec.Struct, frozen=True):
    """Where a kubelet is said to serve."""

    address: names.IP
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{host}:{self.port}"


class Served(msgspec.Struct, frozen=True):
    """What a kubelet presents now, verified."""

    place: str
    subject: names.Subject
    sans: names.Sans


class NotServed(msgspec.Struct, frozen=True):
    """Why nothing is known of what a kubelet serves."""

    why: str


Presented = Served | NotServed


def place_of(node: Mapping[str, Any]) -> Place:
    """Where the kubelet of a Node is (7); errors.Refused where it does not say, or may not be asked."""
    rows = jsonpath.mappings(node, "status", "addresses")
    internal = [jsonpath.text(row, "address") for row in rows if row.get("type") == inventory.INTERNAL_IP]
    if not internal:
        raise errors.Refused("the Node has no internal addresses", reason=NOT_SERVED)
    address = names.ip_address(internal[0])
    port = jsonpath.number(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port")
    if port not in _PORTS:
        raise errors.Refused("the Node does not say on which port its kubelet serves", reason=NOT_SERVED)
    # 7. an address that only one machine has
    if kubelet.withheld(names.Sans(ip=(address,)), kubelet.NO_NAMES):
        raise errors.Refused(f"the Node's internal address {address} is one of every machine", reason=NOT_SERVED)
    return Place(address, port)


def verified(place: Place, chain: Sequence[bytes], roots: bundles.TrustBundle, now: datetime.datetime) -> Presented:
    """What was presented there, once it is verified (8); the subject is compared afterwards."""
    try:
        found = chains.verify(chain, roots, chains.Server(str(place.address)), now)
    except errors.Refused as refused:
        return NotServed(f"{place}: {refused.message}")
    return Served(str(place), found.subject, found.sans)


def of_egress(documents: Sequence[Mapping[str, Any]], node: str) -> tuple[str, ...]:
    """The addresses of EgressIPs (k8s.ovn.org/v1) that are assigned to this Node."""
    rows = (row for document in documents for row in jsonpath.mappings(document, "status", "items"))
    return tuple(jsonpath.text(row, "egressIP") for row in rows if row.get("node") == node)


def content(facts: kubelet.Facts) -> tuple[kubelet.Check, ...]:
    """The checks on the request alone, which nothing can change any more (1 to 3)."""
    lacking = [group for group in _WANTED if group not in facts.groups]
    groups = f"[{', '.join(facts.groups)}] is to hold {' and '.join(_WANTED)}"
    return (
        # 1. a node's serving request
        *kubelet.checks_without_addresses(facts, kubelet.SELF_NODE_SERVER),
        # 2. of a node
        kubelet.Check(GROUPS, not lacking, groups),
        # 3. without names of everybody
        kubelet.reserved_check(facts.request.sans),
    )


def by_machine(
    facts: kubelet.Facts,
    linked: Sequence[inventory.Machine],
    named: Sequence[inventory.Machine],
    egress: Sequence[str] = (),
) -> tuple[kubelet.Check, ...]:
    """The checks where a Machine is linked to the Node (4 to 6); `named` have the Node's name as InternalDNS name."""
    # 4. the one Machine of this node
    link = _link(facts.node_name, linked, named)
    if not link.passed:
        return (link,)
    machine = linked[0]
    # 5. which has addresses
    known = kubelet.Check(KNOWN, bool(machine.addresses), f"{machine.title} has {kubelet.listed(_texts(machine))}")
    return (link, known, _within(facts.request.sans, machine, egress)) if known.passed else (link, known)


def by_kubelet(
    facts: kubelet.Facts, presented: Presented, named: Sequence[inventory.Machine] = ()
) -> tuple[kubelet.Check, ...]:
    """The checks where no Machine is linked to the Node (8, 9)."""
    served = _served(facts, presented, named)
    if not served.passed or not isinstance(presented, Served):
        return (served,)
    # 9. the same names, each as often
    more, fewer = _difference(facts.request.sans, presented.sans)
    compared = f"{kubelet.listed(facts.request.sans.texts())} is to be {kubelet.listed(presented.sans.texts())}"
    if more or fewer:
        compared += "".join(
            f"; {word}: {kubelet.listed(texts)}" for word, texts in (("new", more), ("missing", fewer)) if texts
        )
    return (served, kubelet.Check(SAME, not more and not fewer, compared))


def verdict(
    facts: kubelet.Facts, checks: Sequence[kubelet.Check], machine: inventory.Machine | None = None
) -> approval.Verdict:
    """The checks, each that failed with its reason, what can turn it, and the change that would."""
    return approval.Verdict(tuple(_step(facts, check) for check in checks), machine)


def _step(facts: kubelet.Facts, check: kubelet.Check) -> approval.Step:
    if check.passed:
        return approval.Step(check)
    change = _CHANGES.get(check.name, _NEW_REQUEST)
    beside = f"; or {approval.by_hand(facts)}" if check.name in _BY_HAND else ""
    why = _REASONS.get(check.name, approval.MALFORMED)
    return approval.Step(check, why, _WAITS_FOR.get(check.name, approval.NOTHING), change + beside)


def _link(node: str, linked: Sequence[inventory.Machine], named: Sequence[inventory.Machine]) -> kubelet.Check:
    titles = ", ".join(machine.title for machine in linked)
    if len(linked) != 1:
        return kubelet.Check(LINK, False, f'{titles or "no Machine"} is linked to the Node "{node}"; it is to be one')
    others = [machine.title for machine in named if machine.key != linked[0].key]
    if named and others:
        text = f'{titles} is linked to the Node "{node}", and {", ".join(others)} has that name'
        return kubelet.Check(LINK, False, text)
    return kubelet.Check(LINK, True, f'{titles} is linked to the Node "{node}"')


def _within(sans: names.Sans, machine: inventory.Machine, egress: Sequence[str]) -> kubelet.Check:
    # 6. names by the Machine's names, addresses by its addresses and those for egress
    by_name = machine.texts(*inventory.NAME_TYPES)
    by_address = machine.texts(*inventory.IP_TYPES)
    foreign_names = kubelet.not_of_the_node(names.Sans(dns=sans.dns), by_name)
    foreign = kubelet.not_of_the_node(names.Sans(ip=sans.ip), (*by_address, *egress))
    said = []
    if foreign_names:
        said.append(
            f"the DNS names {kubelet.listed(foreign_names)} are not among the names {kubelet.listed(by_name)} of {machine.title}"
        )
    if foreign:
        beside = f" or the Node's egress IPs {kubelet.listed(egress)}" if egress else ""
        said.append(
            f"{kubelet.listed(foreign)} is not among the addresses {kubelet.listed(by_address)} of {machine.title}{beside}"
        )
    return kubelet.Check(WITHIN, not said, "; ".join(said) or f"all are addresses of {machine.title}")


def _served(facts: kubelet.Facts, presented: Presented, named: Sequence[inventory.Machine]) -> kubelet.Check:
    if isinstance(presented, NotServed):
        beside = "".join(f"; {machine.title} has this name and is not linked to the Node" for machine in named)
        return kubelet.Check(SERVED, False, f"no Machine is linked to the Node, and {presented.why}{beside}")
    # 8. of the node itself
    wanted = user_names.node_subject(facts.node_name)
    return kubelet.Check(
        SERVED, presented.subject == wanted, f"{presented.place} presents {presented.subject}, which is to be {wanted}"
    )


def _difference(wanted: names.Sans, present: names.Sans) -> tuple[list[str], list[str]]:
    """What is wanted and not there, and what is there and not wanted, counted."""
    one, other = (collections.Counter(_forms(sans)) for sans in (wanted, present))
    return sorted((one - other).elements()), sorted((other - one).elements())


def _forms(sans: names.Sans) -> list[str]:
    dns = (str(kubelet.canonical(name)) for name in sans.dns)
    return names.Sans(dns=tuple(dns), ip=sans.ip, uri=sans.uri, email=sans.email).texts()


def _texts(machine: inventory.Machine) -> list[str]:
    return [f"{row.type} {row.address}" for row in machine.addresses]
