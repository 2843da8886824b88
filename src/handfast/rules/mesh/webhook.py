# SPDX-License-Identifier: Apache-2.0
"""The webhook of the injector: its object, the Service behind it, and whom the API server believes there. It calls nothing.

1. It is asked for Pods and Services that are created, and for nothing else.
2. It is not asked for the namespaces that a cluster starts with, for those that are labelled so, nor for that of the control plane: the
   injector's own Pods must be able to start without it.
3. Every field is written, as the API server would fill it in: what differs was changed by somebody.
4. The CA bundle belongs to the injector. Whoever writes the rest of the object leaves the bundle as it is.
5. The injector's pair is in a Secret that is made empty: the account may change this one by its name, and make none.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_webhook.py |
|---|---|---|---|---|
| an intruder in the injector | its account | make Secrets, or read others | 5 | test_the_account_changes_its_own_secret_and_makes_none |
| `mesh install`, run again | an older document | take the CA bundle away, so that no Pod is injected | 4 | test_what_is_written_again_keeps_the_bundle |
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from handfast.api import jsonpath, objects
from handfast.bootstrap import first_objects
from handfast.rules.mesh import control_plane, settings

GROUP: Final = "admissionregistration.k8s.io"
PLURAL: Final = "mutatingwebhookconfigurations"
KIND: Final = "MutatingWebhookConfiguration"
NAME: Final = control_plane.INJECTOR
WEBHOOK: Final = "linkerd-proxy-injector.linkerd.io"
# The Service of the injector, as the webhook names it; in the cluster it listens on TARGET.
SERVICE: Final = control_plane.INJECTOR
PORT: Final = 443
TARGET: Final = 8443
PATH: Final = "/"
TIMEOUT_SECONDS: Final = 10
VERSIONS: Final = ("v1", "v1beta1")
# A namespace with this label is left alone.
LABEL: Final = "config.linkerd.io/admission-webhooks"
LEFT_ALONE: Final = ("kube-system", "cert-manager")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"

# Secret: what the injector serves with, and what the bundle has.
PAIR: Final = control_plane.INJECTOR_PAIR
CERTIFICATE_KEY: Final = "tls.crt"
PRIVATE_KEY_KEY: Final = "tls.key"
BUNDLE_KEY: Final = "ca.crt"


def server_name(namespace: str) -> str:
    """The name that the API server asks for, and that the certificate has."""
    return f"{SERVICE}.{namespace}.svc"


def configuration(namespace: str, chosen: settings.Settings) -> first_objects.FirstObject:
    """The webhook without a bundle (3): `kept` is for one that is there."""
    document = {
        "apiVersion": f"{GROUP}/v1",
        "kind": KIND,
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": WEBHOOK,
                "admissionReviewVersions": list(VERSIONS),
                "clientConfig": {
                    "service": {"name": SERVICE, "namespace": namespace, "path": PATH, "port": PORT},
                },
                "failurePolicy": chosen.failure_policy,
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchExpressions": _namespaces(namespace)},
                "objectSelector": {},
                "reinvocationPolicy": "Never",
                # 1. what is created
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods", "services"],
                        "scope": "Namespaced",
                    }
                ],
                "sideEffects": "None",
                "timeoutSeconds": TIMEOUT_SECONDS,
            }
        ],
    }
    return first_objects.FirstObject(GROUP, "v1", PLURAL, False, document)


def _namespaces(namespace: str) -> list[dict[str, Any]]:
    # 2. not those without which nothing starts
    return [
        {"key": LABEL, "operator": "NotIn", "values": [settings.DISABLED]},
        {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": [*LEFT_ALONE, namespace]},
    ]


def pair(namespace: str) -> first_objects.FirstObject:
    """The Secret of the injector's pair, empty (5). It is made where there is none, and else left as it is."""
    metadata = {"name": PAIR, "namespace": namespace}
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
    return first_objects.FirstObject("", "v1", "secrets", True, document)


def kept(there: objects.Document, wanted: first_objects.FirstObject) -> objects.Document:
    """The object that is there, with what is wanted in it and its own bundle (4)."""
    text = jsonpath.text(_row(there), "clientConfig", "caBundle")
    return {**there, "webhooks": _with_bundle(wanted.document, text)["webhooks"]}


def bundle(document: objects.Document) -> bytes:
    """Whom the API server believes, in PEM; empty where nobody, or where it is none."""
    return decoded(jsonpath.text(_row(document), "clientConfig", "caBundle"))


def is_ours(document: objects.Document, namespace: str) -> bool:
    """Whether the object is the webhook of the mesh in this namespace: there is one in a cluster."""
    return jsonpath.text(_row(document), "clientConfig", "service", "namespace") == namespace


def with_bundle(document: objects.Document, certificates: bytes) -> objects.Document:
    """The object with another bundle."""
    return _with_bundle(document, base64.b64encode(certificates).decode("ascii"))


def decoded(value: Any) -> bytes:
    """Base64 as objects have it; empty where it is none."""
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _with_bundle(document: objects.Document, text: str) -> objects.Document:
    rows = []
    for row in jsonpath.mappings(document, "webhooks"):
        client = {key: value for key, value in jsonpath.mapping(row, "clientConfig").items() if key != "caBundle"}
        if row.get("name") == WEBHOOK:
            row = {**row, "clientConfig": {**client, **({"caBundle": text} if text else {})}}
        rows.append(row)
    return {**document, "webhooks": rows}


def _row(document: objects.Document) -> objects.Document:
    rows = (row for row in jsonpath.mappings(document, "webhooks") if row.get("name") == WEBHOOK)
    return next(rows, {})
