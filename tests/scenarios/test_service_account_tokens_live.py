# SPDX-License-Identifier: Apache-2.0
"""Service account tokens against a served world: asked for, used, and ended by each of the things that end one.

The verdicts themselves are tested with `rules`; here it counts that each is asked on the very next request of an open
connection, that TokenReview says the same, and that others can verify a token with what is published.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from cryptography import exceptions
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric import utils as signatures

from handfast.assembly import controllers, guard
from handfast.controllers.cluster import service_account_tokens
from handfast.pki import jwt, keys
from tests.scenarios import callers, controlled, wire
from tests.world import world as worlds

pytestmark = [pytest.mark.slow, pytest.mark.on_etcd]
API = "https://kubernetes.default.svc.cluster.local"
PODS = "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/default/secrets"
NODES = "/api/v1/nodes"
ROBOT = f"{callers.ACCOUNTS}/robot"
CONFIGURATION, KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"
AT_ONCE = {"gracePeriodSeconds": "0"}
LEGACY: dict[str, Any] = {
    "metadata": {"name": "legacy", "annotations": {"kubernetes.io/service-account.name": "robot"}},
    "type": "kubernetes.io/service-account-token",
}
# What ends a token in a Secret that stays.
CHANGES = {
    "emptied": {"data": {"token": None}},
    "marked": {"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-31"}}},
}


class Robot:
    """A service account's bearer, on one connection that stays open."""

    def __init__(self, line: wire.Line, token: str) -> None:
        self._line = line
        self._token = token

    async def ask(self, path: str = "/version") -> wire.Reply:
        return await self._line.ask("GET", path, **callers.bearer(self._token))

    async def user(self) -> Any:
        reply = await self._line.ask("POST", callers.WHO_AM_I, b"{}", **callers.bearer(self._token))
        assert reply.status == 201, reply
        return reply.json()["status"]["userInfo"]

    async def refused(self, why: str) -> None:
        with structlog.testing.capture_logs() as logs:
            reply = await self.ask()
        assert (reply.status, reply.json()) == (401, callers.BARE)
        assert callers.reasons(logs) == [why]
        assert self._token.rpartition(".")[2] not in str(logs)


@contextlib.asynccontextmanager
async def robot(world: worlds.World, token: str) -> AsyncIterator[Robot]:
    async with wire.line(world.server.address[1], world.anonymous_context()) as line:
        yield Robot(line, token)


def watching(
    world: worlds.World, token: str, **headers: str
) -> contextlib.AbstractAsyncContextManager[callers.Watching]:
    """A watch by the bearer of a token."""
    said = {**callers.bearer(token), **headers}
    return callers.watching(world, world.anonymous_context(), headers=said)


def pod(**spec: Any) -> Any:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


async def delete(world: worlds.World, path: str, **query: str) -> None:
    assert (await world.request("DELETE", path, params=query)).status == 200


