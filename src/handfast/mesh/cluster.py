# SPDX-License-Identifier: Apache-2.0
"""The cluster as the services of the mesh see it: Pods, Services, EndpointSlices and accounts, and the mesh's settings.

    cluster = cluster_module.Cluster(informers, namespace)
    cluster.subscribe(lambda change: ...)
    await cluster.wait_synced()
    pod = cluster.pod("shop", "cart-0")

Everything is a local copy that follows the API server. It decides nothing, and asks for nothing itself.

1. Nothing is known before everything was listed once: `synced`. Who decides by half a cluster would take a meshed Pod for another.
2. Settings that cannot be read change nothing: those that were read before stay.
3. Whoever listens is told of one change at a time, on the event loop, and must not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import structlog

from handfast import errors
from handfast.api import resources
from handfast.client import cache, watch
from handfast.mesh import installed as installed_module
from handfast.rules.mesh import authorities, control_plane, names, settings, views

PODS: Final = resources.PODS.plural
SERVICES: Final = resources.SERVICES.plural
SLICES: Final = resources.ENDPOINT_SLICES.plural
ACCOUNTS: Final = resources.SERVICE_ACCOUNTS.plural
# The settings, or the trust anchors: of these a change has no objects.
INSTALLATION: Final = "installation"

_BY_SERVICE: Final = "service"
_BY_ADDRESS: Final = "address"
_log = structlog.get_logger("handfast.mesh")


class Change(msgspec.Struct, frozen=True):
    """What changed: the plural of its resource, and the object before and after; None where it was, or is, not there."""

    resource: str
    old: Any = None
    new: Any = None

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the object."""
        key: tuple[str, str] = (self.new if self.new is not None else self.old).metadata.key
        return key


Notify = Callable[[Change], None]


class Cluster:
    """What is known of the cluster now."""

    def __init__(self, informers: cache.Informers, namespace: str = control_plane.NAMESPACE) -> None:
        self.namespace = namespace
        self._listeners: list[Notify] = []
        self._settings: settings.Settings | None = None
        self._mesh: names.Mesh | None = None
        self._why_not = f"there is no {control_plane.CONFIG} in namespace {namespace}"
        self._pods = informers.get(
            watch.Source(resource=resources.PODS, view=views.Pod),
            {_BY_ADDRESS: lambda pod: _canonical(pod.ips)},
        )
        self._services = informers.get(
            watch.Source(resource=resources.SERVICES, view=views.Service),
            {_BY_ADDRESS: lambda service: _canonical(service.ips)},
        )
        self._slices = informers.get(
            watch.Source(resource=resources.ENDPOINT_SLICES, view=views.Slice), {_BY_SERVICE: _service_of}
        )
        self._accounts = informers.get(
            watch.Source(resource=resources.SERVICE_ACCOUNTS, view=views.Named, metadata=True)
        )
        self.installed = installed_module.Installed(informers, namespace, self._read_settings)
        self._all: tuple[cache.Informer[Any], ...] = (
            self._pods,
            self._services,
            self._slices,
            self._accounts,
        )
        for informer in self._all:
            informer.subscribe(self._teller(informer.source.resource.plural))

    # The objects.

    def pod(self, namespace: str, name: str) -> views.Pod | None:
        return self._pods.get(namespace, name)

    def pods_at(self, ip: str) -> Sequence[views.Pod]:
        """The Pods with this address (`authorities.canonical`) that have not ended; those in a node's network share its address."""
        return tuple(pod for pod in self._pods.by_index(_BY_ADDRESS, ip) if not pod.ended)

    def service(self, namespace: str, name: str) -> views.Service | None:
        return self._services.get(namespace, name)

    def services_at(self, ip: str) -> Sequence[views.Service]:
        """The Services that have this address of their own."""
        return tuple(self._services.by_index(_BY_ADDRESS, ip))

    def slices(self, namespace: str, service: str) -> Sequence[views.Slice]:
        """The EndpointSlices of a Service, in the order of their names."""
        rows = self._slices.by_index(_BY_SERVICE, f"{namespace}/{service}")
        return sorted(rows, key=lambda row: row.metadata.name)

    def account(self, namespace: str, name: str) -> views.Named | None:
        return self._accounts.get(namespace, name)

    # The mesh.

    @property
    def settings(self) -> settings.Settings | None:
        """The settings of the mesh; None where none could be read so far."""
        return self._settings

    @property
    def mesh(self) -> names.Mesh | None:
        """How workloads are called; None as the settings are."""
        return self._mesh

    @property
    def why_not(self) -> str:
        """Why what is stored is not used; empty where it is."""
        return self.installed.refusal() or self._why_not

    # How it follows.

    @property
    def synced(self) -> bool:
        """Whether everything was listed (1)."""
        return self.installed.answered and all(informer.synced for informer in self._all)

    async def wait_synced(self) -> None:
        """Until everything was listed (1)."""
        await self.installed.wait_answered()
        await asyncio.gather(*(informer.wait_synced() for informer in self._all))

    def subscribe(self, notify: Notify) -> None:
        """Have every change told from now on (3); what is here already is not told again."""
        self._listeners.append(notify)

    def _teller(self, resource: str) -> Callable[[Any, Any], None]:
        return lambda old, new: self._tell(Change(resource, old, new))

    def _tell(self, change: Change) -> None:
        for notify in self._listeners:
            notify(change)

    def _read_settings(self) -> None:
        document = self.installed.find(control_plane.CONFIG)
        if document is not None:
            self._use(document)
        self._tell(Change(INSTALLATION))

    def _use(self, document: installed_module.Document) -> None:
        try:
            chosen = settings.parse(document.data or {})
            mesh = chosen.mesh(self.namespace)
        except errors.Refused as refused:
            # 2. those that were read before stay
            if self._why_not != refused.message:
                self._why_not = refused.message
                _log.warning("the settings of the mesh are not used", reason=refused.reason, error=refused.message)
        else:
            self._settings, self._mesh, self._why_not = chosen, mesh, ""


def _canonical(ips: Iterable[str]) -> Iterable[str]:
    """In the one form that addresses are compared in."""
    return [ip for ip in map(authorities.canonical, ips) if ip]


def _service_of(item: views.Slice) -> Iterable[str]:
    return [f"{item.metadata.namespace}/{item.service}"] if item.service else []
