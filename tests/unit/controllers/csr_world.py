# SPDX-License-Identifier: Apache-2.0
"""A server that is a dictionary and answers access reviews, and certificate requests as its watch tells of them."""

from __future__ import annotations

import base64
import datetime
import functools
from collections.abc import Iterable
from typing import Any

import msgspec

from handfast.api import signer_names, signing_requests
from handfast.controllers.certificates import requests as certificate_requests
from handfast.pki import keys, names, requests
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
PLURAL = "certificatesigningrequests"
CLIENT, SERVING = ("digital signature", "client auth"), ("digital signature", "server auth")
NODE = "system:node:n1"


@functools.cache
def key() -> keys.PrivateKey:
    return keys.generate(keys.Kind.P256)


@functools.cache
def _request(common_name: str, organizations: tuple[str, ...], sans: names.Sans) -> str:
    subject = names.Subject(common_name=common_name, organizations=organizations)
    return base64.b64encode(requests.build(subject, sans, key())).decode()


class ReviewingClient(FakeClient):
    """Allows the permissions named in `allowed`."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: set[str] = set()
        self.reviews: list[dict[str, Any]] = []

    async def create(self, resource: Any, document: Any, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        if resource.plural != "subjectaccessreviews":
            return await super().create(resource, document, namespace=namespace, **more)
        self.before("create", resource.plural, "")
        self.reviews.append(document["spec"])
        word = document["spec"]["resourceAttributes"]["subresource"]
        return {**document, "status": {"allowed": word in self.allowed}}


class World:
    """The client, the clock, and what is known of the requests."""

    def __init__(self) -> None:
        self.client, self.clock = ReviewingClient(), MovableClock(START)
        self.requests = certificate_requests.Requests()

    def add(
        self,
        name: str = "x",
        *conditions: str,
        common_name: str = NODE,
        organizations: Iterable[str] = ("system:nodes",),
        sans: names.Sans | None = None,
        certificate: str = "",
        metadata: dict[str, Any] | None = None,
        **spec: Any,
    ) -> signing_requests.Request:
        """Have a request on the server, and the watch tell of it."""
        status: dict[str, Any] = {}
        if conditions:
            rows = [{"type": kind, "status": "True", "reason": "Test", "message": "m"} for kind in conditions]
            status["conditions"] = rows
        if certificate:
            status["certificate"] = certificate
        made = {
            "request": _request(common_name, tuple(organizations), sans or names.Sans()),
            "signerName": signer_names.KUBELET_CLIENT,
            "usages": list(CLIENT),
            "username": "joiner",
            "groups": ["joiners"],
            **spec,
        }
        meta = {"creationTimestamp": "2030-01-01T00:00:00Z", **(metadata or {})}
        more: dict[str, Any] = {"status": status} if status else {}
        document = self.client.put(PLURAL, name, metadata=meta, spec=made, **more)
        item = msgspec.convert(document, signing_requests.Request)
        self.requests.put(item)
        return item

    def stored(self, name: str = "x") -> dict[str, Any]:
        return self.client.objects[PLURAL, "", name]

    def conditions(self, name: str = "x") -> list[tuple[str, str, str]]:
        rows = self.stored(name).get("status", {}).get("conditions", [])
        return [(row["type"], row["reason"], row["message"]) for row in rows]

    def events(self) -> list[tuple[str, str]]:
        found = [document for (plural, _, _), document in self.client.objects.items() if plural == "events"]
        return [(document["reason"], document["message"]) for document in found]
