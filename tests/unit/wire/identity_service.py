# SPDX-License-Identifier: Apache-2.0
"""An identity service on real sockets that signs whatever it is asked for, and says what it was told."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any

from handfast.pki import bundles, keys, names, pairs, requests
from handfast.rules.mesh import issuer
from handfast.rules.mesh import names as mesh_names
from handfast.runtime import addresses
from handfast.wire import mesh_messages, server, server_tls
from tests.unit.wire import greeting
from tests.world.clock import START, MovableClock

NAME = "linkerd-identity.linkerd.sa.linkerd-identity.linkerd.cluster.local"
DAY = datetime.timedelta(days=1)


class IdentityService:
    """`signing` is the CA of the answers; the fields after it say how they go wrong."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.material = self.signing = issuer.generate(START)
        self.key: keys.PublicKey | None = None
        self.names: tuple[str, ...] = ()
        self.uris: tuple[str, ...] = ()
        self.lifetime = DAY
        self.says: int | None = None
        self.is_down = False
        self.says_no = ("UNAVAILABLE", "come again")
        self.tokens: list[bytes] = []
        self.csrs: list[bytes] = []
        self.peers: list[str] = []

    @property
    def anchors(self) -> bundles.TrustBundle:
        return issuer.read_anchors(self.material.anchors)

    async def _certify(self, message: Any, peer: Any) -> Any:
        self.tokens.append(message.token)
        self.csrs.append(message.certificate_signing_request)
        self.peers.append(peer.identity(self.clock.now()))
        if self.is_down:
            raise server.Refusal(*self.says_no)
        key = self.key or requests.parse_der(message.certificate_signing_request).public_key
        leaf, *others = self._signed(key, self.names or (message.identity,), self.lifetime, self.uris)
        until = int((self.clock.now() + self.lifetime).timestamp()) if self.says is None else self.says
        return mesh_messages.CertifyResponse(
            leaf_certificate=leaf, intermediate_certificates=others, valid_until={"seconds": until}
        )

    def _signed(
        self, key: keys.PublicKey, dns: tuple[str, ...], ttl: datetime.timedelta, uris: tuple[str, ...] = ()
    ) -> tuple[bytes, ...]:
        signer = issuer.load(self.signing, mesh_names.Mesh("cluster.local"), START)
        wanted = names.make_sans(dns=list(dns), uri=list(uris))
        issued = signer.authority.issue(key, names.Subject(), wanted, greeting.BOTH, self.clock.now(), ttl)
        return issued.der, *signer.chain

    @contextlib.asynccontextmanager
    async def serving(self, shown: str | None = None) -> AsyncIterator[addresses.Address]:
        """In plaintext; with a name behind TLS."""
        front = None
        if shown is not None:
            key = keys.generate()
            pair = pairs.Pair(self._signed(key.public, (shown,), 5 * DAY), key)
            front = server_tls.ServerTLS(lambda: pair, lambda: self.anchors)
        methods = [server.Unary("Certify", mesh_messages.CertifyRequest, mesh_messages.CertifyResponse, self._certify)]
        service = server.Server({mesh_messages.IDENTITY_SERVICE: methods}, clock=self.clock, tls=front)
        async with service.on(greeting.LOOPBACK) as address:
            yield address
