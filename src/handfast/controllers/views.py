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
from handfast.rules.machine_config import names


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
    unschedulable: bool | None = None


class _NodeInfo(msgspec.Struct, rename="camel", frozen=True, gc=False):
    kubelet_version: str = ""


class _NodeStatus(msgspec.Struct, frozen=True, gc=False):
    conditions: list[dict[str, Any]] | None = None
    addresses: list[dict[str, Any]] | None = None
    node_info: _NodeInfo | None = msgspec.field(name="nodeInfo", default=None)


class Node(msgspec.Struct, frozen=True, gc=False):
    """A Node: which machine it is, whether it is ready, and what is said of it. Its images and volumes are not kept."""

    metadata: _NodeMeta = _NodeMeta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


def only_rolled_out(old: Node | None, new: Node | None) -> bool:
    """Whether a Node has changed in nothing but what a roll-out of configurations writes on it.

    Such a change comes twice for each node of a roll-out. To link and to judge a node each time took a quarter of the controllers' CPU.
    """
    if old is None or new is None:
        return False
    before, after = old.metadata, new.metadata
    return (
        before.uid == after.uid
        and old.spec == new.spec
        and old.status == new.status
        and before.labels == after.labels
        and before.deletion_timestamp == after.deletion_timestamp
        and _other_annotations(old) == _other_annotations(new)
    )


def _other_annotations(node: Node) -> dict[str, str]:
    return {key: text for key, text in (node.metadata.annotations or {}).items() if key not in names.OF_ROLL_OUTS}


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
