# SPDX-License-Identifier: Apache-2.0
"""Publishes the CA that verifies the API server, as ConfigMap `kube-root-ca.crt` in every namespace in use.

Deleted ones are made again and edited ones restored. It remembers only where the ConfigMap is right, not the
ConfigMaps. It does not choose the CA: the bundle is given to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from handfast.api import resources, status
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop, views

NAME = "root-ca-certificate-publisher-controller"
_CONFIG_MAP = "kube-root-ca.crt"
_KEY = "ca.crt"
_ANNOTATIONS = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using "
    "internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed "
    "across distributions of Kubernetes clusters."
}


class _View(msgspec.Struct, frozen=True, gc=False):
    metadata: partial.Meta = partial.Meta()
    data: dict[str, str] | None = None


_SOURCE = watch.Source(
    resource=resources.CONFIG_MAPS, view=_View, scope=api.Scope(field_selector=f"metadata.name={_CONFIG_MAP}")
)


class Published:
    """The namespaces whose ConfigMap says what it should."""

    def __init__(self, wanted: dict[str, str], changed: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._changed = changed
        self._right: set[str] = set()
        self._before: set[str] = set()
        self._synced = asyncio.Event()

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._right

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def begin(self) -> None:
        self._before, self._right = self._right, set()

    def put(self, item: _View) -> None:
        namespace = item.metadata.namespace
        if item.data == self._wanted:
            self._right.add(namespace)
        else:
            self._right.discard(namespace)
            self._changed(namespace)

    def remove(self, item: _View) -> None:
        self._right.discard(item.metadata.namespace)
        self._changed(item.metadata.namespace)

    def end(self) -> None:
        for namespace in self._before - self._right:
            self._changed(namespace)
        self._before = set()
        self._synced.set()


class RootCA:
    """Handles one namespace, by name."""

    def __init__(
        self,
        client: api.Client,
        namespaces: cache.Informer[views.Namespace],
        published: Published,
        wanted: dict[str, str],
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._published = published
        self._wanted = wanted

    async def reconcile(self, name: str) -> None:
        namespace = self._namespaces.get("", name)
        if namespace is None or namespace.terminating or name in self._published:
            return
        config_map = await self._client.find(resources.CONFIG_MAPS, _CONFIG_MAP, namespace=name)
        if config_map is None:
            await self._create(name)
        elif config_map.get("data") != self._wanted:
            config_map["data"] = self._wanted
            config_map["metadata"]["annotations"] = {
                **(config_map["metadata"].get("annotations") or {}),
                **_ANNOTATIONS,
            }
            await self._client.update(resources.CONFIG_MAPS, config_map)

    async def _create(self, namespace: str) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _CONFIG_MAP, "namespace": namespace, "annotations": _ANNOTATIONS},
            "data": self._wanted,
        }
        try:
            await self._client.create(resources.CONFIG_MAPS, document, namespace=namespace)
        except status.StatusError as error:
            # NotFound: the namespace has gone since.
            if error.reason != "NotFound" and not views.namespace_ends(error):
                raise


def build(context: loop.Context, *, root_ca_pem: bytes) -> loop.Controller[str]:
    wanted = {_KEY: root_ca_pem.decode("ascii")}
    namespaces = context.informers.get(views.ALL_NAMESPACES)

    def changed(namespace: str) -> None:
        controller.queue.add(namespace)

    published = Published(wanted, changed)
    handler = RootCA(context.client, namespaces, published, wanted)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    context.informers.follow(_SOURCE, published)
    controller.needs(published)
    controller.watches(namespaces, lambda item: [item.metadata.name])
    return controller
