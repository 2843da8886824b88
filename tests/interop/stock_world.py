# SPDX-License-Identifier: Apache-2.0
"""A mesh of stock linkerd2-proxies with nothing but Handfast's control plane. It proves nothing itself.

Pods are network namespaces: the redirect is Linkerd's proxy-init, with the arguments of the manifest, and the proxy has the variables, the volumes and
the user of the manifest. Where one of the programs is missing nothing of it is run: see `stock` and `pod_network`.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.interop import clusters, meshes, pod_network, running, stock
from tests.scenarios import injected_pods, mesh_world, transparent_world, up_world

PORT = 8080
POLICIES = "/apis/handfast.dev/v1alpha1/namespaces/shop/meshpolicies"


@dataclass
class World:
    """Pods by their names, in the namespace shop, each with an account of its own."""

    plane: meshes.Plane
    network: pod_network.Network
    home: pathlib.Path
    stack: contextlib.ExitStack
    # What can be ended and begun again.
    controller: contextlib.ExitStack
    issuing: contextlib.ExitStack
    pods: dict[str, injected_pods.Pod] = field(default_factory=dict)
    proxies: dict[str, stock.Proxy] = field(default_factory=dict)
    agents: dict[str, transparent_world.Agent] = field(default_factory=dict)

    def add(self, name: str, **variables: str) -> None:
        """A Pod of the mesh with an application."""
        pod = stock.write_volumes(self._injected(name))
        self.network.redirect(pod)
        self.proxies[name] = self.stack.enter_context(self.network.proxy(pod, **variables))
        self.stack.enter_context(self.network.application(pod, PORT))

    def add_own(self, name: str, **annotations: str) -> None:
        """One whose proxy is Handfast's own."""
        pod = self._injected(name, **annotations)
        self.network.iptables(pod)
        self.agents[name] = self.stack.enter_context(self.network.agent(pod))
        self.stack.enter_context(self.network.application(pod, PORT))

    def _injected(self, name: str, **annotations: str) -> injected_pods.Pod:
        manifest = injected_pods.manifest("shop", f"{name}-1", name, app=name)
        manifest["metadata"]["annotations"] = annotations
        self.pods[name] = stock.inject(self.plane, manifest, self.home / name, self.network.address())
        return self.pods[name]

    def add_outside(self, name: str, **labels: str) -> None:
        """One that nobody injected."""
        manifest, ip = injected_pods.manifest("shop", f"{name}-1", name, **labels), self.network.address()
        self.plane.account("shop", name)
        document = self.plane.post("/api/v1/namespaces/shop/pods", manifest)
        injected_pods.run(self.plane, "shop", f"{name}-1", ip)
        (self.home / name).mkdir()
        self.pods[name] = injected_pods.Pod(document=document, home=self.home / name, ip=ip, token=b"")
        self.stack.enter_context(self.network.application(self.pods[name], PORT))

    def get(self, name: str, to: str, path: str = "/") -> tuple[int, dict[str, str]]:
        """What the application of a Pod gets: the code, and the headers that the other one's application saw."""
        address = f"{self.pods[to].ip}:{PORT}" if to in self.pods else to
        code, body = self.network.get(self.pods[name], f"http://{address}{path}")
        return code, json.loads(body) if code == 200 else {"error": body}

    def code(self, name: str, to: str) -> int:
        return self.get(name, to)[0]

    @contextlib.contextmanager
    def policy(self, name: str, **spec: Any) -> Iterator[None]:
        """A MeshPolicy that is there while the block is."""
        metadata = {"name": name, "namespace": "shop"}
        body = {"apiVersion": "handfast.dev/v1alpha1", "kind": "MeshPolicy", "metadata": metadata, "spec": spec}
        self.plane.post(POLICIES, body, wanted=(201,))
        try:
            yield
        finally:
            code, answer = self.plane.call("DELETE", f"{POLICIES}/{name}")
            assert code == 200, answer

    def said(self) -> str:
        """What the proxies wrote, for whoever looks at a failure."""
        logs = {name: proxy.log for name, proxy in self.proxies.items()}
        logs |= {name: agent.log for name, agent in self.agents.items()}
        return "\n".join(f"{name}: {log[-3000:]}" for name, log in logs.items())

    def ready(self) -> None:
        """All proxies are."""
        for proxy in self.proxies.values():
            proxy.ready()
        for agent in self.agents.values():
            agent.ready()

    def start_identity(self) -> None:
        """The identity service; ready."""
        service = mesh_world.Service(self.plane, listen=f"{self.network.gateway}:8080")
        self.issuing.enter_context(service).ready()

    def start_controller(self) -> None:
        """Destination and policy, as their own account; ready."""
        self.controller.enter_context(_destination(self.plane, self.network.gateway))


@contextlib.contextmanager
def _destination(plane: meshes.Plane, host: str) -> Iterator[None]:
    home, [admin] = plane.directory.parent, running.free_ports(1)
    words: list[object] = [*up_world.COMMAND, "serve", "destination", "--dir", home / "destination"]
    words += ["--kubeconfig", plane.kubeconfig_of("linkerd-controller")]
    words += ["--destination-listen", f"{host}:8086", "--policy-listen", f"{host}:8090"]
    words += ["--agents-listen", f"{host}:8089", "--destination-admin-listen", f"127.0.0.1:{admin}"]
    log = home / "destination.log"
    with running.process(words, log) as process:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return injected_pods.asked(f"127.0.0.1:{admin}", "/readyz")[0] == 200

        running.eventually(ready, f"a destination service: {log}", 60)
        yield


@contextlib.contextmanager
def mesh(server: str, home: pathlib.Path, *settings: str) -> Iterator[World]:
    """The control plane, where Pods reach it, and no Pod."""
    stock.find()
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(pod_network.network())
        cluster: clusters.Cluster = stack.enter_context(meshes.SERVERS[server](home))
        ports = {"identity": 8080, "destination": 8086, "policy": 8090, "agents": 8089}
        chosen = [*(f"{name}.address={network.gateway}:{port}" for name, port in ports.items()), *settings]
        cluster.handfast("mesh", "install", *(word for setting in chosen for word in ("--set", setting)))
        plane = meshes.Plane(cluster)
        controller, issuing = (stack.enter_context(contextlib.ExitStack()) for _ in range(2))
        world = World(plane, network, home, stack, controller, issuing)
        world.start_identity()
        world.start_controller()
        yield world


def by_webhook(
    plane: mesh_world.Plane, network: pod_network.Network, home: pathlib.Path, name: str
) -> injected_pods.Pod:
    """A Pod in the namespace shop that the server's webhook injected, with its redirect; nothing in it runs."""
    pod = stock.write_volumes(injected_pods.by_webhook(plane, home, name, network.address()))
    network.redirect(pod)
    return pod
