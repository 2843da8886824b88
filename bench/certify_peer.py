# SPDX-License-Identifier: Apache-2.0
"""What a certificate costs Linkerd's own identity service, and ours, in turns on one control plane: `LINKERD_IDENTITY=/path python -m bench.certify_peer`.

The program is Linkerd's service alone, built from its source outside of this repository; it needs root, for a place where it finds its anchors. Both have
tokens reviewed by the same `handfast up`, in plaintext on loopback, 32 at a time. What each leaves behind differs: ours a line in the ledger, which
is written before the answer, and theirs an Event for each certificate, which comes afterwards.

It has no limit: it says who is ahead.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
from collections.abc import AsyncIterator

from bench import certify, load, measure, servers
from handfast.rules.mesh import control_plane

_NAME = "web.shop.serviceaccount.identity.linkerd.cluster.local"
_ISSUER = "identity.linkerd.cluster.local"
# Where Linkerd's finds its anchors is fixed: nobody else of the machine sees this.
_START = """
mount -t tmpfs tmpfs /run
mkdir -p /run/linkerd/identity/trust-roots
cp "$1/root.crt" /run/linkerd/identity/trust-roots/ca-bundle.crt
shift
exec "$@"
"""


def issuer(home: pathlib.Path) -> None:
    """A root, and an issuer below it, with the name that Linkerd's service wants; P-256."""
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1")
    can = ("-addext", "basicConstraints=critical,CA:true", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    root = ("-subj", "/CN=root", *can, "-keyout", home / "root.key", "-out", home / "root.crt")
    name = ("-subj", f"/CN={_ISSUER}", "-addext", f"subjectAltName=DNS:{_ISSUER}", *can)
    signed = (*name, "-CA", home / "root.crt", "-CAkey", home / "root.key")
    below = (*signed, "-keyout", home / "tls.key", "-out", home / "tls.crt")
    for words in (root, below):
        subprocess.run(["openssl", "req", "-x509", *new, *map(str, words)], capture_output=True, check=True)


@contextlib.asynccontextmanager
async def theirs(plane: servers.Server, home: pathlib.Path) -> AsyncIterator[certify.Service]:
    """Linkerd's identity service, as the account of ours."""
    issuer(home)
    (home / "kubeconfig").write_text(json.dumps(await certify.kubeconfig_of(plane)))
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            ports.append(int(probe.getsockname()[1]))
    flags = {
        "addr": f"127.0.0.1:{ports[0]}",
        "admin-addr": f"127.0.0.1:{ports[1]}",
        "kubeconfig": home / "kubeconfig",
        "controller-namespace": control_plane.NAMESPACE,
        "identity-scheme": "kubernetes.io/tls",
        "identity-trust-domain": "cluster.local",
        "issuer": home,
        # As fast as the API server answers, not as a default allows.
        "kube-apiclient-qps": 100000,
        "kube-apiclient-burst": 100000,
        "log-level": "warn",
    }
    words = [os.environ["LINKERD_IDENTITY"], *(f"-{name}={value}" for name, value in flags.items())]
    inside = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", _START, "start", str(home), *words]
    with (home / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(*inside, stdout=log, stderr=log)
    try:
        while not _listens(ports[0]):
            await asyncio.sleep(0.1)
            if process.returncode is not None:
                raise load.UnexpectedAnswer((home / "log").read_text()[-2000:])
        yield certify.Service(ports[0], process.pid)
    finally:
        await servers.stop(process)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


async def run(directory: pathlib.Path, rounds: int, count: int) -> None:
    home = directory / "theirs"
    home.mkdir()
    async with (
        servers.plane(directory / "certify") as plane,
        certify.identity_service(plane, "ours", "127.0.0.1:0") as own,
        theirs(plane, home) as other,
    ):
        tokens = iter(await certify.make_tokens(plane, 2 * count * (rounds + 1)))
        services = {"ours": (own, None), "Linkerd's": (other, _NAME)}
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in services}
        for number in range(-1, rounds):
            for name, (service, identity) in services.items():
                some = list(itertools.islice(tokens, count))
                messages = certify.messages_of(some) if identity is None else certify.messages_of(some, identity)
                pids = {**plane.pids, "identity": service.pid}
                used = await certify.measured(pids, certify.callers_of(service.port), list(messages))
                # The first round warms everybody up.
                if number >= 0:
                    rows[name].append(used)
        for name, figures in rows.items():
            alone = measure.microseconds([row["identity"] for row in figures], count)
            total = measure.microseconds([sum(row.values()) for row in figures], count)
            print(f"{name}: the service alone {_told(alone)}, with the control plane {_told(total)}")


def _told(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} µs ({min(values):,.0f} – {max(values):,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=500)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="handfast-bench-") as directory:
        asyncio.run(run(pathlib.Path(directory), chosen.rounds, chosen.count))


if __name__ == "__main__":
    main()
