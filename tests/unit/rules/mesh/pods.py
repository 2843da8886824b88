# SPDX-License-Identifier: Apache-2.0
"""Workloads to inject, and the plan to do it by; nothing here is under test."""

from __future__ import annotations

from typing import Any

from handfast.rules.mesh import settings, sidecar, workloads

ANCHORS = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "web", "image": "web:1"}], **spec},
    }


def deployment(template: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", **metadata},
        "spec": {"template": {"spec": pod()["spec"]} if template is None else template},
    }


def workload(document: dict[str, Any]) -> workloads.Workload:
    found = workloads.find(document)
    assert found is not None
    return found


def plan(**chosen: Any) -> sidecar.Plan:
    uids = chosen.pop("uids", {})
    found = settings.Settings(**chosen)
    return sidecar.Plan(settings=found, anchors=ANCHORS, created_by="handfast/cli 1", uids=uids)


def target(document: dict[str, Any] | None = None, *, identity: bool = True, **more: Any) -> sidecar.Target:
    found = workload(pod() if document is None else document)
    return sidecar.Target(workload=found, namespace=found.namespace or "default", identity=identity, **more)
