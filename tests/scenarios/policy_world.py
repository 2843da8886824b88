# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh proxy run` as a real process beside two applications, with the real identity, policy and agents' services; each can be cut off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import shutil
import signal
import ssl
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Self, TypeVar

from handfast.pki import pairs
from handfast.runtime import tls
from tests.scenarios import agents_world, envoy_world, mesh_world, proxy_world, up_world
from tests.unit.wire import greeting

P = proxy_world.P
NAMESPACE = "shop"
ACCOUNT = "db"
NAME = mesh_world.identity_of(NAMESPACE, ACCOUNT)
T = TypeVar("T")


class Loop:
    """An event loop in a thread, for what serves while tests come and go."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def stop(self) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Relay:
    """Passes connections on, while it is up: a service that can be cut off."""

    def __init__(self, loop: Loop, target: str) -> None:
        self._loop, self.target = loop, target
        self.port = envoy_world.free_port()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def up(self) -> None:
        self._loop.run(self._up())

    def down(self) -> None:
        self._loop.run(self._down())

    async def _up(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._pass, "127.0.0.1", self.port)

    async def _down(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


class Proxy:
    """The agent of one Pod, and its ports: `web` leads to HTTP/1.1, `grpc` to a gRPC service. Leaving the block ends it."""

    def __init__(self, world: World, pod: str, default: str = "deny", headers: str = "disabled") -> None:
        self.world, self.pod = world, pod
        self.web, self.grpc = envoy_world.free_port(), envoy_world.free_port()
        self._doors = proxy_world.Doors()
        self._temporary = pathlib.Path(tempfile.mkdtemp(prefix="hf-"))
        self.log = self._temporary / "log"
        self._variables = proxy_world.identity_variables(
            world.plane, self._temporary, world.identity.address, NAME, world.token(self)
        ) | {
            f"{P}POLICY_SVC_ADDR": world.policy.address,
            f"{P}POLICY_WORKLOAD": json.dumps({"ns": NAMESPACE, "pod": pod}),
            f"{P}INBOUND_DEFAULT_POLICY": default,
            f"{P}IDENTITY_HEADERS": headers,
            f"{P}AGENTS_ADDR": world.agents.address,
            f"{P}AGENTS_IDENTITY": agents_world.CONTROLLER,
            "K8S_NS": NAMESPACE,
            "K8S_POD": pod,
        }
        self.start()

    def start(self) -> None:
        leads = {self.web: self.world.application.port, self.grpc: self.world.greeter}
        self.process = proxy_world.started(self._variables, leads, self._doors, self.log, self._temporary)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)
        up_world.until(lambda: not self._is_open(), 20, "the end of Envoy")

    def get(self, path: str) -> tuple[int, str]:
        """What the admin port says."""
        return self._doors.get(path)

    def ready(self) -> Proxy:
        up_world.until(
            lambda: self.get("/ready")[0] == 200, 60, f"the proxy: {self.get('/ready')} {self.log.read_text()}"
        )
        return self

    def lacks(self, words: str) -> None:
        """It says that it is not ready, by these words."""
        up_world.until(lambda: words in self.get("/ready")[1], 60, f"{words}: {self.log.read_text()}")
        assert self.get("/ready")[0] == 503

    def listens(self) -> Proxy:
        up_world.until(
            lambda: self.get("/live")[0] == 200 and self._is_open(), 60, f"listeners: {self.log.read_text()}"
        )
        return self

    def _is_open(self) -> bool:
        return all(map(proxy_world.listens, (self.web, self.grpc)))

    def acknowledges(self) -> bool:
        """Whether its MeshWorkload says that it works by what it was sent."""
        path = f"/apis/handfast.dev/v1alpha1/namespaces/{NAMESPACE}/meshworkloads/{self.pod}"
        code, answer = self.world.plane.call("GET", path)
        status = answer.get("status") or {} if code == 200 else {}
        return bool(status) and status.get("acknowledged", 0) >= status.get("current", 1)

    def figure(self, name: str, *labels: str) -> float:
        """A figure of /metrics, summed over the lines that have these labels."""
        rows = [row for row in self.get("/metrics")[1].splitlines() if row.startswith(f"{name}{{")]
        return sum(float(row.rpartition(" ")[2]) for row in rows if all(label in row for label in labels))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(20)
        shutil.rmtree(self._temporary, ignore_errors=True)


class World:
    """All of it: the control plane with services that can be cut off, and two applications."""

    def __init__(
        self, world: agents_world.World, loop: Loop, application: envoy_world.Application, greeter: int
    ) -> None:
        self.plane, self._world = world.plane, world
        self.application, self.greeter = application, greeter
        listening = world.destination.lines("the destination service listens")[-1]
        self.identity = Relay(loop, world.identity.target)
        self.policy = Relay(loop, str(listening["policy"]))
        self.agents = Relay(loop, str(listening["agents"]))
        for relay in (self.identity, self.policy, self.agents):
            relay.up()

    def cut_off(self) -> None:
        """Nobody is reached any more."""
        for relay in (self.identity, self.policy, self.agents):
            relay.down()

    def token(self, proxy: Proxy) -> bytes:
        """A Pod with probes on its ports, and its token."""
        self.plane.account(NAMESPACE, ACCOUNT)
        probe = {"httpGet": {"path": "/healthz", "port": proxy.web}}
        container = {"name": "c", "image": "i", "readinessProbe": probe}
        spec = {"serviceAccountName": ACCOUNT, "nodeName": "n1", "containers": [container]}
        pod = self.plane.post(
            f"/api/v1/namespaces/{NAMESPACE}/pods", {"metadata": {"name": proxy.pod}, "spec": spec}, wanted=(201,)
        )
        return self.plane.token(NAMESPACE, ACCOUNT, pod=(proxy.pod, pod["metadata"]["uid"]))

    def client(self, account: str, namespace: str = NAMESPACE) -> agents_world.Workload:
        return agents_world.Workload(self._world, namespace, account)

    def revoke(self, *words: object) -> None:
        self._world.revoke(*words)

    @property
    def _policies(self) -> str:
        return f"/apis/handfast.dev/v1alpha1/namespaces/{NAMESPACE}/meshpolicies"

    def write(self, name: str = "p", **spec: Any) -> None:
        """A MeshPolicy, or another one under its name."""
        body = {"apiVersion": "handfast.dev/v1alpha1", "kind": "MeshPolicy", "metadata": {"name": name}, "spec": spec}
        code, there = self.plane.call("GET", f"{self._policies}/{name}")
        if code == 404:
            self.plane.post(self._policies, body, wanted=(201,))
            return
        body["metadata"] = {"name": name, "resourceVersion": there["metadata"]["resourceVersion"]}
        code, answer = self.plane.call("PUT", f"{self._policies}/{name}", body)
        assert code == 200, answer

    def forget(self) -> None:
        """No policy, and nobody revoked."""
        for path in (self._policies, "/apis/handfast.dev/v1alpha1/revocations"):
            code, answer = self.plane.call("DELETE", path)
            assert code == 200, answer

    def context(self, pair: pairs.Pair | None = None) -> ssl.SSLContext:
        context = tls.client_context(self.plane.anchors())
        context.check_hostname = False
        if pair is not None:
            tls.load_pair(context, pair.certificate_pem, pair.key_pem)
        return context


@contextlib.contextmanager
def world(directory: pathlib.Path, *words: object) -> Iterator[World]:
    """All of it; `words` are for `mesh install`."""
    loop = Loop()
    stack = contextlib.AsyncExitStack()
    try:
        application = loop.run(stack.enter_async_context(envoy_world.application()))
        greeter = loop.run(stack.enter_async_context(greeting.serving())).port
        with agents_world.world(directory, *words) as plane:
            made = World(plane, loop, application, greeter)
            try:
                yield made
            finally:
                made.cut_off()
    finally:
        loop.run(stack.aclose())
        loop.stop()
