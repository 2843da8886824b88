# SPDX-License-Identifier: Apache-2.0
"""Which EndpointSlices a Service should have: Pods and existing slices in, slices to write out; and the views for it.

An endpoint stays in the slice it is in, so that one new Pod changes one slice. Names of new slices follow from the
Service and a number, so that two copies of the controller make the same slice and not two. It talks to nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from handfast.api import resources
from handfast.client import cache, partial, watch

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
SERVICE_NAME = "kubernetes.io/service-name"
_HEADLESS = "service.kubernetes.io/headless"
MAX_ENDPOINTS = 100


class _View(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Absent and null both mean the default."""


class _Written(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Part of a document that is also written."""


class ServicePort(_View, frozen=True, gc=False):
    name: str | None = None
    port: int = 0
    protocol: str | None = None
    target_port: int | str | None = None
    app_protocol: str | None = None


class ServiceSpec(_View, frozen=True, gc=False):
    type: str | None = None
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] | None = None
    cluster_ip: str | None = msgspec.field(name="clusterIP", default=None)
    ip_families: tuple[str, ...] | None = None
    publish_not_ready_addresses: bool | None = None


class Service(_View, frozen=True, gc=False):
    """A Service, as far as its endpoints go."""

    metadata: partial.LabelledMeta = partial.LabelledMeta()
    spec: ServiceSpec = ServiceSpec()

    @property
    def selects(self) -> bool:
        """Whether its endpoints are ours to find; otherwise whoever made it writes them."""
        return bool(self.spec.selector) and self.spec.type != "ExternalName"


class ContainerPort(_View, frozen=True, gc=False):
    name: str | None = None
    container_port: int = 0
    protocol: str | None = None


class Container(_View, frozen=True, gc=False):
    ports: tuple[ContainerPort, ...] | None = None


class PodSpec(_View, frozen=True, gc=False):
    node_name: str | None = None
    hostname: str | None = None
    subdomain: str | None = None
    containers: tuple[Container, ...] | None = None


class PodIP(_View, frozen=True, gc=False):
    ip: str = ""


class PodCondition(_View, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class PodStatus(_View, frozen=True, gc=False):
    phase: str | None = None
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    pod_ips: tuple[PodIP, ...] | None = msgspec.field(name="podIPs", default=None)
    conditions: tuple[PodCondition, ...] | None = None


class PodMeta(partial.LabelledMeta, frozen=True, gc=False):
    """… and who keeps the Pod running: what a disruption budget wants to know."""

    owner_references: tuple[partial.OwnerReference, ...] | None = None


class Pod(_View, frozen=True, gc=False):
    """A Pod, as far as being an endpoint and being disrupted goes."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        return any(row.type == "Ready" and row.status == "True" for row in self.status.conditions or ())

    def address(self, family: str) -> str | None:
        """Its first address of a family."""
        found = [row.ip for row in self.status.pod_ips or ()] or [self.status.pod_ip or ""]
        return next((ip for ip in found if ip and (":" in ip) == (family == "IPv6")), None)


class Conditions(msgspec.Struct, frozen=True, gc=False):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(_Written, frozen=True, gc=False):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Endpoint(_Written, frozen=True, gc=False):
    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    hostname: str | None = None
    target_ref: TargetRef | None = None
    node_name: str | None = None


class Port(_Written, frozen=True, gc=False):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None
    app_protocol: str | None = None


Ports = tuple[Port, ...]


class Slice(_View, frozen=True, gc=False):
    """An EndpointSlice, as it is and as it should be."""

    metadata: partial.LabelledMeta = partial.LabelledMeta()
    address_type: str = ""
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[Port, ...] | None = None


class Plan(msgspec.Struct, frozen=True):
    """What to do: slices without a resource version are made, those with one are replaced."""

    write: Sequence[Slice]
    delete: Sequence[Slice]


SERVICES = watch.Source(resource=resources.SERVICES, view=Service)
PODS = watch.Source(resource=resources.PODS, view=Pod)
BY_NAMESPACE: Mapping[str, cache.Index[Service | Pod]] = {"namespace": lambda item: [item.metadata.namespace]}


def services_of(pod: Pod, services: cache.Informer[Service]) -> Iterable[partial.Key]:
    """The Services that select a Pod."""
    for service in services.by_index("namespace", pod.metadata.namespace):
        if selects(service, pod):
            yield service.metadata.key


def selects(service: Service, pod: Pod) -> bool:
    labels = pod.metadata.labels or {}
    return service.selects and all(labels.get(key) == value for key, value in (service.spec.selector or {}).items())


def plan(service: Service, pods: Iterable[Pod], existing: Sequence[Slice]) -> Plan:
    """From what is to what should be, in as few writes as it takes."""
    groups = _groups(service, [pod for pod in pods if is_endpoint(pod)])
    labels = _labels(service)
    kept: set[str] = set()
    write: list[Slice] = []
    for (family, ports), endpoints in groups.items():
        mine = [row for row in existing if row.address_type == family and (row.ports or ()) == ports]
        taken = {row.metadata.name for row in existing}
        for slice_, wanted in _place(mine, endpoints, (service, family, ports, taken)):
            kept.add(slice_.metadata.name)
            if (slice_.endpoints or ()) != wanted or slice_.metadata.labels != labels:
                write.append(_filled(slice_, wanted, labels))
    return Plan(write, [row for row in existing if row.metadata.name not in kept])


def is_endpoint(pod: Pod) -> bool:
    """Whether a Pod can still serve."""
    return pod.status.phase not in {"Failed", "Succeeded"}


def _groups(service: Service, pods: Sequence[Pod]) -> Mapping[tuple[str, Ports], Mapping[str, Endpoint]]:
    """Endpoints by Pod uid, grouped by what one slice has in common: address family and ports."""
    groups: dict[tuple[str, Ports], dict[str, Endpoint]] = {}
    wanted = families(service)
    for family in wanted:
        for pod in pods:
            address = pod.address(family)
            if address is not None:
                group = groups.setdefault((family, ports_of(service, pod)), {})
                group[pod.metadata.uid] = _endpoint(service, pod, address)
        # A Service without endpoints has an empty slice, which says that someone looked.
        if not any(group[0] == family for group in groups) and (len(wanted) == 1 or service.spec.ip_families):
            groups[family, ()] = {}
    return groups


def families(service: Service) -> Sequence[str]:
    """The address families of a Service, its first one first."""
    if service.spec.ip_families:
        return service.spec.ip_families
    address = service.spec.cluster_ip or ""
    return ("IPv6",) if ":" in address else ("IPv4",)


def ports_of(service: Service, pod: Pod) -> Ports:
    """The Service's ports on this Pod; a named target port may be another number on each Pod."""
    ports = []
    for row in service.spec.ports or ():
        number = _number(row, pod)
        if number is not None:
            ports.append(
                Port(name=row.name or "", port=number, protocol=row.protocol or "TCP", app_protocol=row.app_protocol)
            )
    return tuple(ports)


def _number(row: ServicePort, pod: Pod) -> int | None:
    target = row.target_port
    if isinstance(target, int) and target:
        return target
    if not target:
        return row.port
    protocol = row.protocol or "TCP"
    for container in pod.spec.containers or ():
        for port in container.ports or ():
            if port.name == target and (port.protocol or "TCP") == protocol:
                return port.container_port
    return None


def _endpoint(service: Service, pod: Pod, address: str) -> Endpoint:
    terminating = pod.metadata.deletion_timestamp is not None
    ready = (pod.ready and not terminating) or bool(service.spec.publish_not_ready_addresses)
    meta = pod.metadata
    named = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return Endpoint(
        addresses=(address,),
        conditions=Conditions(ready=ready, serving=pod.ready, terminating=terminating),
        hostname=pod.spec.hostname if named else None,
        target_ref=TargetRef(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid),
        node_name=pod.spec.node_name or None,
    )


def _labels(service: Service) -> dict[str, str]:
    """The Service's own labels, so that slices are found by them, and those that say what the slice is."""
    own = service.metadata.labels or {}
    labels = {key: value for key, value in own.items() if key not in {MANAGED_BY, SERVICE_NAME, _HEADLESS}}
    labels |= {MANAGED_BY: MANAGER, SERVICE_NAME: service.metadata.name}
    if service.spec.cluster_ip == "None":
        labels[_HEADLESS] = ""
    return labels


def _place(
    existing: Sequence[Slice], endpoints: Mapping[str, Endpoint], new: tuple[Service, str, Ports, set[str]]
) -> Iterable[tuple[Slice, tuple[Endpoint, ...]]]:
    """Slices with what each should hold: what is in one stays there, the rest fills gaps, then new slices."""
    left = dict(endpoints)
    placed: list[tuple[Slice, list[Endpoint]]] = []
    for slice_ in existing:
        held = [row.target_ref.uid for row in slice_.endpoints or () if row.target_ref is not None]
        placed.append((slice_, [left.pop(uid) for uid in held if uid in left]))
    placed.sort(key=lambda row: -len(row[1]))
    rest = [left[uid] for uid in sorted(left, key=lambda uid: _order(left[uid]))]
    for _, held_endpoints in placed:
        room = MAX_ENDPOINTS - len(held_endpoints)
        if held_endpoints:
            held_endpoints += rest[:room]
            rest = rest[room:]
    # An emptied slice is filled before a new one is made.
    for _, held_endpoints in placed:
        if not held_endpoints:
            held_endpoints += rest[:MAX_ENDPOINTS]
            rest = rest[MAX_ENDPOINTS:]
    while rest:
        placed.append((_new_slice(*new), rest[:MAX_ENDPOINTS]))
        rest = rest[MAX_ENDPOINTS:]
    filled = [row for row in placed if row[1]]
    if not filled:
        filled = placed[:1] or [(_new_slice(*new), [])]
    return [(slice_, tuple(held_endpoints)) for slice_, held_endpoints in filled]


def _order(endpoint: Endpoint) -> tuple[str, ...]:
    return (endpoint.target_ref.name if endpoint.target_ref is not None else "", *endpoint.addresses)


def _new_slice(service: Service, family: str, ports: Ports, taken: set[str]) -> Slice:
    number = 0
    while True:
        said = repr((service.metadata.uid, family, ports, number))
        name = f"{service.metadata.name[:52]}-{hashlib.sha256(said.encode()).hexdigest()[:10]}"
        if name not in taken:
            taken.add(name)
            meta = partial.LabelledMeta(name=name, namespace=service.metadata.namespace)
            return Slice(metadata=meta, address_type=family, ports=ports)
        number += 1


def _filled(slice_: Slice, endpoints: tuple[Endpoint, ...], labels: dict[str, str]) -> Slice:
    meta = slice_.metadata
    return Slice(
        metadata=partial.LabelledMeta(
            name=meta.name, namespace=meta.namespace, resource_version=meta.resource_version, labels=labels
        ),
        address_type=slice_.address_type,
        endpoints=endpoints,
        ports=slice_.ports,
    )
