# SPDX-License-Identifier: Apache-2.0
"""Pods as the injector leaves them, and as others do: documents, and the views of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from handfast.rules.mesh import settings, sidecar, views, workloads
from handfast.rules.mesh.injection import inject


def injected(document: dict[str, Any], *, identity: bool = True, **chosen: Any) -> dict[str, Any]:
    """The document as the injector leaves it."""
    plan = sidecar.Plan(settings=settings.Settings(**chosen), anchors="PEM", created_by="test")
    complete = {"apiVersion": "v1", "kind": "Pod", **document}
    workload = workloads.find(complete)
    assert workload is not None
    target = sidecar.Target(
        workload=workload,
        namespace=document["metadata"]["namespace"],
        identity=identity,
        uid="account-uid",
    )
    return {**inject(plan, target), "status": document.get("status", {})}


def plain(namespace: str, name: str, ip: str = "10.0.0.1", account: str = "web", **meta: Any) -> dict[str, Any]:
    """A Pod that nobody injected."""
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}", **meta},
        "spec": {"serviceAccountName": account, "containers": [{"name": "app", "image": "i"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]},
    }


def meshed(namespace: str, name: str, ip: str = "10.0.0.1", account: str = "web", **meta: Any) -> dict[str, Any]:
    """A Pod of the mesh."""
    return injected(plain(namespace, name, ip, account, **meta))


def view(document: dict[str, Any]) -> views.Pod:
    return msgspec.json.decode(json.dumps(document), type=views.Pod)
