# SPDX-License-Identifier: Apache-2.0
"""A service's own certificate, from an identity service on real sockets: renewed, renamed, and never a stranger's."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from handfast.client import cache
from handfast.mesh import installed, own_certificate
from handfast.pki import chains, keys, pairs, requests
from handfast.pki import names as pki_names
from handfast.rules.mesh import control_plane, installation, issuer, names, settings
from handfast.runtime import addresses, tasks
from handfast.wire import mesh_messages, server, server_tls
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.wire import greeting
from tests.world.clock import START, MovableClock

NAMESPACE = control_plane.NAMESPACE
OWN = "linkerd-controller.linkerd.sa.linkerd-identity.linkerd.cluster.local"
IDENTITY = "linkerd-identity.linkerd.sa.linkerd-identity.linkerd.cluster.local"


class Api(FakeClient):
    """An API server that hands out tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Any]] = []

    async def create(self, resource: Any, document: Any, **more: Any) -> dict[str, Any]:
        self.asked.append((more["name"], document["spec"]))
        return {"status": {"token": f"token-{len(self.asked)}"}}


class World:
    """An identity service that signs by its issuer, and a service that wants a certificate."""

    def __init__(self) -> None:
        self.clock, self.client = MovableClock(), Api()
        self.material = issuer.generate(START)
        self.signing = self.material
        self.heard: list[bytes] = []
        self.peers: list[str] = []
        self._informers = cache.Informers(self.client, self.clock)
        self.own = own_certificate.OwnCertificate(
            self.client, self._informers, control_plane.CONTROLLER, NAMESPACE, self.clock
        )
        self._version = 0

    def install(self, **chosen: Any) -> None:
        self._version += 1
        anchors, _ = installation.trust(NAMESPACE, self.material, generated=False)
        documents = {
            control_plane.TRUST_ANCHOR: anchors.document["data"],
            control_plane.CONFIG: settings.data(settings.Settings(**chosen)),
        }
        for name, data in documents.items():
            meta = installed.Meta(name=name, namespace=NAMESPACE, resource_version=str(self._version))
            informer = self.own._installed._informers[name]
            informer.put(installed.Document(meta, data))
            informer.end()

    async def certify(self, message: Any, peer: Any) -> Any:
        self.heard.append(message.token)
        self.peers.append(peer.identity(self.clock.now()))
        key = requests.parse_der(message.certificate_signing_request).public_key
        pair = self._signed(key, message.identity)
        until = int((self.clock.now() + datetime.timedelta(days=1)).timestamp())
        return mesh_messages.CertifyResponse(
            leaf_certificate=pair[0], intermediate_certificates=pair[1:], valid_until={"seconds": until}
        )

    def _signed(self, key: Any, name: str) -> tuple[bytes, ...]:
        signer = issuer.load(self.signing, names.Mesh("cluster.local"), START)
        sans = pki_names.make_sans(dns=[name])
        day = datetime.timedelta(days=1)
        issued = signer.authority.issue(key, pki_names.Subject(), sans, greeting.BOTH, self.clock.now(), day)
        return issued.der, *signer.chain

    def pair(self, name: str) -> pairs.Pair:
        key = keys.generate()
        return pairs.Pair(self._signed(key.public, name), key)

    @contextlib.asynccontextmanager
    async def serving(self, shown: str | None = None) -> AsyncIterator[addresses.Address]:
        """The identity service; with a name behind TLS."""
        front = None
        if shown is not None:
            pair = self.pair(shown)
            anchors = issuer.read_anchors(self.material.anchors)
            front = server_tls.ServerTLS(lambda: pair, lambda: anchors)
        methods = [server.Unary("Certify", mesh_messages.CertifyRequest, mesh_messages.CertifyResponse, self.certify)]
        service = server.Server({mesh_messages.IDENTITY_SERVICE: methods}, clock=self.clock, tls=front)
        async with service.on(greeting.LOOPBACK) as address:
            yield address

    @contextlib.asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        async with tasks.Group("own") as group:
            group.start(self.own.run(), name="own")
            yield

    async def until(self, reached: Callable[[], bool], each: float = 0) -> None:
        """Wait, and let so many seconds pass at each look."""
        async with asyncio.timeout(20):
            while not reached():
                await self.clock.advance(each)
                await asyncio.sleep(0.01)


