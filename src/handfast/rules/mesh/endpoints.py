# SPDX-License-Identifier: Apache-2.0
"""The endpoints of a Service's port: who is among them, with which identity, and who is withheld. It follows nothing and tells nobody.

1. Of the EndpointSlices count those with addresses, and of their ports the one with the name of the Service's port, for TCP. A port that the
   Service does not have is the endpoints' own, as it is written.
2. Of the endpoints count those that are ready. Where none is, those count that still serve while they end, as kube-proxy has it.
3. An endpoint is in the answer once, however many slices have it. A Pod with addresses of both families is there with that of the Service's first.
4. Behind an address is the Pod that the slice names, if it is of the slice's own namespace. That Pod is known, is the one that is meant
   (by UID), and has the address. Otherwise the endpoint is withheld: a Pod that is not known could have an identity.
5. Where the slice names no such Pod, the Pod with that address counts, whoever wrote the slice. With several, nobody can tell: the endpoint is
   withheld. With none, the address is not of this cluster, and has no identity.
6. Which identity a Pod has, `meshed` says.
7. An address is a Service's own if that one Service has it, and no Pod. Where a Pod has it, the Pod counts: who writes a Service may write any address
   into it where the API server hands none out. Where several Services have it, nobody can tell.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_endpoints.py |
|---|---|---|---|---|
| a tenant | EndpointSlices of a namespace | the address of a meshed Pod without its name, so that others speak plaintext to it | 5 | test_an_address_without_a_pod_s_name_is_that_of_the_pod_that_has_it |
| … | … | the same, written as IPv6 | 5 | test_an_address_in_another_spelling_is_the_same_address |
| … | … | another's Pod beside an address of its own, to be taken for it | 4 | test_a_pod_that_does_not_have_the_address_is_withheld |
| … | … | a Pod of another namespace, which has no identity, beside the address of one that has | 4, 5 | test_a_pod_of_another_namespace_does_not_count |
| … | Services of a namespace | the address of another's Pod as the address of its own, to be called in its place | 7 | test_a_service_does_not_take_the_address_of_a_pod |
| … | … | the same with that of another's Service | 7 | test_an_address_of_two_services_is_withheld |
| a slow watch | a slice whose Pod has not come | an endpoint without identity for a moment | 4 | test_a_pod_that_is_not_known_is_withheld |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from handfast.rules.mesh import authorities, injection, meshed, names, views, workloads

WEIGHT: Final = 10_000
_TCP: Final = "TCP"
_FAMILIES: Final = ("IPv4", "IPv6")

Labels = tuple[tuple[str, str], ...]


class Addresses(Protocol):
    """Whose an address is. A Pod of `pods_at` has not ended."""

    def pods_at(self, ip: str) -> Sequence[views.Pod]: ...

    def services_at(self, ip: str) -> Sequence[views.Service]: ...


class Known(Protocol):
    """What can be looked up while it is decided. A Pod of `pods_at` has not ended."""

    @property
    def mesh(self) -> names.Mesh: ...

    def pod(self, namespace: str, name: str) -> views.Pod | None: ...

    def pods_at(self, ip: str) -> Sequence[views.Pod]: ...

    def facts(self, pod: views.Pod) -> meshed.Facts:
        """What the Pod is judged by beside itself."""
        ...


class Endpoint(msgspec.Struct, frozen=True):
    """One address that a proxy is told of, with what it is."""

    address: authorities.Address
    standing: meshed.Standing = meshed.PLAIN
    labels: Labels = ()


class Withheld(msgspec.Struct, frozen=True):
    """One address that no proxy is told of, and why."""

    address: authorities.Address
    why: meshed.Reason
    text: str


class Row(msgspec.Struct, frozen=True):
    """An address of a slice."""

    slice: views.Slice
    entry: views.SliceEndpoint
    address: authorities.Address


def candidates(service: views.Service, wanted: authorities.Service, slices: Iterable[views.Slice]) -> Sequence[Row]:
    """The addresses of a Service's port, each once (1 to 3)."""
    return chosen(service, [row for each in slices for row in rows(service, wanted, each)])


def rows(service: views.Service, wanted: authorities.Service, item: views.Slice) -> Iterator[Row]:
    """The addresses of one slice (1)."""
    # 1. with addresses, and with the port
    port = _port(service, wanted.port, item) if item.address_type in _FAMILIES else 0
    if not port:
        return
    for entry in item.endpoints or ():
        if wanted.instance and entry.hostname != wanted.instance:
            continue
        for text in entry.addresses:
            if host := authorities.canonical(text):
                yield Row(item, entry, authorities.Address(host, port))


def chosen(service: views.Service, every: Sequence[Row]) -> Sequence[Row]:
    """Those of them that count, each once (2, 3)."""
    ready = [row for row in every if _is_ready(row.entry)]
    # 2. as kube-proxy has it
    counted = ready or [row for row in every if _still_serves(row.entry)]
    # 3. once each
    unique = {row.address: row for row in reversed(counted)}
    first = (service.spec.ip_families or _FAMILIES)[0]
    preferred = {_pod_key(row) for row in unique.values() if row.slice.address_type == first}
    return [
        row
        for row in reversed(unique.values())
        if row.slice.address_type == first or _pod_key(row) is None or _pod_key(row) not in preferred
    ]


