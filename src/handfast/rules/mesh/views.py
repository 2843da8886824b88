# SPDX-License-Identifier: Apache-2.0
"""What is read of Pods, Services, EndpointSlices and accounts where it is decided who has an identity. It decides nothing.

They are small: a cluster has many. What no rule looks at is dropped while an object is decoded, as are all variables of containers but
the proxy's own few. Absent and null both mean the default.
"""

from __future__ import annotations

from typing import Final

import msgspec

from handfast.api import metadata
from handfast.rules.mesh import injectable, sidecar

INBOUND: Final = f"{sidecar.PREFIX}INBOUND_LISTEN_ADDR"
ADMIN: Final = f"{sidecar.PREFIX}ADMIN_LISTEN_ADDR"
CONTROL: Final = f"{sidecar.PREFIX}CONTROL_LISTEN_ADDR"
# By one of these a proxy knows its own name: the seed's, and today's.
NAMES: Final = tuple(
    f"{sidecar.PREFIX}{word}" for word in ("LOCAL_IDENTITY", "LOCAL_IDENTITY_NAME", "IDENTITY_LOCAL_NAME")
)
# The namespace of the control plane, from which its name is composed.
CONTROL_PLANE: Final = "L5D_NS"
_VARIABLES: Final = frozenset({INBOUND, ADMIN, CONTROL, CONTROL_PLANE, *NAMES})
_ANNOTATIONS: Final = ("linkerd.io/", "config.linkerd.io/")
_ENDED: Final = frozenset({"Failed", "Succeeded"})
SERVICE_NAME: Final = "kubernetes.io/service-name"
EXTERNAL_NAME: Final = "ExternalName"
NO_ADDRESS: Final = "None"


class _View(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Part of an object."""


class Owner(_View, frozen=True, gc=False):
    """What made a Pod."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Meta(metadata.Meta, rename="camel", frozen=True, gc=False):
    """The metadata, with the labels and with the mesh's own annotations."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[Owner, ...] | None = None

    def __post_init__(self) -> None:
        if self.annotations:
            ours = {key: value for key, value in self.annotations.items() if key.startswith(_ANNOTATIONS)}
            msgspec.structs.force_setattr(self, "annotations", ours or None)

    def annotation(self, key: str) -> str:
        """Its value; empty where there is none."""
        return (self.annotations or {}).get(key, "")

    def label(self, key: str) -> str:
        """Its value; empty where there is none."""
        return (self.labels or {}).get(key, "")


class Variable(_View, frozen=True, gc=False):
    name: str = ""
    value: str | None = None


class ContainerPort(_View, frozen=True, gc=False):
    name: str | None = None
    container_port: int = 0
    protocol: str | None = None


class HttpGet(_View, frozen=True, gc=False):
    path: str | None = None
    port: int | str | None = None


class Probe(_View, frozen=True, gc=False):
    http_get: HttpGet | None = None


class Container(_View, frozen=True, gc=False):
    """A container: its ports, what the kubelet asks it, and of variables and arguments those that tell how the proxy is set."""

    name: str = ""
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] | None = None
    ports: tuple[ContainerPort, ...] | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None

    def __post_init__(self) -> None:
        if self.env:
            ours = tuple(row for row in self.env if row.name in _VARIABLES)
            msgspec.structs.force_setattr(self, "env", ours or None)
        if self.args and self.name != injectable.INIT:
            msgspec.structs.force_setattr(self, "args", None)

    def argument(self, flag: str) -> str:
        """What follows a flag; empty where it is not there."""
        words = iter(self.args or ())
        # Looking for the flag takes all words up to it.
        return next(words, "") if flag in words else ""

    def variable(self, name: str) -> str:
        """Its value; empty where there is none."""
        return next((row.value or "" for row in self.env or () if row.name == name), "")


class PodSpec(_View, frozen=True, gc=False):
    service_account_name: str | None = None
    node_name: str | None = None
    hostname: str | None = None
    subdomain: str | None = None
    host_network: bool | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None


class PodIP(_View, frozen=True, gc=False):
    ip: str | None = None


class PodStatus(_View, frozen=True, gc=False):
    phase: str | None = None
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    pod_ips: tuple[PodIP, ...] | None = msgspec.field(name="podIPs", default=None)


class Pod(_View, frozen=True, gc=False):
    """A Pod: who it is, where, and its containers."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def account(self) -> str:
        """The name of the service account that it runs as."""
        return self.spec.service_account_name or "default"

    @property
    def ips(self) -> tuple[str, ...]:
        """Its addresses, as they are written."""
        rows = [row.ip for row in self.status.pod_ips or () if row.ip] or [self.status.pod_ip or ""]
        return tuple(ip for ip in rows if ip)

    @property
    def ended(self) -> bool:
        """Whether it serves no more: another Pod may have its addresses."""
        return self.status.phase in _ENDED

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Those that run first, and the others."""
        return (*(self.spec.init_containers or ()), *(self.spec.containers or ()))

    @property
    def proxy(self) -> Container | None:
        """The proxy's container; None where there is none."""
        return next((row for row in self.all_containers if row.name == injectable.PROXY), None)


class ServicePort(_View, frozen=True, gc=False):
    name: str | None = None
    port: int = 0
    protocol: str | None = None
    target_port: int | str | None = None


class ServiceSpec(_View, frozen=True, gc=False):
    type: str | None = None
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] | None = None
    cluster_ip: str | None = msgspec.field(name="clusterIP", default=None)
    cluster_ips: tuple[str, ...] | None = msgspec.field(name="clusterIPs", default=None)
    ip_families: tuple[str, ...] | None = None


class Service(_View, frozen=True, gc=False):
    """A Service: its ports and its own addresses."""

    metadata: Meta = Meta()
    spec: ServiceSpec = ServiceSpec()

    @property
    def ips(self) -> tuple[str, ...]:
        """Its own addresses; a headless one has none."""
        rows = self.spec.cluster_ips or (self.spec.cluster_ip or "",)
        return tuple(ip for ip in rows if ip and ip != NO_ADDRESS)

    @property
    def is_external(self) -> bool:
        """Whether it is a name elsewhere."""
        return self.spec.type == EXTERNAL_NAME


class Conditions(_View, frozen=True, gc=False):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(_View, frozen=True, gc=False):
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class SliceEndpoint(_View, frozen=True, gc=False):
    addresses: tuple[str, ...] = ()
    conditions: Conditions | None = None
    hostname: str | None = None
    target_ref: TargetRef | None = None
    node_name: str | None = None
    zone: str | None = None


class SlicePort(_View, frozen=True, gc=False):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class Slice(_View, frozen=True, gc=False):
    """An EndpointSlice."""

    metadata: Meta = Meta()
    address_type: str = ""
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None

    @property
    def service(self) -> str:
        """The name of its Service."""
        return self.metadata.label(SERVICE_NAME)


class Named(_View, frozen=True, gc=False):
    """A Namespace or a service account: that it is there, with its labels and annotations."""

    metadata: Meta = Meta()
