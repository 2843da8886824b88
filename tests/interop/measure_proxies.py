# SPDX-License-Identifier: Apache-2.0
"""What a request costs two proxies: two of Handfast's, two stock linkerd2-proxies, and two nginx that do mutual TLS. `python -m tests.interop.measure_proxies`.

It needs what `stock_world` needs, and `wrk`, `nginx` and `openssl`. Each pair is in network namespaces of its own, redirected where it is a mesh's, and has the same
nginx behind it. The pairs take turns within each round. CPU is that of both proxies alone; that of the agents beside Envoy is told as a share of a core. Who asks and who answers is not
counted.

Each proxy has one worker, and everybody a session of its own: with sched_autogroup, those of one session are preferred to one another. A MeshPolicy lets the client in, in both meshes. Handfast's proxies tell the application who calls, as stock ones always do, and have a deny list.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench import measure
from bench import nginx as floor
from tests.interop import running, stock_world
from tests.scenarios import injected_pods

PORT = 9000
_DENIED = 1000
_REVOCATIONS = "/apis/handfast.dev/v1alpha1/revocations"
_HEADERS = {"mesh.handfast.dev/identity-headers": "enabled"}
_ONE = {"LINKERD2_PROXY_CORES": "1"}


@dataclass
class Pair:
    """Two proxies: from where, and what is asked, whose CPU counts, and whose is told beside."""

    client: str
    url: str
    pids: Callable[[], Sequence[int]]
    beside: Sequence[int] = ()


def children(pid: int) -> list[int]:
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def measured(world: stock_world.World, pair: Pair, connections: int, seconds: int) -> tuple[float, float, float]:
    """Microseconds of CPU for one request, requests a second, and the share of a core that is used beside."""
    words = world.network.inside(
        pair.client, "setsid", "-w", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", pair.url
    )
    pids = pair.pids()
    before, others, begun = measure.cpu_total(pids), measure.cpu_total(pair.beside), time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout
    used, took = measure.cpu_total(pids) - before, time.monotonic() - begun
    match = re.search(r"(\d+) requests in", done)
    assert match is not None, done
    assert "Non-2xx" not in done, done
    assert "Socket errors" not in done, done
    beside = measure.cpu_total(pair.beside) - others
    return used / int(match[1]) * 1e6, int(match[1]) / took, beside / took


@contextlib.contextmanager
def nginx(world: stock_world.World, pod: injected_pods.Pod, name: str, body: str) -> Iterator[int]:
    """An nginx in a Pod's network; the process of its worker."""
    home = pod.home / name
    words = world.network.inside(pod.ip, "setsid", *floor.command(home, body))
    with running.process(words, home / "log") as process:
        yield running.eventually(lambda: children(process.pid), f"nginx: {home}")[0]


def bare(world: stock_world.World, name: str) -> injected_pods.Pod:
    """A network without a proxy of the mesh."""
    (world.home / name).mkdir()
    return injected_pods.Pod(document={}, home=world.home / name, ip=world.network.address(), token=b"")


def keys(home: pathlib.Path) -> pathlib.Path:
    """A CA, and one certificate for both sides; P-256, as in the mesh."""
    pki = home / "pki"
    pki.mkdir()
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1")
    ca = ("openssl", "req", "-x509", *curve, "-subj", "/CN=ca", "-keyout", pki / "ca.key", "-out", pki / "ca.crt")
    signed = ("-CA", pki / "ca.crt", "-CAkey", pki / "ca.key", "-addext", f"subjectAltName=DNS:{floor.NAME}")
    leaf = ("openssl", "req", "-x509", *curve, "-subj", f"/CN={floor.NAME}", *signed)
    for words in (ca, (*leaf, "-keyout", pki / "leaf.key", "-out", pki / "leaf.crt")):
        subprocess.run([*map(str, words)], capture_output=True, timeout=30, check=True)
    return pki


