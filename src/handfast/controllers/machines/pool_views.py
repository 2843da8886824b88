# SPDX-License-Identifier: Apache-2.0
"""MachineConfigPools and MachineConfigs as controllers follow them: pools whole, MachineConfigs by their metadata alone.

What is in a MachineConfig is read when it is rendered, and not kept. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handfast.api import machine_config_kinds
from handfast.client import events, partial, watch
from handfast.rules.machine_config import members, pools

POOLS: Final = machine_config_kinds.MACHINE_CONFIG_POOL
CONFIGS: Final = machine_config_kinds.MACHINE_CONFIG
# How soon kinds that are not there yet are asked for again.
_AGAIN_SECONDS: Final = 30.0


class _PoolMeta(partial.Meta, frozen=True, gc=False):
    generation: int | None = None


class Pool(msgspec.Struct, frozen=True, gc=False):
    """A MachineConfigPool."""

    metadata: _PoolMeta = _PoolMeta()
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _ConfigMeta(partial.LabelledMeta, frozen=True, gc=False):
    annotations: dict[str, str] | None = None
    owner_references: list[partial.OwnerReference] | None = None


class Config(msgspec.Struct, frozen=True, gc=False):
    """A MachineConfig without what is in it."""

    metadata: _ConfigMeta = _ConfigMeta()


ALL_POOLS: Final = watch.Source(resource=POOLS, view=Pool, if_served=True, without_seconds=_AGAIN_SECONDS)
ALL_CONFIGS: Final = watch.Source(
    resource=CONFIGS, view=Config, metadata=True, if_served=True, without_seconds=_AGAIN_SECONDS
)


def pool(item: Pool) -> pools.Pool:
    """Its facts."""
    return pools.read(msgspec.to_builtins(item))


def rendering(item: Config) -> members.Rendering:
    return members.read_rendering(msgspec.to_builtins(item))


def is_rendered(item: Config) -> bool:
    return pools.rendered(msgspec.to_builtins(item))


def instead(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What a merge patch says so that `after` takes the place of `before`, and no key of it stays."""
    return {**dict.fromkeys(before, None), **after}


def regarding(item: pools.Pool) -> events.Regarding:
    """A pool, as Events name it."""
    return events.Regarding(api_version=POOLS.api_version, kind=POOLS.kind, name=item.name, uid=item.uid)
