# SPDX-License-Identifier: Apache-2.0
"""`handfast serve destination` as a real process, as its own account; Services, and Pods with addresses as a kubelet reports them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
from typing import Any, Self
from urllib import request as urls

import grpc.aio

from tests.scenarios import mesh_world, up_world
from tests.unit.rules.mesh import mesh_pods
from tests.world import discovery_client

SHOP = "/api/v1/namespaces/shop"
LISTENS = "the destination service listens"


class Destination(mesh_world.Service):
    """The service; leaving the block ends it."""

    def __init__(self, plane: mesh_world.Plane, name: str = "destination", listen: str = "127.0.0.1:0") -> None:
        self.log = plane.directory.parent / f"{name}.log"
        words = ["serve", "destination", "--kubeconfig", plane.kubeconfig_of("linkerd-controller")]
        words += ["--destination-listen", listen, "--policy-listen", "127.0.0.1:0", "--agents-listen", "127.0.0.1:0"]
        words += ["--destination-admin-listen", "127.0.0.1:0", "--dir", plane.directory.parent / name]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*up_world.COMMAND, *map(str, words)], stdout=log, stderr=log, env=up_world.environment()
            )

    def ready(self) -> Self:
        up_world.until(self._is_ready, 40, f"the destination service:\n{self.log.read_text()}")
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        if not self.lines(LISTENS):
            return False
        with contextlib.suppress(OSError), urls.urlopen(f"http://{self.admin}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
        return False

    @property
    def target(self) -> str:
        return str(self.lines(LISTENS)[-1]["destination"])

    @property
    def admin(self) -> str:
        return str(self.lines(LISTENS)[-1]["admin"])

    def refuses(self, method: str, path: str) -> tuple[str, str]:  # type: ignore[override]
        return asyncio.run(discovery_client.refusal(self.target, method, path))

    def endpoints(self, path: str) -> dict[str, str]:
        """Addresses with their identities, as a new stream is told."""
        return asyncio.run(discovery_client.endpoints_of(self.target, path)).identities

    def profile(self, path: str) -> discovery_client.Profile:
        return asyncio.run(discovery_client.profile_of(self.target, path))


class Listener:
    """One stream of Get that is read in the background; leaving the block ends it."""

    def __init__(self, target: str, path: str) -> None:
        self.seen = discovery_client.Endpoints()
        self.ended = ""
        self._target = target
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._read())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    async def _read(self) -> None:
        async with grpc.aio.insecure_channel(self._target) as channel:
            call: Any = channel.unary_stream(
                discovery_client.GET, request_serializer=bytes, response_deserializer=bytes
            )(discovery_client.request(self._path))
            try:
                async for octets in call:
                    self.seen.take(octets)
            except grpc.aio.AioRpcError as error:
                self.ended = error.code().name

    def shows(self, identities: dict[str, str], seconds: float = 30) -> None:
        """Wait until the stream has said exactly this."""
        up_world.until(lambda: self.seen.identities == identities, seconds, f"{identities}, not {self.seen}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(20)


class Shop:
    """Workloads in one namespace of a real control plane."""

    def __init__(self, plane: mesh_world.Plane) -> None:
        self._plane = plane
        plane.account("shop", "web")

    def service(self, name: str, **spec: Any) -> None:
        ports = [{"name": "http", "port": 80, "targetPort": 8080}]
        body = {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports, **spec}}
        self._plane.post(f"{SHOP}/services", body)

    def pod(
        self,
        name: str,
        app: str,
        ip: str,
        *,
        meshed: bool = True,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        """A Pod that is ready at an address."""
        document = mesh_pods.plain("shop", name, labels={"app": app}, annotations=annotations or {})
        document["spec"] |= {"nodeName": "n1", **spec}
        if meshed:
            document = mesh_pods.injected(document)
        del document["metadata"]["uid"], document["status"]
        made = self._plane.post(f"{SHOP}/pods", document, wanted=(201,))
        self.status(name, ip)
        return made

    def status(self, name: str, ip: str, *, ready: bool = True) -> None:
        """As the kubelet reports it."""
        status = {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        self._patch(f"pods/{name}/status", {"status": status})

    def delete(self, path: str) -> None:
        code, answer = self._plane.call("DELETE", f"{SHOP}/{path}?gracePeriodSeconds=0")
        assert code in {200, 202}, answer

    def annotate(self, path: str, annotations: dict[str, str | None]) -> None:
        self._patch(path, {"metadata": {"annotations": annotations}})

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        with contextlib.closing(self._plane.connection(self._plane.context())) as connection:
            headers = {"Content-Type": "application/merge-patch+json"}
            connection.request("PATCH", f"{SHOP}/{path}", json.dumps(body), headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()

    def events(self, name: str) -> list[str]:
        _, answer = self._plane.call("GET", f"{SHOP}/events")
        return [each["message"] for each in answer["items"] if each["involvedObject"]["name"] == name]
