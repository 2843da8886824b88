# SPDX-License-Identifier: Apache-2.0
"""API servers without controllers, to run Handfast's controllers against: its own, and a stock kube-apiserver.

kube-apiserver is taken from `KUBE_APISERVER`. No Debian package has it, so that a machine without one is reported as not run
(a skip that says so), also in CI: what was seen with it is in docs/interop.md. It proves nothing itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from handfast.rules import controller_rights
from tests.interop import running, tools

AUDIT_POLICY: Final = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
ACCOUNT: Final = f"system:serviceaccount:{controller_rights.NAMESPACE}:{controller_rights.ACCOUNT}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server that nobody runs controllers for; `pki` has its CA, `stock` says that it is not Handfast's."""

    directory: pathlib.Path
    address: str
    audit: pathlib.Path
    stock: bool

    @property
    def pki(self) -> pathlib.Path:
        return self.directory / "pki"

    @property
    def kubeconfig(self) -> pathlib.Path:
        return self.directory / "admin.conf"

    def handfast(self, *arguments: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        return tools.Tool(tools.HANDFAST)(*arguments, "--kubeconfig", self.kubeconfig, code=code)

    def refused(self) -> list[str]:
        """What the account of the controllers was forbidden."""
        lines = (json.loads(line) for line in self.audit.read_text().splitlines())
        return [
            f"{line['verb']} {line['requestURI']}"
            for line in lines
            if line["user"].get("username") == ACCOUNT and line.get("responseStatus", {}).get("code") == 403
        ]


@contextlib.contextmanager
def handfast_server(home: pathlib.Path) -> Iterator[Cluster]:
    """`handfast serve apiserver`, and nothing else."""
    directory, address = _prepared(home)
    audit, log = directory / "audit.jsonl", home / "apiserver.log"
    words = [*tools.HANDFAST, "serve", "apiserver", "--dir", directory, "--listen", address]
    with running.process([*words, "--audit-log-path", audit, "--enable-bootstrap-token-auth"], log) as started:
        _wait(started, directory, address, log)
        yield Cluster(directory, address, audit, stock=False)


@contextlib.contextmanager
def kube_apiserver(home: pathlib.Path) -> Iterator[Cluster]:
    """A stock API server with an etcd of its own; its CA, and its certificates, are those of `handfast init`."""
    binary = os.environ.get("KUBE_APISERVER") or shutil.which("kube-apiserver")
    if binary is None:
        pytest.skip("not run: there is no kube-apiserver; KUBE_APISERVER names one that was built from source")
    if shutil.which("etcd") is None:
        pytest.fail("kube-apiserver is there to be tried, and needs an etcd on the path")
    directory, address = _prepared(home)
    audit, policy, log = home / "audit.log", home / "policy.yaml", home / "kube-apiserver.log"
    policy.write_text(AUDIT_POLICY)
    clients, peers = (f"http://127.0.0.1:{each}" for each in running.free_ports(2))
    etcd: list[object] = ["etcd", "--data-dir", home / "etcd", "--listen-client-urls", clients]
    etcd += ["--advertise-client-urls", clients, "--listen-peer-urls", peers]
    pki = directory / "pki"
    flags = {
        "etcd-servers": clients,
        "secure-port": address.rpartition(":")[2],
        "bind-address": "127.0.0.1",
        "tls-cert-file": pki / "apiserver.crt",
        "tls-private-key-file": pki / "apiserver.key",
        "client-ca-file": pki / "ca.crt",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": pki / "sa.pub",
        "service-account-signing-key-file": pki / "sa.key",
        "enable-bootstrap-token-auth": "true",
        "enable-admission-plugins": "NodeRestriction",
        "authorization-mode": "Node,RBAC",
        "service-cluster-ip-range": "10.0.0.0/24",
        # Webhooks are called at the endpoints of their Service: there is no kube-proxy.
        "enable-aggregator-routing": "true",
        "audit-policy-file": policy,
        "audit-log-path": audit,
    }
    with (
        running.process(etcd, home / "etcd.log"),
        running.process([binary, *(f"--{name}={value}" for name, value in flags.items())], log) as started,
    ):
        _wait(started, directory, address, log)
        yield Cluster(directory, address, audit, stock=True)


def _prepared(home: pathlib.Path) -> tuple[pathlib.Path, str]:
    """A data directory, and the address that it is to be served at."""
    directory, [port] = home / "data", running.free_ports(1)
    address = f"127.0.0.1:{port}"
    tools.Tool(tools.HANDFAST)("init", "--dir", directory, "--listen", address, "--token", "")
    return directory, address


def _wait(started: subprocess.Popen[bytes], directory: pathlib.Path, address: str, log: pathlib.Path) -> None:
    context = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))

    def ready() -> Any:
        assert started.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"https://{address}/readyz", context=context, timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    running.eventually(ready, f"an API server that is ready: {log}", seconds=90)
