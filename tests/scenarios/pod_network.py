# SPDX-License-Identifier: Apache-2.0
"""Pods without a kubelet: a network namespace each, on one bridge. It proves nothing itself.

It needs root and `ip`; where one is missing, what needs it is reported as not run, and in CI as failed. Everything is taken away at the end,
and nothing of the machine's own network is changed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from tests.interop import running
from tests.scenarios import injected_pods

# Where Pods find the API server.
APISERVER = "kubernetes.default.svc"
# Volumes where the manifest mounts them (pairs of a directory and a place, up to --), the user that it says, and names that the cluster's DNS would
# have. Nothing of it outlives the process.
_CONTAINER = """
user="$1" hosts="$2"
shift 2
mount -t tmpfs tmpfs /run
mount --bind "$hosts" /etc/hosts
while [ "$1" != -- ]; do
    mkdir -p "$2"
    mount --bind "$1" "$2"
    shift 2
done
shift
# What is run may lie where only root reads.
# In a session of its own: with sched_autogroup, containers share a processor as sessions do.
exec setsid setpriv --reuid "$user" --regid "$user" --clear-groups --securebits +no_setuid_fixup \\
    --inh-caps +dac_read_search --ambient-caps +dac_read_search "$@"
"""
# Answers every request with the headers that it came with.
_APPLICATION = """
import http.server, json, os, socket, sys
class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
class Server(http.server.ThreadingHTTPServer):
    # IPv4, too, where both are there.
    address_family = socket.AF_INET6 if os.path.exists("/proc/net/if_inet6") else socket.AF_INET
Server(("", int(sys.argv[1])), Echo).serve_forever()
"""
# Says back, line by line, what it is told: no HTTP.
_PARROT = """
import socketserver, sys
class Parrot(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"you said " + line)
socketserver.ThreadingTCPServer(("0.0.0.0", int(sys.argv[1])), Parrot).serve_forever()
"""
# Speaks first, as servers of mail do.
_GREETER = """
import socketserver, sys
class Greeter(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"hello, I speak first\\n")
socketserver.ThreadingTCPServer(("0.0.0.0", int(sys.argv[1])), Greeter).serve_forever()
"""
_HEARER = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 8) as line:
        print(line.makefile().readline().strip())
except OSError:
    print()
"""
_SPEAKER = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 15) as line:
        line.sendall(b"hello\\n")
        print(line.makefile().readline().strip())
except OSError:
    print()
"""
_LISTENING = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).close()
    print("yes")
except OSError:
    print()
"""
_CLIENT = """
import sys, urllib.error, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=15) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except OSError as error:
    print(0, error)
"""


N = TypeVar("N", bound="Network")


