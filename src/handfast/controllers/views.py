# SPDX-License-Identifier: Apache-2.0
"""Views and sources that several controllers share, so that they share one watch.

What a single controller needs to see of a kind is declared in its own module.
"""

from __future__ import annotations

from typing import Any

import msgspec

from handfast.api import resources, status
from handfast.bootstrap import cluster_info
from handfast.client import api, partial, watch


class _Spec(msgspec.Struct, frozen=True, gc=False):
    finalizers: tuple[str, ...] | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """A Namespace: is it in use?"""

    metadata: partial.Meta = partial.Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None or self.status.phase == "Terminating"


ALL_NAMESPACES = watch.Source(resource=resources.NAMESPACES, view=Namespace)


class _NodeMeta(partial.LabelledMeta, frozen=True, gc=False):
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _NodeSpec(msgspec.Struct, frozen=True, gc=False):
    taints: list[dict[str, Any]] | None = None
    provider_id: str | None = msgspec.field(name="providerID", default=None)


class _NodeStatus(msgspec.Struct, frozen=True, gc=False):
    conditions: list[dict[str, Any]] | None = None
    addresses: list[dict[str, Any]] | None = None


class Node(msgspec.Struct, frozen=True, gc=False):
    """A Node: which machine it is, whether it is ready, and what is said of it. Its images and volumes are not kept."""

    metadata: _NodeMeta = _NodeMeta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


ALL_NODES = watch.Source(resource=resources.NODES, view=Node)


class ConfigMap(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A ConfigMap with all its data: only for those that are followed one by one."""

    metadata: partial.Meta = partial.Meta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


CLUSTER_INFO = watch.Source(
    resource=resources.CONFIG_MAPS,
    view=ConfigMap,
    scope=api.Scope(namespace=cluster_info.NAMESPACE, field_selector=f"metadata.name={cluster_info.NAME}"),
)


def namespace_ends(error: status.StatusError) -> bool:
    """Whether a create was refused because its namespace is being deleted."""
    return error.reason == "Forbidden" and (
        any(cause.reason == "NamespaceTerminating" for cause in error.causes) or "is being terminated" in error.message
    )
