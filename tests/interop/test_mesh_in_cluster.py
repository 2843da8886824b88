# SPDX-License-Identifier: Apache-2.0
"""The control plane as `mesh install -o yaml` has it in a cluster: every service in a Pod of its own, with a stock linkerd2-proxy beside it.

The identity service has to give its own proxy an identity before anybody has one, the others start by it, and workloads are injected by
the webhook. Pods are network namespaces that run what the Deployments say. Where there is no linkerd2-proxy nothing of it is proven: see `stock_world`.
"""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from tests.interop import meshes, pod_network, running, stock, stock_world
from tests.scenarios import injected_pods

pytestmark = [pytest.mark.slow, pytest.mark.kubectl, pytest.mark.timeout(300)]

LINKERD = "/api/v1/namespaces/linkerd"
# Connections to one address are those to another, as those to the Service of the API server are.
FORWARDER = """
import asyncio, sys
async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def accept(reader, writer):
    far = await asyncio.open_connection(sys.argv[3], int(sys.argv[4]))
    await asyncio.gather(pump(reader, far[1]), pump(far[0], writer), return_exceptions=True)
async def main():
    async with await asyncio.start_server(accept, sys.argv[1], int(sys.argv[2])) as server:
        await server.serve_forever()
asyncio.run(main())
"""


@dataclass
class Cluster:
    """What there is of a cluster: Pods with addresses, and the manifests that were applied."""

    plane: meshes.Plane
    network: pod_network.Network
    home: pathlib.Path
    stack: contextlib.ExitStack
    manifests: list[dict[str, Any]]
    proxies: dict[str, stock.Proxy] = field(default_factory=dict)

    def manifest(self, kind: str, name: str) -> dict[str, Any]:
        [found] = [each for each in self.manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)]
        return found

    def pod(self, deployment: str, ip: str) -> injected_pods.Pod:
        """A Pod of a Deployment, as its controller makes it and the kubelet starts it: the redirect, and the volumes."""
        template = self.manifest("Deployment", deployment)["spec"]["template"]
        name = f"{deployment}-1"
        body = {"metadata": {**template["metadata"], "name": name}, "spec": {**template["spec"], "nodeName": "n1"}}
        document = self.plane.post(f"{LINKERD}/pods", body, wanted=(201,))
        injected_pods.run(self.plane, "linkerd", name, ip)
        bound, account = (name, document["metadata"]["uid"]), template["spec"]["serviceAccountName"]
        pod = injected_pods.Pod(document, self.home / deployment, ip, self.plane.token("linkerd", account, pod=bound))
        login = pod.home / "login"
        login.mkdir(parents=True)
        (login / "token").write_bytes(self.plane.token("linkerd", account, pod=bound, audiences=[]))
        (login / "ca.crt").write_bytes((self.plane.cluster.pki / "ca.crt").read_bytes())
        (login / "kubeconfig").write_text(self.manifest("ConfigMap", "linkerd-kubeconfig")["data"]["kubeconfig"])
        stock.write_volumes(pod)
        self.network.redirect(pod)
        return pod

    def start_proxy(self, pod: injected_pods.Pod) -> stock.Proxy:
        proxy = self.stack.enter_context(self.network.proxy(pod))
        self.proxies[pod.name] = proxy
        return proxy

    def start_service(self, pod: injected_pods.Pod) -> None:
        """The container of the control plane, with the arguments of the manifest; ready."""
        [row] = pod.document["spec"]["containers"]
        variables = pod.environment(row["name"])
        words = [injected_pods.expanded(word, variables) for word in row["args"]]
        # Its user has no business in the directories of whoever runs the tests: so root it is, which the redirect takes as any.
        program = self.network.container(
            pod, 0, {"/run/handfast": pod.home / "login"}, [sys.executable, "-m", "handfast", *words]
        )
        log = pod.home / "service.log"
        process = self.stack.enter_context(running.process(program, log))
        probe = row["readinessProbe"]["httpGet"]

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return injected_pods.asked(f"{pod.ip}:{probe['port']}", probe["path"])[0] == 200

        try:
            running.eventually(ready, pod.name, 60)
        except AssertionError as error:
            said = "\n".join(proxy.log[-3000:] for proxy in self.proxies.values())
            raise AssertionError(f"{error}\n{log.read_text()[-3000:]}\n{said}") from None

    def workload(self, name: str) -> injected_pods.Pod:
        """A Pod that the webhook injects, with its proxy and an application."""
        pod = stock_world.by_webhook(self.plane, self.network, self.home, name)
        self.start_proxy(pod)
        self.stack.enter_context(self.network.application(pod, stock_world.PORT))
        return pod


