# SPDX-License-Identifier: Apache-2.0
"""The injector's webhook as an API server calls it: Handfast's own, and a stock kube-apiserver, where there is one (see `clusters`).

What the API server stored is what counts. Where there is a linkerd2-proxy, it is started with that: see `stock`.
"""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop import meshes, running, stock
from tests.scenarios import injected_pods, mesh_world, up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=list(meshes.SERVERS))
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[meshes.Plane]:
    """A mesh whose injector answers where `mesh install` was told that it does."""
    home = tmp_path_factory.mktemp(request.param)
    with meshes.SERVERS[request.param](home) as cluster:
        plane = meshes.Plane(cluster)
        [port, admin] = running.free_ports(2)
        listen = f"{meshes.own_address()}:{port}"
        cluster.handfast("mesh", "install", "--endpoint", f"injector={listen}")
        words: list[object] = [*up_world.COMMAND, "serve", "injector", "--dir", home / "injector"]
        words += ["--kubeconfig", plane.kubeconfig_of("linkerd-proxy-injector"), "--injector-listen", listen]
        words += ["--injector-admin-listen", f"127.0.0.1:{admin}"]
        with running.process(words, home / "injector.log") as process:
            running.eventually(lambda: is_ready(process, home / "injector.log", admin), "an injector", 60)
            metadata = {"name": "shop", "annotations": {"linkerd.io/inject": "enabled"}}
            plane.post("/api/v1/namespaces", {"metadata": metadata})
            # The server may take a moment to see webhook, Service and endpoints.
            running.eventually(lambda: is_injected(created(plane, f"probe-{port}")), "a webhook that is called")
            yield plane


def is_ready(process: subprocess.Popen[bytes], log: pathlib.Path, admin: int) -> bool:
    assert process.poll() is None, log.read_text()
    return injected_pods.asked(f"127.0.0.1:{admin}", "/readyz")[0] == 200


def created(plane: meshes.Plane, name: str, namespace: str = "shop", **annotations: str) -> dict[str, Any]:
    """A Pod as the server stored it; its status where it refused."""
    plane.account(namespace, "web")
    manifest = injected_pods.manifest(namespace, name, "web")
    manifest["metadata"]["annotations"] = annotations
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.call("DELETE", f"{path}/{name}?gracePeriodSeconds=0")
    return plane.call("POST", path, manifest)[1]


def is_injected(document: dict[str, Any]) -> bool:
    rows = document.get("spec", {}).get("initContainers", [])
    return [row["name"] for row in rows] == ["linkerd-init", "linkerd-proxy"]


def test_a_pod_of_a_namespace_that_says_so_is_stored_with_its_proxy(plane: meshes.Plane) -> None:
    stored = created(plane, "web-1")
    assert is_injected(stored)
    assert stored["metadata"]["annotations"]["linkerd.io/identity"] == "enabled"
    assert stored["metadata"]["labels"]["linkerd.io/control-plane-ns"] == "linkerd"
    pod = injected_pods.Pod(document=stored, home=plane.directory, ip="192.0.2.9", token=b"")
    assert pod.environment()["LINKERD2_PROXY_IDENTITY_LOCAL_NAME"] == pod.identity
    assert pod.environment()["LINKERD2_PROXY_POLICY_WORKLOAD"] == '{"ns": "shop", "pod": "web-1"}'


def test_who_does_not_want_it_is_left_alone(plane: meshes.Plane) -> None:
    opted = {"linkerd.io/inject": "disabled"}
    assert not is_injected(created(plane, "alone-1", **opted))
    plane.post("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    stored = created(plane, "web-1", "elsewhere")
    assert stored["kind"] == "Pod"
    assert not is_injected(stored)


def test_what_cannot_be_is_refused_by_the_server_with_the_reason(plane: meshes.Plane) -> None:
    wrong = {"linkerd.io/identity": "perhaps"}
    refused = created(plane, "wrong-1", **wrong)
    assert refused["kind"] == "Status"
    assert "allowed: enabled or disabled" in refused["message"]
    metadata = {"name": "web", "annotations": {"linkerd.io/identity": "enabled"}}
    body = {"metadata": metadata, "spec": {"ports": [{"port": 80}]}}
    code, answer = plane.call("POST", "/api/v1/namespaces/shop/services", body)
    assert code >= 400
    assert "which is for Pods and pod templates" in answer["message"]


def test_a_stock_proxy_starts_with_what_the_server_stored(plane: meshes.Plane, tmp_path: pathlib.Path) -> None:
    stock.find()
    with mesh_world.Service(plane, listen=f"{meshes.own_address()}:0") as service:
        address = service.ready().target
        plane.cluster.handfast("mesh", "install", "--set", f"identity.address={address}")

        def stored() -> dict[str, Any]:
            document = created(plane, "stock-1")
            rows = [row for container in document["spec"]["initContainers"] for row in container.get("env", [])]
            return document if {"name": "LINKERD2_PROXY_IDENTITY_SVC_ADDR", "value": address} in rows else {}

        document = running.eventually(stored, "the injector's new settings")
        token = plane.token("shop", "web", pod=("stock-1", document["metadata"]["uid"]))
        pod = stock.write_volumes(injected_pods.Pod(document=document, home=tmp_path, ip="127.0.0.1", token=token))
        with stock.proxy_here(pod, INBOUND_DEFAULT_POLICY="all-unauthenticated") as proxy:
            proxy.ready()
            assert f"Certified identity id={pod.identity}" in proxy.log
