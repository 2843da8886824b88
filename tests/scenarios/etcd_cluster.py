# SPDX-License-Identifier: Apache-2.0
"""Three members of etcd, each in a network of its own, of which any can be killed, frozen or cut off. It proves nothing itself.

It needs root, `ip` and `etcd` (`ETCD=` names another one); where one is missing, what needs it is reported as not run, and in CI as
failed. Their data is in memory: what etcd keeps when power is lost is etcd's matter.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from handfast.pki import authority, keys, names, profiles
from handfast.runtime import addresses, clock
from handfast.store.etcd import place as places
from handfast.wire import etcd_access
from tests.scenarios import pod_network

CLIENT_PORT, PEER_PORT = 2379, 2380


def binary() -> str:
    """The etcd to be tried."""
    found = shutil.which(os.environ.get("ETCD") or "etcd")
    if found is None:
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("not run: there is no etcd")
    return found


class Member:
    """One of them."""

    def __init__(self, network: pod_network.Network, name: str, home: pathlib.Path) -> None:
        self._network = network
        self._home = home
        self.name = name
        self.ip = network.address()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> addresses.Address:
        return addresses.Address(self.ip, CLIENT_PORT)

    def start(self, cluster: str) -> None:
        client, peer = f"https://{self.address}", f"http://{self.ip}:{PEER_PORT}"
        settings = {
            "name": self.name,
            "data-dir": self._home / self.name,
            "cert-file": self._home / "server.crt",
            "key-file": self._home / "server.key",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": cluster,
            "logger": "zap",
            "log-outputs": "stderr",
        }
        words = [binary(), *(f"--{name}={value}" for name, value in settings.items())]
        with (self._home / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(self._network.inside(self.ip, *words), stderr=log, stdout=log)

    def signal(self, number: signal.Signals) -> None:
        """`ip netns exec` becomes the program that it runs."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def plug(self, *, connected: bool) -> None:
        """Its cable is pulled, or put in again."""
        device = self._network.device(self.ip)
        subprocess.run(["ip", "link", "set", device, "up" if connected else "down"], check=True)

    def route(self, others: Sequence[Member], *, connected: bool) -> None:
        """What it sends to others is thrown away, or sent again. Whoever is on the machine itself reaches it all the while."""
        for other in others:
            words = ["ip", "route", "delete" if connected else "add", "blackhole", f"{other.ip}/32"]
            subprocess.run(self._network.inside(self.ip, *words), check=True)

    def status(self) -> dict[str, Any] | None:
        """What it says of itself and its leader; None if it does not answer."""
        url = f"https://{self.address}/v3/maintenance/status"
        believing = ssl.create_default_context(cafile=str(self._home / "ca.crt"))
        try:
            with urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=1, context=believing) as answer:
                said: dict[str, Any] = json.load(answer)
                return said
        except (OSError, ValueError):
            return None


class Cluster:
    """All of them."""

    def __init__(self, network: pod_network.Network, home: pathlib.Path) -> None:
        self.home = home
        self.members = [Member(network, f"m{number}", home) for number in range(3)]
        self.peers = ",".join(f"{member.name}=http://{member.ip}:{PEER_PORT}" for member in self.members)

    def place(self, first: int = 0) -> places.Place:
        """Where a store is, for a server that asks this member first."""
        order = [*self.members[first:], *self.members[:first]]
        return places.Place(tuple(member.address for member in order), "histories")

    def access(self) -> etcd_access.Access:
        return etcd_access.Access(ca_file=str(self.home / "ca.crt"))

    def start(self) -> None:
        self._certify()
        for member in self.members:
            member.start(self.peers)

    def _certify(self) -> None:
        now, key = clock.SystemClock().now(), keys.generate()
        ca = authority.self_signed_ca(names.Subject(common_name="etcd-ca"), keys.generate(), now)
        sans = names.Sans(ip=tuple(ipaddress.ip_address(member.ip) for member in self.members))
        issued = ca.issue(key.public, names.Subject(common_name="etcd"), sans, profiles.APISERVER_SERVING, now)
        (self.home / "ca.crt").write_bytes(ca.pem)
        (self.home / "server.crt").write_bytes(issued.pem)
        (self.home / "server.key").write_bytes(key.to_pem())

    def but(self, member: Member) -> list[Member]:
        return [each for each in self.members if each is not member]

    def leader(self) -> Member:
        """The one that most follow, when there is one."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            said = [(member, member.status()) for member in self.members]
            votes = [str(status.get("leader", 0)) for _, status in said if status]
            for member, status in said:
                if status and votes.count(str(status["header"]["member_id"])) > len(self.members) // 2:
                    return member
            time.sleep(0.1)
        logs = "\n".join(path.read_text()[-1500:] for path in self.home.glob("*.log"))
        pytest.fail(f"no leader within a minute\n{logs}")

    def end(self) -> None:
        for member in self.members:
            member.kill()


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """A cluster that has a leader."""
    binary()
    memory = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
    with pod_network.network(pod_network.Network) as network, tempfile.TemporaryDirectory(dir=memory) as home:
        cluster = Cluster(network, pathlib.Path(home))
        try:
            cluster.start()
            cluster.leader()
            yield cluster
        finally:
            cluster.end()
