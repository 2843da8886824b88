# SPDX-License-Identifier: Apache-2.0
"""A stock linkerd2-proxy as a real process, with the variables of an injected Pod. It proves nothing itself.

The proxy is taken from `LINKERD2_PROXY`; no package has it, so that a machine without one is reported as not run. Key and request
are made by Linkerd's own start-up helper where `LINKERD2_PROXY_IDENTITY` names it (it is called proxy-identity), else by `pki`.

What the kubelet would do is done by `injected_pods`.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml

from handfast.pki import keys
from tests.interop import meshes, running
from tests.scenarios import injected_pods, mesh_world

PREFIX = "LINKERD2_PROXY_"


def find() -> str:
    binary = os.environ.get("LINKERD2_PROXY") or shutil.which("linkerd2-proxy")
    if binary is None:
        pytest.skip("not run: there is no linkerd2-proxy; LINKERD2_PROXY names one that was built from source")
    return binary


def inject(plane: meshes.Plane, manifest: Mapping[str, Any], home: pathlib.Path, ip: str) -> injected_pods.Pod:
    """A Pod as `mesh inject` makes it, created at the API server, with its token."""
    home.mkdir(parents=True)
    metadata, spec = manifest["metadata"], manifest["spec"]
    plane.account(metadata["namespace"], spec["serviceAccountName"])
    source = home / "pod.yaml"
    source.write_text(yaml.safe_dump(dict(manifest)))
    [document] = yaml.safe_load_all(plane.cluster.handfast("mesh", "inject", source).stdout)
    created = plane.post(f"/api/v1/namespaces/{metadata['namespace']}/pods", document, wanted=(201,))
    injected_pods.run(plane, metadata["namespace"], metadata["name"], ip)
    bound = (metadata["name"], created["metadata"]["uid"])
    token = plane.token(metadata["namespace"], spec["serviceAccountName"], pod=bound)
    return injected_pods.Pod(document=created, home=home, ip=ip, token=token)


def write_volumes(pod: injected_pods.Pod) -> injected_pods.Pod:
    """The directories that the proxy mounts: keys and request in one, the token in the other."""
    store, tokens = pod.home / "identity", pod.home / "tokens"
    store.mkdir()
    tokens.mkdir()
    (tokens / "linkerd-identity-token").write_bytes(pod.token)
    if helper := os.environ.get("LINKERD2_PROXY_IDENTITY"):
        # It writes both, and then fails to find the proxy at the place where its image has it.
        variables = {**pod.environment(), f"{PREFIX}IDENTITY_DIR": str(store)}
        done = subprocess.run([helper], env=variables, capture_output=True, text=True, timeout=30, check=False)
        assert (store / "csr.der").exists(), done.stderr
    else:
        key = keys.generate()
        (store / "key.p8").write_bytes(key.to_der())
        (store / "csr.der").write_bytes(mesh_world.csr(pod.identity, key))
    return pod


class Proxy:
    """What a running proxy says of itself."""

    def __init__(self, process: subprocess.Popen[bytes], log: pathlib.Path, admin: str) -> None:
        self.process = process
        self._log = log
        self._admin = admin

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def address(self) -> tuple[str, int]:
        """Of its administration, which it serves in plaintext and with TLS."""
        host, _, port = self._admin.rpartition(":")
        return host, int(port)

    def get(self, path: str) -> tuple[int, str]:
        """From its administration; 0: nobody answers."""
        return injected_pods.asked(self._admin, path)

    def ready(self, seconds: float = 40) -> None:
        def look() -> bool:
            assert self.process.poll() is None, self.log
            return self.get("/ready")[0] == 200

        try:
            running.eventually(look, "a proxy that is ready", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log[-4000:]}") from None

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels."""
        return injected_pods.metric(self.get("/metrics")[1], name, **labels)


@contextlib.contextmanager
def proxy_here(pod: injected_pods.Pod, *before: object, **variables: str) -> Iterator[Proxy]:
    """The proxy on this machine, without a redirect: on ports of its own choice, for what it does by itself.

    `before` are the words of a command that starts it.
    """
    admin, inbound, outbound, control = (f"127.0.0.1:{port}" for port in running.free_ports(4))
    listening = {"ADMIN": admin, "INBOUND": inbound, "OUTBOUND": outbound, "CONTROL": control}
    environment = {
        **pod.environment(),
        **{f"{PREFIX}{name}_LISTEN_ADDR": address for name, address in listening.items()},
        f"{PREFIX}IDENTITY_DIR": str(pod.home / "identity"),
        f"{PREFIX}IDENTITY_TOKEN_FILE": str(pod.home / "tokens" / "linkerd-identity-token"),
        **{f"{PREFIX}{name}": value for name, value in variables.items()},
    }
    with started([*before, find()], environment, pod.home / "proxy.log", admin) as proxy:
        yield proxy


@contextlib.contextmanager
def started(words: Sequence[object], environment: Mapping[str, str], log: pathlib.Path, admin: str) -> Iterator[Proxy]:
    """A proxy that runs while the block does."""
    search = {"PATH": os.environ["PATH"]}
    with log.open("ab") as opened:
        process = subprocess.Popen(
            [*map(str, words)],
            env={**search, **environment},
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=opened,
        )
    try:
        yield Proxy(process, log, admin)
    finally:
        process.terminate()
        try:
            # One that waits for its identity does not hear it.
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
