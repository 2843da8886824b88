# SPDX-License-Identifier: Apache-2.0
"""`handfast token` beside the tools that others use on the same tokens: kubectl and the Python client.

Proves that what one creates the others list, and what one deletes is gone for all. kubeadm is in `test_kubeadm`.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from handfast.bootstrap import first_objects
from tests.interop import running, tools
from tests.interop.tools import Tool, listed

pytestmark = [pytest.mark.slow]


@pytest.fixture
def handfast(control_plane: running.ControlPlane) -> Tool:
    return tools.handfast_token(control_plane)


def test_the_python_client_reads_what_is_created(handfast: Tool, core: Any) -> None:
    token = handfast("create", "--description", "for x", "--ttl", "1h").stdout.strip()
    token_id, _, half = token.partition(".")
    found = core.read_namespaced_secret(f"bootstrap-token-{token_id}", "kube-system")
    assert found.type == "bootstrap.kubernetes.io/token"
    data = {key: base64.b64decode(value).decode() for key, value in found.data.items()}
    assert data.pop("expiration").endswith("Z")
    assert data == {
        "token-id": token_id,
        "token-secret": half,
        "description": "for x",
        "auth-extra-groups": first_objects.NODE_GROUP,
        "usage-bootstrap-signing": "true",
        "usage-bootstrap-authentication": "true",
    }
    assert handfast("delete", token).stdout == f'bootstrap token "{token_id}" deleted\n'
    assert handfast("delete", token).stdout == f'bootstrap token "{token_id}" is not there\n'


@pytest.mark.kubectl
def test_what_kubectl_creates_is_listed(handfast: Tool, kubectl: running.Kubectl) -> None:
    name, token = "bootstrap-token-kubect", "kubect.0123456789abcdef"
    literals = {"token-id": "kubect", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"}
    words = [f"--from-literal={key}={value}" for key, value in literals.items()]
    kind = "--type=bootstrap.kubernetes.io/token"
    kubectl("create", "secret", "generic", name, "--namespace", "kube-system", kind, *words)
    assert listed(handfast)[token] == {
        "kind": "BootstrapToken",
        "apiVersion": "output.kubeadm.k8s.io/v1alpha3",
        "token": token,
        "usages": ["signing"],
    }
    kubectl("delete", "secret", name, "--namespace", "kube-system")
    assert token not in listed(handfast)
