# SPDX-License-Identifier: Apache-2.0
"""The facts of a Node that matter to a roll-out: is it ready, is it done, has it failed, does it follow?

It decides about no node: `pools` says in which pool one is, `candidates` whose turn it is.

1. Ready is as a scheduler sees it: no condition says otherwise, and nobody has cordoned it. A Node without conditions counts as ready.
2. A node is done when it has what it is to have, and says so.
3. It is failing when it tried something else than it has, and gave up. Then it can be sent elsewhere.
4. It is unavailable when it is not ready, is at work, or is to begin. A node that was never sent anywhere, or does not follow, has nothing to
   work at. A change of the credential alone makes nobody unavailable: nothing restarts.
5. A node follows when it has an agent. Without one it never changes, whatever its annotations say.
6. The node's reason, its version and its Machine are cut to what an agent writes, in one line: operators see them beside the words of others.

All of this a node writes on its own Node. If it lies, no other node is ready, done or unavailable for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from handfast.api import jsonpath, machine_config_kinds
from handfast.rules.machine_config import names
from handfast.rules.machines import linking

_POOL: Final = machine_config_kinds.MACHINE_CONFIG_POOL.kind
_OS_LABEL: Final = "kubernetes.io/os"
_WINDOWS: Final = "windows"
_ZONE_LABEL: Final = "topology.kubernetes.io/zone"
_READY: Final = "Ready"
# What a condition has to say for pods to be sent there.
_EXPECTED: Final = {_READY: "True", "DiskPressure": "False", "NetworkUnavailable": "False"}
# The agent's own limit is in bytes.
_MOST_SAID: Final = 1024
_FAILED: Final = frozenset({names.DEGRADED, names.UNRECONCILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The facts of a Node. `silent`: it has a condition Ready, which is not True."""

    name: str
    uid: str = ""
    version: str = ""
    created: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    current: str = ""
    desired: str = ""
    state: str = ""
    reason: str = ""
    agent: str = ""
    ready: bool = True
    silent: bool = False
    kubelet_version: str = ""
    # The Machine that it is linked to, as namespace/name.
    machine: str = ""

    @property
    def follows(self) -> bool:
        # 5. an agent, and nothing else
        return self.agent != ""

    @property
    def windows(self) -> bool:
        return self.labels.get(_OS_LABEL) == _WINDOWS

    @property
    def done(self) -> bool:
        # 2. what it is to have, and it says so
        return self.current != "" and self.current == self.desired and self.state == names.DONE

    @property
    def degraded(self) -> bool:
        return self.state in _FAILED

    @property
    def failing(self) -> bool:
        # 3. tried something else than it has, and gave up
        return self.degraded and self.current != self.desired

    @property
    def order(self) -> tuple[bool, str, str, str]:
        """Zone by zone, those without one last; the older ones first."""
        zone = self.labels.get(_ZONE_LABEL)
        return (zone is None, zone or "", self.created, self.name)


class Rendering(msgspec.Struct, frozen=True):
    """What matters of a rendered MachineConfig here: the digests of its credential and of everything else, and whose it is."""

    name: str
    credential: str = ""
    configuration: str = ""
    pool: str = ""


Renderings = Mapping[str, Rendering]


def read(document: Mapping[str, Any]) -> Node:
    """The facts of a Node. What has another shape than the schema says counts as absent."""
    annotations = jsonpath.mapping(document, "metadata", "annotations")
    conditions = {jsonpath.text(row, "type"): row.get("status") for row in _conditions(document)}
    cordoned = jsonpath.at(document, "spec", "unschedulable") is True
    return Node(
        name=jsonpath.text(document, "metadata", "name"),
        uid=jsonpath.text(document, "metadata", "uid"),
        version=jsonpath.text(document, "metadata", "resourceVersion"),
        created=jsonpath.text(document, "metadata", "creationTimestamp"),
        labels=jsonpath.mapping(document, "metadata", "labels"),
        current=jsonpath.text(annotations, names.CURRENT),
        desired=jsonpath.text(annotations, names.DESIRED),
        state=jsonpath.text(annotations, names.STATE),
        reason=_said(jsonpath.text(annotations, names.REASON)),
        agent=jsonpath.text(annotations, names.AGENT),
        # 1. no condition says otherwise, and nobody has cordoned it
        ready=not cordoned and all(conditions.get(kind, word) == word for kind, word in _EXPECTED.items()),
        silent=conditions.get(_READY, "True") != "True",
        kubelet_version=_said(jsonpath.text(document, "status", "nodeInfo", "kubeletVersion")),
        machine=_said(jsonpath.text(annotations, linking.ANNOTATION)),
    )


def _said(text: str) -> str:
    # 6. one line, and no more than an agent writes
    cut = text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}…"
    return cut if cut.isprintable() else "".join(sign if sign.isprintable() else "\ufffd" for sign in cut)


def read_rendering(document: Mapping[str, Any]) -> Rendering:
    """The digests on a rendered MachineConfig, and its pool; empty ones on any other."""
    annotations = jsonpath.mapping(document, "metadata", "annotations")
    owners = jsonpath.mappings(document, "metadata", "ownerReferences")
    return Rendering(
        jsonpath.text(document, "metadata", "name"),
        jsonpath.text(annotations, names.CREDENTIAL),
        jsonpath.text(annotations, names.CONFIGURATION),
        next((jsonpath.text(row, "name") for row in owners if row.get("kind") == _POOL), ""),
    )


def alike(one: str, other: str, renderings: Renderings) -> bool:
    """Whether two renderings differ in the credential at most. One that is not there is like none but itself."""
    if one == other:
        return True
    before, after = renderings.get(one), renderings.get(other)
    return (
        before is not None
        and after is not None
        and before.configuration != ""
        and before.configuration == after.configuration
    )


def unavailable(node: Node, renderings: Renderings) -> bool:
    """Whether the node counts against `maxUnavailable` (4)."""
    if not node.ready:
        return True
    # 4. never told anything, or a new credential and nothing else
    if (
        not node.follows
        or node.desired == ""
        or (node.current != node.desired and alike(node.current, node.desired, renderings))
    ):
        return False
    return not node.done and not node.failing


def _conditions(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return jsonpath.mappings(document, "status", "conditions")