def pairs(world: stock_world.World) -> dict[str, Pair]:
    """All of them, running."""
    enter = world.stack.enter_context
    for name in ("front", "web"):
        world.add_own(f"our-{name}", **_HEADERS)
        world.add(f"their-{name}", **_ONE)
    world.ready()
    made = {}
    for whose in ("our", "their"):
        web, front = world.pods[f"{whose}-web"], world.pods[f"{whose}-front"]
        enter(nginx(world, web, "backend", floor.backend(f"0.0.0.0:{PORT}")))
        clients = [{"serviceAccount": {"namespace": "shop", "name": f"{whose}-front"}}]
        targets = {"serviceAccounts": [f"{whose}-web"]}
        enter(world.policy(f"{whose}-web", targets=targets, clients=clients))
        made[whose] = Pair(front.ip, f"http://{web.ip}:{PORT}/", lambda: ())
    agents = [world.agents[f"our-{name}"].process.pid for name in ("front", "web")]
    made["our"].pids = lambda: [pid for agent in agents for pid in children(agent)]
    made["our"].beside = agents
    stock = [world.proxies[f"their-{name}"].process.pid for name in ("front", "web")]
    made["their"].pids = lambda: stock
    pki, front, web = keys(world.home), bare(world, "nginx-front"), bare(world, "nginx-web")
    enter(nginx(world, web, "backend", floor.backend(f"0.0.0.0:{PORT}")))
    workers = [
        enter(nginx(world, web, "server", floor.server("0.0.0.0:8443", f"127.0.0.1:{PORT}", pki))),
        enter(nginx(world, front, "client", floor.client("127.0.0.1:8081", f"{web.ip}:8443", pki))),
    ]
    made["nginx"] = Pair(front.ip, "http://127.0.0.1:8081/", lambda: workers)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    chosen = parser.parse_args()
    with stock_world.mesh("handfast", pathlib.Path(tempfile.mkdtemp(prefix="hf"))) as world:
        for number in range(_DENIED):
            spec = {"user": f"system:serviceaccount:gone:a{number}", "reason": "measured"}
            body = {"apiVersion": "handfast.dev/v1alpha1", "kind": "Revocation", "metadata": {"name": f"r{number}"}}
            world.plane.post(_REVOCATIONS, {**body, "spec": spec}, wanted=(201,))
        made = pairs(world)
        for name, pair in made.items():
            curl = world.network.inside(pair.client, "curl", "-sf", "-o", world.home / "answer", pair.url)
            running.eventually(lambda: subprocess.run(curl, check=False).returncode == 0, f"{name}: an answer")  # noqa: B023
        for connections in (32, 1):
            rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in made}
            for number in range(-1, chosen.rounds):
                for name, pair in made.items():
                    row = measured(world, pair, connections, chosen.seconds if number >= 0 else 1)
                    if number >= 0:
                        rows[name].append(row)
            report(connections, rows)
        for name, pair in made.items():
            private = [measure.rss(pid) / measure.MIB for pid in pair.pids()]
            print(f"{name}: RSS {', '.join(f'{each:.0f}' for each in private)} MiB")


def report(connections: int, rows: dict[str, list[tuple[float, float, float]]]) -> None:
    for name, figures in rows.items():
        costs = [cost for cost, _, _ in figures]
        ratios = [cost / floor for cost, (floor, _, _) in zip(costs, rows["nginx"], strict=True)]
        rate = statistics.median(rate for _, rate, _ in figures)
        beside = statistics.median(share for _, _, share in figures)
        print(
            f"c{connections} {name}: {statistics.median(costs):.0f} µs ({min(costs):.0f} – {max(costs):.0f}),"
            f" {statistics.median(ratios):.2f} × nginx ({min(ratios):.2f} – {max(ratios):.2f}), {rate:.0f} requests a second, {beside:.1%} of a core beside",
            flush=True,
        )


if __name__ == "__main__":
    main()
