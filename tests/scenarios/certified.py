# SPDX-License-Identifier: Apache-2.0
"""A world in which the approver, the signer and the cleaner are at work, and nodes ask for certificates."""

from __future__ import annotations

import base64
import contextlib
import pathlib
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any

from prometheus_client import parser

from handfast.api import handfast_kinds, signer_names
from handfast.assembly import controllers
from handfast.client import api
from handfast.controllers import loop, role
from handfast.controllers.certificates import approver, cleaner, signer
from handfast.controllers.certificates import authorities as signing_authorities
from handfast.pki import certificates, keys, names, pem, request_names, requests
from tests.scenarios import controlled as c
from tests.scenarios import granting
from tests.world import world as worlds

ALL = (approver.NAME, signer.NAME, cleaner.NAME)
CSRS = api.Resource("certificates.k8s.io", "v1", "certificatesigningrequests", False)
LOGS = handfast_kinds.ISSUANCE_LOG
PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ROLE = "system:certificates.k8s.io:certificatesigningrequests"
CLIENT_USAGES = ("digital signature", "client auth")
SERVING_USAGES = ("digital signature", "server auth")
JOINERS = "joiners"


def files(world: worlds.World) -> dict[str, signing_authorities.Files]:
    """Every signer signs with the CA of the directory, as in `up`."""
    own = signing_authorities.Files(certificate=world.place.ca_certificate, key=world.place.ca_key, bundle=True)
    return dict.fromkeys(signer_names.SIGNERS, own)


@contextlib.asynccontextmanager
async def running(
    world: worlds.World, *chosen: str, copies: int | None = None, **more: Any
) -> AsyncIterator[list[loop.Controller[Any]]]:
    """So many processes of these controllers."""

    def builds() -> list[role.Build]:
        authorities = signing_authorities.SigningAuthorities(files(world), world.clock)
        known = controllers.known(c.CA_PEM, authorities=authorities, **more)
        return [known[name] for name in chosen or ALL]

    async with c.copied(world.clock, lambda: c.as_controllers(world), builds, copies) as processes:
        yield processes


class Story(c.WorldStory):
    """The administrator, and nodes."""

    async def bind(self, permission: str, *groups: str) -> None:
        """Have a permission of the approver granted to groups."""
        role = "system:node-bootstrapper" if permission == "file" else f"{ROLE}:{permission}"
        subjects = [granting.group(name) for name in groups]
        document = granting.binding(f"test-{permission}", "ClusterRole", role, *subjects)
        await granting.made(self.world, granting.CLUSTER_BINDINGS, document)

    def joiner(self) -> ssl.SSLContext:
        """Somebody who may bring machines in, once the group is bound."""
        return self.world.context_for("joiner", JOINERS)

    def node(self, name: str) -> ssl.SSLContext:
        return self.world.context_for(f"system:node:{name}", "system:nodes")

    async def ask(self, document: dict[str, Any], context: ssl.SSLContext) -> dict[str, Any]:
        answer = await self.world.request("POST", PATH, document, context=context)
        assert answer.status == 201, answer.body
        found: dict[str, Any] = answer.json()
        return found

    async def csr(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.find(CSRS, name, "") or {}
        return found

    async def issued(self, name: str) -> certificates.Certificate:
        async def there() -> str:
            return str(((await self.csr(name)).get("status") or {}).get("certificate") or "")

        text = await self.eventually(there, f"{name} issued")
        return certificates.read(pem.one(base64.b64decode(text), pem.CERTIFICATE))

    async def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        rows = ((await self.csr(name)).get("status") or {}).get("conditions") or ()
        return {row["type"]: (row["reason"], row["message"]) for row in rows}

    async def told(self, name: str) -> list[tuple[str, str, int]]:
        found = await self.client.list(c.EVENTS, api.Scope(namespace="default"))
        return [
            (row["reason"], row["message"], row["count"]) for row in found if row["involvedObject"].get("name") == name
        ]

    async def ledger(self) -> list[str]:
        found = await self.client.list(LOGS)
        return [line for segment in found for line in segment["spec"].get("entries") or ()]

    def calls(self) -> dict[tuple[str, str, str], int]:
        """How often the server was asked, by verb, resource and subresource."""
        counted: dict[tuple[str, str, str], int] = {}
        for family in parser.text_string_to_metric_families(self.world.server.metrics.text().decode()):
            for sample in family.samples:
                if sample.name == "apiserver_request_total" and sample.labels["code"] < "300":
                    key = (sample.labels["verb"], sample.labels["resource"], sample.labels["subresource"])
                    counted[key] = counted.get(key, 0) + int(sample.value)
        return counted


def request(
    node: str = "n1",
    *,
    name: str = "",
    key: keys.PrivateKey | None = None,
    organizations: Iterable[str] = ("system:nodes",),
    common_name: str = "",
    sans: names.Sans | None = None,
    others: tuple[tuple[str, str], ...] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A request as a kubelet files it."""
    key = key or keys.generate(keys.Kind.P256)
    subject = names.Subject(
        common_name=common_name or f"system:node:{node}", organizations=tuple(organizations), others=others
    )
    body = requests.build(subject, sans or names.Sans(), key)
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name or request_names.csr_name(key.public, subject, CLIENT_USAGES)},
        "spec": {
            "request": base64.b64encode(body).decode(),
            "signerName": signer_names.KUBELET_CLIENT,
            "usages": list(CLIENT_USAGES),
            **spec,
        },
    }


@contextlib.asynccontextmanager
async def told(directory: pathlib.Path) -> AsyncIterator[Story]:
    async with c.story_of(Story, directory) as story:
        await story.bind("file", JOINERS)
        yield story
