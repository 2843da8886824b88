# SPDX-License-Identifier: Apache-2.0
"""A mesh made of its own kinds over the API: settings, roots and issuer as `handfast mesh install` writes them, Pods, and what agents reported. No proxy runs."""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Iterable
from typing import Any

from handfast.api import objects
from handfast.rules.mesh import control_plane, injection, issuer, names, settings

MESH = names.Mesh("cluster.local")
NAMESPACE = control_plane.NAMESPACE
GROUP = "/apis/handfast.dev/v1alpha1"


def identity(account: str, namespace: str = "shop") -> str:
    return MESH.name(names.Account(namespace=namespace, name=account))


def _object(kind: str, name: str, namespace: str = "", version: str = "v1", **more: Any) -> dict[str, Any]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


def namespace(name: str) -> tuple[str, dict[str, Any]]:
    return "/api/v1/namespaces", _object("Namespace", name)


def account(space: str, name: str) -> tuple[str, dict[str, Any]]:
    return f"/api/v1/namespaces/{space}/serviceaccounts", _object("ServiceAccount", name, space)


def installation(material: issuer.Material, anchors: bytes | None = None) -> Iterable[tuple[str, dict[str, Any]]]:
    """Where each object is posted, and what."""
    place = f"/api/v1/namespaces/{NAMESPACE}"
    yield namespace(NAMESPACE)
    yield (
        f"{place}/configmaps",
        _object(
            "ConfigMap",
            control_plane.TRUST_ANCHOR,
            NAMESPACE,
            data={control_plane.ANCHORS_KEY: (anchors or material.anchors).decode()},
        ),
    )
    data = {control_plane.CERTIFICATE_KEY: material.certificate, control_plane.PRIVATE_KEY_KEY: material.key}
    yield (
        f"{place}/secrets",
        _object(
            "Secret",
            control_plane.SIGNING,
            NAMESPACE,
            data={key: base64.b64encode(value).decode() for key, value in data.items()},
        ),
    )
    yield (
        f"{place}/configmaps",
        _object("ConfigMap", control_plane.CONFIG, NAMESPACE, data=settings.data(settings.Settings())),
    )


def rotation(data: dict[str, bytes]) -> tuple[str, dict[str, Any]]:
    """The record of a rotation."""
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return f"/api/v1/namespaces/{NAMESPACE}/secrets", _object("Secret", control_plane.ROTATION, NAMESPACE, data=encoded)


def pod(space: str, name: str, account_name: str, anchors: bytes) -> tuple[str, dict[str, Any]]:
    document = _object(
        "Pod", name, space, spec={"serviceAccountName": account_name, "containers": [{"name": "app", "image": "i"}]}
    )
    document["metadata"]["labels"] = {injection.CONTROL_PLANE: NAMESPACE}
    document["metadata"]["annotations"] = {injection.ANCHORS: hashlib.sha256(anchors).hexdigest()}
    return f"/api/v1/namespaces/{space}/pods", document


def edge(direction: str, peer: str = "", **more: Any) -> dict[str, Any]:
    row = {"direction": direction, "peer": peer, "port": 8080, "secured": bool(peer), "count": 12, **more}
    return {key: value for key, value in row.items() if value != ""}


def workload(
    made: dict[str, Any],
    account_name: str,
    roots: Iterable[str],
    *edges: dict[str, Any],
    now: datetime.datetime,
    lives: datetime.timedelta = datetime.timedelta(hours=20),
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Where the MeshWorkload of a Pod that was made is posted, what, and its status."""
    meta = made["metadata"]
    space, name = meta["namespace"], meta["name"]
    document = _object("MeshWorkload", name, space, "handfast.dev/v1alpha1")
    document["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": meta["uid"]}]
    status = {
        "identity": identity(account_name, space),
        "certificate": {"serial": "0a", "notAfter": objects.timestamp(now + lives), "sha256": "0" * 64},
        "anchors": list(roots),
        "edges": [{"firstSeen": objects.timestamp(now), "lastSeen": objects.timestamp(now), **each} for each in edges],
        "lastReport": objects.timestamp(now),
    }
    return f"{GROUP}/namespaces/{space}/meshworkloads", document, status


def policy(space: str, name: str, **spec: Any) -> tuple[str, dict[str, Any]]:
    return f"{GROUP}/namespaces/{space}/meshpolicies", _object(
        "MeshPolicy", name, space, "handfast.dev/v1alpha1", spec=spec
    )
