# SPDX-License-Identifier: Apache-2.0
"""A machine-config server on a real socket, whose source is in memory; and somebody who asks it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from handfast.machines import answered, audit, callers, handler, offers
from handfast.rules import networks, revocation
from handfast.rules.machine_config import credential, ignition_secrets, names, rendering, requester
from handfast.rules.machines import inventory
from handfast.runtime import proxied
from handfast.serving import service
from tests.world.clock import MovableClock

SECRET = "a-secret-of-the-pool"
CREDENTIAL = credential.Credential(names.SERVICE_ACCOUNT, b"a-kubeconfig\n")
MARK = "the-mark-of-a-name"


def config(name: str, role: str = "worker", **files: str) -> dict[str, Any]:
    """A MachineConfig with these files: `etc_motd` is /etc/motd."""
    rows = [
        {"path": "/" + path.replace("_", "/"), "contents": {"source": f"data:,{text}"}} for path, text in files.items()
    ]
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {names.ROLE_LABEL: role}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": rows}}},
    }


def pool_secret(text: str = SECRET, pool: str = "worker") -> dict[str, ignition_secrets.Entry]:
    return {entry.digest: entry for entry in ignition_secrets.read(ignition_secrets.for_pool(pool, text))}


@dataclass
class Source:
    """What is served, by pool; `missing` keeps it from being ready."""

    rendered: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            pool: rendering.render(pool, [config(f"00-{pool}", pool, etc_motd="hello")], CREDENTIAL, "v1")
            for pool in ("worker", "master")
        }
    )
    secrets: dict[str, ignition_secrets.Entry] = field(
        default_factory=lambda: {**pool_secret(), **pool_secret("of-masters", "master")}
    )
    machines: inventory.Index = field(default_factory=inventory.Index)
    networks: str = "none"
    missing: str | None = None
    built: int = 0

    def not_ready(self) -> str | None:
        return self.missing

    def known(self) -> requester.Known:
        return requester.Known(
            secrets=self.secrets,
            machines=self.machines,
            revocations=revocation.Index(),
            networks=networks.Networks.parse(self.networks),
            pool_of=lambda _: None,
        )

    def offer(self, pool: str, _node: str, /) -> offers.Offer | requester.Refusal:
        document = self.rendered.get(pool)
        if document is None:
            return requester.Refusal(500, "UnknownPool", f"there is no pool {pool!r}")

        def build() -> Mapping[str, Any]:
            self.built += 1
            return document

        name = document["metadata"]["name"]
        return offers.Offer(
            rendering=name, key=name, document=build, kubeconfig=CREDENTIAL.kubeconfig, kubelet_ca=b"a-ca\n"
        )


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def reason(self) -> str:
        return self.headers.get("Handfast-Reason", "")


@dataclass
class Server:
    """Asked over HTTP without TLS: certificates are shown in the scenarios."""

    url: str
    session: aiohttp.ClientSession

    async def ask(self, path: str, method: str = "GET", secret: str = "", **headers: str) -> Answer:
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        async with self.session.request(method, f"{self.url}{path}", headers=headers) as response:
            return Answer(response.status, dict(response.headers), await response.read())


@contextlib.asynccontextmanager
async def serving(
    source: offers.Source, journal: audit.Audit | None = None, balancers: str = "none"
) -> AsyncIterator[Server]:
    clock = MovableClock()
    door = handler.Handler(source, callers.Callers(), answered.Kept(MARK), journal or audit.Audit(clock), clock)
    named = proxied.Proxied(networks.Networks.parse(balancers))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        async with (
            service.Service(door.answer, tls=None, clock=clock, proxied=named).on(sock),
            aiohttp.ClientSession(skip_auto_headers=["Accept"]) as session,
        ):
            yield Server(f"http://127.0.0.1:{port}", session)
