# SPDX-License-Identifier: Apache-2.0
"""An injector without an API server: documents go into its informers as a watch brings them, and reviews come over a real socket."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

from handfast.client import cache, events
from handfast.mesh.injector import handler, own_pair, reports, surroundings
from handfast.rules.mesh import control_plane, issuer, settings, webhook
from handfast.serving import server_tls, service
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock

NAMESPACE = control_plane.NAMESPACE
MATERIAL = issuer.generate(MovableClock().now())
ENABLED = {"linkerd.io/inject": "enabled"}


class Client(FakeClient):
    """Patches data, too."""

    async def patch(self, resource: Any, name: str, patch: Any, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        await super().patch(resource, name, patch, namespace=namespace, **more)
        document = self.objects[resource.plural, namespace, name]
        merged = {**(document.get("data") or {}), **patch.get("data", {})}
        document["data"] = {key: value for key, value in merged.items() if value is not None}
        return document


class World:
    """One replica; several may share a client."""

    def __init__(self, client: Client | None = None, clock: MovableClock | None = None) -> None:
        self.client = client or Client()
        self.clock = clock or MovableClock()
        self.informers = cache.Informers(self.client, self.clock)
        self.around = surroundings.Surroundings(self.client, self.informers, NAMESPACE, "handfast/proxy-injector 1")
        self.recorder = events.Recorder(self.client, self.clock, control_plane.INJECTOR)
        self.reports = reports.Reports(self.recorder, self.around.knows, self.clock)
        self.handler = handler.Handler(self.around, self.reports)
        self.pair = own_pair.OwnPair(self.client, self.informers, NAMESPACE, self.around.settings, self.clock)

    def deliver(self) -> None:
        """Everything that the server has is seen, as watches bring it."""
        for informer in self.informers._shared.values():
            source = informer.source
            scope, plural = source.scope, source.resource.plural
            wanted = scope.field_selector.removeprefix("metadata.name=")
            informer.begin()
            for (of, namespace, name), document in self.client.objects.items():
                if of == plural and scope.namespace in {"", namespace} and wanted in {"", name}:
                    informer.put(msgspec.json.decode(msgspec.json.encode(document), type=source.view))
            informer.end()

    def install(self, **chosen: Any) -> None:
        """What `mesh install` writes, as far as the injector reads it."""
        data = settings.data(settings.Settings(**chosen))
        self.client.put("configmaps", control_plane.CONFIG, NAMESPACE, data=data)
        anchors = {control_plane.ANCHORS_KEY: MATERIAL.anchors.decode()}
        self.client.put("configmaps", control_plane.TRUST_ANCHOR, NAMESPACE, data=anchors)
        for name in control_plane.ACCOUNTS:
            self.client.put("serviceaccounts", name, NAMESPACE)
        self.client.put("secrets", webhook.PAIR, NAMESPACE)
        configured = webhook.configuration(NAMESPACE, settings.Settings()).document
        self.client.put(webhook.PLURAL, webhook.NAME, webhooks=configured["webhooks"])
        self.client.put("namespaces", "shop", metadata={"annotations": ENABLED})
        self.deliver()

    @contextlib.asynccontextmanager
    async def serving(self, tls: server_tls.ServerTLS | None = None) -> AsyncIterator[Asked]:
        served = service.Service(self.handler.answer, tls=tls, clock=self.clock)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            async with served.on(sock), aiohttp.ClientSession() as session:
                yield Asked(session, f"http://127.0.0.1:{sock.getsockname()[1]}")


class Asked:
    """Whoever asks it."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def send(self, body: Any, path: str = "/", method: str = "POST") -> tuple[int, str]:
        async with self.session.request(method, self.url + path, data=body) as answer:
            return answer.status, await answer.text()

    async def review(self, document: dict[str, Any], **request: Any) -> dict[str, Any]:
        code, text = await self.send(review(document, **request))
        assert code == 200, text
        return dict(json.loads(text)["response"])


def review(document: dict[str, Any], kind: str = "Pod", **request: Any) -> bytes:
    """A review as an API server sends it."""
    values = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": kind},
        "namespace": "shop",
        "operation": "CREATE",
        "object": document,
        **request,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": values}
    return json.dumps(body).encode()
