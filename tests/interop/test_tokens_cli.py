# SPDX-License-Identifier: Apache-2.0
"""`handfast token` beside the tools that others use on the same tokens: kubectl, the Python client, and kubeadm.

Proves that what one creates the others list, and what one deletes is gone for all. kubeadm is taken from `KUBEADM` or
the path; where there is none its tests are reported as not run.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from handfast.bootstrap import first_objects
from tests.interop import running

pytestmark = [pytest.mark.slow]


class Tool:
    """A command line that is told one kubeconfig."""

    def __init__(self, *words: str, kubeconfig: str) -> None:
        self.words = words
        self.kubeconfig = kubeconfig

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.words, "token", *arguments, "--kubeconfig", self.kubeconfig],
            capture_output=True,
            text=True,
            timeout=2 * running.DEADLINE,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done


@pytest.fixture
def handfast(control_plane: running.ControlPlane) -> Tool:
    return Tool(sys.executable, "-m", "handfast", kubeconfig=str(control_plane.kubeconfig))


@pytest.fixture
def kubeadm(control_plane: running.ControlPlane) -> Tool:
    binary = os.environ.get("KUBEADM") or shutil.which("kubeadm")
    if binary is None:
        pytest.skip("not run: kubeadm is not on PATH")
    return Tool(binary, kubeconfig=str(control_plane.kubeconfig))


def listed(tool: Tool) -> dict[str, Any]:
    """The documents of `list -o json`, by token."""
    text, decoder, found = tool("list", "-o", "json").stdout.strip(), json.JSONDecoder(), {}
    while text:
        document, end = decoder.raw_decode(text)
        found[document["token"]] = document
        text = text[end:].lstrip()
    return found


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


def test_kubeadm_lists_what_is_created_here(handfast: Tool, kubeadm: Tool) -> None:
    token = handfast("create", "--ttl", "2h", "--description", "d").stdout.strip()
    ours, theirs = listed(handfast)[token], listed(kubeadm)[token]
    assert ours == theirs
    line = next(line for line in kubeadm("list").stdout.splitlines() if line.startswith(token))
    assert line.split() == next(line.split() for line in handfast("list").stdout.splitlines() if line.startswith(token))
    assert kubeadm("delete", token[:6]).stdout == f'bootstrap token "{token[:6]}" deleted\n'
    assert token not in listed(handfast)


def test_what_kubeadm_creates_is_listed_here(handfast: Tool, kubeadm: Tool) -> None:
    token = kubeadm("create", "--ttl", "0").stdout.strip()
    assert listed(handfast)[token] == listed(kubeadm)[token]
    explained = handfast("explain", token).stdout
    assert "never expires" in explained
    assert explained.count("  yes\n") == 2
    assert handfast("delete", token).stdout == f'bootstrap token "{token[:6]}" deleted\n'
    assert token not in listed(kubeadm)


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "abcdef.0123456789abcdef", "--usages", "signing", "--groups", first_objects.NODE_GROUP],
        ["create", "--groups", "foo"],
        ["delete", "invalid-token"],
    ],
)
def test_kubeadm_refuses_in_the_same_words(handfast: Tool, kubeadm: Tool, arguments: list[str]) -> None:
    ours = handfast(*arguments, code=2).stderr.splitlines()[0].removeprefix("error: ")
    assert ours.split(" or ")[0] in kubeadm(*arguments, code=1).stderr
