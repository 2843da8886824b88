# SPDX-License-Identifier: Apache-2.0
"""The control plane as Deployments of a cluster, each with its own proxy, for `mesh install -o yaml`. It applies none of them.

1. A Pod runs as its own account, without root, and cannot write its root file system.
2. It has a token for the API that the kubelet renews, in a volume that its container alone has; nothing is mounted by itself.
3. The kubeconfig is a ConfigMap without a secret: it leads to that token, and to the CA that every namespace has.
4. A service listens at the address of its Pod, with TLS, and on loopback for the proxy beside it.
5. Every Pod is injected here: the webhook leaves the namespace of the control plane alone, since it could not start itself.
6. There may be several of each: they share what they decide by, and keep nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast.api import objects
from handfast.bootstrap import first_objects, kubeconfig
from handfast.rules.mesh import control_plane, injection, services, sidecar, workloads

# ConfigMap: how the services reach the API from their Pods.
KUBECONFIG: Final = "linkerd-kubeconfig"
COMPONENT: Final = "linkerd.io/control-plane-component"
USER: Final = 2103
_LOGIN: Final = "/var/run/handfast"
_SERVER: Final = "https://kubernetes.default.svc"
_TOKEN_SECONDS: Final = 3600
_ROOT_CA: Final = "kube-root-ca.crt"


class Component(msgspec.Struct, frozen=True):
    """One Deployment: its name, its role and account, the doors that it has, and where it has its health."""

    name: str
    role: str
    account: str
    doors: Sequence[str]
    admin: int


COMPONENTS: Final = (
    Component(control_plane.IDENTITY, "identity", control_plane.IDENTITY, ("identity",), 9992),
    Component(
        control_plane.DESTINATION, "destination", control_plane.CONTROLLER, ("destination", "policy", "agents"), 9996
    ),
    Component(control_plane.INJECTOR, "injector", control_plane.INJECTOR, ("injector",), 9995),
)


def objects_of(plan: sidecar.Plan) -> Iterator[first_objects.FirstObject]:
    """The kubeconfig, the Services and the Deployments, in order."""
    yield _login(plan.namespace)
    for row in COMPONENTS:
        for name in dict.fromkeys(services.DOORS[door].service for door in row.doors):
            yield services.service(name, plan.namespace, _labels(row, plan))
        yield _injected(plan, _deployment(row, plan))


def _login(namespace: str) -> first_objects.FirstObject:
    # 3. leads to the token, and to the CA
    text = kubeconfig.render(
        kubeconfig.Kubeconfig(
            context="pod",
            cluster=kubeconfig.Cluster(name="cluster", server=_SERVER, certificate_authority="ca.crt"),
            user=kubeconfig.User(name="account", token_file="token"),  # noqa: S106 - a file
        )
    )
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": KUBECONFIG, "namespace": namespace},
        "data": {"kubeconfig": text},
    }
    return first_objects.FirstObject("", "v1", "configmaps", True, document)


def _labels(row: Component, plan: sidecar.Plan) -> dict[str, str]:
    return {COMPONENT: row.role, injection.CONTROL_PLANE: plan.namespace}


def _injected(plan: sidecar.Plan, document: objects.Document) -> first_objects.FirstObject:
    workload = workloads.find(document)
    assert workload is not None  # noqa: S101 - a Deployment has a template
    # 5. injected here
    target = sidecar.Target(workload=workload, namespace=plan.namespace, identity=plan.settings.enabled)
    return first_objects.FirstObject("apps", "v1", "deployments", True, injection.inject(plan, target))


def _deployment(row: Component, plan: sidecar.Plan) -> objects.Document:
    labels = _labels(row, plan)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": row.name, "namespace": plan.namespace, "labels": labels},
        "spec": {
            # 6. several of each
            "replicas": plan.settings.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(row, plan)},
        },
    }


def _pod(row: Component, plan: sidecar.Plan) -> dict[str, Any]:
    return {
        "serviceAccountName": row.account,
        # 2. nothing by itself, unless the proxy is set to use it
        "automountServiceAccountToken": not plan.settings.own_token,
        "enableServiceLinks": False,
        # 1. without root
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [_container(row, plan)],
        "volumes": [
            {"name": "login", "projected": {"sources": _sources()}},
            {"name": "tmp", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _sources() -> list[dict[str, Any]]:
    return [
        # 2. renewed by the kubelet
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
        {"configMap": {"name": _ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"configMap": {"name": KUBECONFIG, "items": [{"key": "kubeconfig", "path": "kubeconfig"}]}},
    ]


def _container(row: Component, plan: sidecar.Plan) -> dict[str, Any]:
    ports = [{"name": door, "containerPort": services.DOORS[door].target} for door in row.doors]
    return {
        "name": row.role,
        "image": plan.settings.controller_image,
        "args": list(_words(row, plan)),
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [*ports, {"name": "admin", "containerPort": row.admin}],
        "livenessProbe": {**_probe(row, "/livez"), "initialDelaySeconds": 10, "timeoutSeconds": 5},
        "readinessProbe": {**_probe(row, "/readyz"), "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
        # 1. a root file system that it cannot write
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "login", "mountPath": _LOGIN, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in the container, in memory
        ],
    }


def _probe(row: Component, path: str) -> Mapping[str, Any]:
    return {"httpGet": {"path": path, "port": row.admin}}


def _words(row: Component, plan: sidecar.Plan) -> Iterator[str]:
    yield from ("serve", row.role, "--kubeconfig", f"{_LOGIN}/kubeconfig", "--control-plane-namespace", plan.namespace)
    for door in row.doors:
        yield from (f"--{door}-listen", f"0.0.0.0:{services.DOORS[door].target}")
    yield from (f"--{row.role}-admin-listen", f"0.0.0.0:{row.admin}")
    if row.account != control_plane.INJECTOR:
        # 4. at the Pod's address, and on loopback
        yield from ("--pod-ip", "$(POD_IP)")
