# SPDX-License-Identifier: Apache-2.0
"""Seed 003 from the first credential to the last revoked one, on real processes of this machine, narrated.

It starts a control plane and seven agents in a directory of its own, types what an operator would type, and checks each claim that it makes. It
ends with 0 if all of them held, and leaves nothing behind. It needs no root and no other tool. With the variable MACHINES_DEMO_SMALL there are
four agents, and of the kills below three, after steps that are chosen by chance.

1. Masters get their configuration, with their credential, before there is an API server.
2. Masters and workers join by the seed's five steps.
3. Between any two steps every component is killed with SIGKILL and started again, and that changes nothing.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import yaml

from handfast.runtime import clock as clocks

# How many masters, and workers, there are at first. One and two are enough for every claim: the rest of them is company.
SMALL = bool(os.environ.get("MACHINES_DEMO_SMALL"))
FIRST = (1, 2) if SMALL else (3, 3)
MASTERS = tuple(f"master-{number}" for number in range(1, FIRST[0] + 1))
WORKERS = tuple(f"worker-{number}" for number in range(1, FIRST[1] + 1))
LATE = f"worker-{FIRST[1] + 1}"
UP = "up"
PATIENCE = 120.0
POLL = 0.2
CLOCK: Final = clocks.SystemClock()
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
POOLS = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"
BOOTSTRAP = "etc/kubernetes/kubeconfig"
OWNER_ONLY = 0o600
OK, UNAUTHORIZED = http.client.OK, http.client.UNAUTHORIZED


def say(text: str = "") -> None:
    print(text, flush=True)


def step(title: str) -> None:
    say(f"\n── {title}")


class Failed(Exception):
    """A claim did not hold."""


def claim(truth: bool, text: str) -> None:
    if not truth:
        raise Failed(text)
    say(f"   ✓ {text}")


def until(look: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Look until there is something to see."""
    end, last = CLOCK.monotonic() + seconds, "nothing"
    while CLOCK.monotonic() < end:
        try:
            if seen := look():
                return seen
        except (OSError, http.client.HTTPException, Failed) as error:
            last = str(error)
        threading.Event().wait(POLL)
    raise Failed(f"waited {seconds:g} s for {what}; the last thing seen: {last}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def handfast(
    *words: str | os.PathLike[str], shown: bool = True, code: int = 0, env: dict[str, str] | None = None
) -> str:
    """One command, as it is typed; what it printed."""
    if shown:
        say(f"$ handfast {shlex.join(map(str, words))}")
    argv = [sys.executable, "-m", "handfast", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, env=env)
    if done.returncode != code:
        raise Failed(f"handfast {shlex.join(map(str, words))} ended with {done.returncode}: {done.stdout}{done.stderr}")
    if shown:
        for line in done.stdout.rstrip().splitlines():
            say(f"   {line}")
    return done.stdout