def require() -> None:
    """Return where all that it takes is there."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "iptables", "unshare", "setpriv"))):
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("not run: Pods on one machine need root, ip and iptables")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


@dataclass
class Network:
    """A bridge with an address for whoever is on the machine itself."""

    name: str
    subnet: str
    _stack: contextlib.ExitStack
    _pods: list[str] = field(default_factory=list)

    @property
    def gateway(self) -> str:
        return f"{self.subnet}.1"

    def address(self) -> str:
        """Of one more Pod, with a network of its own."""
        number = len(self._pods) + 2
        name, link, ip = f"{self.name}-{number}", f"{self.name}v{number}", f"{self.subnet}.{number}"
        _ip("netns", "add", name)
        self._stack.callback(_ip, "netns", "delete", name)
        self._pods.append(name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", self.name, "up")
        _ip("-n", name, "address", "add", f"{ip}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", name, "link", "set", device, "up")
        _ip("-n", name, "route", "add", "default", "via", self.gateway)
        return ip

    def address6(self, ip: str) -> str:
        """One of IPv6 for the Pod that has this address; empty where this machine has no IPv6."""
        if not pathlib.Path("/proc/net/if_inet6").exists():
            return ""
        number = ip.rpartition(".")[2]
        # Unique local, and of this bridge.
        address = f"fd00:{int(self.subnet.rpartition('.')[2]):x}::{int(number):x}"
        _ip("-n", f"{self.name}-{number}", "address", "add", f"{address}/64", "dev", "eth0", "nodad")
        return address

    def device(self, ip: str) -> str:
        """The end of a Pod's cable that is on this machine."""
        return f"{self.name}v{ip.rpartition('.')[2]}"

    def inside(self, ip: str, *words: object) -> list[str]:
        """The words that run these in the Pod of this address."""
        return ["ip", "netns", "exec", f"{self.name}-{ip.rpartition('.')[2]}", *map(str, words)]

    def container(
        self, pod: injected_pods.Pod, user: int, volumes: Mapping[str, pathlib.Path], words: Sequence[object]
    ) -> list[str]:
        """The words that run these as a container of the Pod would: volumes by the places where they are mounted."""
        hosts = pod.home / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{self.gateway} {APISERVER}\n")
        mounts = [word for place, directory in volumes.items() for word in (directory, place)]
        script = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", _CONTAINER, "container"]
        return self.inside(pod.ip, *script, user, hosts, *mounts, "--", *words)

    def volumes(self, pod: injected_pods.Pod) -> tuple[int, dict[str, pathlib.Path]]:
        """The user of the proxy's container, and directories by the places where they are mounted: for that user alone."""
        row = pod.container("linkerd-proxy")
        user = int(row["securityContext"]["runAsUser"])
        kept = {"linkerd-identity-store": pod.home / "identity", "linkerd-identity-token": pod.home / "tokens"}
        # The API server may have added the token of the account, which the proxy does not use.
        ours = [mount for mount in row["volumeMounts"] if mount["name"] in kept]
        volumes = {mount["mountPath"]: kept[mount["name"]] for mount in ours}
        for place in volumes.values():
            for path in (place, *place.iterdir()):
                os.chown(path, user, -1)
        return user, volumes

    @contextlib.contextmanager
    def application(
        self, pod: injected_pods.Pod, port: int, *, http: bool = True, first: bool = False
    ) -> Iterator[None]:
        """What the Pod is for: requests, or what is no HTTP; `first`: it speaks before it is spoken to."""
        with self.program(pod, port, _GREETER if first else _APPLICATION if http else _PARROT):
            yield

    @contextlib.contextmanager
    def program(self, pod: injected_pods.Pod, port: int, text: str) -> Iterator[None]:
        """Any other: text of Python, which is told its port and listens there."""
        words = self.inside(pod.ip, sys.executable, "-c", text, port)
        log = pod.home / f"application-{port}.log"
        with running.process(words, log):
            # On loopback there is no redirect.
            running.eventually(lambda: self.run(pod, _LISTENING, port), f"an application: {log}")
            yield

    def get(self, pod: injected_pods.Pod, url: str) -> tuple[int, str]:
        """What the application of a Pod gets from another; 0: nobody answered."""
        code, _, body = self.run(pod, _CLIENT, url).partition(" ")
        return int(code), body

    def say(self, pod: injected_pods.Pod, ip: str, port: int) -> str:
        """What the application of a Pod hears when it says hello to something that is no HTTP; nothing where nobody answers."""
        return self.run(pod, _SPEAKER, ip, port)

    def listen(self, pod: injected_pods.Pod, ip: str, port: int) -> str:
        """What the application of a Pod hears when it says nothing."""
        return self.run(pod, _HEARER, ip, port)

    def run(self, pod: injected_pods.Pod, program: str, *words: object) -> str:
        """What a text of Python prints in a Pod."""
        inside = self.inside(pod.ip, sys.executable, "-c", program, *words)
        done = subprocess.run(inside, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@contextlib.contextmanager
def network(kind: type[N]) -> Iterator[N]:
    """One that nobody else of the machine uses."""
    require()
    name = f"hf{secrets.token_hex(3)}"
    with contextlib.ExitStack() as stack:
        made = kind(name, f"198.18.{secrets.randbelow(250) + 1}", stack)
        _ip("link", "add", name, "type", "bridge")
        stack.callback(_ip, "link", "delete", name)
        _ip("address", "add", f"{made.gateway}/24", "dev", name)
        _ip("link", "set", name, "up")
        yield made
