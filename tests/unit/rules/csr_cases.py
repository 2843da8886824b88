# SPDX-License-Identifier: Apache-2.0
"""Makes CertificateSigningRequests of every shape for the tests of this room; nothing here is under test."""

from __future__ import annotations

import base64
import datetime
from typing import Any

from handfast.api import objects
from handfast.pki import authority, keys, names, profiles, requests

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
HOUR = 60 * MINUTE

KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
CLIENT = ("digital signature", "client auth")
SERVING = ("digital signature", "server auth")
NODE = "system:node:a"
NODES = ("system:nodes",)

KEY = keys.generate()
ROOT = authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), NOW - 24 * HOUR)


def csr(
    *,
    cn: str = NODE,
    o: tuple[str, ...] = NODES,
    others: tuple[tuple[str, str], ...] = (),
    sans: tuple[str, ...] = (),
    signer: str = KUBELET_CLIENT,
    usages: tuple[str, ...] = CLIENT,
    user: str = NODE,
    **spec: Any,
) -> objects.Document:
    """A good client request of node `a` itself, but for what is said otherwise."""
    subject = names.Subject(common_name=cn, organizations=o, others=others)
    content = requests.build(subject, names.Sans.parse(sans), KEY)
    return {
        "metadata": {"name": "csr-1", "creationTimestamp": objects.timestamp(NOW)},
        "spec": {
            "request": base64.b64encode(content).decode(),
            "signerName": signer,
            "usages": list(usages),
            "username": user,
            "groups": ["system:nodes", "system:authenticated"],
            **spec,
        },
    }


def serving(*sans: str, **rest: Any) -> objects.Document:
    """A good serving request of node `a` itself, but for what is said otherwise."""
    return csr(**{"sans": sans, "signer": KUBELET_SERVING, "usages": SERVING, **rest})


def condition(kind: str, updated: datetime.datetime | None = NOW, **rest: Any) -> dict[str, Any]:
    made = {"type": kind, "status": "True", **rest}
    return made if updated is None else {**made, "lastUpdateTime": objects.timestamp(updated)}


def certificate(not_after: datetime.datetime) -> str:
    """A certificate that ends at this instant, as it stands in the status."""
    begins = not_after - HOUR
    profile = profiles.for_usages("test", CLIENT, HOUR)
    issued = ROOT.issue(KEY.public, names.Subject(common_name=NODE), names.Sans(), profile, begins)
    return base64.b64encode(issued.pem).decode()
