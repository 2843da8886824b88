# SPDX-License-Identifier: Apache-2.0
"""A stock kubelet as a process that tests can start, below one directory of its own. It proves nothing itself.

The kubelet is the one that `KUBELET` names; no Debian package has it, so that a machine without one is reported as not
run (a skip that says so), also in CI: what was seen with it is in docs/interop.md. It asks for its certificate before it
looks for a container runtime, or meanwhile, and ends when it finds none: `awaiting_runtime` is one that does not answer,
so that there is time. `KUBELET_RUNTIME` names a command that serves a runtime's API
(CRI) at the socket it is given, and may be a pretended one; only with it does a kubelet get as far as its Node.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from handfast.pki import pairs
from tests.interop import running

# A kubelet sets these on its machine; in a mount namespace of its own it writes to files that lie over them.
_KERNEL = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")


def find() -> str:
    """Where the kubelet is."""
    binary = os.environ.get("KUBELET") or shutil.which("kubelet")
    if binary is None:
        pytest.skip("not run: there is no kubelet; KUBELET names one that was built from source")
    return binary


def find_runtime() -> str:
    """The command that serves a container runtime's API."""
    command = os.environ.get("KUBELET_RUNTIME")
    if command is None:
        pytest.skip("not run: there is no container runtime; KUBELET_RUNTIME names a command that serves CRI")
    if os.geteuid() != 0:
        pytest.skip("not run: a kubelet that goes on after its bootstrap needs to be root")
    return command


@dataclass(frozen=True, slots=True)
class Machine:
    """The directory that stands for a machine: its kubeconfigs, certificates and the kubelet's configuration."""

    binary: str
    home: pathlib.Path
    node: str

    @property
    def bootstrap(self) -> pathlib.Path:
        return self.home / "bootstrap-kubelet.conf"

    @property
    def kubeconfig(self) -> pathlib.Path:
        return self.home / "kubelet.conf"

    @property
    def pki(self) -> pathlib.Path:
        return self.home / "pki"

    @property
    def log(self) -> pathlib.Path:
        return self.home / "kubelet.log"

    @property
    def socket(self) -> pathlib.Path:
        return self.home / "cri.sock"

    def configure(self, **fields: Any) -> None:
        """Write the kubelet's configuration: it touches nothing outside of `home` that it need not."""
        document = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "healthzPort": 0,
            **modest(),
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "volumePluginDir": str(self.home / "volumes"),
            "podLogsDir": str(self.home / "logs"),
            "nodeStatusUpdateFrequency": "2s",
            **fields,
        }
        (self.home / "config.yaml").write_text(json.dumps(document))

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The kubelet at work while the block is; with its own view of the kernel's parameters where that can be had."""
        words = {
            "config": self.home / "config.yaml",
            "bootstrap-kubeconfig": self.bootstrap,
            "kubeconfig": self.kubeconfig,
            "cert-dir": self.pki,
            "root-dir": self.home / "root",
            "hostname-override": self.node,
            "v": 2,
        }
        command = [self.binary, *(f"--{name}={value}" for name, value in words.items())]
        with running.process([*self._apart(), *command], self.log) as process:
            yield process

    @contextlib.contextmanager
    def awaiting_runtime(self) -> Iterator[None]:
        """The kubelet at work, and waiting for a runtime that takes the connection and says nothing."""
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(self.socket))
            silent.listen()
            try:
                with self.running():
                    yield
            finally:
                self.socket.unlink()

    def _apart(self) -> list[str]:
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            return []
        return ["unshare", "--mount", "sh", "-ec", "; ".join([*apart(self.home), 'exec "$@"']), "kubelet"]

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def pair(self) -> pairs.Pair | None:
        """What `kubelet-client-current.pem` leads to, once it is there."""
        try:
            return pairs.read((self.pki / "kubelet-client-current.pem").read_bytes())
        except FileNotFoundError:
            return None

    def stored(self) -> list[str]:
        """The files of client certificates, without the link."""
        return sorted(path.name for path in self.pki.glob("kubelet-client-2*.pem"))

    def wait_for_pair(self) -> pairs.Pair:
        """The first certificate, and the kubeconfig that is written after or before it."""
        found = self.eventually(lambda: self.pair() if self.kubeconfig.exists() else None, "a certificate")
        assert isinstance(found, pairs.Pair)
        return found

    def eventually(self, look: Callable[[], Any], what: str) -> Any:
        """As `running.eventually`, with the kubelet's own words where it is in vain."""
        try:
            return running.eventually(look, what, 2 * running.DEADLINE)
        except AssertionError as error:
            raise AssertionError(f"{error}; the kubelet said: {self.said()[-3000:]}") from None


