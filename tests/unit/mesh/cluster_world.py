# SPDX-License-Identifier: Apache-2.0
"""A cluster without a server: documents go into the informers of `mesh.cluster` as a watch brings them."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from handfast.client import cache
from handfast.mesh import cluster as cluster_module
from handfast.mesh import installed
from handfast.rules.mesh import control_plane, settings
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock

NAMESPACE = control_plane.NAMESPACE


class World:
    """A `Cluster`, and how to change it."""

    def __init__(self, clock: MovableClock | None = None, client: FakeClient | None = None) -> None:
        self.clock = clock or MovableClock()
        self.client = client or FakeClient()
        self.informers = cache.Informers(self.client, self.clock)
        self.cluster = cluster_module.Cluster(self.informers, NAMESPACE)
        self._versions = itertools.count(1)

    def informer(self, plural: str) -> cache.Informer[Any]:
        return next(each for each in self.cluster._all if each.source.resource.plural == plural)

    def put(self, plural: str, document: dict[str, Any]) -> None:
        """An object is made, or replaced."""
        informer = self.informer(plural)
        meta = {**document["metadata"], "resourceVersion": str(next(self._versions))}
        body = msgspec.json.encode({**document, "metadata": meta})
        informer.put(msgspec.json.decode(body, type=informer.source.view))

    def remove(self, plural: str, namespace: str, name: str) -> None:
        informer = self.informer(plural)
        item = informer.get(namespace, name)
        assert item is not None
        informer.remove(item)

    def configure(self, data: dict[str, str] | None = None, **chosen: Any) -> None:
        """The settings of the mesh, as they are stored."""
        meta = installed.Meta(
            name=control_plane.CONFIG, namespace=NAMESPACE, resource_version=str(next(self._versions))
        )
        wanted = settings.data(settings.Settings(**chosen)) if data is None else data
        self.cluster.installed._informers[control_plane.CONFIG].put(installed.Document(meta, wanted))

    def sync(self) -> None:
        """Everything was listed."""
        for informer in (*self.cluster._all, *self.cluster.installed._informers.values()):
            informer.end()


def pod(namespace: str, name: str, ip: str = "", *, account: str = "default", **more: Any) -> dict[str, Any]:
    """A Pod that nobody injected; `more` is metadata."""
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}", **more},
        "spec": {"serviceAccountName": account, "nodeName": "n1", "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}] if ip else None},
    }


def service(namespace: str, name: str, ip: str = "None", **spec: Any) -> dict[str, Any]:
    """A Service, headless unless it has an address."""
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}"},
        "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": ports, **spec},
    }
