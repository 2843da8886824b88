# SPDX-License-Identifier: Apache-2.0
"""A gRPC service that says who calls, on real sockets, with a CA for its clients and for itself."""

from __future__ import annotations

import contextlib
import datetime
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from handfast.pki import authority, bundles, keys, names, pairs, pem, profiles
from handfast.runtime import addresses, tls
from handfast.runtime import clock as clocks
from handfast.wire import mesh_messages, server, server_tls
from tests.world import mesh_client

SERVICE = "test.Greeting"
LOOPBACK = addresses.Address("127.0.0.1", 0)
CLOCK = clocks.SystemClock()
BOTH = profiles.Profile(
    name="both", usages=profiles.CLIENT.usages | profiles.KUBELET_SERVING.usages, lifetime=profiles.YEAR
)


class Anchor:
    """A CA of a mesh."""

    def __init__(self, ago: datetime.timedelta = datetime.timedelta()) -> None:
        self.ca = authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), CLOCK.now() - ago)

    @property
    def bundle(self) -> bundles.TrustBundle:
        return bundles.TrustBundle.of([self.ca.certificate.der])

    def pair(
        self,
        name: str,
        profile: profiles.Profile = BOTH,
        ttl: datetime.timedelta | None = None,
        ago: datetime.timedelta = datetime.timedelta(),
    ) -> pairs.Pair:
        key = keys.generate()
        issued = self.ca.issue(key.public, names.Subject(), names.Sans(dns=(name,)), profile, CLOCK.now() - ago, ttl)
        return pairs.Pair((issued.der,), key)


async def greet(message: Any, peer: Any) -> Any:
    """What is asked for by the request's identity: who calls, a refusal, or a fault."""
    match message.identity:
        case "refuse":
            raise server.Refusal("RESOURCE_EXHAUSTED", "come again", retry_ms=500)
        case "fail":
            raise ValueError("a secret detail")
    return mesh_messages.CertifyResponse(leaf_certificate=peer.identity(CLOCK.now()).encode())


async def count(message: Any, _peer: Any) -> AsyncGenerator[Any, None]:
    for number in range(3):
        yield mesh_messages.CertifyResponse(leaf_certificate=b"%d" % number)
    if message.identity == "refuse":
        raise server.Refusal("NOT_FOUND", "no more")


async def echo(messages: AsyncIterator[Any], peer: Any) -> AsyncIterator[Any]:
    """Each message as it comes; `refuse` ends it."""
    async for message in messages:
        if message.identity == "refuse":
            raise server.Refusal("PERMISSION_DENIED", "no more")
        yield mesh_messages.CertifyResponse(leaf_certificate=message.identity.encode())


METHODS = (
    server.Unary("Greet", mesh_messages.CertifyRequest, mesh_messages.CertifyResponse, greet),
    server.Stream("Count", mesh_messages.CertifyRequest, mesh_messages.CertifyResponse, count),
    server.Duplex("Echo", mesh_messages.CertifyRequest, mesh_messages.CertifyResponse, echo),
)
SERVICES = {SERVICE: METHODS, "test.Farewell": METHODS[:1]}


@contextlib.asynccontextmanager
async def serving(
    anchor: Anchor | None = None, pair: pairs.Pair | None = None, *, listen: addresses.Address = LOOPBACK
) -> AsyncIterator[addresses.Address]:
    """The service; with an anchor behind TLS."""
    own = pair or (None if anchor is None else anchor.pair("server.test"))
    front = None if anchor is None else server_tls.ServerTLS(lambda: own, lambda: anchor.bundle)
    async with server.Server(SERVICES, clock=CLOCK, tls=front).on(listen) as address:
        yield address


def context(anchor: Anchor, pair: pairs.Pair | None = None, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """A client's TLS."""
    made = tls.client_context(pem.certificates_to_pem([anchor.ca.certificate.der]))
    made.check_hostname = False
    if pair is not None:
        tls.load_pair(made, pair.certificate_pem, pair.key_pem)
    if alpn:
        made.set_alpn_protocols(list(alpn))
    return made


async def who(address: addresses.Address, tls_context: ssl.SSLContext) -> str:
    """Whom the service takes a client for."""
    async with mesh_client.tunnel(address.port, tls_context) as target:
        answer = await mesh_client.call(target, f"/{SERVICE}/Greet", b"")
    return mesh_client.certified(answer).leaf.decode()