def apart(home: pathlib.Path) -> list[str]:
    """Commands for a mount namespace in which what a kubelet and kubeadm write outside of `home` lies below it."""
    covers = []
    # Where device plug-ins register is fixed, whatever --root-dir says; kubeadm's places are below both.
    for place in ("etc", "var/lib"):
        upper, work = home / "over" / place, home / "work" / place
        upper.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        covers.append(f"mount -t overlay -o lowerdir=/{place},upperdir={upper},workdir={work} overlay /{place}")
    for name in _KERNEL:
        cover = home / name.replace("/", "-")
        cover.write_bytes(pathlib.Path("/proc/sys", name).read_bytes())
        covers.append(f"mount --bind {cover} /proc/sys/{name}")
    return covers


# What systemd would do: start the kubelet once kubeadm has configured it. Then wait until nobody listens any more.
_AS_KUBEADM_WANTS = """
(
  until [ -s /var/lib/kubelet/kubeadm-flags.env ]; do sleep 0.1; done
  . /var/lib/kubelet/kubeadm-flags.env
  exec "$KUBELET" --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\
    --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
) >"$LOG" 2>&1 &
kubelet=$!
status=0
env PATH=/nowhere "$@" || status=$?
read -r _ || true
kill $kubelet
exit $status
"""


@contextlib.contextmanager
def joining(machine: Machine, *command: object) -> Iterator[pathlib.Path]:
    """kubeadm with a kubelet that starts as under systemd, in a mount namespace of their own; the file of its output.

    kubeadm gets no PATH, so that it finds no init system to tell: this machine's is not concerned.
    """
    printed = machine.home / "kubeadm.log"
    script = "\n".join([*apart(machine.home), _AS_KUBEADM_WANTS])
    with printed.open("wb") as output:
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", script, "joining", *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, "KUBELET": machine.binary, "LOG": str(machine.log)},
        )
    try:
        yield printed
    finally:
        process.communicate(timeout=4 * running.DEADLINE)
    assert process.returncode == 0, printed.read_text()


@contextlib.contextmanager
def container_runtime(command: str, machine: Machine) -> Iterator[None]:
    """The runtime that the kubelet of this machine finds."""
    process = subprocess.Popen([command, f"unix://{machine.socket}"])
    try:
        running.eventually(machine.socket.exists, "the runtime's socket")
        yield
    finally:
        process.kill()
        process.wait()


def modest() -> dict[str, Any]:
    """Settings with which a kubelet takes any machine as it is, and leaves it so."""
    return {
        "port": running.free_ports(1)[0],
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "resolvConf": "",
    }


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as the audit log has it."""

    user: str
    verb: str
    what: str
    code: int
    selector: str = ""


def asked(plane: running.ControlPlane, agent: str = "kubelet/") -> list[Asked]:
    """What clients whose name begins so have asked, in the order of its arrival."""
    text = (plane.directory / "audit" / "audit.log").read_text()
    # What is not ended by a line break is still being written.
    events = [json.loads(line) for line in text.split("\n")[:-1]]
    # A watch is written down when it begins and when it ends.
    mine = {event["auditID"]: event for event in events if event.get("userAgent", "").startswith(agent)}
    return [_asked(event) for event in sorted(mine.values(), key=lambda event: str(event["requestReceivedTimestamp"]))]


def _asked(event: dict[str, Any]) -> Asked:
    path, _, query = event["requestURI"].partition("?")
    reference = event.get("objectRef", {})
    what = "/".join(filter(None, (reference.get("resource"), reference.get("subresource")))) or path
    selectors = [part for part in query.split("&") if part.startswith("fieldSelector=")]
    code = event.get("responseStatus", {}).get("code", 0)
    return Asked(event["user"]["username"], event["verb"], what, code, "".join(selectors))
