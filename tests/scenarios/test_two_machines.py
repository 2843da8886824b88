# SPDX-License-Identifier: Apache-2.0
"""Two machines with a cable between them: a cluster on the one, `handfast join` on the other, in any order.

Proves that a machine that was switched on first waits for its own network, for the server and for the signature, and
then gets in; that a dead endpoint does not keep it out; that it writes nothing when the pin is not the cluster's; and that
neither machine ever tries to reach anybody but the other, such as a cloud provider. The machines are network namespaces, so nothing of the host's network is used or changed. What is refused for other reasons
is in `test_discovery_attacks`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from handfast.bootstrap import kubeconfig
from tests.scenarios import up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TOKEN = "abcdef.0123456789abcdef"
SERVER, NEWCOMER, NOBODY = "10.88.0.1", "10.88.0.2", "10.88.0.9"
CABLE = "eth0"
SECONDS = 60
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Machine:
    """A network of its own, with one address and one cable."""

    name: str

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", "-n", self.name, *words], check=True, capture_output=True, timeout=SECONDS)

    def words(self, *arguments: object) -> list[str]:
        return ["ip", "netns", "exec", self.name, *up_world.COMMAND, *map(str, arguments)]

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A command that is expected to end by itself."""
        return subprocess.run(
            self.words(*arguments),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=up_world.environment(),
            check=False,
        )

    def tried_elsewhere(self) -> int:
        """How often something here wanted to reach an address beyond the cable: nothing leads there, and the kernel counts."""
        read = ["ip", "netns", "exec", self.name, "cat", "/proc/net/snmp", "/proc/net/snmp6"]
        text = subprocess.run(read, check=True, capture_output=True, text=True, timeout=SECONDS).stdout
        names, values = (line.split() for line in text.splitlines() if line.startswith("Ip: "))
        six = [int(line.split()[1]) for line in text.splitlines() if line.startswith("Ip6OutNoRoutes")]
        return int(values[names.index("OutNoRoutes")]) + sum(six)

    @contextlib.contextmanager
    def running(self, log: pathlib.Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on; whatever happens, it has ended after the block."""
        with log.open("wb") as sink:
            process = subprocess.Popen(
                self.words(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=up_world.environment(),
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def machine(name: str) -> Iterator[Machine]:
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if made.returncode:
        _give_up(f"network namespaces cannot be made here: {made.stderr.strip()}")
    try:
        yield Machine(name)
    finally:
        # The cable and the addresses go with it.
        subprocess.run(["ip", "netns", "del", name], check=True)


def _give_up(why: str) -> None:
    # In CI there are two machines, or the run has failed.
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"not run: {why}")


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[Machine, Machine]]:
    """Both are on; the newcomer's network is not yet up."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        _give_up("network namespaces need root and the command ip")
    # Other runs on this host have other numbers.
    run = f"handfast-{os.getpid()}-{next(_numbers)}"
    with machine(f"{run}-a") as server, machine(f"{run}-b") as newcomer:
        server.ip("link", "add", CABLE, "type", "veth", "peer", "name", CABLE, "netns", newcomer.name)
        for each, address in ((server, SERVER), (newcomer, NEWCOMER)):
            each.ip("address", "add", f"{address}/24", "dev", CABLE)
            each.ip("link", "set", "lo", "up")
        server.ip("link", "set", CABLE, "up")
        yield server, newcomer


@dataclass(frozen=True, slots=True)
class Cluster:
    """What was running when the newcomer came in, and what it said on the way."""

    server: Machine
    newcomer: Machine
    pin: str
    first_file: pathlib.Path
    first_code: int
    first_lines: list[str]


@pytest.fixture(scope="module")
def cluster(machines: tuple[Machine, Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The newcomer starts first, before its network and before the server: both were told the token and the pin."""
    server, newcomer = machines
    home = tmp_path_factory.mktemp("two")
    directory, written, said = home / "data", home / "bootstrap.conf", home / "join.log"
    init = ["init", "--dir", directory, "--listen", f"{SERVER}:6443", "--token", TOKEN, "-o", "json"]
    prepared = server.run(*init)
    assert prepared.returncode == 0, prepared.stderr
    command = json.loads(prepared.stdout)["joinCommand"].split()
    assert command[:3] == ["handfast", "join", f"{SERVER}:6443"]
    pin = command[command.index("--discovery-token-ca-cert-hash") + 1]

    def heard(text: str) -> None:
        up_world.until(lambda: text in said.read_text(), SECONDS, f"{text!r} from join")

    words = [
        *command[1:],
        "--discovery-only",
        "--bootstrap-kubeconfig",
        written,
        "-o",
        "json",
        "--timeout",
        f"{SECONDS}s",
    ]
    with newcomer.running(said, *words) as join:
        heard("Network is unreachable")
        newcomer.ip("link", "set", CABLE, "up")
        heard("refuses connections")
        up = ["up", "--dir", directory, "--admin-listen", "127.0.0.1:0"]
        with server.running(home / "up.log", *up) as serving:
            first_code = join.wait(SECONDS)
            yield Cluster(server, newcomer, pin, written, first_code, said.read_text().splitlines())
            assert serving.poll() is None, (home / "up.log").read_text()


def joined(cluster: Cluster, file: pathlib.Path, *endpoints: str, pin: str = "") -> subprocess.CompletedProcess[str]:
    pinned = ("--discovery-token-ca-cert-hash", pin or cluster.pin)
    words = ("--token", TOKEN, *pinned, "--bootstrap-kubeconfig", file, "--timeout", f"{SECONDS // 2}s", "-o", "json")
    return cluster.newcomer.run("join", "--discovery-only", *endpoints, *words)


def require_good(cluster: Cluster, facts: dict[str, Any], file: pathlib.Path) -> None:
    """The newcomer knows the cluster and can log in to it, from where it is."""
    assert (facts["server"], facts["servers"]) == (f"https://{SERVER}:6443", [f"https://{SERVER}:6443"])
    assert (facts["caPins"], facts["tokenAccepted"]) == ([cluster.pin], True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = kubeconfig.parse(file.read_text())
    assert found.user == kubeconfig.User(name="tls-bootstrap-token-user", token=TOKEN)
    assert found.cluster.server == f"https://{SERVER}:6443"
    refreshed = cluster.newcomer.run("kubeconfig", "refresh", "--kubeconfig", file)
    assert refreshed.returncode == 0, refreshed.stderr


def test_the_newcomer_first(cluster: Cluster) -> None:
    lines = cluster.first_lines
    assert cluster.first_code == 0, lines
    notes = [line for line in lines if line.startswith("note: waiting: ")]
    assert f"note: waiting: https://{SERVER}:6443 cannot be reached: Network is unreachable" in notes
    assert f"note: waiting: https://{SERVER}:6443 refuses connections" in notes
    facts = json.loads("\n".join(line for line in lines if not line.startswith("note: ")))
    require_good(cluster, facts, cluster.first_file)


@pytest.mark.parametrize("dead", [NOBODY, f"{SERVER}:6444", "no-such-host.invalid"])
def test_the_first_endpoint_is_dead(cluster: Cluster, tmp_path: pathlib.Path, dead: str) -> None:
    done = joined(cluster, tmp_path / "b.conf", dead, SERVER)
    assert done.returncode == 0, done.stderr
    require_good(cluster, json.loads(done.stdout), tmp_path / "b.conf")


def test_another_pin(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    done = joined(cluster, tmp_path / "b.conf", SERVER, pin=f"sha256:{'0' * 64}")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    said = json.loads(done.stderr)
    assert (said["reason"], f'"{cluster.pin}" are pinned' in said["error"]) == ("WrongPin", True)
    assert list(tmp_path.iterdir()) == []


def test_nobody_but_each_other_is_reached(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """A control plane from its start on, and a node's whole way: no name server, no metadata service, no cloud."""
    before = cluster.newcomer.tried_elsewhere()
    places = ("--kubeconfig", tmp_path / "kubelet.conf", "--cert-dir", tmp_path / "pki")
    named = ("--node-name", "worker-1", *places)
    pinned = ("--discovery-token-ca-cert-hash", cluster.pin, "--bootstrap-kubeconfig", tmp_path / "b.conf")
    done = cluster.newcomer.run("join", SERVER, "--token", TOKEN, *pinned, *named)
    assert done.returncode == 0, done.stderr
    report = tmp_path / "pki" / "handfast-node.json"
    words = ("node", "run", *named, "--listen", "127.0.0.1:0", "--rotate-certificates")
    with cluster.newcomer.running(tmp_path / "agent.log", *words):
        up_world.until(report.exists, what="the agent")
        rotated = cluster.newcomer.run("node", "rotate", *places)
        assert rotated.returncode == 0, rotated.stderr
    assert (cluster.server.tried_elsewhere(), cluster.newcomer.tried_elsewhere() - before) == (0, 0)
    # And it would have been seen: this is where the clouds have their metadata services.
    asks = "import socket; socket.socket().connect_ex(('169.254.169.254', 80))"
    command = ["ip", "netns", "exec", cluster.newcomer.name, sys.executable, "-c", asks]
    subprocess.run(command, check=True, timeout=SECONDS)
    assert cluster.newcomer.tried_elsewhere() - before == 1
