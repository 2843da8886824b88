# SPDX-License-Identifier: Apache-2.0
"""A fleet on `handfast up --machines` whose machines are rows of a table: their Nodes, and agents that apply when they are let.

The agents' part of a Node is written as the agents write it. Nothing here is under test.
"""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

from handfast.api import machine_config_kinds
from handfast.bootstrap import kubeconfig
from handfast.rules.machine_config import names
from handfast.rules.machines import bootstrapper
from tests.scenarios import machines_world, up_world

GROUP = f"/apis/{machine_config_kinds.GROUP}/v1"
CONFIGS = f"{GROUP}/machineconfigs"
POOLS = f"{GROUP}/machineconfigpools"
NODES = "/api/v1/nodes"
SECRETS = f"/api/v1/namespaces/{bootstrapper.NAMESPACE}/secrets"
NEXT = f"{SECRETS}/{bootstrapper.NEXT_TOKEN_SECRET}"
_MERGE = "application/merge-patch+json"
_LIVE_SECONDS = 2.0


class Rollout(machines_world.Fleet):
    """A control plane with pools, and machines that follow."""

    def __init__(self, directory: pathlib.Path, *arguments: object) -> None:
        super().__init__(directory, *arguments)
        # Nodes whose agents apply what they are sent.
        self.applying: set[str] = set()
        self._living: set[str] = set()
        self._over = threading.Event()
        self._agents = threading.Thread(target=self._apply, daemon=True)

    def began(self, *roles: str) -> Self:
        """With a MachineConfig for each of these roles, and agents at work."""
        self.ready()
        up_world.until(lambda: bool(self.token()), 60, "a token")
        for role in roles:
            config = {"config": {"ignition": {"version": "3.2.0"}}}
            metadata = {"name": f"00-{role}", "labels": {names.ROLE_LABEL: role}}
            self.made(CONFIGS, {"metadata": metadata, "spec": config}, "MachineConfig")
        self._agents.start()
        return self

    def made(self, path: str, document: dict[str, Any], kind: str) -> None:
        version = "v1" if path.startswith("/api/") else path.split("/")[2] + "/v1"
        code, answer = self.call("POST", path, {"apiVersion": version, "kind": kind, **document})
        assert code == 201, answer

    def patched(self, path: str, patch: object) -> tuple[int, dict[str, Any]]:
        with contextlib.closing(self.connection(self.context())) as connection:
            connection.request("PATCH", path, json.dumps(patch), {"Content-Type": _MERGE})
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def pool(self, name: str) -> None:
        """A pool of the operator's own, of workers."""
        document = machine_config_kinds.pool(name)
        roles = {"key": names.ROLE_LABEL, "operator": "In", "values": ["worker", name]}
        document["spec"]["machineConfigSelector"] = {"matchExpressions": [roles]}
        self.made(POOLS, document, "MachineConfigPool")

    def node(self, name: str, role: str = "worker", *, agent: bool = True, ready: bool = True) -> None:
        annotations = {names.AGENT: names.AGENT_VERSION} if agent else {}
        labels = {f"node-role.kubernetes.io/{role}": ""}
        self.made(NODES, {"metadata": {"name": name, "labels": labels, "annotations": annotations}}, "Node")
        status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
        if not agent:
            status["nodeInfo"] = _node_info()
        code, answer = self.patched(f"{NODES}/{name}/status", {"status": status})
        assert code == 200, answer
        if agent and ready:
            self._living.add(name)
            self.applying.add(name)

    def dies(self, name: str) -> None:
        """A machine that is off: nothing is applied, and it is not ready."""
        self._living.discard(name)
        self.applying.discard(name)
        self.patched(f"{NODES}/{name}/status", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})

    def have(self, *machines: str) -> bool:
        """Whether these have what they are sent."""
        return all(self._is_done(self.call("GET", f"{NODES}/{name}")[1]) for name in machines)

    def settled(self, **have: int) -> None:
        """Until so many machines of each pool have its rendering."""

        def are() -> bool:
            rows = {row["name"]: row for row in self.table("machine", "pools")["pools"]}
            return all(rows[name]["have"] == count and rows[name]["rendering"] for name, count in have.items())

        up_world.until(are, 60, f"machines with their rendering: {have}")

    def credential(self, node: str) -> str:
        """By digest, what the rendering of a node names."""
        current = self._annotations(self.call("GET", f"{NODES}/{node}")[1])[names.CURRENT]
        return str(self._annotations(self.call("GET", f"{CONFIGS}/{current}")[1])[names.CREDENTIAL])

    def secret(self, path: str) -> str:
        """The token in a Secret; empty where there is none."""
        code, secret = self.call("GET", path)
        return base64.b64decode((secret.get("data") or {}).get("token", "")).decode() if code == 200 else ""

    def kubeconfig(self, directory: pathlib.Path, token: str) -> pathlib.Path:
        """A file with this token, as whoever leaked it has it."""
        admin = kubeconfig.parse((self.directory / "admin.conf").read_text())
        user = kubeconfig.User(name="kubelet", token=token)
        path = directory / f"leaked-{abs(hash(token))}"
        path.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="kubelet", cluster=admin.cluster, user=user)))
        return path

    @contextlib.contextmanager
    def command(self, *words: object) -> Iterator[subprocess.Popen[str]]:
        """A command of the operator that runs on."""
        all_words = [*up_world.COMMAND, *map(str, words), "--kubeconfig", str(self.directory / "admin.conf")]
        pipe = subprocess.PIPE
        process = subprocess.Popen(all_words, stdout=pipe, stderr=pipe, text=True, env=up_world.environment())
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=30)

    def _apply(self) -> None:
        """What the agents do."""
        beaten = 0.0
        while not self._over.wait(0.1):
            # A server that is away for a while is no end.
            with contextlib.suppress(OSError, ValueError, KeyError, AssertionError):
                if time.monotonic() - beaten > _LIVE_SECONDS:
                    beaten = time.monotonic()
                    self._beat()
                for document in self.call("GET", NODES)[1]["items"]:
                    name = document["metadata"]["name"]
                    if name in self.applying and not self._is_done(document):
                        desired = self._annotations(document)[names.DESIRED]
                        done = {names.CURRENT: desired, names.STATE: names.DONE}
                        self.patched(f"{NODES}/{name}", {"metadata": {"annotations": done}})

    def _beat(self) -> None:
        """Leases, so that nobody takes them for dead."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec = {"leaseDurationSeconds": 40, "renewTime": now}
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        for name in sorted(self._living):
            if self.patched(f"{path}/{name}", {"spec": spec})[0] == 404:
                self.made(path, {"metadata": {"name": name}, "spec": {"holderIdentity": name, **spec}}, "Lease")

    @staticmethod
    def _annotations(document: dict[str, Any]) -> dict[str, str]:
        return document["metadata"].get("annotations") or {}

    def _is_done(self, document: dict[str, Any]) -> bool:
        has = self._annotations(document)
        return has.get(names.DESIRED, "") in {"", has.get(names.CURRENT, "")} and names.DESIRED in has

    def __exit__(self, *details: object) -> None:
        self._over.set()
        if self._agents.is_alive():
            self._agents.join(30)
        super().__exit__(*details)


def _node_info() -> Any:
    keys = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion")
    more = ("kubeProxyVersion", "operatingSystem", "architecture")
    return {**dict.fromkeys((*keys, *more), "x"), "kubeletVersion": "v1.30.1"}
