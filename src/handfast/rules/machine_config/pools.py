# SPDX-License-Identifier: Apache-2.0
"""MachineConfigPools as facts: which Nodes are in which, and which MachineConfigs are rendered for it.

It changes no node and renders nothing.

1. A pool selects Nodes by their labels. An empty selector, and one that cannot be read, selects none.
2. A Node is in one pool: `master` before any other, a pool of the operator's own before `worker`. Of two such pools it is in none,
   and both are named. A node with Windows is in none.
3. A pool selects MachineConfigs by their labels. What was rendered is never rendered again, whatever its labels say. A selector that
   is empty, or cannot be read, is refused. One that matches nothing is good for a new pool, whose machines get the credential and
   nothing else. A pool that was rendered from something keeps that: a slip in a label must not empty every machine.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_pools.py |
|---|---|---|---|---|
| a node, taken over | its certificate, its own Node | get the masters' configuration by an annotation | 1: labels decide | test_annotations_move_no_node_into_a_pool |
| … | … | the same by the label of a master | the API server: nodes may not write labels of kubernetes.io | test_the_pools_of_a_fleet_select_by_labels_that_no_node_may_write |
| … | … | label itself into a second pool, to be served the configuration of both | 2 | test_a_node_of_two_pools_is_in_none_and_both_are_named |
| who may write MachineConfigs | a rendered one with a role's label | have it rendered again and again | 3 | test_what_was_rendered_is_never_rendered_again |

Not stopped: a node may write labels of other domains on itself, and those of `node.kubernetes.io` and of its zone, too. Whoever makes a pool of such a label lets every node into it: labels
of `node-role.kubernetes.io` and `node-restriction.kubernetes.io` are safe from that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, machine_config_kinds, objects, selectors
from handfast.rules.machine_config import members, names

SEVERAL_POOLS: Final = "SeveralPools"
NO_CONFIGS: Final = "NoMachineConfigs"
SELECTOR_UNREADABLE: Final = "SelectorUnreadable"


class NoConfigs(errors.Refused):
    """A pool selects no MachineConfig, or cannot say which."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Labels that a pool asks for; `trouble` is why they cannot be read, and then nothing is selected."""

    labels: selectors.LabelSelector = selectors.EVERYTHING
    trouble: str = ""

    def match(self, labels: Mapping[str, str]) -> bool:
        # 1. an empty one selects none
        return not self.trouble and not self.labels.empty and self.labels.match(labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The facts of a pool. `target` is the rendering that its nodes are to have, `settled` the last one that all of them had."""

    name: str
    uid: str = ""
    version: str = ""
    generation: int = 0
    paused: bool = False
    # As it is written: `max_unavailable` reads it.
    max_unavailable: object = None
    configuration: Mapping[str, Any] = field(default_factory=dict)
    settled: str = ""
    nodes: Selector = Selector()
    configs: Selector = Selector()
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str:
        return jsonpath.text(self.configuration, "name")

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(jsonpath.text(row, "name") for row in jsonpath.mappings(self.configuration, "source"))


class Contested(msgspec.Struct, frozen=True):
    """More than one pool selects a Node, and none of them comes before the others."""

    pools: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"the pools {', '.join(self.pools)} all select it: it is in none of them"


class Membership(msgspec.Struct, frozen=True):
    """The Nodes of each pool by its name, those of none, and those of several."""

    nodes: Mapping[str, Sequence[members.Node]]
    elsewhere: Sequence[members.Node]
    contested: Sequence[tuple[members.Node, Contested]]


def read(document: Mapping[str, Any]) -> Pool:
    """The facts of a MachineConfigPool. What has another shape than the schema says counts as absent."""
    return Pool(
        name=jsonpath.text(document, "metadata", "name"),
        uid=jsonpath.text(document, "metadata", "uid"),
        version=jsonpath.text(document, "metadata", "resourceVersion"),
        generation=jsonpath.number(document, "metadata", "generation"),
        paused=jsonpath.at(document, "spec", "paused") is True,
        max_unavailable=jsonpath.at(document, "spec", "maxUnavailable"),
        configuration=jsonpath.mapping(document, "spec", "configuration"),
        settled=jsonpath.text(document, "status", "configuration", "name"),
        nodes=_selector(document, "nodeSelector"),
        configs=_selector(document, "machineConfigSelector"),
        status=jsonpath.mapping(document, "status"),
    )


def primary(pools: Iterable[Pool], node: members.Node) -> Pool | Contested | None:
    """The pool that a Node is in; None: no pool selects it (2)."""
    # 2. a node with Windows is in none
    if node.windows:
        return None
    selected = {pool.name: pool for pool in pools if pool.nodes.match(node.labels)}
    own = sorted(set(selected) - set(machine_config_kinds.ROLES))
    # 2. of two pools of the operator's own it is in none
    if len(own) > 1:
        return Contested(tuple(own))
    for name in (machine_config_kinds.MASTER, *own, machine_config_kinds.WORKER):
        if name in selected:
            return selected[name]
    return None


def membership(pools: Sequence[Pool], nodes: Iterable[members.Node]) -> Membership:
    """Who is in which pool."""
    inside: dict[str, list[members.Node]] = {pool.name: [] for pool in pools}
    elsewhere, contested = [], []
    for node in nodes:
        pool = primary(pools, node)
        if isinstance(pool, Contested):
            contested.append((node, pool))
        elif pool is None:
            elsewhere.append(node)
        else:
            inside[pool.name].append(node)
    return Membership(inside, elsewhere, contested)


def configs_for(pool: Pool, documents: Iterable[objects.Document]) -> list[objects.Document]:
    """The MachineConfigs that the pool is rendered from, by name (3)."""
    if pool.configs.trouble:
        raise NoConfigs(f"spec.machineConfigSelector: {pool.configs.trouble}", reason=SELECTOR_UNREADABLE)
    chosen = [document for document in documents if not rendered(document) and pool.configs.match(_labels(document))]
    if not chosen and (pool.configs.labels.empty or pool.sources):
        why = (
            "it names no label" if pool.configs.labels.empty else f"no MachineConfig has {pool.configs.labels} any more"
        )
        raise NoConfigs(
            f"spec.machineConfigSelector: {why}",
            reason=NO_CONFIGS,
            hint="correct the selector; to take everything off the machines, make an empty MachineConfig with these labels",
        )
    return sorted(chosen, key=lambda document: jsonpath.text(document, "metadata", "name"))


def rendered(document: Mapping[str, Any]) -> bool:
    """Whether this MachineConfig was rendered by us."""
    return names.CONFIGURATION in jsonpath.mapping(document, "metadata", "annotations")


def _labels(document: Mapping[str, Any]) -> dict[str, str]:
    return jsonpath.mapping(document, "metadata", "labels")


def _selector(document: Mapping[str, Any], name: str) -> Selector:
    try:
        return Selector(selectors.from_label_selector(jsonpath.mapping(document, "spec", name)))
    except errors.Refused as error:
        return Selector(trouble=error.message)
