# SPDX-License-Identifier: Apache-2.0
"""Nodes and pools as the tests of machine configuration write them down."""

from __future__ import annotations

from typing import Any

from handfast.rules.machine_config import members, names, pools

V0, V1, V2 = "rendered-v0", "rendered-v1", "rendered-v2"


def node(name: str, current: str = "", desired: str = "", ready: bool | None = True, **facts: Any) -> members.Node:
    """A Node with an agent. Its state is what an agent would say, unless it is said here."""
    state = facts.pop("state", "" if not current + desired else names.DONE if current == desired else names.WORKING)
    facts = {"agent": names.AGENT_VERSION, **facts}
    return members.Node(
        name=name,
        current=current,
        desired=desired,
        state=state,
        ready=ready is not False,
        silent=ready is False,
        **facts,
    )


def pool(name: str = "worker", target: str = V1, **spec: Any) -> pools.Pool:
    """A pool as its document is read; `labels` are those of its nodes."""
    labels = spec.pop("labels", {f"node-role/{name}": ""})
    configs = spec.pop("configs", {f"node-role/{name}": ""})
    document = {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "generation": 3},
        "spec": {
            "configuration": {"name": target},
            "nodeSelector": {"matchLabels": labels},
            "machineConfigSelector": {"matchLabels": configs},
            **spec,
        },
    }
    return pools.read(document)
