# SPDX-License-Identifier: Apache-2.0
"""`serve destination` with the agents' door, as a real process beside `serve identity`; and workloads that watch there."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any, Self
from urllib import request as urls

from handfast.pki import certificates, keys, pairs
from handfast.runtime import tls
from tests.scenarios import mesh_world, up_world
from tests.scenarios.mesh_world import identity_of
from tests.world import agent_client

CONTROLLER = identity_of("linkerd", "linkerd-controller")
FREE = ("--destination-listen", "--policy-listen", "--agents-listen", "--destination-admin-listen")


class Destination:
    """The process; leaving the block ends it."""

    def __init__(self, plane: mesh_world.Plane, name: str = "destination") -> None:
        self._plane = plane
        self.log = plane.directory.parent / f"{name}.log"
        # What an earlier one of the name has told.
        self._pairs_before = len(self.lines("certificate in use")) if self.log.exists() else 0
        words: list[object] = ["serve", "destination", "--dir", plane.directory.parent / name]
        words += ["--kubeconfig", plane.kubeconfig_of("linkerd-controller")]
        for flag in FREE:
            words += [flag, "127.0.0.1:0"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*up_world.COMMAND, *map(str, words)], stdout=log, stderr=log, env=up_world.environment()
            )

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def ready(self) -> Self:
        up_world.until(self._is_ready, 40, f"the destination service:\n{self.log.read_text()}")
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        listening = self.lines("the destination service listens")
        # On loopback it is ready before the agents' door has its certificate.
        if not listening or len(self.lines("certificate in use")) == self._pairs_before:
            return False
        with (
            contextlib.suppress(OSError),
            urls.urlopen(f"http://{listening[-1]['admin']}/readyz", timeout=10) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def watch(self, pair: pairs.Pair | None, first: bytes = b"") -> agent_client.Agent:
        """An agent with this pair, or with none."""
        return watch(self._plane, str(self.lines("the destination service listens")[-1]["agents"]), pair, first)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()


def watch(plane: mesh_world.Plane, address: str, pair: pairs.Pair | None, first: bytes = b"") -> agent_client.Agent:
    """An agent with this pair, or with none, at an agents' door."""
    context = tls.client_context(plane.anchors())
    if pair is not None:
        tls.load_pair(context, pair.certificate_pem, pair.key_pem)
    return agent_client.Agent(int(address.rpartition(":")[2]), context, CONTROLLER, first)


class Workload:
    """A Pod of an account of its own, its token, and the certificate that it got for it."""

    def __init__(self, world: World, namespace: str, account: str, pod: str = "") -> None:
        self.world, self.namespace, self.account = world, namespace, account
        self.pod = pod or f"{account}-1"
        self.name = identity_of(namespace, account)
        self.token = world.plane.workload(namespace, account, self.pod)
        self.renew()

    def renew(self) -> None:
        key = keys.generate()
        answer = self.world.identity.certify(self.name, self.token, mesh_world.csr(self.name, key))
        self.pair = pairs.Pair((answer.leaf, *answer.intermediates), key)
        self.leaf = certificates.read(answer.leaf)

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.leaf.fingerprint)

    def can_renew(self) -> bool:
        return not self.world.identity.refuses(self.name, self.token)

    def may_use_the_api(self) -> bool:
        """Whether a token of its account, bound to its Pod, is known to the API server."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": self.token.decode(), "audiences": [mesh_world.AUDIENCE]},
        }
        answer = self.world.plane.post("/apis/authentication.k8s.io/v1/tokenreviews", body)
        return bool(answer["status"].get("authenticated"))

    def observed(self) -> dict[str, Any]:
        """The status of its MeshWorkload; empty where there is none."""
        path = f"/apis/handfast.dev/v1alpha1/namespaces/{self.namespace}/meshworkloads/{self.pod}"
        code, answer = self.world.plane.call("GET", path)
        return dict(answer.get("status") or {}) if code == 200 else {}


class World:
    """A control plane with its identity service and its agents' door."""

    def __init__(self, plane: mesh_world.Plane, identity: mesh_world.Service, destination: Destination) -> None:
        self.plane, self.identity, self.destination = plane, identity, destination

    def revoke(self, *words: object) -> dict[str, Any]:
        done = up_world.run("mesh", "revoke", *words, "--dir", self.plane.directory, "-o", "json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@contextlib.contextmanager
def world(directory: pathlib.Path, *words: object) -> Iterator[World]:
    """All of it, on `handfast up`."""
    with mesh_world.mesh(directory, *words) as plane, beside(plane) as made:
        yield made


@contextlib.contextmanager
def beside(plane: mesh_world.Plane) -> Iterator[World]:
    """Identity service and agents' door beside an API server that has a mesh."""
    with mesh_world.Service(plane) as identity:
        identity.ready()
        plane.install("--set", f"identity.address={identity.target}")
        with Destination(plane) as destination:
            destination.ready()
            yield World(plane, identity, destination)
