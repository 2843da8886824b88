# SPDX-License-Identifier: Apache-2.0
"""What the server follows of a cluster, and how much of it is kept. It follows nothing itself.

1. Of Nodes only the metadata: labels say the pool, an annotation what the node is to have.
2. Secrets of one namespace: those of bootstrap credentials, and the digests that machines ask by.
3. Kinds that the API server does not have count as empty, and are asked for again every half minute.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from handfast.api import machine_config_kinds, resources
from handfast.client import api, partial, watch
from handfast.rules.machine_config import credential
from handfast.rules.machines import bootstrapper

# 3. how soon definitions that were applied later count
_WITHOUT_SECONDS: Final = 30.0


class Meta(partial.LabelledMeta, frozen=True, gc=False):
    """… and annotations."""

    annotations: dict[str, str] | None = None


class Pool(msgspec.Struct, frozen=True, gc=False):
    """A MachineConfigPool."""

    metadata: Meta = Meta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class Config(msgspec.Struct, frozen=True, gc=False):
    """A MachineConfig."""

    metadata: Meta = Meta()
    spec: dict[str, Any] = {}


class Node(msgspec.Struct, frozen=True, gc=False):
    """A Node, by its metadata (1)."""

    metadata: Meta = Meta()


class Secret(msgspec.Struct, frozen=True, gc=False):
    """A Secret with its content, which does not print (2)."""

    metadata: Meta = Meta()
    type: str = ""
    data: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


class ConfigMap(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A ConfigMap with its data."""

    metadata: Meta = Meta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


POOLS: Final = watch.Source(
    resource=machine_config_kinds.MACHINE_CONFIG_POOL, view=Pool, if_served=True, without_seconds=_WITHOUT_SECONDS
)
CONFIGS: Final = watch.Source(
    resource=machine_config_kinds.MACHINE_CONFIG, view=Config, if_served=True, without_seconds=_WITHOUT_SECONDS
)
NODES: Final = watch.Source(resource=resources.NODES, view=Node, metadata=True)
SECRETS: Final = watch.Source(
    resource=resources.SECRETS, view=Secret, scope=api.Scope(namespace=bootstrapper.NAMESPACE)
)
CONFIG_MAPS: Final = tuple(
    watch.Source(
        resource=resources.CONFIG_MAPS,
        view=ConfigMap,
        scope=api.Scope(namespace=namespace, field_selector=f"metadata.name={name}"),
    )
    for namespace, name in credential.CONFIG_MAPS
)
