# SPDX-License-Identifier: Apache-2.0
"""A mesh on real processes: `handfast up`, `mesh install`, `serve identity` as its own account, and workloads with real tokens."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pathlib
import ssl
import subprocess
from collections.abc import Iterator
from typing import Any, Self
from urllib import request as urls
from urllib.error import HTTPError

import grpc.aio

from handfast.bootstrap import kubeconfig
from handfast.pki import keys, names, pem, requests
from tests.scenarios import up_world
from tests.world import mesh_client

NAMESPACE = "linkerd"
_DOORS = (
    "identity",
    "identity-admin",
    "destination",
    "destination-admin",
    "policy",
    "agents",
    "injector",
    "injector-admin",
)
# Ports for every service of `up --mesh`.
FREE = tuple(word for door in _DOORS for word in (f"--{door}-listen", "127.0.0.1:0"))
AUDIENCE = "identity.l5d.io"
SUFFIX = "sa.linkerd-identity.linkerd.cluster.local"


def identity_of(namespace: str, account: str) -> str:
    return f"{account}.{namespace}.{SUFFIX}"


def csr(name: str, key: keys.PrivateKey | None = None, **sans: Any) -> bytes:
    """A request in DER, for one DNS name unless other names are wanted."""
    wanted = names.Sans(**(sans or {"dns": (name,)}))
    return pem.one(requests.build(names.Subject(), wanted, key or keys.generate()), pem.CERTIFICATE_REQUEST)


def certified(target: str, identity: str, token: bytes) -> mesh_client.Certified | None:
    """The answer, or None while there is none."""
    message = mesh_client.certify_request(identity, token, csr(identity))
    with contextlib.suppress(grpc.aio.AioRpcError):
        return mesh_client.certified(asyncio.run(mesh_client.call(target, mesh_client.CERTIFY, message)))
    return None


async def certified_by_tls(
    port: int, context: ssl.SSLContext, server: str, identity: str, token: bytes, key: keys.PrivateKey
) -> mesh_client.Certified:
    """The same through TLS, to a server that shows this name."""
    message = mesh_client.certify_request(identity, token, csr(identity, key))
    async with mesh_client.tunnel(port, context, server) as target:
        return mesh_client.certified(await mesh_client.call(target, mesh_client.CERTIFY, message))


class Plane(up_world.Up):
    """A control plane with a mesh in it."""

    def post(self, path: str, body: dict[str, Any], *, wanted: tuple[int, ...] = (201, 409)) -> dict[str, Any]:
        code, answer = self.call("POST", path, body)
        assert code in wanted, answer
        return answer

    def patch(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A merge patch, as the administrator."""
        with contextlib.closing(self.connection(self.context())) as connection:
            headers = {"Content-Type": "application/merge-patch+json"}
            connection.request("PATCH", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def install(self, *words: object) -> None:
        done = up_world.run("mesh", "install", "--dir", self.directory, *words, seconds=90)
        assert done.returncode == 0, done.stderr

    def account(self, namespace: str, name: str) -> None:
        self.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        self.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})

    def pod(self, namespace: str, name: str, account: str) -> str:
        """A Pod of this account; its UID."""
        spec = {"serviceAccountName": account, "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
        path = f"/api/v1/namespaces/{namespace}/pods"
        return str(self.post(path, {"metadata": {"name": name}, "spec": spec})["metadata"]["uid"])

    def token(self, namespace: str, account: str, *, pod: tuple[str, str] | None = None, **spec: Any) -> bytes:
        """A token of an account, bound to a Pod, as the kubelet asks for one."""
        bound = {} if pod is None else {"kind": "Pod", "apiVersion": "v1", "name": pod[0], "uid": pod[1]}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [AUDIENCE], **({"boundObjectRef": bound} if bound else {}), **spec},
        }
        answer = self.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body)
        return str(answer["status"]["token"]).encode()

    def workload(self, namespace: str, account: str, pod: str) -> bytes:
        """The token of a new Pod of a new account."""
        self.account(namespace, account)
        return self.token(namespace, account, pod=(pod, self.pod(namespace, pod, account)))

    def anchors(self) -> bytes:
        _, answer = self.call("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/linkerd-trust-anchor")
        return str(answer["data"]["ca-bundle.crt"]).encode()

    def kubeconfig_of(self, account: str) -> pathlib.Path:
        """How a service logs in: with a token of its account for the API itself."""
        admin = kubeconfig.parse((self.directory / "admin.conf").read_text()).cluster
        assert admin.certificate_authority_data is not None
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": admin.server,
                        "certificate-authority-data": base64.b64encode(admin.certificate_authority_data).decode(),
                    },
                }
            ],
            "users": [{"name": "u", "user": {"token": self.token(NAMESPACE, account, audiences=[]).decode()}}],
        }
        path = self.directory.parent / f"{account}.conf"
        path.write_text(json.dumps(document))
        path.chmod(0o600)
        return path


class Service:
    """`handfast serve identity` as a real process; leaving the block ends it."""

    def __init__(
        self,
        plane: Plane,
        name: str = "identity",
        listen: str = "127.0.0.1:0",
        *more: object,
        account: str = "linkerd-identity",
    ) -> None:
        self.log = plane.directory.parent / f"{name}.log"
        words = ["serve", "identity", "--kubeconfig", plane.kubeconfig_of(account), *more]
        words += [
            "--identity-listen",
            listen,
            "--identity-admin-listen",
            "127.0.0.1:0",
            "--dir",
            plane.directory.parent / name,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*up_world.COMMAND, *map(str, words)], stdout=log, stderr=log, env=up_world.environment()
            )

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The lines of its log that say this."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def listening(self) -> Self:
        """It answers, ready or not."""
        up_world.until(lambda: self.lines("the identity service listens"), 40, f"the service:\n{self.log.read_text()}")
        return self

    def readiness(self) -> str:
        """All of its checks."""
        try:
            with urls.urlopen(f"http://{self.admin}/readyz?verbose", timeout=10) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            with error:
                return error.read().decode()

    def ready(self) -> Self:
        up_world.until(self._is_ready, 40, f"the identity service:\n{self.log.read_text()}")
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        if not self.lines("the identity service listens"):
            return False
        with contextlib.suppress(OSError), urls.urlopen(f"http://{self.admin}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
        return False

    @property
    def target(self) -> str:
        return str(self.lines("the identity service listens")[-1]["address"])

    @property
    def admin(self) -> str:
        return str(self.lines("the identity service listens")[-1]["admin"])

    def metrics(self) -> str:
        with urls.urlopen(f"http://{self.admin}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def certify(self, identity: str, token: bytes, request: bytes | None = None) -> mesh_client.Certified:
        message = mesh_client.certify_request(identity, token, csr(identity) if request is None else request)
        return mesh_client.certified(asyncio.run(mesh_client.call(self.target, mesh_client.CERTIFY, message)))

    def refusal(self, identity: str, token: bytes, request: bytes | None = None) -> tuple[str, str]:
        message = mesh_client.certify_request(identity, token, csr(identity or "x") if request is None else request)
        return asyncio.run(mesh_client.refusal(self.target, mesh_client.CERTIFY, message))

    def refuses(self, identity: str, token: bytes) -> bool:
        try:
            self.certify(identity, token)
        except grpc.aio.AioRpcError:
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()


@contextlib.contextmanager
def mesh(directory: pathlib.Path, *words: object) -> Iterator[Plane]:
    """A control plane with a mesh that is installed."""
    with Plane(directory / "data") as plane:
        plane.ready()
        plane.install(*words)
        yield plane