@pytest.fixture(params=list(meshes.SERVERS))
def cluster(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, kubectl_found: tuple[str, tuple[int, int]]
) -> Iterator[Cluster]:
    stock.find()
    home = tmp_path / "cluster"
    home.mkdir()
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(pod_network.network())
        server = stack.enter_context(meshes.SERVERS[request.param](home))
        host, _, port = server.address.rpartition(":")
        words = [sys.executable, "-c", FORWARDER, network.gateway, "443", host, port]
        stack.enter_context(running.process(words, home / "forwarder.log"))
        # What the cluster's DNS would say of the Services.
        identity, controller = network.address(), network.address()
        addresses = {
            "identity": f"{identity}:8080",
            "destination": f"{controller}:8086",
            "policy": f"{controller}:8090",
        }
        words = [word for name, address in addresses.items() for word in ("--set", f"{name}.address={address}")]
        printed = server.handfast("mesh", "install", *words, "-o", "yaml").stdout
        documents = list(yaml.safe_load_all(printed))
        if not server.stock:
            # Its own server has the kinds.
            documents = [each for each in documents if each["kind"] != "CustomResourceDefinition"]
        (home / "home").mkdir()
        kubectl = running.Kubectl(kubectl_found[0], home / "home", server.kubeconfig, kubectl_found[1])
        kubectl("apply", "--filename", "-", stdin=yaml.safe_dump_all(documents))
        yield Cluster(meshes.Plane(server), network, home, stack, documents)


def test_the_control_plane_starts_itself_in_pods_and_serves_workloads(cluster: Cluster) -> None:
    network = cluster.network
    first, second, third = f"{network.subnet}.2", f"{network.subnet}.3", network.address()
    # 1. the identity service, and its own proxy, which waits for nobody
    pod = cluster.pod("linkerd-identity", first)
    assert pod.environment()["LINKERD2_PROXY_IDENTITY_SVC_ADDR"] == "localhost.:8080"
    cluster.start_proxy(pod)
    cluster.start_service(pod)
    cluster.proxies[pod.name].ready()
    # 2. the others: the proxy is ready before the service begins
    for deployment, ip in (("linkerd-destination", second), ("linkerd-proxy-injector", third)):
        pod = cluster.pod(deployment, ip)
        cluster.start_proxy(pod).ready()
        if deployment == "linkerd-proxy-injector":
            endpoint(cluster, ip)
        cluster.start_service(pod)
    # 3. workloads
    metadata = {"name": "shop", "annotations": {"linkerd.io/inject": "enabled"}}
    cluster.plane.post("/api/v1/namespaces", {"metadata": metadata})
    front, web = cluster.workload("front"), cluster.workload("web")
    for pod in (front, web):
        cluster.proxies[pod.name].ready()
    code, body = network.get(front, f"http://{web.ip}:8080/")
    assert (code, front.identity in body) == (200, True), cluster.proxies[front.name].log[-3000:]
    assert cluster.proxies[web.name].metric("request_total", tls="true", client_id=front.identity) >= 1


def endpoint(cluster: Cluster, ip: str) -> None:
    """Where the webhook is, as the controller of a cluster writes it."""
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "injector-1", "labels": {"kubernetes.io/service-name": "linkerd-proxy-injector"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}],
        "endpoints": [{"addresses": [ip], "conditions": {"ready": True}}],
    }
    cluster.plane.post("/apis/discovery.k8s.io/v1/namespaces/linkerd/endpointslices", body)
