# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh install` on an API server that it did not start, as kubectl sees it: Handfast's own, and a stock kube-apiserver.

Where there is no kube-apiserver its half is not proven: see `clusters`.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
import yaml

from handfast.rules.mesh import control_plane
from tests.interop import clusters, running, tools

pytestmark = [pytest.mark.slow, pytest.mark.kubectl, pytest.mark.timeout(300)]

SERVERS = {"handfast": clusters.handfast_server, "kube-apiserver": clusters.kube_apiserver}


@pytest.fixture(scope="module", params=list(SERVERS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture(scope="module")
def kubectl(
    cluster: clusters.Cluster, kubectl_found: tuple[str, tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> running.Kubectl:
    binary, version = kubectl_found
    return running.Kubectl(binary, tmp_path_factory.mktemp("home"), cluster.kubeconfig, version)


def may(kubectl: running.Kubectl, namespace: str, account: str, *words: str) -> bool:
    """What `kubectl auth can-i` says of an account."""
    user = f"system:serviceaccount:{namespace}:{account}"
    groups = ("--as-group", "system:serviceaccounts", "--as-group", "system:authenticated")
    listed = kubectl("auth", "can-i", "--as", user, *groups, *words, code=None).out
    return "yes" in listed.split()


def test_a_second_call_changes_nothing_and_rights_are_narrow(
    cluster: clusters.Cluster, kubectl: running.Kubectl
) -> None:
    assert "the mesh is installed" in cluster.handfast("mesh", "install").stdout
    assert "nothing was changed" in cluster.handfast("mesh", "install").stdout
    secret = f"secret/{control_plane.SIGNING}"
    readers = [name for name in control_plane.ACCOUNTS if may(kubectl, "linkerd", name, "get", secret, "-n", "linkerd")]
    assert readers == [control_plane.IDENTITY]
    for name in control_plane.ACCOUNTS:
        assert not may(kubectl, "linkerd", name, "list", "secrets", "--all-namespaces")
        assert may(kubectl, "linkerd", name, "get", f"configmap/{control_plane.TRUST_ANCHOR}", "-n", "linkerd")


def test_the_manifests_can_be_applied(
    cluster: clusters.Cluster, kubectl: running.Kubectl, tmp_path: pathlib.Path
) -> None:
    manifest = tmp_path / "mesh.yaml"
    printed = cluster.handfast("mesh", "install", "--control-plane-namespace", "applied", "-o", "yaml").stdout
    manifest.touch(mode=0o600)
    documents = list(yaml.safe_load_all(printed))
    if not cluster.stock:
        # Its own server has the kinds.
        documents = [each for each in documents if each["kind"] != "CustomResourceDefinition"]
    manifest.write_text(yaml.safe_dump_all(documents))
    kubectl("create", "namespace", "applied")
    # Every document is judged by the server, in the form that it is printed in.
    judged = kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", str(manifest)).lines
    assert len(judged) == len(documents)
    kubectl("apply", "--filename", str(manifest))
    again = kubectl("apply", "--filename", str(manifest)).lines
    assert [
        line for line in again if line.startswith(("deployment", "service/", "mutating")) and "unchanged" not in line
    ] == []
    # What was applied is what an installation makes, but for whoever installs.
    done = cluster.handfast("mesh", "install", "--control-plane-namespace", "applied")
    assert [line for line in done.stderr.splitlines() if line.startswith(("created", "updated"))] == [
        "created Role applied/linkerd-installers",
        "created RoleBinding applied/linkerd-installers",
    ]


def test_services_lead_out_of_the_cluster_and_loopback_is_refused_by_other_servers(
    cluster: clusters.Cluster, kubectl: running.Kubectl
) -> None:
    words = ("mesh", "install", "--control-plane-namespace", "outside")
    if cluster.stock:
        refused = cluster.handfast(*words, "--endpoint", "identity=127.0.0.1:8080", code=1)
        assert "reason: BadMeshEndpoint" in refused.stderr
        kubectl("get", "namespace", "outside", code=1)
    done = cluster.handfast(*words, "--endpoint", "identity=192.0.2.1:18080", "--endpoint", "agents=192.0.2.2:8089")
    assert "created EndpointSlice outside/linkerd-destination-agents" in done.stderr
    listed = kubectl.json("get", "endpointslices", "--namespace", "outside")["items"]
    rows = {each["metadata"]["name"]: each for each in listed}
    assert rows["linkerd-identity-identity"]["endpoints"][0]["addresses"] == ["192.0.2.1"]
    assert rows["linkerd-identity-identity"]["ports"][0]["port"] == 18080
    assert "nothing was changed" in cluster.handfast(*words, "--endpoint", "identity=192.0.2.1:18080").stdout


def test_mesh_check_tells_what_is_in_order_and_what_is_not(cluster: clusters.Cluster) -> None:
    cluster.handfast("mesh", "install", "--control-plane-namespace", "checked")
    words = ("mesh", "check", "--control-plane-namespace", "checked", "-o", "json")
    rows = {row["name"]: row for row in json.loads(cluster.handfast(*words, code=1).stdout)["checks"]}
    good = ("settings", "trust-anchors", "issuer", "kinds", "rights", "clock", "pod-anchors", "workload-certificates")
    assert {name: rows[name]["verdict"] for name in good} == dict.fromkeys(good, "ok")
    # Nothing runs there.
    assert (rows["services"]["verdict"], rows["services"]["reason"]) == ("failed", "NoEndpoints")
    assert rows["webhook"]["reason"] == "NoWebhook"
    nothing = ("mesh", "check", "--control-plane-namespace", "nowhere", "-o", "json")
    first = json.loads(cluster.handfast(*nothing, code=1).stdout)["checks"][0]
    assert (first["verdict"], first["reason"]) == ("failed", "NoMesh")


WORKLOADS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: default}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: default}
spec: {serviceAccountName: web, containers: [{name: web, image: "web:1", env: [{name: ANSWER, value: "y"}]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {serviceAccountName: web, containers: [{name: web, image: "web:1", ports: [{containerPort: 8080}]}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: default}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: job, image: "job:1"}]}
"""


def test_injected_manifests_are_taken_by_the_strictest_reader_and_put_back(
    cluster: clusters.Cluster, kubectl: running.Kubectl, tmp_path: pathlib.Path
) -> None:
    before, injected = tmp_path / "web.yaml", tmp_path / "injected.yaml"
    before.write_text(WORKLOADS)
    place = ("--control-plane-namespace", "injecting")
    cluster.handfast("mesh", "install", *place)
    done = cluster.handfast("mesh", "inject", *place, str(before))
    assert done.stderr.splitlines() == [
        "serviceaccount/web skipped: this resource kind is unsupported",
        "pod/alone injected",
        "deployment/web injected",
        "cronjob/nightly injected",
    ]
    injected.write_text(done.stdout)
    applied = kubectl("apply", "--validate=strict", "--filename", str(injected))
    assert "Warning" not in applied.err
    stored = yaml.safe_load(kubectl("get", "pod", "alone", "--output", "yaml").out)
    holders = [
        row["name"]
        for key in ("containers", "initContainers")
        for row in stored["spec"][key]
        for mount in row.get("volumeMounts", [])
        if mount["name"] == "linkerd-identity-store"
    ]
    assert holders == ["linkerd-proxy"]
    assert stored["metadata"]["annotations"]["linkerd.io/identity"] == "enabled"
    back = tools.Tool(tools.HANDFAST)("mesh", "uninject", injected).stdout
    assert list(yaml.safe_load_all(back)) == list(yaml.safe_load_all(WORKLOADS))
