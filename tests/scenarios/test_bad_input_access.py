# SPDX-License-Identifier: Apache-2.0
"""Who gets in: nobody, strangers, users, those whose certificate ran out and those whose CA was retired, over real TLS.

Proves: without a credential only health and version are open; a credential that is not good is never anonymous; and
neither an expiry nor a removed CA waits for a connection to close.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from typing import Any

import pytest
import structlog

from handfast.pki import authority, bundles, keys, names, profiles
from handfast.runtime import tls
from tests.scenarios import callers, wire
from tests.world import world as worlds

OPEN = (
    "/healthz",
    "/livez",
    "/readyz",
    "/version",
    "/livez/ping",
    "/readyz/ping",
    "/healthz?verbose",
    "/livez/replica",
)
CLOSED = (
    "/",
    "/api",
    "/apis",
    "/api/v1",
    "/openapi/v2",
    "/openapi/v3",
    "/metrics",
    "/frob",
    "//healthz",
    "/healthzz",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/secrets/s",
    "/api/v1/namespaces?watch=1",
    "/apis/frob.example.com/v1/frobs",
    "/api/v1/namespaces/kube-public/configmaps/cluster-info",
)


pytestmark = pytest.mark.usefixtures("quiet")


def line(world: worlds.World, context: ssl.SSLContext) -> Any:
    return wire.line(world.server.address[1], context)


def identity(
    world: worlds.World,
    ca: authority.Authority,
    subject: names.Subject,
    *,
    minutes: int = 60,
    profile: profiles.Profile = profiles.CLIENT,
    chain: bytes = b"",
    sans: names.Sans | None = None,
) -> ssl.SSLContext:
    """TLS of somebody whom `ca` gave a certificate for so many minutes."""
    key = keys.generate()
    ttl = datetime.timedelta(minutes=minutes)
    issued = ca.issue(key.public, subject, sans or names.Sans(), profile, world.clock.now(), ttl)
    return tls.client_context(world.place.ca_certificate.read_bytes(), issued.pem + chain, key.to_pem())


def foreign(world: worlds.World, name: str = "elsewhere") -> authority.Authority:
    return authority.self_signed_ca(names.Subject(common_name=name), keys.generate(), world.clock.now())


def require_status(reply: wire.Reply, code: int, reason: str) -> None:
    assert (reply.status, reply.json()["kind"], reply.json()["reason"]) == (code, "Status", reason)


class TestNobody:
    async def test_what_is_open(self, world: worlds.World) -> None:
        async with line(world, world.anonymous_context()) as opened:
            for path in OPEN:
                assert (await opened.ask("GET", path)).status == 200, path
                # Health is open to probes of any kind; the rest is RBAC's, which says "get".
                head = 403 if path.startswith("/version") else 200
                assert (await opened.ask("HEAD", path)).status == head, path
            require_status(await opened.ask("POST", "/healthz"), 403, "Forbidden")

    async def test_what_is_closed(self, world: worlds.World) -> None:
        async with line(world, world.anonymous_context()) as opened:
            for path in CLOSED:
                for method in ("GET", "POST", "DELETE"):
                    reply = await opened.ask(method, path)
                    require_status(reply, 403, "Forbidden")
                    assert 'User "system:anonymous" cannot' in reply.message
            # Not told apart: what exists, what does not, and what is not even served.
            answers = {
                (await opened.ask("GET", f"/api/v1/namespaces/{name}")).message.replace(name, "N")
                for name in ("default", "absent")
            }
            assert len(answers) == 1

    @pytest.mark.parametrize(
        ("header", "why"),
        [
            ("Bearer abcdef.0123456789abcdef", "UnknownToken"),
            ("Basic YTpi", "UnsupportedCredential"),
            ("Bearer", "MalformedToken"),
            ("", "UnsupportedCredential"),
            ("Frob x", "UnsupportedCredential"),
        ],
    )
    async def test_a_credential_is_never_anonymous(self, world: worlds.World, header: str, why: str) -> None:
        with structlog.testing.capture_logs() as logs:
            async with line(world, world.anonymous_context()) as opened:
                for path in ("/healthz", "/version", "/api", "/api/v1/namespaces", "/frob"):
                    reply = await opened.ask("GET", path, Authorization=header)
                    require_status(reply, 401, "Unauthorized")
                    assert reply.message == "Unauthorized"
        assert {entry["reason"] for entry in logs} == {why}
        assert "0123456789abcdef" not in str(logs)


class TestUsers:
    async def test_names_and_groups(self, world: worlds.World) -> None:
        jane = world.context_for("jane", "developers")
        async with line(world, jane) as opened:
            reply = await opened.ask("GET", "/api/v1/namespaces/default/secrets")
            require_status(reply, 403, "Forbidden")
            assert 'User "jane" cannot list resource "secrets"' in reply.message
            assert (await opened.ask("GET", "/livez")).status == 200
        async with line(world, world.context_for("anyone", "some", "system:masters")) as opened:
            assert (await opened.ask("GET", "/api/v1/namespaces/default/secrets")).status == 200
        async with line(world, world.context_for("system:masters", "system:masters2")) as opened:
            require_status(await opened.ask("GET", "/api/v1/nodes"), 403, "Forbidden")

    async def test_the_controllers(self, world: worlds.World) -> None:
        async with line(world, world.context_for("system:kube-controller-manager")) as opened:
            assert (await opened.ask("GET", "/api/v1/nodes")).status == 200
            assert (await opened.ask("GET", "/apis")).status == 200
            require_status(await opened.ask("GET", "/metrics"), 403, "Forbidden")

    async def test_under_an_intermediate(self, world: worlds.World) -> None:
        root, key = callers.cluster_ca(world), keys.generate()
        team = root.issue(
            key.public, names.Subject(common_name="team"), names.Sans(), profiles.INTERMEDIATE_CA, world.clock.now()
        )
        below = authority.Authority(team.der, key)
        admin = names.Subject(common_name="jane", organizations=("system:masters",))
        async with line(world, identity(world, below, admin, chain=team.pem)) as opened:
            assert (await opened.ask("GET", "/api/v1/nodes")).status == 200

    async def test_without_a_common_name(self, world: worlds.World) -> None:
        nameless = identity(world, callers.cluster_ca(world), names.Subject(organizations=("system:masters",)))
        async with line(world, nameless) as opened:
            require_status(await opened.ask("GET", "/healthz"), 401, "Unauthorized")

    async def test_with_a_header_beside_the_certificate(self, world: worlds.World) -> None:
        async with line(world, world.admin_context()) as opened:
            # As in Kubernetes: a good certificate is enough, whatever else is sent.
            assert (await opened.ask("GET", "/api/v1/nodes", Authorization="Bearer x")).status == 200


class TestBadCertificates:
    async def _is_dropped(self, world: worlds.World, context: ssl.SSLContext) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            async with line(world, context) as opened:
                await opened.ask("GET", "/healthz")

    async def test_a_serving_certificate_cannot_log_in(self, world: worlds.World) -> None:
        node = names.Subject(common_name="system:node:n", organizations=("system:nodes", "system:masters"))
        sans = names.Sans.parse(["DNS:n"])
        serving = identity(world, callers.cluster_ca(world), node, profile=profiles.KUBELET_SERVING, sans=sans)
        await self._is_dropped(world, serving)

    async def test_a_foreign_ca(self, world: worlds.World) -> None:
        admin = names.Subject(common_name="jane", organizations=("system:masters",))
        await self._is_dropped(world, identity(world, foreign(world), admin))
        same_name = foreign(world, callers.cluster_ca(world).certificate.subject.common_name)
        await self._is_dropped(world, identity(world, same_name, admin))

    async def test_a_self_signed_certificate(self, world: worlds.World) -> None:
        made = foreign(world)
        await self._is_dropped(world, identity(world, made, names.Subject(common_name="x"), chain=made.pem))


class TestOpenConnections:
    ADMIN = names.Subject(common_name="jane", organizations=("system:masters",))

    async def test_a_certificate_that_expires_on_an_open_connection_is_refused(self, world: worlds.World) -> None:
        async with line(world, identity(world, callers.cluster_ca(world), self.ADMIN, minutes=10)) as opened:
            assert (await opened.ask("GET", "/api/v1/nodes")).status == 200
            await world.movable().advance(11 * 60)
            with structlog.testing.capture_logs() as logs:
                require_status(await opened.ask("GET", "/api/v1/nodes"), 401, "Unauthorized")
                # Nor is it as good as none: what is open to everyone is closed to a bad credential.
                require_status(await opened.ask("GET", "/healthz"), 401, "Unauthorized")
            assert {entry["reason"] for entry in logs} == {"Expired"}

    async def test_an_expired_certificate_gets_an_answer(self, world: worlds.World) -> None:
        context = identity(world, callers.cluster_ca(world), self.ADMIN, minutes=10)
        await world.movable().advance(11 * 60)
        async with line(world, context) as opened:
            require_status(await opened.ask("GET", "/healthz"), 401, "Unauthorized")

    async def test_a_removed_ca(self, world: worlds.World) -> None:
        other = foreign(world)
        root = world.place.ca_certificate.read_bytes()
        both = bundles.TrustBundle.from_pem(root + other.pem)
        world.server.listener.trust(other.pem.decode())
        world.server.guard.authenticator.trust(both)
        async with (
            line(world, identity(world, other, self.ADMIN)) as theirs,
            line(world, world.admin_context()) as ours,
        ):
            assert (await theirs.ask("GET", "/api/v1/nodes")).status == 200
            world.server.guard.authenticator.trust(bundles.TrustBundle.from_pem(root))
            with structlog.testing.capture_logs() as logs:
                require_status(await theirs.ask("GET", "/api/v1/nodes"), 401, "Unauthorized")
            assert {entry["reason"] for entry in logs} == {"UnknownAuthority"}
            assert (await ours.ask("GET", "/api/v1/nodes")).status == 200
            # A new connection gets its answer too, and not a dropped handshake.
            async with line(world, identity(world, other, self.ADMIN)) as again:
                require_status(await again.ask("GET", "/healthz"), 401, "Unauthorized")
