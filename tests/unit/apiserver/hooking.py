# SPDX-License-Identifier: Apache-2.0
"""A real HTTPS server that plays an admission webhook, good or hostile, and a copy of a store to put objects into."""

from __future__ import annotations

import asyncio
import base64
import datetime
import functools
import ipaddress
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Self, cast

from aiohttp import web
from cryptography import x509

from handfast.api import kinds
from handfast.apiserver.state import envelope, items, replica
from handfast.runtime import tls
from handfast.store import protocol
from tests.unit.pki import making

Review = dict[str, Any]
Answer = Callable[[web.BaseRequest, Review], Awaitable[web.StreamResponse]]

SERVICE = {"namespace": "system", "name": "hook"}
MUTATING = "MutatingWebhookConfiguration"
VALIDATING = "ValidatingWebhookConfiguration"
POD = kinds.row("pods")


@functools.cache
def authority(name: str = "webhooks") -> making.Made:
    now = datetime.datetime.now(datetime.UTC)
    return making.ca(name, not_before=now - making.DAY, not_after=now + making.DAY)


@functools.cache
def serving(*names: str, issuer: str = "webhooks") -> making.Made:
    """A serving certificate for DNS names and addresses."""
    now = datetime.datetime.now(datetime.UTC)
    sans = [x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names]
    return making.leaf(
        authority(issuer), making.SERVER, sans=sans, not_before=now - making.DAY, not_after=now + making.DAY
    )


def bundle(name: str = "webhooks") -> str:
    return base64.b64encode(authority(name).pem).decode()


def reviewed(review: Review, **response: Any) -> Review:
    """An AdmissionReview that answers `review`."""
    response = {"uid": review["request"]["uid"], "allowed": True, **response}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def says(**response: Any) -> Answer:
    """A webhook that always says the same."""

    async def answer(_: web.BaseRequest, review: Review) -> web.StreamResponse:
        return web.json_response(reviewed(review, **response))

    return answer


def sends(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """A webhook that always sends these bytes."""

    async def answer(_: web.BaseRequest, __: Review) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers=headers)

    return answer


async def hangs(_: web.BaseRequest, __: Review) -> web.StreamResponse:
    """A webhook that never answers."""
    await asyncio.Event().wait()
    raise AssertionError


def patches(*operations: dict[str, Any], **response: Any) -> Answer:
    return says(patchType="JSONPatch", patch=encoded(list(operations)), **response)


def encoded(patch: Any) -> str:
    return base64.b64encode(json.dumps(patch).encode()).decode()


class Server:
    """One webhook server. `answer` is what it does; `reviews` and `heads` are what it was sent."""

    def __init__(self, certificate: making.Made, answer: Answer | None = None) -> None:
        self.answer = answer or says()
        self.reviews: list[Review] = []
        self.heads: list[web.BaseRequest] = []
        self.asked = asyncio.Event()
        self.port = 0
        self._certificate = certificate
        self._runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.05)

    async def __aenter__(self) -> Self:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_pair(context, self._certificate.pem, self._certificate.key_pem)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        review = json.loads(await request.read())
        self.heads.append(request)
        self.reviews.append(review)
        self.asked.set()
        return await self.answer(request, review)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/admit"

    def config(self, **more: Any) -> dict[str, Any]:
        """The clientConfig that calls it by URL."""
        return {"url": self.url, "caBundle": bundle(), **more}


def webhook(name: str, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A webhook that wants to see every write, with the defaults that the API fills in."""
    every = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*", "*"], "scope": "*"}
    return {
        "name": f"{name}.example.com",
        "clientConfig": config,
        "rules": [every],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
        **more,
    }


def configuration(kind: str, *webhooks: dict[str, Any], name: str = "config") -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": list(webhooks),
    }


class Copy:
    """A server's copy of a store that tests write into directly."""

    def __init__(self) -> None:
        # Nothing here reads the store: what it would send is applied by hand.
        self.replica = replica.Replica(cast("protocol.Store", None), envelope.Envelopes(None, ()))
        self._version = 0

    def put(self, prefix: str, document: dict[str, Any]) -> None:
        metadata = document["metadata"]
        space, name = metadata.get("namespace", ""), metadata["name"]
        self._version += 1
        item = items.Item(space, name, self._version, envelope.encode_document(document))
        self.replica.collection(prefix).apply(space, name, item, self._version)

    def drop(self, prefix: str, name: str, namespace: str = "") -> None:
        self._version += 1
        self.replica.collection(prefix).apply(namespace, name, None, self._version)

    def put_configuration(self, document: dict[str, Any]) -> None:
        plural = document["kind"].lower() + "s"
        self.put(f"admissionregistration.k8s.io/{plural}/", document)

    def put_namespace(self, name: str, **labels: str) -> None:
        self.put(
            "core/namespaces/",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
        )

    def put_service(self, port: int, *, name: str = "hook", address: str = "127.0.0.1", **spec: Any) -> None:
        """The Service system/<name>, and one slice with a ready endpoint at `address` and `port`."""
        self.put(
            "core/services/",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": "system"},
                "spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}], **spec},
            },
        )
        self.put_slice(name, [{"addresses": [address], "conditions": {"ready": True}}], port)

    def put_slice(self, service: str, endpoints: list[dict[str, Any]], port: int, name: str = "one") -> None:
        self.put(
            "discovery.k8s.io/endpointslices/",
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"{service}-{name}",
                    "namespace": "system",
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": [
                    {"name": "metrics", "port": 9, "protocol": "TCP"},
                    {"name": "https", "port": port, "protocol": "TCP"},
                ],
            },
        )