async def test_it_has_a_certificate_in_the_name_of_its_account():
    world = World()
    async with world.serving() as address:
        world.install(identity_address=str(address))
        assert world.own.current() is None
        assert world.own.anchors().ders == ()
        assert world.own.why_not() is not None
        async with world.keeping():
            await world.until(lambda: world.own.current() is not None)
            pair = world.own.current()
            assert pair is not None
            chains.verify(pair.chain, world.own.anchors(), chains.Server(OWN), world.clock.now())
            assert world.own.why_not() is None
    spec = {"audiences": ["identity.l5d.io"], "expirationSeconds": 600}
    assert world.client.asked == [("linkerd-controller", spec)]


async def test_it_is_renewed_as_itself_when_most_of_its_life_is_over(monkeypatch):
    world = World()
    monkeypatch.setattr("handfast.rules.mesh.addresses.is_loopback", lambda _: False)
    async with world.serving(IDENTITY) as address:
        world.install(identity_address=str(address))
        async with world.keeping():
            await world.until(lambda: world.own.current() is not None)
            first = world.own.current()
            await world.clock.advance(0.5 * 86400)
            assert world.own.current() is first
            await world.clock.advance(0.45 * 86400)
            await world.until(lambda: world.own.current() is not first)
    assert world.peers == ["", OWN]
    assert world.heard == [b"token-1", b"token-2"]


async def test_other_anchors_mean_another_certificate():
    world = World()
    async with world.serving() as address:
        world.install(identity_address=str(address))
        async with world.keeping():
            await world.until(lambda: world.own.current() is not None)
            first = world.own.current()
            world.material = world.signing = issuer.generate(START)
            world.install(identity_address=str(address))
            await world.until(lambda: world.own.current() is not first)


async def test_where_names_have_a_uid_it_has_its_own():
    world = World()
    for name in (control_plane.CONTROLLER, control_plane.IDENTITY):
        world.client.put("serviceaccounts", name, NAMESPACE)
    async with world.serving() as address:
        world.install(identity_address=str(address), scheme=names.Scheme.UID)
        async with world.keeping():
            await world.until(lambda: world.own.current() is not None)
            pair = world.own.current()
            assert pair is not None
            assert pair.leaf.sans.dns == (f"uid-linkerd-controller.{OWN}",)


@pytest.mark.parametrize("shown", ["web.shop.sa.linkerd-identity.linkerd.cluster.local", "*.cluster.local"])
async def test_the_token_goes_to_the_identity_service_alone(monkeypatch, shown):
    world = World()
    monkeypatch.setattr("handfast.rules.mesh.addresses.is_loopback", lambda _: False)
    async with world.serving(shown) as address:
        world.install(identity_address=str(address))
        async with world.keeping():
            await world.until(lambda: "not believed" in str(world.own.why_not()))
    assert world.heard == []


async def test_a_certificate_that_peers_would_not_believe_is_not_used():
    world = World()
    async with world.serving() as address:
        world.install(identity_address=str(address))
        world.signing = issuer.generate(START)
        async with world.keeping():
            await world.until(lambda: world.own.why_not() not in {None, "there is no certificate"})
            assert world.own.current() is None
            # What was wrong may pass: the next attempt has its certificate.
            world.signing = world.material
            await world.until(lambda: world.own.current() is not None, each=1)


async def test_without_an_installation_it_says_what_is_missing():
    world = World()
    for name in (control_plane.TRUST_ANCHOR, control_plane.CONFIG):
        world.own._installed._informers[name].end()
    async with world.keeping():
        await world.until(lambda: "there is no linkerd-config" in str(world.own.why_not()))
