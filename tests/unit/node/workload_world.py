# SPDX-License-Identifier: Apache-2.0
"""An API with Pods that are injected, and a proxy that says that it is ready: what a workload needs, without Envoy and without a server.

Nothing here is under test.
"""

from __future__ import annotations

import copy
import datetime
import json
import sys
from typing import Any

from handfast import errors
from handfast.api import status
from handfast.client import api, connection
from handfast.node import workload_pods
from handfast.rules.mesh import sidecar

SERVER = "https://127.0.0.1:6443"
# Serves /ready by what a file says; its port is that of --admin-listen, and it keeps its environment.
PROXY = """
import http.server, json, os, pathlib, sys, time
REFUSES = False
directory = pathlib.Path(os.environ["TMPDIR"])
(directory.parent / "seen.json").write_text(json.dumps([sys.argv, dict(os.environ)]))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        well = not (directory.parent / "unwell").exists()
        body = b"ready\\n" if well else b"not ready: it is unwell\\n"
        if self.path == "/identity":
            refusal = {"at": str(time.monotonic()), "reason": "CertificateRefused", "message": "it is revoked"}
            body = json.dumps({"lastError": refusal if REFUSES else None}).encode()
        self.send_response(200 if well else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
place = sys.argv[sys.argv.index("--admin-listen") + 1].rpartition(":")
http.server.ThreadingHTTPServer((place[0], int(place[2])), Handler).serve_forever()
"""


def proxy(*words: str) -> tuple[str, ...]:
    """In place of `children.command`: of the nested start, the inner one is executed."""
    if "init" in words:
        return words[words.index("--") + 1 :]
    return (sys.executable, "-c", PROXY, *words)


# Another user of the machine, at the address of --admin-listen, who says that all is well.
INTRUDER = """
import encodings.idna, email.parser, http.server, os, sys
os.setuid(65534)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def taken(*words: str) -> tuple[str, ...]:
    """The same, where somebody else was faster at the proxy's own ports: it cannot listen, and tries on."""
    if "init" in words:
        return words[words.index("--") + 1 :]
    port = words[words.index("--admin-listen") + 1].rpartition(":")[2]
    return (sys.executable, "-c", INTRUDER, port)


def failing(*words: str) -> tuple[str, ...]:
    if "init" in words:
        return words[words.index("--") + 1 :]
    return (sys.executable, "-c", "raise SystemExit(3)")


class Api(api.Client):
    """Pods of one namespace; `away` is whether nobody answers."""

    def __init__(self) -> None:  # without a transport, since it answers itself
        self.pods: dict[str, dict[str, Any]] = {}
        self.accounts = {"web"}
        self.statuses: list[dict[str, Any]] = []
        self.tokens: list[dict[str, Any]] = []
        self.away = False
        self.injects = True
        self.lifetime = datetime.timedelta(hours=1)

    def _answer(self) -> None:
        if self.away:
            raise errors.Unavailable("nobody answers", reason="Unreachable")

    async def create(self, resource, document, *, namespace="", name="", subresource="", dry_run=False):
        self._answer()
        if subresource == "token":
            self.tokens.append(document["spec"])
            ends = datetime.datetime.now(datetime.UTC) + self.lifetime
            text = f"token-{len(self.tokens)}"
            return {"status": {"token": text, "expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}}
        pod = copy.deepcopy(document)
        if pod["spec"]["serviceAccountName"] not in self.accounts:
            raise status.forbidden("pods", "", pod["metadata"]["name"], "no such account")
        if pod["metadata"]["name"] in self.pods:
            raise status.already_exists("pods", "", pod["metadata"]["name"])
        return self.add(pod)

    def add(self, pod: dict[str, Any]) -> dict[str, Any]:
        """A Pod, injected."""
        pod["metadata"]["uid"] = f"uid-{pod['metadata']['name']}"
        if self.injects:
            pod["spec"]["initContainers"] = [{"name": "linkerd-init"}, injected()]
            projected = {"serviceAccountToken": {"path": sidecar.TOKEN, "audience": "a", "expirationSeconds": 600}}
            pod["spec"]["volumes"] = [{"name": sidecar.TOKEN, "projected": {"sources": [projected]}}]
        self.pods[pod["metadata"]["name"]] = pod
        return copy.deepcopy(pod)

    async def get(self, resource, name, *, namespace="", subresource="", metadata=False):
        self._answer()
        if resource.plural == "serviceaccounts":
            if name not in self.accounts:
                raise status.not_found("serviceaccounts", "", name)
            return {"metadata": {"name": name}}
        if name not in self.pods:
            raise status.not_found("pods", "", name)
        return copy.deepcopy(self.pods[name])

    async def patch(self, resource, name, patch, *, namespace="", subresource="", **_more):
        self._answer()
        if name not in self.pods:
            raise status.not_found("pods", "", name)
        self.pods[name]["status"] = patch["status"]
        self.statuses.append(patch["status"])
        return patch

    async def delete(self, resource, name, *, namespace="", uid="", **_more):
        self._answer()
        if self.pods.pop(name, None) is None:
            raise status.not_found("pods", "", name)
        return {}


def injected() -> dict[str, Any]:
    """The proxy's container, as far as it counts here."""
    return {
        "name": "linkerd-proxy",
        "env": [
            {"name": "K8S_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "LINKERD2_PROXY_INBOUND_IPS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIPs"}}},
            {"name": "LINKERD2_PROXY_IDENTITY_TOKEN_FILE", "value": f"{sidecar.TOKENS}/{sidecar.TOKEN}"},
            {"name": "LINKERD2_PROXY_IDENTITY_STORE_DIR", "value": sidecar.DIRECTORY},
        ],
        "startupProbe": {"periodSeconds": 1, "failureThreshold": 20},
        "volumeMounts": [{"name": sidecar.TOKEN, "mountPath": sidecar.TOKENS}],
    }


def access(client: api.Client, node: str = "") -> workload_pods.Access:
    return workload_pods.Access(client, lambda: connection.Connection(server=SERVER), node, SERVER)


def ready(row: dict[str, Any]) -> str:
    (found,) = [each["status"] for each in row["conditions"] if each["type"] == "Ready"]
    return str(found)


def seen(path: Any) -> tuple[list[str], dict[str, str]]:
    """What the proxy was started with."""
    words, variables = json.loads(path.read_text())
    return words, variables
