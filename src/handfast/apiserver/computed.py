# SPDX-License-Identifier: Apache-2.0
"""Objects that nobody stores: the server makes them when they are read, from what it does itself.

APIServices are the group-versions that it serves, FlowSchemas and PriorityLevelConfigurations its rate limits, ComponentStatuses
its store. They can be read and listed. Nothing can be written to them, and they cannot be watched.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from handfast.api import kinds, objects
from handfast.apiserver import limits as limits_module
from handfast.apiserver.state import envelope, storage
from handfast.apiserver.state import items as items_module
from handfast.rules import flow, flow_objects

_FLOWS: Final = "flowcontrol.apiserver.k8s.io"
# Only so that the same object has the same uid at every server.
_SPACE: Final = uuid.UUID("6d1c3f7e-52c5-5d0e-9a37-0d4f4a7b1c10")
DEPRECATED: Final = "v1 ComponentStatus is deprecated in v1.19+"


class Computed:
    """What there is to read, at this server."""

    def __init__(
        self,
        table: Iterable[kinds.Kind],
        limits: limits_module.Limits,
        store: storage.Storage,
        started: datetime.datetime,
    ) -> None:
        self._table = table
        self._limits = limits
        self._storage = store
        self._started = objects.timestamp(started)
        self._makers: Mapping[tuple[str, str], Callable[[], Sequence[objects.Document]]] = {
            ("", "componentstatuses"): self._components,
            ("apiregistration.k8s.io", "apiservices"): self._services,
            (_FLOWS, "flowschemas"): flow_objects.schemas,
            (_FLOWS, "prioritylevelconfigurations"): self._levels,
        }

    def items(self, kind: kinds.Kind) -> Sequence[items_module.Item]:
        """Every object of a kind that nobody stores, by name, as of now."""
        documents = sorted(self._makers[kind.resource](), key=lambda document: str(document["metadata"]["name"]))
        return [self._item(kind, document) for document in documents]

    @property
    def version(self) -> int:
        """The version that they are of."""
        return self._storage.replica.version

    def _item(self, kind: kinds.Kind, document: objects.Document) -> items_module.Item:
        name = str(document["metadata"]["name"])
        metadata = document["metadata"]
        if kind.plural != "componentstatuses":
            uid = str(uuid.uuid5(_SPACE, f"{kind.group}/{kind.plural}/{name}"))
            metadata = {**metadata, "uid": uid, "creationTimestamp": self._started}
        payload = envelope.encode_document({**document, "metadata": metadata})
        return items_module.Item("", name, self.version, payload)

    def _components(self) -> Sequence[objects.Document]:
        trouble = self._storage.trouble
        condition = {"type": "Healthy", "status": "False" if trouble else "True", "message": trouble or "ok"}
        document = {"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": "store"}}
        return [{**document, "conditions": [condition]}]

    def _services(self) -> Sequence[objects.Document]:
        versions = sorted({(row.group, row.version) for row in self._table})
        return [self._service(group, version) for group, version in versions]

    def _service(self, group: str, version: str) -> objects.Document:
        available = {
            "type": "Available",
            "status": "True",
            "reason": "Local",
            "message": "Local APIServices are always available",
            "lastTransitionTime": self._started,
        }
        spec = {"version": version, "groupPriorityMinimum": 18000 if not group else 17800, "versionPriority": 15}
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {
                "name": f"{version}.{group}",
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
            },
            "spec": {**spec, **({"group": group} if group else {})},
            "status": {"conditions": [available]},
        }

    def _levels(self) -> Sequence[objects.Document]:
        limits = self._limits
        anonymous = (limits.anonymous_per_second, limits.anonymous_burst)
        return flow_objects.levels(
            {
                flow.ANONYMOUS: anonymous,
                flow.HEALTH: anonymous,
                flow.JOIN: (limits.join_per_second, limits.join_burst),
                flow.RENEWAL: (limits.renewal_per_second, limits.renewal_burst),
                flow.NODE: (limits.node_per_second, limits.node_burst),
                flow.MESH_IDENTITY: (limits.mesh_identity_per_second, limits.mesh_identity_burst),
                flow.SERVICE_ACCOUNT: (limits.service_account_per_second, limits.service_account_burst),
                flow.USER: (limits.user_per_second, limits.user_burst),
            }
        )
