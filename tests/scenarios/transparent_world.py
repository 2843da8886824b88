# SPDX-License-Identifier: Apache-2.0
"""Injected Pods with Handfast's own redirect and proxy, each in a network of its own, and the control plane of `handfast up --mesh`. It proves nothing itself."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.interop import running
from tests.scenarios import injected_pods, mesh_world, pod_network, up_world

PORT = 8080
# That nobody has: only a proxy knows what is behind it.
CLUSTER_IP = "10.96.0.77"
POLICIES = "/apis/handfast.dev/v1alpha1/namespaces/shop/meshpolicies"
_DOORS = ("identity", "destination", "policy", "agents", "injector")
_ADMINS = ("identity", "destination", "injector")


@dataclass
class Agent:
    """A proxy of Handfast's beside an application."""

    pod: injected_pods.Pod
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.pod.home / "agent.log").read_text()

    def get(self, path: str) -> tuple[int, str]:
        return injected_pods.asked(f"{self.pod.ip}:4191", path)

    def ready(self) -> None:
        def look() -> bool:
            assert self.process.poll() is None, self.log
            return self.get("/ready")[0] == 200

        try:
            running.eventually(look, "a proxy that is ready", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log[-4000:]}") from None

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels."""
        return injected_pods.metric(self.get("/metrics")[1], name, **labels)


class Network(pod_network.Network):
    """A bridge whose Pods have proxies of Handfast's."""

    def iptables(self, pod: injected_pods.Pod, *words: object) -> str:
        """As the container linkerd-init does it, with the arguments of the manifest, or with others."""
        arguments = words or pod.container("linkerd-init")["args"]
        inside = self.inside(pod.ip, *up_world.COMMAND, "mesh", "proxy", "iptables", *arguments)
        done = subprocess.run(inside, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextlib.contextmanager
    def agent(self, pod: injected_pods.Pod, **variables: str) -> Iterator[Agent]:
        """The proxy as its container runs it: its variables, its volumes, its user."""
        (pod.home / "identity").mkdir(exist_ok=True)
        (pod.home / "tokens").mkdir(exist_ok=True)
        (pod.home / "tokens" / "linkerd-identity-token").write_bytes(pod.token)
        user, volumes = self.volumes(pod)
        init = [*up_world.COMMAND, "mesh", "proxy", "init", "--", *up_world.COMMAND, "mesh", "proxy", "run"]
        words = self.container(pod, user, volumes, init)
        environment = {"PATH": os.environ["PATH"], **pod.environment(), **variables}
        with running.process(words, pod.home / "agent.log", environment) as process:
            yield Agent(pod, process)


@dataclass
class World:
    """Pods by their names, in the namespace shop, each with an account of its own."""

    plane: mesh_world.Plane
    network: Network
    home: pathlib.Path
    stack: contextlib.ExitStack
    pods: dict[str, injected_pods.Pod] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)

    def add(self, name: str, annotations: Mapping[str, str] | None = None) -> None:
        """A Pod of the mesh with an application."""
        ip = self.network.address()
        ip6 = self.network.address6(ip)
        pod = injected_pods.by_webhook(self.plane, self.home, name, ip, ip6, **(annotations or {}))
        self.network.iptables(pod)
        self.pods[name] = pod
        self.agents[name] = self.stack.enter_context(self.network.agent(pod))
        self.stack.enter_context(self.network.application(pod, PORT))

    def add_outside(self, name: str) -> None:
        """One that nobody injected."""
        ip = self.network.address()
        (self.home / name).mkdir()
        self.pods[name] = injected_pods.Pod(document={}, home=self.home / name, ip=ip, token=b"")
        self.stack.enter_context(self.network.application(self.pods[name], PORT))

    def get(self, name: str, to: str, path: str = "/") -> tuple[int, dict[str, str]]:
        """What the application of a Pod gets: the code, and the headers that the other one's application saw."""
        address = f"{self.pods[to].ip}:{PORT}" if to in self.pods else to
        code, body = self.network.get(self.pods[name], f"http://{address}{path}")
        return code, json.loads(body) if code == 200 else {"error": body}

    @contextlib.contextmanager
    def policy(self, name: str, spec: dict[str, Any]) -> Iterator[None]:
        """A MeshPolicy that is there while the block is."""
        metadata = {"name": name, "namespace": "shop"}
        body = {"apiVersion": "handfast.dev/v1alpha1", "kind": "MeshPolicy", "metadata": metadata, "spec": spec}
        self.plane.post(POLICIES, body, wanted=(201,))
        try:
            yield
        finally:
            code, answer = self.plane.call("DELETE", f"{POLICIES}/{name}")
            assert code == 200, answer

    def service(self, name: str) -> str:
        """A Service of a Pod, with its endpoints, as the controllers of a cluster write them; its address."""
        return injected_pods.service(self.plane, self.pods[name], PORT, clusterIP=CLUSTER_IP)

    def said(self) -> str:
        """What the proxies wrote, for whoever looks at a failure."""
        return "\n".join(f"{name}: {agent.log[-3000:]}" for name, agent in self.agents.items())


@contextlib.contextmanager
def mesh(home: pathlib.Path, kind: type[Network] = Network) -> Iterator[World]:
    """The control plane, where Pods reach it, and no Pod."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(pod_network.network(kind))
        ports = running.free_ports(len(_DOORS))
        flags: dict[str, Any] = {
            f"--{door}-listen": f"{network.gateway}:{port}" for door, port in zip(_DOORS, ports, strict=True)
        }
        flags |= {f"--{door}-admin-listen": "127.0.0.1:0" for door in _ADMINS}
        words = [word for pair in flags.items() for word in pair]
        plane = stack.enter_context(mesh_world.Plane(home / "data", "--mesh", *words))
        plane.ready()
        plane.post(
            "/api/v1/namespaces", {"metadata": {"name": "shop", "annotations": {"linkerd.io/inject": "enabled"}}}
        )
        yield World(plane, network, home, stack)
