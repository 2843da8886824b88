# SPDX-License-Identifier: Apache-2.0
"""The identity service without sockets: objects in informers, an API server that reviews tokens as it is told, and a ledger."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any

from handfast.client import cache, events, ledger, revoked
from handfast.mesh import installed
from handfast.mesh.identity import certifier, reviews, sources, telling, trust, watchdog
from handfast.mesh.identity import turns as turns_module
from handfast.pki import keys, names, pem, requests
from handfast.rules.ledger import entries, segments
from handfast.rules.mesh import control_plane, installation, issuer, settings
from handfast.runtime import tasks
from handfast.wire import mesh_messages, peers
from tests.unit.client import test_ledger
from tests.unit.controllers.fake_api import failing
from tests.world.clock import MovableClock, settle

NAMESPACE = control_plane.NAMESPACE
NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
USER = "system:serviceaccount:shop:web"
NOBODY = peers.Peer("ipv4:127.0.0.1:1")
NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


class Api(test_ledger.LedgerClient):
    """A ledger, Events, and TokenReviews by `answers`: what each spec is answered with."""

    def __init__(self) -> None:
        super().__init__()
        self.specs: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {
            "authenticated": True,
            "audiences": [control_plane.AUDIENCE],
            "user": {"username": USER, "uid": "u"},
        }

    async def create(self, resource: Any, document: Any, **more: Any) -> dict[str, Any]:
        if resource.plural != "tokenreviews":
            return await super().create(resource, document, **more)
        self.before("create", resource.plural, "")
        self.specs.append(document["spec"])
        return {"status": self.answers.pop(0) if self.answers else self.status}


class World:
    """Everything that the service is made of."""

    def __init__(
        self,
        turns: turns_module.Turns | None = None,
        client: Api | None = None,
        paths: sources.Paths | None = None,
    ) -> None:
        self.clock, self.client = MovableClock(NOW), client or Api()
        informers = cache.Informers(self.client, self.clock)
        recorder = events.Recorder(self.client, self.clock, control_plane.IDENTITY)
        self.source = sources.Source(self.client, informers, NAMESPACE, self.clock, paths)
        self.trust = trust.Followed(self.source, recorder, self.clock)
        self.telling = telling.Telling(recorder, self.source.about, self.clock)
        self.watchdog = watchdog.Watchdog(self.source, self.trust, recorder, self.clock)
        self.revocations = informers.get(revoked.SOURCE)
        # They were listed.
        self.revocations.end()
        self.certifier = certifier.Certifier(
            trust=self.trust,
            reviews=reviews.Reviews(self.client),
            revocations=revoked.follow(informers),
            ledger=ledger.Ledger(self.client, self.clock, segments.MESH),
            telling=self.telling,
            clock=self.clock,
            turns=turns,
        )
        self.material = issuer.generate(NOW)
        self._version = 0

    def informer(self, name: str) -> cache.Informer[installed.Document]:
        found: cache.Informer[installed.Document] = self.source.installed._informers[name]
        return found

    def store(self, name: str, data: dict[str, str]) -> None:
        """One of the objects, as a watch brings it."""
        self._version += 1
        meta = installed.Meta(name=name, namespace=NAMESPACE, resource_version=str(self._version))
        self.informer(name).put(installed.Document(meta, data))

    def install(self, material: issuer.Material | None = None, **chosen: Any) -> None:
        anchors, secret = installation.trust(NAMESPACE, material or self.material, generated=False)
        self.store(control_plane.TRUST_ANCHOR, anchors.document["data"])
        self.store(control_plane.SIGNING, secret.document["data"])
        self.store(control_plane.CONFIG, settings.data(settings.Settings(**chosen)))
        for name in (control_plane.TRUST_ANCHOR, control_plane.SIGNING, control_plane.CONFIG):
            self.informer(name).end()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        async with tasks.Group("test") as group:
            group.start(self.source.run(), name="source")
            group.start(self.trust.run(), name="trust")
            group.start(self.telling.run(), name="events")
            await settle()
            yield self

    def refuse(self, error: Exception, plural: str) -> None:
        self.client.before = failing(error, plural=plural)

    async def certify(
        self, identity: str = NAME, token: bytes = b"t0ken", csr: bytes | None = None, **more: Any
    ) -> Any:
        wanted = request(identity or NAME) if csr is None else csr
        message = mesh_messages.CertifyRequest(identity=identity, token=token, certificate_signing_request=wanted)
        return await asyncio.wait_for(self.certifier.answer(message, more.get("peer", NOBODY)), 10)

    def entries(self) -> list[entries.Entry]:
        documents = [value for key, value in self.client.objects.items() if key[0] == "issuancelogs"]
        return [entries.decode_stored(line) for each in documents for line in segments.read(each).entries]

    def event(self, reason: str) -> dict[str, Any]:
        """The one Event of this reason."""
        (event,) = [
            value for key, value in self.client.objects.items() if key[0] == "events" and value["reason"] == reason
        ]
        return event

    def events(self) -> list[tuple[str, str]]:
        documents = [value for key, value in self.client.objects.items() if key[0] == "events"]
        return [(each["reason"], each["message"]) for each in documents]


def request(name: str, key: keys.PrivateKey | None = None) -> bytes:
    built = requests.build(names.Subject(), names.Sans(dns=(name,)), key or keys.generate())
    return pem.one(built, pem.CERTIFICATE_REQUEST)
