# SPDX-License-Identifier: Apache-2.0
"""MeshPolicies and `mesh explain` on Handfast's own API server and on a stock kube-apiserver, where the kind is a CustomResourceDefinition.

Where there is no kube-apiserver its half is not proven: see `clusters`.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop import clusters, running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl, pytest.mark.timeout(300)]

SERVERS = {"handfast": clusters.handfast_server, "kube-apiserver": clusters.kube_apiserver}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no rows and no condition": ({"targets": {}}, "spec"),
    "a row of two": ({"clients": [{"namespace": "a", "unauthenticated": True}]}, "spec.clients[0]"),
    "a row of none": ({"clients": [{}]}, "spec.clients[0]"),
    "not unauthenticated": ({"clients": [{"unauthenticated": False}]}, "spec.clients[0].unauthenticated"),
    "an account with a dot": (
        {"clients": [{"serviceAccount": {"name": "a.b"}}]},
        "spec.clients[0].serviceAccount.name",
    ),
    "a wildcard": ({"clients": [{"identity": "*.shop"}]}, "spec.clients[0].identity"),
    "a port too large": ({"clients": [], "targets": {"ports": [65536]}}, "spec.targets.ports[0]"),
    "another mode": ({"clients": [], "mode": "off"}, "spec.mode"),
    "a selector without values": (
        {"clients": [], "targets": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
        "spec.targets.podSelector.matchExpressions[0]",
    ),
}


@pytest.fixture(scope="module", params=list(SERVERS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture(scope="module")
def kubectl(
    cluster: clusters.Cluster, kubectl_found: tuple[str, tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> running.Kubectl:
    binary, version = kubectl_found
    kubectl = running.Kubectl(binary, tmp_path_factory.mktemp("home"), cluster.kubeconfig, version)
    cluster.handfast("mesh", "install")
    kubectl("create", "namespace", "shop")
    for account in ("web", "db"):
        kubectl("--namespace", "shop", "create", "serviceaccount", account)
    running.eventually(lambda: kubectl("get", "meshpolicies", code=None).code == 0, "the kind is served")
    return kubectl


def document(name: str, spec: dict[str, Any]) -> str:
    metadata = {"name": name, "namespace": "shop"}
    return json.dumps({"apiVersion": "handfast.dev/v1alpha1", "kind": "MeshPolicy", "metadata": metadata, "spec": spec})


@pytest.mark.parametrize("case", BAD)
def test_a_policy_that_is_wrong_is_refused_at_its_field(kubectl: running.Kubectl, case: str) -> None:
    spec, field = BAD[case]
    assert f"{field}" in kubectl.fails("apply", "--validate=false", "-f", "-", stdin=document("bad", spec))


def test_a_policy_has_its_defaults_and_columns(kubectl: running.Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=document("web", {"clients": [], "targets": {"serviceAccounts": ["web"]}}))
    head, row = kubectl("--namespace", "shop", "get", "mp", "web").lines
    assert head.split() == ["NAME", "MODE", "ACCOUNTS", "PORTS", "IDENTITY-IN", "IDENTITY-OUT", "AGE"]
    assert row.split()[:3] == ["web", "enforce", '["web"]']


def test_explain_turns_with_what_it_advises(cluster: clusters.Cluster, kubectl: running.Kubectl) -> None:
    words = ("mesh", "explain", "shop/web", "sa/shop/db:5432", "-o", "json")
    path = f"{pathlib.Path(kubectl.binary).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    # Nobody is restricted; then nobody is let in; then one row fits; then none does.
    for code in (0, 1, 0):
        changes = json.loads(cluster.handfast(*words, code=code).stdout)["changes"]
        for change in changes:
            subprocess.run(["/bin/sh", "-c", change], check=True, env=environment, capture_output=True, timeout=60)
    cluster.handfast(*words, code=1)
