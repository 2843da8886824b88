# SPDX-License-Identifier: Apache-2.0
"""An approver and signer in one: it answers every certificate request as a test wants, with the world's own CA.

The real ones are controllers with tests of their own; this one can also do what they never would.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from handfast.api import resources, signer_names, status
from handfast.client import api
from handfast.pki import authority, keys, names, pem, profiles, requests
from handfast.rules import user_names
from tests.scenarios import controlled
from tests.world import world as worlds

BINDINGS = api.Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", False)
SECRETS = api.Resource("", "v1", "secrets", True)
TOKEN = "abcdef.0123456789abcdef"

Answer = Callable[["Certifier", dict[str, Any]], Awaitable[None]]


class Certifier:
    """The administrator's hands. `requests` are the names of those seen, each once."""

    def __init__(self, world: worlds.World, client: api.Client) -> None:
        self.world = world
        self.client = client
        self.answer: Answer = issue
        self.requests: list[str] = []
        self.lifetime: datetime.timedelta | None = None
        self.authority = authority.Authority(
            pem.certificates_from_pem(world.place.ca_certificate.read_bytes())[0],
            keys.private_from_pem(world.place.ca_key.read_bytes()),
        )

    def pem_for(
        self, document: dict[str, Any], *, key: keys.PublicKey | None = None, now: datetime.datetime | None = None
    ) -> bytes:
        """A certificate for a request, or for another key, as if it were another time."""
        wish = requests.parse(base64.b64decode(document["spec"]["request"]))
        serving = document["spec"]["signerName"] == signer_names.KUBELET_SERVING
        profile = profiles.KUBELET_SERVING if serving else profiles.KUBELET_CLIENT
        at = now or self.world.clock.now()
        return self.authority.issue(key or wish.public_key, wish.subject, wish.sans, profile, at, self.lifetime).pem

    async def decide(self, document: dict[str, Any], kind: str, reason: str, message: str = "") -> dict[str, Any]:
        """Approve or deny."""
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        changed = {**document, "status": {"conditions": [condition]}}
        return await self.client.update(resources.SIGNING_REQUESTS, changed, subresource="approval")

    async def hand_out(self, document: dict[str, Any], certificate: bytes) -> None:
        status_ = {**document.get("status", {}), "certificate": base64.b64encode(certificate).decode()}
        await self.client.update_status(resources.SIGNING_REQUESTS, {**document, "status": status_})

    async def run(self) -> None:
        """Answer each request once, as it comes."""
        params = {"watch": "true"}
        path = api.path(resources.SIGNING_REQUESTS)
        async with self.client.transport.stream(path, params=params, accept=api.JSON, idle_seconds=600) as body:
            rest = b""
            while chunk := await body.readany():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ADDED":
                        self.requests.append(event["object"]["metadata"]["name"])
                        # Deleted under our hands by a test: nothing to answer.
                        with contextlib.suppress(status.StatusError):
                            await self.answer(self, event["object"])


async def issue(certifier: Certifier, document: dict[str, Any]) -> None:
    """As the real controllers do."""
    approved = await certifier.decide(document, "Approved", "AutoApproved")
    await certifier.hand_out(approved, certifier.pem_for(document))


async def ignore(certifier: Certifier, document: dict[str, Any]) -> None:
    """Nobody decides."""


@contextlib.asynccontextmanager
async def certified(world: worlds.World) -> AsyncIterator[Certifier]:
    """A certifier at work in a world where the token `TOKEN` may ask for certificates."""
    async with controlled.connected(world) as client:
        await _invite(client)
        certifier = Certifier(world, client)
        running = asyncio.create_task(certifier.run())
        try:
            yield certifier
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def _invite(client: api.Client) -> None:
    token_id, secret = TOKEN.split(".")
    values = {"token-id": token_id, "token-secret": secret, "usage-bootstrap-authentication": "true"}
    await client.create(
        SECRETS,
        {
            "metadata": {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": values,
        },
        namespace="kube-system",
    )
    await client.create(
        BINDINGS,
        {
            "metadata": {"name": "bootstrappers"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NODE_BOOTSTRAPPER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers"}],
        },
    )


NODE_BOOTSTRAPPER = "system:node-bootstrapper"


def pair_for(certifier: Certifier, node: str, ttl: datetime.timedelta | None = None) -> tuple[bytes, keys.PrivateKey]:
    """A client certificate that a node has had from before, in PEM, and its key."""
    key = keys.generate()
    subject = user_names.node_subject(node)
    now = certifier.world.clock.now()
    issued = certifier.authority.issue(key.public, subject, names.Sans(), profiles.KUBELET_CLIENT, now, ttl)
    return issued.pem, key
