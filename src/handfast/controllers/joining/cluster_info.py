# SPDX-License-Identifier: Apache-2.0
"""Publishes where this cluster is and whom to trust, as the kubeconfig in ConfigMap `kube-public/cluster-info`.

What was deleted is made again at once. What somebody changed stays for `RESTORE_SECONDS`, in which it is signed as it is
(`bootstrap_signer`): whoever changes it on purpose, and stops this controller meanwhile, is not undone. Then it is restored, and
an Event says so, and how to publish something else. After a restart with other addresses or another CA, newcomers learn of them. It touches no other key, so that signatures stay until they
are made anew (`bootstrap_signer`). It lets nobody read the ConfigMap: that is policy. An immutable ConfigMap gets an Event, and
is left (`immutable`). The CA bundle and the addresses come as arguments; the cluster's identifier is the UID of the namespace
kube-system.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from handfast.api import resources, status
from handfast.bootstrap import cluster_info
from handfast.client import api, cache, events
from handfast.controllers import immutable, loop, views
from handfast.runtime import clock as clocks

NAME = "cluster-info-publisher-controller"
KEY = "publish"
_SYSTEM = "kube-system"
_LOOK_AGAIN_SECONDS = 10.0
RESTORE_SECONDS = 5.0
RESTORED = "ClusterInfoRestored"
_RESTORED_MESSAGE = (
    f"the key {cluster_info.KUBECONFIG_KEY} was changed by somebody else, and was set back to the addresses and the CA of "
    "this control plane: to publish other addresses, start it with --advertise; to publish a text of your own, run "
    "without the controller clusterinfo (--controllers '*,-clusterinfo')"
)

_log = structlog.get_logger("handfast.controller")


class Publisher:
    """Handles the one key."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        namespaces: cache.Informer[views.Namespace],
        config_maps: cache.Informer[views.ConfigMap],
        *,
        servers: Sequence[str],
        ca: bytes,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespaces = namespaces
        self._config_maps = config_maps
        self._servers = tuple(servers)
        self._ca = ca
        self._recorder = events.Recorder(client, clock, NAME)
        self._immutable = immutable.Immutable(self._recorder, NAME)
        # Whether what this process wants was there before: what differs then was changed by somebody else.
        self._published = False
        # Since when what is there is somebody else's, by the monotonic clock.
        self._changed: float | None = None

    async def reconcile(self, _key: str) -> float | None:
        system = self._namespaces.get("", _SYSTEM)
        if system is None:
            return None
        info = cluster_info.ClusterInfo(self._servers, self._ca, system.metadata.uid)
        wanted = {cluster_info.KUBECONFIG_KEY: cluster_info.build(info)}
        seen = self._config_maps.get(cluster_info.NAMESPACE, cluster_info.NAME)
        if seen is not None and (seen.data or {}).items() >= wanted.items():
            self._published = True
            self._changed = None
            return None
        if (left := self._left_as_it_is(seen)) > 0:
            return left
        await self._write(wanted)
        # A ConfigMap that comes and goes while the watch is interrupted is never shown: no event would come of it.
        return _LOOK_AGAIN_SECONDS

    def _left_as_it_is(self, seen: views.ConfigMap | None) -> float:
        """For how many seconds somebody else's text stays; what is missing does not."""
        if not self._published or seen is None or cluster_info.KUBECONFIG_KEY not in (seen.data or {}):
            return 0.0
        now = self._clock.monotonic()
        self._changed = now if self._changed is None else self._changed
        return self._changed + RESTORE_SECONDS - now

    async def _write(self, wanted: dict[str, str]) -> None:
        config_map = await self._client.find(resources.CONFIG_MAPS, cluster_info.NAME, namespace=cluster_info.NAMESPACE)
        if config_map is None:
            await self._create(wanted)
            return
        data = config_map.get("data") or {}
        if not data.items() >= wanted.items() and not await self._immutable.stops(config_map):
            config_map["data"] = {**data, **wanted}
            # One key in both is more than the API allows.
            if binary := config_map.get("binaryData"):
                config_map["binaryData"] = {key: value for key, value in binary.items() if key not in wanted}
            written = await self._client.update(resources.CONFIG_MAPS, config_map)
            if self._published and cluster_info.KUBECONFIG_KEY in data:
                _log.warning("somebody else's cluster-info was replaced", reason=RESTORED)
                await self._recorder.record(
                    immutable.regarding(written), RESTORED, _RESTORED_MESSAGE, severity=events.WARNING
                )

    async def _create(self, wanted: dict[str, str]) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": cluster_info.NAME, "namespace": cluster_info.NAMESPACE},
            "data": wanted,
        }
        try:
            await self._client.create(resources.CONFIG_MAPS, document, namespace=cluster_info.NAMESPACE)
        except status.StatusError as error:
            # NotFound: there is no such namespace; once there is, its watch tells.
            if error.reason != "NotFound" and not views.namespace_ends(error):
                raise


def build(context: loop.Context, *, servers: Sequence[str], ca: bytes) -> loop.Controller[str]:
    namespaces = context.informers.get(views.ALL_NAMESPACES)
    config_maps = context.informers.get(views.CLUSTER_INFO)
    handler = Publisher(context.client, context.clock, namespaces, config_maps, servers=servers, ca=ca)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    concerning = {_SYSTEM, cluster_info.NAMESPACE}
    controller.watches(namespaces, lambda item: [KEY] if item.metadata.name in concerning else [])
    controller.watches(config_maps, lambda _: [KEY])
    return controller