def judge(row: Row, known: Known) -> Endpoint | Withheld:
    """What a candidate is (4 to 6)."""
    try:
        pod = _pod(row, known)
        return Endpoint(row.address) if pod is None else of_pod(pod, row.address, known, row.entry.zone or "")
    except meshed.Withheld as withheld:
        return Withheld(row.address, withheld.why, withheld.message)


def of_pod(pod: views.Pod, address: authorities.Address, known: Known, zone: str = "") -> Endpoint:
    """A port of a Pod (6); meshed.Withheld where it should have an identity and has none."""
    # 6. which identity
    standing = meshed.standing(pod, address.port, known.facts(pod))
    return Endpoint(address, standing, labels(pod, zone))


def pod_at(host: str, known: Known) -> views.Pod | None:
    """The Pod that has an address (5); None where it is none of this cluster. meshed.Withheld where nobody can tell."""
    # The address of a node is not that of the Pods in its network.
    pods = [pod for pod in known.pods_at(host) if not pod.spec.host_network]
    if len(pods) > 1:
        raise meshed.Withheld(
            meshed.Reason.ADDRESS_UNCLEAR,
            f"address {host} is that of {len(pods)} Pods, among them "
            + " and ".join(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods[:2]),
            hint="wait until one of them has ended",
        )
    return pods[0] if pods else None


def service_at(host: str, known: Addresses) -> views.Service | None:
    """The Service whose own address it is (7); None where it is no Service's. meshed.Withheld where nobody can tell."""
    services = known.services_at(host)
    # 7. where a Pod has it, the Pod counts
    if not services or known.pods_at(host):
        return None
    if len(services) > 1:
        raise meshed.Withheld(
            meshed.Reason.ADDRESS_UNCLEAR,
            f"address {host} is that of {len(services)} Services, among them "
            + " and ".join(f"{each.metadata.namespace}/{each.metadata.name}" for each in services[:2]),
            hint="take it away from all but one of them",
        )
    return services[0]


def labels(pod: views.Pod, zone: str = "") -> Labels:
    """What a proxy puts beside its figures about an endpoint."""
    rows = {
        "control_plane_ns": pod.metadata.label(injection.CONTROL_PLANE),
        "pod": pod.metadata.name,
        "serviceaccount": pod.account,
        "pod_template_hash": pod.metadata.label(workloads.TEMPLATE_HASH),
        "zone": zone,
        **_owner(pod),
    }
    return tuple(sorted((key, value) for key, value in rows.items() if value))


def changes(
    before: Mapping[authorities.Address, Endpoint], after: Mapping[authorities.Address, Endpoint]
) -> tuple[list[Endpoint], list[authorities.Address]]:
    """From one answer to the next: what is added or is another now, and what is gone."""
    added = [endpoint for address, endpoint in after.items() if before.get(address) != endpoint]
    return added, [address for address in before if address not in after]


def _port(service: views.Service, port: int, item: views.Slice) -> int:
    declared = next(
        (row for row in service.spec.ports or () if row.port == port and (row.protocol or _TCP) == _TCP), None
    )
    # The endpoints' own, as it is written.
    if declared is None:
        return port if item.ports else 0
    for row in item.ports or ():
        if (row.name or "") == (declared.name or "") and (row.protocol or _TCP) == _TCP:
            return row.port or 0
    return 0


def _is_ready(entry: views.SliceEndpoint) -> bool:
    return entry.conditions is None or entry.conditions.ready is not False


def _still_serves(entry: views.SliceEndpoint) -> bool:
    conditions = entry.conditions
    return conditions is not None and conditions.serving is True and conditions.terminating is True


def _pod_key(row: Row) -> tuple[str, str] | None:
    """Namespace and name of the Pod that a slice names; None where it names none of its own namespace."""
    reference, namespace = row.entry.target_ref, row.slice.metadata.namespace
    if reference is None or reference.kind != "Pod" or (reference.namespace or namespace) != namespace:
        return None
    return namespace, reference.name or ""


def _pod(row: Row, known: Known) -> views.Pod | None:
    key = _pod_key(row)
    if key is None:
        # 5. the Pod that has the address
        return pod_at(row.address.host, known)
    # 4. the Pod that the slice names
    pod = known.pod(*key)
    uid = row.entry.target_ref.uid if row.entry.target_ref is not None else ""
    if pod is None or pod.ended or (uid and pod.metadata.uid != uid):
        raise meshed.Withheld(
            meshed.Reason.POD_UNKNOWN,
            f"Pod {key[0]}/{key[1]} is not there, has ended, or is another one than the slice means",
        )
    if row.address.host not in map(authorities.canonical, pod.ips):
        raise meshed.Withheld(
            meshed.Reason.ADDRESS_UNCLEAR,
            f"Pod {key[0]}/{key[1]} does not have the address {row.address.host}",
            hint=f"EndpointSlice {row.slice.metadata.name} names it: correct the slice",
        )
    return pod


def _owner(pod: views.Pod) -> dict[str, str]:
    owner = next((row for row in pod.metadata.owner_references or () if row.controller), None)
    if owner is None:
        return {}
    kind, name = workloads.maker(owner.kind, owner.name, pod.metadata.label(workloads.TEMPLATE_HASH))
    return {kind.lower(): name}
