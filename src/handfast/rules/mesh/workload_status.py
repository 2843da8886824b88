# SPDX-License-Identifier: Apache-2.0
"""The status of a Pod that a machine runs itself, in a kubelet's words: address, phase, conditions, containers. It writes it nowhere.

1. A Pod is ready when its proxy is and its application is, and is not while it ends. Endpoints follow that.
2. A Pod whose application has ended has ended, too, unless its containers are to be started again: then it is not ready until then.
3. The container that redirects is done: without a network of its own, there is nothing to redirect.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from handfast.api import jsonpath, objects
from handfast.rules.mesh import injectable

RUNNING: Final = "Running"
_ALWAYS: Final = "Always"
_RUNTIME: Final = "handfast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """How a workload is. `code` is the exit code of its application, once it has ended; `why_not` says why it is not ready."""

    ip: str
    host_ip: str
    started: datetime.datetime
    is_started: bool = False
    proxy_ready: bool = False
    why_not: str | None = None
    ready_changed: datetime.datetime
    code: int | None = None
    proxy_restarts: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether it is to be called (1)."""
        return self.why_not is None


def document(pod: Mapping[str, Any], facts: Facts, now: datetime.datetime) -> dict[str, Any]:
    """The patch of the Pod's status, as a strategic merge patch has it."""
    return {
        "status": {
            "phase": _phase(pod, facts),
            "hostIP": facts.host_ip,
            "podIP": facts.ip,
            # Addresses are merged: what another run had is to go.
            "podIPs": [{"ip": facts.ip}, {"$patch": "replace"}],
            "startTime": objects.timestamp(facts.started),
            "conditions": _conditions(facts),
            "initContainerStatuses": [_beside(row, facts) for row in jsonpath.mappings(pod, "spec", "initContainers")],
            "containerStatuses": [
                _container(row, facts, now) for row in jsonpath.mappings(pod, "spec", "containers")[:1]
            ],
        }
    }


def _phase(pod: Mapping[str, Any], facts: Facts) -> str:
    if facts.code is None:
        return RUNNING if facts.is_started else "Pending"
    # 2. it may be started again
    policy = jsonpath.text(pod, "spec", "restartPolicy") or _ALWAYS
    if policy == _ALWAYS or (policy == "OnFailure" and facts.code != 0):
        return RUNNING
    return "Failed" if facts.code else "Succeeded"


def _conditions(facts: Facts) -> list[dict[str, str]]:
    since, started = objects.timestamp(facts.ready_changed), objects.timestamp(facts.started)
    # 1. the proxy and the application
    rows = (
        ("Initialized", True, started),
        ("ContainersReady", facts.is_ready, since),
        ("Ready", facts.is_ready, since),
    )
    return [
        {
            "type": kind,
            "status": str(holds),
            "lastTransitionTime": at,
            "reason": "" if holds else "ContainersNotReady",
            "message": "" if holds else (facts.why_not or ""),
        }
        for kind, holds, at in rows
    ]


def _beside(row: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    if row.get("name") == injectable.PROXY:
        running = {"running": {"startedAt": objects.timestamp(facts.started)}}
        return _status(row, running, ready=facts.proxy_ready, restarts=facts.proxy_restarts)
    # 3. done
    at = objects.timestamp(facts.started)
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}}
    return _status(row, done, ready=True)


def _container(row: Mapping[str, Any], facts: Facts, now: datetime.datetime) -> dict[str, Any]:
    started = objects.timestamp(facts.started)
    state: dict[str, Any]
    if facts.code is not None:
        word = "Error" if facts.code else "Completed"
        ended = {"exitCode": facts.code, "reason": word, "startedAt": started, "finishedAt": objects.timestamp(now)}
        state = {"terminated": ended}
    elif facts.is_started:
        state = {"running": {"startedAt": started}}
    else:
        state = {"waiting": {"reason": "PodInitializing"}}
    return _status(row, state, ready=facts.is_ready)


def _status(row: Mapping[str, Any], state: Mapping[str, Any], *, ready: bool, restarts: int = 0) -> dict[str, Any]:
    name = jsonpath.text(row, "name")
    return {
        "name": name,
        "image": jsonpath.text(row, "image"),
        "imageID": "",
        "containerID": f"{_RUNTIME}://{name}",
        "ready": ready,
        "started": "running" in state,
        "restartCount": restarts,
        "state": dict(state),
    }
