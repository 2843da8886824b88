# SPDX-License-Identifier: Apache-2.0
"""Objects and logins that the tests of several client libraries share. It talks to nobody."""

from __future__ import annotations

import base64
import pathlib
from typing import Any, Final

import yaml

from handfast.pki import keys, names, requests
from tests.interop import running

GROUP: Final = "tests.example.com"
SIGNER: Final = "kubernetes.io/kube-apiserver-client"


def signing_request(name: str) -> dict[str, Any]:
    """A CertificateSigningRequest of a user."""
    body = requests.build(names.Subject(common_name="ann", organizations=("ops",)), names.Sans(), keys.generate())
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"request": base64.b64encode(body).decode(), "signerName": SIGNER, "usages": ["client auth"]},
    }


def approval(reason: str) -> dict[str, str]:
    """The condition that approves one."""
    return {"type": "Approved", "status": "True", "reason": reason, "message": "by a test"}


def definition(singular: str, plural: str) -> dict[str, Any]:
    """A CustomResourceDefinition with a schema, and with status and scale."""
    whole = {"type": "integer"}
    spec = {"type": "object", "properties": {"size": {**whole, "default": 1}, "colour": {"type": "string"}}}
    status = {"type": "object", "properties": {"size": whole}, "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    kinds = {"singular": singular, "plural": plural, "kind": singular.capitalize()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": kinds, "versions": [version]},
    }


def custom(kind: str, name: str, **spec: object) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx:1"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "nginx:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def token_kubeconfig(plane: running.ControlPlane, place: pathlib.Path, namespace: str, token: str) -> str:
    """A kubeconfig that logs in with this token; where it lies."""
    cluster = {"server": plane.server, "certificate-authority": str(plane.pki / "ca.crt")}
    context = {"cluster": "c", "user": "u", "namespace": namespace}
    place.touch(mode=0o600)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": context}],
    }
    place.write_text(yaml.safe_dump(document))
    return str(place)