class TestBoundTokens:
    async def test_asked_for_and_used(self, world: worlds.World) -> None:
        account = await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        token = await callers.account_token(world, exists=True)
        async with robot(world, token) as it:
            info = await it.user()
            (credential,) = info.pop("extra")["authentication.kubernetes.io/credential-id"]
            assert credential.startswith("JTI=")
            assert info == {
                "username": "system:serviceaccount:default:robot",
                "uid": account["metadata"]["uid"],
                "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
            }
            assert (await it.ask(callers.CONFIG_MAPS)).status == 403
            await callers.bind(world, "cluster-admin", "ServiceAccount", "robot", namespace="default")
            assert (await it.ask(callers.CONFIG_MAPS)).status == 200

    async def test_the_account_goes_and_another_takes_its_name(self, world: worlds.World) -> None:
        token = await callers.account_token(world)
        async with robot(world, token) as it:
            assert (await it.ask()).status == 200
            await delete(world, ROBOT)
            await it.refused("AccountGone")
            await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
            await it.refused("AccountReplaced")
            assert "does not match claim" in (await callers.review(world, token))["error"]

    @pytest.mark.parametrize(
        ("kind", "collection", "document"),
        [
            ("Pod", PODS, pod(serviceAccountName="robot")),
            ("Secret", SECRETS, {"metadata": {"name": "p"}}),
            ("Node", NODES, {"metadata": {"name": "p"}}),
        ],
    )
    async def test_what_it_is_bound_to_goes(
        self, world: worlds.World, kind: str, collection: str, document: Any
    ) -> None:
        await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        made = await callers.make(world, collection, document)
        reference = {"apiVersion": "v1", "kind": kind, "name": "p", "uid": made["metadata"]["uid"]}
        token = await callers.account_token(world, exists=True, boundObjectRef=reference)
        free = await callers.account_token(world, exists=True)
        await callers.bind(world, "cluster-admin", "ServiceAccount", "robot", namespace="default")
        async with (
            robot(world, token) as it,
            robot(world, free) as other,
            watching(world, token) as watch,
            watching(world, free) as unharmed,
        ):
            assert (await it.ask()).status == 200
            await delete(world, f"{collection}/p", **AT_ONCE)
            await it.refused("BoundObjectGone")
            await watch.ended()
            await callers.make(world, callers.CONFIG_MAPS, {"metadata": {"name": "seen"}})
            assert await unharmed.name() == "seen"
            assert (await callers.review(world, token))["error"] == (
                "[invalid bearer token, service account token has been invalidated]"
            )
            await callers.make(world, collection, document)
            await it.refused("BoundObjectReplaced")
            # The account is what it was.
            assert (await other.ask()).status == 200
        stale = await world.request("POST", f"{ROBOT}/token", {"spec": {"boundObjectRef": reference}})
        assert (stale.status, stale.reason) == (409, "Conflict")

    async def test_a_pod_that_is_being_deleted(self, world: worlds.World) -> None:
        """Its token is good for as long as it has to end, and a minute longer, for clocks that differ."""
        node = await callers.make(world, NODES, {"metadata": {"name": "n1"}})
        await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        made = await callers.make(world, PODS, pod(serviceAccountName="robot", nodeName="n1"))
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
        token = await callers.account_token(world, exists=True, boundObjectRef=reference)
        async with robot(world, token) as it:
            extra = (await it.user())["extra"]
            about = {
                key.rpartition("/")[2]: value for key, (value,) in extra.items() if "-uid" in key or "-name" in key
            }
            assert about == {
                "pod-name": "p",
                "pod-uid": made["metadata"]["uid"],
                "node-name": "n1",
                "node-uid": node["metadata"]["uid"],
            }
            await delete(world, f"{PODS}/p", gracePeriodSeconds="30")
            await world.movable().advance(89)
            assert (await it.ask()).status == 200
            # The Node only tells where the Pod is.
            await delete(world, f"{NODES}/n1")
            assert (await it.ask()).status == 200
            await world.movable().advance(2)
            await it.refused("BoundObjectGone")

    async def test_a_token_counts_only_for_its_audiences(self, world: worlds.World) -> None:
        token = await callers.account_token(world, audiences=["vault", "ledger"])
        async with robot(world, token) as it:
            await it.refused("WrongAudience")
        assert (await callers.review(world, token))["error"] == (
            f'[invalid bearer token, token audiences ["vault" "ledger"] is invalid for the target audiences ["{API}"]]'
        )
        found = await callers.review(world, token, "ledger", "elsewhere")
        assert (found["authenticated"], found["audiences"]) == (True, ["ledger"])
        assert found["user"]["username"] == "system:serviceaccount:default:robot"
        assert "authenticated" not in await callers.review(world, token, "elsewhere")
        # One for the API is no proof elsewhere.
        own = await callers.account_token(world, exists=True)
        assert (await callers.review(world, own))["audiences"] == [API]
        assert "authenticated" not in await callers.review(world, own, "vault")

    async def test_it_expires_by_the_clock(self, world: worlds.World) -> None:
        token = await callers.account_token(world, expirationSeconds=600)
        await callers.bind(world, "cluster-admin", "ServiceAccount", "robot", namespace="default")
        # What is left of its life when the watch begins passes on the real clock: a tenth of a second.
        await world.movable().advance(599.9)
        headers = callers.bearer(token)
        async with (
            robot(world, token) as it,
            callers.watching(world, world.anonymous_context(), headers=headers) as watch,
        ):
            await watch.ended()
            await world.movable().advance(60)
            assert (await it.ask()).status == 200
            await world.movable().advance(1)
            await it.refused("Expired")
            assert (await callers.review(world, token))["error"] == (
                "[invalid bearer token, service account token has expired]"
            )

    async def test_the_server_shortens_what_is_asked_for(self, tmp_path: pathlib.Path) -> None:
        async with worlds.world(tmp_path / "d", guard=guard.GuardOptions(max_token_seconds=3600)) as world:
            await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
            answer = await world.request("POST", f"{ROBOT}/token", {"spec": {"expirationSeconds": 7200}})
            assert answer.headers["Warning"] == (
                '299 - "requested expiration of 7200 seconds shortened to 3600 seconds"'
            )
            async with robot(world, answer.json()["status"]["token"]) as it:
                await world.movable().advance(3659)
                assert (await it.ask()).status == 200
                await world.movable().advance(2)
                await it.refused("Expired")

    async def test_a_restart_forgets_no_key(self, tmp_path: pathlib.Path) -> None:
        async with worlds.world(tmp_path / "d") as world:
            token = await callers.account_token(world)
        async with worlds.world(tmp_path / "d") as world, robot(world, token) as it:
            assert (await it.ask()).status == 200


