# SPDX-License-Identifier: Apache-2.0
"""A mesh as its console sees it: Pods, what their agents report, and edges."""

from __future__ import annotations

import datetime
from typing import Any

from handfast.api import objects
from handfast.rules.console import mesh
from handfast.rules.mesh import names
from tests.unit.rules.mesh.rotation_cases import HOUR, MESH, NOW, OLD, OLD_ROOT, pod, workload

DAY = 24 * HOUR


def identity(account: str, namespace: str = "shop") -> str:
    return MESH.name(names.Account(namespace=namespace, name=account))


def meshed(name: str, account: str = "web") -> dict[str, Any]:
    document = pod(name, anchors=OLD.anchors)
    document["spec"]["serviceAccountName"] = account
    return document


def report(
    name: str,
    *edges: dict[str, Any],
    account: str = "web",
    ends: datetime.datetime | None = NOW + 20 * HOUR,
    heard: datetime.datetime = NOW,
    roots: tuple[str, ...] = (OLD_ROOT,),
) -> dict[str, Any]:
    document = workload(name, *roots)
    document["status"] |= {
        "identity": identity(account),
        "certificate": {"serial": "0a", "notAfter": objects.timestamp(ends) if ends else "never"},
        "edges": list(edges),
        "lastReport": objects.timestamp(heard),
    }
    return document


def edge(direction: str = "inbound", peer: str = "", **more: Any) -> dict[str, Any]:
    return {"direction": direction, "peer": peer, "port": 80, "secured": bool(peer), "count": 3, **more}


def facts(pods: list[dict[str, Any]], workloads: list[dict[str, Any]], **more: Any) -> mesh.Facts:
    return mesh.Facts(mesh=MESH, now=NOW, lifetime=DAY, pods=pods, workloads=workloads, **more)