class Caller:
    """One kept connection to the API server, as whoever a kubeconfig says."""

    def __init__(self, path: pathlib.Path) -> None:
        document = yaml.safe_load(path.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        self._headers = {"Content-Type": "application/merge-patch+json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        else:
            _present(context, user)
        host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
        self._link = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)

    @property
    def local_port(self) -> int:
        return int(self._link.sock.getsockname()[1])

    def call(self, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        self._link.request(verb, path, body=data, headers=self._headers)
        answer = self._link.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else None


def _present(context: ssl.SSLContext, user: dict[str, str]) -> None:
    """Python reads a client certificate from a file only."""
    with tempfile.NamedTemporaryFile() as pair:
        for key in ("client-certificate-data", "client-key-data"):
            pair.write(base64.b64decode(user[key]))
        pair.flush()
        context.load_cert_chain(pair.name)


class Demo:
    """The control plane and the machines."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.data = home / "data"
        self.api, self.config = free_port(), free_port()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.logs = home / "logs"
        self.kills = 0
        self.logs.mkdir()

        self.url = f"https://127.0.0.1:{self.config}"
        self.serving = (
            "--machine-config-listen",
            f"127.0.0.1:{self.config}",
            "--machine-config-admin-listen",
            "127.0.0.1:0",
        )
        self.listening = (
            "--listen",
            f"127.0.0.1:{self.api}",
            "--admin-listen",
            f"127.0.0.1:{free_port()}",
            *self.serving,
        )

    @property
    def admin(self) -> pathlib.Path:
        return self.data / "admin.conf"

    def root(self, name: str) -> pathlib.Path:
        return self.home / "machines" / name

    def start(self, name: str, *words: str | os.PathLike[str]) -> None:
        argv = [sys.executable, "-m", "handfast", *map(str, words)]
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        process = self.running.pop(name)
        process.send_signal(number)
        process.wait(60)

    def stop_all(self) -> None:
        for name in list(self.running):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop(name)

    # --- the machines

    def boot(self, name: str, pointer: pathlib.Path) -> None:
        """What Ignition does at the first boot: fetch what the pointer names, and write it."""
        root = self.root(name)
        root.mkdir(parents=True)
        handfast("node", "configuration", "fetch", "--pointer", pointer, "--root", root)
        mode = (root / BOOTSTRAP).stat().st_mode & 0o777
        claim(mode == OWNER_ONLY, f"{name} has its bootstrap kubeconfig, for its owner alone")

    def power_on(self, name: str) -> None:
        root = self.root(name)
        own = root / "var/lib/kubelet"
        self.start(
            name,
            *("node", "run", "--machine-config", "--root", root, "--node-name", name, "--node-ip", address(name)),
            *("--cert-dir", own / "pki", "--kubeconfig", own / "kubeconfig", "--listen", "127.0.0.1:0"),
            *("--machine-config-server", self.url, "--rotate-certificates"),
        )

    def digest(self, name: str) -> str:
        return hashlib.sha256((self.root(name) / BOOTSTRAP).read_bytes()).hexdigest()

    # --- what the operator sees

    def operator(self, *words: str | os.PathLike[str], shown: bool = True, code: int = 0) -> str:
        return handfast(*words, "--kubeconfig", self.admin, shown=shown, code=code)

    def joined(self) -> set[str]:
        rows = json.loads(self.operator("machine", "list", "-o", "json", shown=False))["machines"]
        return {row["name"] for row in rows if row["state"] == "joined"}

    def wait_joined(self, *names: str) -> None:
        until(lambda: set(names) <= self.joined(), f"{', '.join(names)} to join")
        claim(True, f"{', '.join(names)} joined, each with a certificate of its own")

    def kill_everything(self) -> None:
        """Every component dies without a word: by turns those of the supervisor, and the supervisor itself.

        The supervisor starts its own again, and systemd, which is played here, starts the supervisor and the agents.
        """
        machines = [name for name in self.running if name != UP]
        for name in machines:
            self.stop(name, signal.SIGKILL)
        self.kills += 1
        killed = self._kill_children() if self.kills % 2 else self._kill_supervisor()
        self.wait_ready()
        for name in machines:
            self.power_on(name)
        say(f"   (killed and started again: {killed}, and {len(machines)} agents)")

    def _kill_children(self) -> str:
        pids = self._pids()
        children = [role for role in pids if role != "supervisor"]
        for role in children:
            os.kill(pids[role], signal.SIGKILL)
        until(lambda: self._others(pids), "the supervisor to start its processes again")
        return ", ".join(children)

    def _kill_supervisor(self) -> str:
        self.stop(UP, signal.SIGKILL)
        until(lambda: not _answers(self.api), "the processes of the supervisor to end with it")
        self.switch_on()
        return "the supervisor, and with it all of its processes"

    def switch_on(self) -> None:
        self.start(UP, "up", "--dir", self.data, "--machines", *self.listening, "--token", "")

    def _pids(self) -> dict[str, int]:
        pids: dict[str, int] = json.loads((self.data / "endpoints.json").read_text())["pids"]
        return pids

    def _others(self, before: dict[str, int]) -> bool:
        now = self._pids()
        return now.keys() == before.keys() and all(now[role] != before[role] for role in now if role != "supervisor")

    def wait_ready(self) -> None:
        until(lambda: Caller(self.admin).call("GET", POOLS)[0] == http.client.OK, "the API server")

    # --- what is rolled out

    def wait_have(self, number: int) -> None:
        until(
            lambda: sum(row["have"] for row in self.pools().values()) == number,
            f"{number} machines with their configuration",
        )
        self.operator("machine", "pools")

    def is_ready(self, name: str) -> bool:
        _, node = Caller(self.admin).call("GET", f"/api/v1/nodes/{name}")
        return any(row["type"] == "Ready" and row["status"] == "True" for row in node["status"]["conditions"])

    def pools(self) -> dict[str, Any]:
        rows = json.loads(self.operator("machine", "pools", "-o", "json", shown=False))["pools"]
        return {row["name"]: row for row in rows}

    def wait_followed(self, names: Sequence[str], before: dict[str, str]) -> None:
        until(
            lambda: all(self.digest(name) != before[name] for name in names), "every machine to have the new credential"
        )
        digests = {self.digest(name) for name in names}
        claim(len(digests) == 1, f"{', '.join(names)}: a new bootstrap kubeconfig, the same on each, without a restart")

    def digests(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self.digest(name) for name in names}


def install(demo: Demo) -> None:
    step("1. Before there is an API server")
    rack = demo.home / "rack.csv"
    rows = [f"{name},{name},{address(name)},{name.partition('-')[0]}" for name in (*MASTERS, *WORKERS)]
    rack.write_text("\n".join(("name,dns,ip,role", *rows)) + "\n")
    listen = ("--listen", f"127.0.0.1:{demo.api}")
    handfast("init", "--dir", demo.data, *listen, "--machines", "--inventory", rack, "--token", "")
    bootstrap, pointer = demo.data / "machines", demo.home / "master.ign"
    words = ("--pool", "master", "--bootstrap-dir", bootstrap, "--dir", demo.data, "--url", demo.url)
    handfast("machine", "ignition", *words, "--out", pointer)
    demo.start(
        "machine-config", "serve", "machine-config", "--dir", demo.data, "--bootstrap-dir", bootstrap, *demo.serving
    )
    until(lambda: _answers(demo.config), "the machine-config server")
    for name in MASTERS:
        demo.boot(name, pointer)
    demo.stop("machine-config")
    claim(not _answers(demo.api), "all of that without an API server")


def masters_join(demo: Demo) -> None:
    step("2. The control plane starts, and the masters join with the certificate that they brought")
    demo.switch_on()
    demo.wait_ready()
    for name in MASTERS:
        demo.power_on(name)
    demo.wait_joined(*MASTERS)


def workers_join(demo: Demo) -> None:
    step("3. Each worker comes up by Ignition, with a secret of its own")
    for name in WORKERS:
        pointer = demo.home / f"{name}.ign"
        demo.operator("machine", "ignition", name, "--url", demo.url, "--out", pointer)
        demo.boot(name, pointer)
        demo.power_on(name)
    demo.wait_joined(*WORKERS)
    demo.wait_have(len(MASTERS) + len(WORKERS))
    claim(
        fetch_refused(demo, demo.home / "worker-1.ign"),
        "the secret of a machine is no good after its first certificate",
    )


def revoke_master(demo: Demo) -> None:
    step("4. The masters' credential is revoked")
    stolen = Caller(demo.data / "machines" / "kubeconfig-kubelet")
    claim(stolen.call("GET", REQUESTS)[0] == OK, "until now it is good")
    port, before = stolen.local_port, demo.digests(MASTERS)
    demo.operator("machine", "credentials", "revoke", "--kind", "master")
    refused = stolen.call("GET", REQUESTS)[0]
    claim((refused, stolen.local_port) == (UNAUTHORIZED, port), "refused, on a connection that was open")
    demo.wait_followed(MASTERS, before)


def revoke_worker(demo: Demo) -> None:
    step("5. The workers' token has leaked, and is revoked")
    leaked = demo.home / "leaked.conf"
    shutil.copy(demo.root("worker-1") / BOOTSTRAP, leaked)
    claim(Caller(leaked).call("GET", REQUESTS)[0] == OK, "until now the leaked token is good")
    before = demo.digests((*MASTERS, *WORKERS))
    demo.operator("machine", "credentials", "revoke", "--kind", "worker")
    claim(Caller(leaked).call("GET", REQUESTS)[0] == UNAUTHORIZED, "the leaked token is dead")
    demo.wait_followed((*MASTERS, *WORKERS), before)


def new_worker(demo: Demo) -> None:
    step("6. A new worker joins with the new credential")
    demo.operator("machine", "create", LATE, "--dns", LATE, "--ip", address(LATE))
    pointer = demo.home / f"{LATE}.ign"
    demo.operator("machine", "ignition", LATE, "--url", demo.url, "--out", pointer)
    demo.boot(LATE, pointer)
    demo.power_on(LATE)
    demo.wait_joined(LATE)
    demo.wait_have(len(MASTERS) + len(WORKERS) + 1)


def after_rollout(demo: Demo) -> None:
    step("7. The same without a gap: distribute first, then cut")
    everybody = (*MASTERS, *WORKERS, LATE)
    before = demo.digests(everybody)
    demo.operator("machine", "credentials", "revoke", "--kind", "worker", "--after-rollout")
    demo.wait_followed(everybody, before)


def named(demo: Demo) -> None:
    step("8. A paused pool and a dead node are named, and hold up nobody else")
    dead, alive = WORKERS[-1], (*WORKERS[:-1], LATE)
    demo.stop(dead, signal.SIGKILL)
    patch = {"spec": {"paused": True}}
    claim(Caller(demo.admin).call("PATCH", f"{POOLS}/master", patch)[0] == OK, "the pool master is paused")
    until(lambda: not demo.is_ready(dead), f"{dead} to be called silent")
    before = demo.digests((*MASTERS, dead, *alive))
    told = demo.operator("machine", "credentials", "revoke", "--kind", "worker")
    claim(all(name in told for name in (*MASTERS, dead)), f"named: {', '.join((*MASTERS, dead))}")
    demo.wait_followed(alive, before)
    claim(all(demo.digest(name) == before[name] for name in (*MASTERS, dead)), "what is paused or dead has the old one")
    Caller(demo.admin).call("PATCH", f"{POOLS}/master", {"spec": {"paused": False}})
    demo.power_on(dead)
    demo.wait_followed((*MASTERS, *WORKERS, LATE), before)
    demo.operator("machine", "pools")


STEPS = (install, masters_join, workers_join, revoke_master, revoke_worker, new_worker, after_rollout, named)
# After which of them every component is killed: before the first of these none runs, and after the last one nothing is left to show.
KILLS = STEPS[1:-1]


def main() -> int:
    home = pathlib.Path(tempfile.mkdtemp(prefix="machines-demo-"))
    demo = Demo(home)
    began = CLOCK.monotonic()
    killed_after = random.sample(KILLS, len(KILLS) // 2) if SMALL else KILLS
    try:
        for each in STEPS:
            each(demo)
            if each in killed_after:
                demo.kill_everything()
    except Failed as failed:
        say(f"\n✗ {failed}")
        for log in sorted(demo.logs.iterdir()):
            say(f"--- {log.name}\n{tail(log)}")
        return 1
    else:
        say(f"\nAll of it held, in {CLOCK.monotonic() - began:.0f} s.")
        return 0
    finally:
        demo.stop_all()
        shutil.rmtree(home, ignore_errors=True)


def tail(path: pathlib.Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def address(name: str) -> str:
    """The address of a machine in the inventory: one of those kept for examples."""
    role, _, number = name.partition("-")
    return f"192.0.2.{(10 if role == 'master' else 20) + int(number)}"


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def fetch_refused(demo: Demo, pointer: pathlib.Path) -> bool:
    other = demo.home / "thief"
    other.mkdir()
    argv = [
        sys.executable,
        "-m",
        "handfast",
        "node",
        "configuration",
        "fetch",
        "--pointer",
        str(pointer),
        "--root",
        str(other),
    ]
    return (
        subprocess.run(argv, capture_output=True, timeout=300, check=False).returncode != 0
        and not (other / BOOTSTRAP).exists()
    )


if __name__ == "__main__":
    sys.exit(main())
