# SPDX-License-Identifier: Apache-2.0
"""The cells of a Pod's row: how many containers are ready, one word for its state, restarts, and where it runs.

The word is found in this order, the last that applies wins: phase, status reason, scheduling gate, the first init
container that is not through, the containers (first one last), deletion. It judges only what the status says.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from handfast.api import jsonpath
from handfast.api.printing import ages

_NONE = "<none>"


class _Summary(msgspec.Struct):
    """What is known so far while walking over the containers."""

    reason: str
    ready: int = 0
    restarts: int = 0
    last_restart: datetime.datetime | None = None

    def count(self, container: dict[str, Any]) -> None:
        self.restarts += jsonpath.number(container, "restartCount")
        finished = ages.instant(jsonpath.at(container, "lastState", "terminated", "finishedAt"))
        if finished is not None and (self.last_restart is None or finished > self.last_restart):
            self.last_restart = finished


def cells(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    """The cells, in the order of the columns."""
    spec, status = jsonpath.mapping(document, "spec"), jsonpath.mapping(document, "status")
    sidecars = {
        jsonpath.text(container, "name")
        for container in jsonpath.mappings(spec, "initContainers")
        if jsonpath.text(container, "restartPolicy") == "Always"
    }
    summary = _Summary(_first_reason(status))
    initializing = _init_containers(status, len(jsonpath.sequence(spec, "initContainers")), sidecars, summary)
    if not initializing or has_condition(status, "Initialized"):
        _containers(status, sidecars, summary)
    total = len(jsonpath.sequence(spec, "containers")) + len(sidecars)
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart is not None:
        restarts += f" ({ages.human_duration(now - summary.last_restart)} ago)"
    return [
        jsonpath.text(document, "metadata", "name"),
        f"{summary.ready}/{total}",
        _deleted(document, status) or summary.reason,
        restarts,
        ages.since(jsonpath.at(document, "metadata", "creationTimestamp"), now),
        _ip(status) or _NONE,
        jsonpath.text(spec, "nodeName") or _NONE,
        jsonpath.text(status, "nominatedNodeName") or _NONE,
        _gates(spec, status),
    ]


def has_condition(status: dict[str, Any], name: str) -> bool:
    """Whether the condition of that type is True."""
    return any(
        jsonpath.text(row, "type") == name and jsonpath.text(row, "status") == "True"
        for row in jsonpath.mappings(status, "conditions")
    )


def _first_reason(status: dict[str, Any]) -> str:
    if any(
        jsonpath.text(row, "type") == "PodScheduled" and jsonpath.text(row, "reason") == "SchedulingGated"
        for row in jsonpath.mappings(status, "conditions")
    ):
        return "SchedulingGated"
    return jsonpath.text(status, "reason") or jsonpath.text(status, "phase") or ages.UNKNOWN


def _init_containers(status: dict[str, Any], total: int, sidecars: set[str], summary: _Summary) -> bool:
    """Whether an init container is still to do; then the reason says which and why."""
    for position, container in enumerate(jsonpath.mappings(status, "initContainerStatuses")):
        summary.count(container)
        state = jsonpath.mapping(container, "state")
        terminated = state.get("terminated")
        if isinstance(terminated, dict) and jsonpath.number(terminated, "exitCode") == 0:
            continue
        if jsonpath.text(container, "name") in sidecars and container.get("started") is True:
            summary.ready += container.get("ready") is True
            continue
        waiting = jsonpath.text(state, "waiting", "reason")
        if isinstance(terminated, dict):
            summary.reason = "Init:" + _terminated(terminated)
        elif waiting and waiting != "PodInitializing":
            summary.reason = "Init:" + waiting
        else:
            summary.reason = f"Init:{position}/{total}"
        return True
    return False


def _containers(status: dict[str, Any], sidecars: set[str], summary: _Summary) -> None:
    # Once the containers run, restarts of ordinary init containers no longer count.
    summary.restarts, summary.last_restart = 0, None
    for container in jsonpath.mappings(status, "initContainerStatuses"):
        if jsonpath.text(container, "name") in sidecars:
            summary.count(container)
    running = False
    for container in reversed(jsonpath.mappings(status, "containerStatuses")):
        summary.count(container)
        state = jsonpath.mapping(container, "state")
        waiting, terminated = jsonpath.text(state, "waiting", "reason"), state.get("terminated")
        if waiting:
            summary.reason = waiting
        elif isinstance(terminated, dict):
            summary.reason = _terminated(terminated)
        elif container.get("ready") is True and isinstance(state.get("running"), dict):
            running = True
            summary.ready += 1
    if summary.reason == "Completed" and running:
        summary.reason = "Running" if has_condition(status, "Ready") else "NotReady"


def _terminated(terminated: dict[str, Any]) -> str:
    signal = jsonpath.number(terminated, "signal")
    code = f"Signal:{signal}" if signal else f"ExitCode:{jsonpath.number(terminated, 'exitCode')}"
    return jsonpath.text(terminated, "reason") or code


def _deleted(document: dict[str, Any], status: dict[str, Any]) -> str:
    if not jsonpath.text(document, "metadata", "deletionTimestamp"):
        return ""
    if jsonpath.text(status, "reason") == "NodeLost":
        return "Unknown"
    return "" if jsonpath.text(status, "phase") in {"Succeeded", "Failed"} else "Terminating"


def _ip(status: dict[str, Any]) -> str:
    several = jsonpath.mappings(status, "podIPs")
    return jsonpath.text(several[0], "ip") if several else jsonpath.text(status, "podIP")


def _gates(spec: dict[str, Any], status: dict[str, Any]) -> str:
    gates = jsonpath.mappings(spec, "readinessGates")
    if not gates:
        return _NONE
    fulfilled = sum(has_condition(status, jsonpath.text(gate, "conditionType")) for gate in gates)
    return f"{fulfilled}/{len(gates)}"