class TestTokenReview:
    async def test_what_is_asked_is_not_repeated(self, world: worlds.World) -> None:
        token = await callers.account_token(world)
        answer = await world.request("POST", callers.TOKEN_REVIEWS, {"spec": {"token": token, "audiences": [API]}})
        assert answer.status == 201
        assert answer.json()["spec"] == {"token": token, "audiences": [API]}
        empty = await world.request("POST", callers.TOKEN_REVIEWS, {"spec": {}})
        assert (empty.status, empty.message) == (400, "token is required for TokenReview in authentication")

    async def test_only_who_may_can_ask(self, world: worlds.World) -> None:
        token = await callers.account_token(world)
        jane = world.context_for("jane")
        document = {"spec": {"token": token}}
        assert (await world.request("POST", callers.TOKEN_REVIEWS, document, context=jane)).status == 403
        await callers.bind(world, "system:auth-delegator", "User", "jane")
        assert (await world.request("POST", callers.TOKEN_REVIEWS, document, context=jane)).status == 201


@contextlib.asynccontextmanager
async def filled_by_its_controller(world: worlds.World) -> AsyncIterator[controlled.Story]:
    """The real controller of tokens in Secrets, with the server's own key."""
    signer = jwt.Signer(keys.private_from_pem(world.place.service_account_key.read_bytes()))
    build = controllers.known(world.place.ca_certificate.read_bytes(), signer)[service_account_tokens.NAME]
    async with (
        controlled.connected(world) as client,
        controlled.copied(world.clock, lambda: controlled.connected(world), lambda: [build]),
    ):
        yield controlled.Story(client, world.movable())


class TestLegacyTokens:
    PATH = f"{SECRETS}/legacy"

    async def _token(self, world: worlds.World, story: controlled.Story, other_than: str = "") -> str:
        async def filled() -> str:
            found = (await world.get(self.PATH)).json()
            token = base64.b64decode(found.get("data", {}).get("token", "")).decode()
            return "" if token == other_than else token

        return str(await story.eventually(filled, "the Secret has a token"))

    async def test_from_its_making_to_its_end(self, world: worlds.World) -> None:
        account = await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        async with filled_by_its_controller(world) as story:
            await callers.make(world, SECRETS, LEGACY)
            token = await self._token(world, story)
            async with robot(world, token) as it:
                assert await it.user() == {
                    "username": "system:serviceaccount:default:robot",
                    "uid": account["metadata"]["uid"],
                    "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
                }
                found = await callers.review(world, token)
                assert (found["authenticated"], found["audiences"]) == (True, [API])
                assert "authenticated" not in await callers.review(world, token, "vault")

                async def labelled() -> bool:
                    labels = (await world.get(self.PATH)).json()["metadata"].get("labels", {})
                    return bool(labels.get("kubernetes.io/legacy-token-last-used") == f"{world.clock.now():%Y-%m-%d}")

                await story.eventually(labelled, "the day of its last use is written down")
                # Refilled: only what the Secret holds counts.
                answer = await world.request("PATCH", self.PATH, CHANGES["emptied"], headers=dict(callers.MERGE))
                assert answer.status == 200
                fresh = await self._token(world, story, other_than=token)
                await it.refused("TokenReplaced")
            async with robot(world, fresh) as it:
                assert (await it.ask()).status == 200
                await delete(world, self.PATH)
                await it.refused("SecretGone")
                assert (await callers.review(world, fresh))["error"] == (
                    "[invalid bearer token, Token has been invalidated]"
                )

    @pytest.mark.parametrize("way", ["deleted", "kept by a finalizer", "emptied", "marked"])
    async def test_watches_end_with_the_secret(self, world: worlds.World, way: str) -> None:
        await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        await callers.bind(world, "cluster-admin", "ServiceAccount", "robot", namespace="default")
        kept = {"finalizers": ["example.com/keep"]} if way == "kept by a finalizer" else {}
        async with filled_by_its_controller(world) as story:
            await callers.make(world, SECRETS, {**LEGACY, "metadata": LEGACY["metadata"] | kept})
            token = await self._token(world, story)
            other = await callers.account_token(world, exists=True)
            async with (
                robot(world, token) as it,
                watching(world, token) as watch,
                watching(world, other) as unharmed,
            ):
                # That it was used is written down in the Secret, and ends nothing.
                assert (await it.ask()).status == 200
                await callers.make(world, callers.CONFIG_MAPS, {"metadata": {"name": "before"}})
                assert [await each.name() for each in (watch, unharmed)] == ["before"] * 2
                if way in CHANGES:
                    answer = await world.request("PATCH", self.PATH, CHANGES[way], headers=dict(callers.MERGE))
                    assert answer.status == 200
                else:
                    await delete(world, self.PATH)
                assert await watch.ended() == []
                assert (await it.ask()).status == 401
                await callers.make(world, callers.CONFIG_MAPS, {"metadata": {"name": "after"}})
                assert await unharmed.name() == "after"

    async def test_a_watch_as_somebody_else_ends_with_the_callers_secret(self, world: worlds.World) -> None:
        await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        await callers.bind(world, "cluster-admin", "ServiceAccount", "robot", namespace="default")
        await callers.bind(world, "view", "User", "jane")
        async with filled_by_its_controller(world) as story:
            await callers.make(world, SECRETS, LEGACY)
            token = await self._token(world, story)
            async with watching(world, token, **{"Impersonate-User": "jane"}) as watch:
                await delete(world, self.PATH)
                assert await watch.ended() == []

    async def test_marked_as_invalid(self, world: worlds.World) -> None:
        await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        async with filled_by_its_controller(world) as story:
            await callers.make(world, SECRETS, LEGACY)
            token = await self._token(world, story)
            async with robot(world, token) as it:
                assert (await it.ask()).status == 200
                answer = await world.request("PATCH", self.PATH, CHANGES["marked"], headers=dict(callers.MERGE))
                assert answer.status == 200
                await it.refused("MarkedInvalid")

    async def test_the_account_goes_and_takes_the_secret_along(self, world: worlds.World) -> None:
        await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        async with filled_by_its_controller(world) as story:
            await callers.make(world, SECRETS, LEGACY)
            token = await self._token(world, story)
            async with robot(world, token) as it:
                assert (await it.ask()).status == 200
                await delete(world, ROBOT)
                with structlog.testing.capture_logs() as logs:
                    assert (await it.ask()).status == 401
                # Whichever is gone first.
                assert set(callers.reasons(logs)) <= {"AccountGone", "SecretGone"}
            await story.gone(controlled.SECRETS, "legacy")


def unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def verified(token: str, key_set: Any) -> Any:
    """The claims, by RFC 7515 to 7518 and nothing of this program: what a relying party does."""
    head, body, mark = token.split(".")
    header = json.loads(unpacked(head))
    (jwk,) = [key for key in key_set["keys"] if key["kid"] == header["kid"]]
    assert (jwk["kty"], jwk["crv"], jwk["alg"], jwk["use"], header["alg"]) == ("EC", "P-256", "ES256", "sig", "ES256")
    x, y = (int.from_bytes(unpacked(jwk[name]), "big") for name in ("x", "y"))
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    raw = unpacked(mark)
    r, s = (int.from_bytes(half, "big") for half in (raw[:32], raw[32:]))
    public.verify(signatures.encode_dss_signature(r, s), f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
    return json.loads(unpacked(body))


class TestDiscovery:
    async def test_who_may_read_it(self, world: worlds.World) -> None:
        token = await callers.account_token(world)
        jane = world.context_for("jane")
        async with robot(world, token) as it:
            for path in (CONFIGURATION, KEYS):
                assert (await it.ask(path)).status == 200
                for context in (world.anonymous_context(), jane):
                    refused = await world.get(path, context=context)
                    assert (refused.status, refused.reason) == (403, "Forbidden")

    async def test_others_can_verify_a_token(self, world: worlds.World) -> None:
        token = await callers.account_token(world, audiences=["vault"])
        own = await callers.account_token(world, exists=True)
        async with robot(world, own) as it:
            configuration = (await it.ask(CONFIGURATION)).json()
            reply = await it.ask(KEYS)
        assert reply.headers["content-type"] == "application/jwk-set+json"
        assert configuration["issuer"] == API
        assert configuration["jwks_uri"] == API + KEYS
        assert configuration["id_token_signing_alg_values_supported"] == ["ES256"]
        # Nothing private: RFC 7518 names it d.
        assert all("d" not in key for key in reply.json()["keys"])
        claims = verified(token, reply.json())
        assert (claims["iss"], claims["sub"]) == (API, "system:serviceaccount:default:robot")
        assert claims["aud"] == ["vault"]
        assert claims["exp"] - claims["iat"] == 3600
        head, body, mark = token.split(".")
        forged = body[:-4] + ("AAAA" if body[-4:] != "AAAA" else "BBBB")
        with pytest.raises(exceptions.InvalidSignature):
            verified(f"{head}.{forged}.{mark}", reply.json())
        # The name of the key is that of Kubernetes: the SHA-256 of its SubjectPublicKeyInfo.
        public = keys.private_from_pem(world.place.service_account_key.read_bytes()).public
        kid = base64.urlsafe_b64encode(hashlib.sha256(public.spki).digest()).rstrip(b"=").decode()
        assert [key["kid"] for key in reply.json()["keys"]] == [kid]
