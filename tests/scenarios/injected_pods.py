# SPDX-License-Identifier: Apache-2.0
"""Injected Pods without a kubelet: what it would do is done here. It proves nothing itself.

Fields of the Pod are filled in, `$(NAME)` is expanded, volumes are directories.
"""

from __future__ import annotations

import pathlib
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.interop import running
from tests.scenarios import mesh_world


@dataclass(frozen=True, slots=True)
class Pod:
    """An injected Pod that is at the API server, and the directories that are its volumes."""

    document: dict[str, Any]
    home: pathlib.Path
    ip: str
    token: bytes = field(repr=False)
    # Its address of IPv6, where there is one.
    ip6: str = ""

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"]["namespace"])

    @property
    def identity(self) -> str:
        return mesh_world.identity_of(self.namespace, self.document["spec"]["serviceAccountName"])

    def container(self, name: str) -> dict[str, Any]:
        rows = [*self.document["spec"]["initContainers"], *self.document["spec"]["containers"]]
        [row] = [row for row in rows if row["name"] == name]
        return dict(row)

    def fields(self) -> dict[str, str]:
        """What the kubelet knows."""
        return {
            "metadata.namespace": self.namespace,
            "metadata.name": self.name,
            "metadata.uid": str(self.document["metadata"].get("uid", "")),
            "spec.nodeName": "n1",
            "spec.serviceAccountName": str(self.document["spec"]["serviceAccountName"]),
            "status.podIP": self.ip,
            "status.podIPs": ",".join(filter(None, (self.ip, self.ip6))),
        }

    def environment(self, name: str = "linkerd-proxy") -> dict[str, str]:
        """A container's variables as the kubelet would set them."""
        found: dict[str, str] = {}
        for row in self.container(name).get("env", []):
            value = row["value"] if "value" in row else self.fields()[row["valueFrom"]["fieldRef"]["fieldPath"]]
            found[row["name"]] = expanded(value, found)
        return found


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """With `$(NAME)` as the kubelet expands it."""
    return re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], text)


def manifest(namespace: str, name: str, account: str, **labels: str) -> dict[str, Any]:
    """A Pod with applications at the ports 8080 and 9000, as its owner writes it."""
    ports = [{"containerPort": 8080}, {"containerPort": 9000}]
    probe = {"httpGet": {"path": "/healthz", "port": 8080}}
    container = {"name": "application", "image": "application:1", "ports": ports, "readinessProbe": probe}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"serviceAccountName": account, "nodeName": "n1", "containers": [container]},
    }


def by_webhook(
    plane: mesh_world.Plane, home: pathlib.Path, name: str, ip: str, ip6: str = "", **annotations: str
) -> Pod:
    """A Pod in the namespace shop that the server's webhook injected; nothing in it runs."""
    path = "/api/v1/namespaces/shop/pods"
    plane.account("shop", name)
    written = manifest("shop", f"{name}-1", name, app=name)
    written["metadata"]["annotations"] = annotations

    def injected() -> dict[str, Any] | None:
        plane.call("DELETE", f"{path}/{name}-1?gracePeriodSeconds=0")
        document = plane.post(path, written, wanted=(201,))
        return document if "initContainers" in document["spec"] else None

    document = running.eventually(injected, "a Pod with a proxy")
    assert document is not None
    run(plane, "shop", f"{name}-1", ip, ip6)
    token = plane.token("shop", name, pod=(f"{name}-1", document["metadata"]["uid"]))
    (home / name).mkdir()
    return Pod(document, home / name, ip, token, ip6)


def run(plane: mesh_world.Plane, namespace: str, name: str, ip: str, ip6: str = "") -> None:
    """As the kubelet says it of a Pod that runs and is ready."""
    status = {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": each} for each in (ip, ip6) if each],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
    code, answer = plane.patch(path, {"status": status})
    assert code == 200, answer


def asked(address: str, path: str) -> tuple[int, str]:
    """What an administration answers; 0: nothing."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""


def metric(text: str, name: str, **labels: str) -> float:
    """The sum of the series of a page of metrics that have these labels."""
    total = 0.0
    for line in text.splitlines():
        if line.startswith((f"{name}{{", f"{name} ")) and all(
            f'{key}="{value}"' in line for key, value in labels.items()
        ):
            total += float(line.rpartition(" ")[2])
    return total


def service(plane: mesh_world.Plane, pod: Pod, port: int, **chosen: str) -> str:
    """A Service of a Pod at port 80, with its endpoints, as the controllers of a cluster write them; its address, empty where the server hands out none."""
    name = str(pod.document["spec"]["serviceAccountName"])
    spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": port}], **chosen}
    made = plane.post(f"/api/v1/namespaces/{pod.namespace}/services", {"metadata": {"name": name}, "spec": spec})
    target = {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.document["metadata"]["uid"]}
    endpoint = {"addresses": [pod.ip], "conditions": {"ready": True}, "targetRef": target}
    slice_of_it = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        "endpoints": [endpoint],
    }
    plane.post(f"/apis/discovery.k8s.io/v1/namespaces/{pod.namespace}/endpointslices", slice_of_it)
    address = str(made["spec"].get("clusterIP", ""))
    return "" if address == "None" else address
