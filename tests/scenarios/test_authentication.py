# SPDX-License-Identifier: Apache-2.0
"""Bootstrap tokens and client CAs against a served world: who gets in, who is told nothing, and what the operator is told.

The Secrets and the bundle are written over the API, as an administrator does; what is expected of each row is
Kubernetes' order of checks. Service account tokens have a file of their own.
"""

from __future__ import annotations

import datetime
import pathlib
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import structlog

from handfast.assembly import apiserver, guard
from handfast.bootstrap import tokens
from handfast.pki import authority, keys, names
from tests.scenarios import callers, wire
from tests.world import world as worlds

TOKEN = "foobar.circumnavigation"
NODES = "/api/v1/nodes"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
BUNDLE = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class Row(NamedTuple):
    """A Secret, what is presented, and what comes of it: a reason, or "" for a user with these extra groups."""

    why: str = ""
    change: Mapping[str, str | None] = {}
    presented: str = TOKEN
    name: str = "bootstrap-token-foobar"
    secret: Mapping[str, Any] = {}
    groups: tuple[str, ...] = ()

    def document(self) -> Any:
        if self.secret.get("data", "") is None:
            return callers.token_secret(None, self.name)
        merged = {**callers.TOKEN_DATA, **self.change}
        data = {key: value for key, value in merged.items() if value is not None}
        return callers.token_secret(data, self.name, **self.secret)


EXPIRATION, GROUPS, USAGE = tokens.KEY_EXPIRATION, tokens.KEY_GROUPS, "usage-bootstrap-authentication"
ROWS: Mapping[str, Row] = {
    "valid": Row(),
    "extra group": Row(change={GROUPS: "system:bootstrappers:foo"}, groups=("system:bootstrappers:foo",)),
    "expires in 2109": Row(change={EXPIRATION: "2109-11-10T23:00:00Z"}),
    "expires with an offset": Row(change={EXPIRATION: "2109-11-10T23:00:00+05:30"}),
    "empty expiry": Row(change={EXPIRATION: ""}),
    # 1 and 2: the shape, the name
    "id foo": Row("UnknownToken", {tokens.KEY_ID: "foo"}, "foo.circumnavigation", "bootstrap-token-foo"),
    "upper case": Row("UnknownToken", presented="FOOBAR.circumnavigation"),
    "unicode digits": Row("UnknownToken", presented="foobar.circumnavigatio\N{ARABIC-INDIC DIGIT ONE}"),
    "one letter more": Row("UnknownToken", presented=f"{TOKEN}s"),
    "another dot": Row("UnknownToken", presented=f"{TOKEN}."),
    "unknown id": Row("UnknownToken", presented="barfoo.circumnavigation"),
    "bad name": Row("UnknownToken", name="bad-name"),
    # 4: type and data
    "wrong type": Row("WrongSecretType", secret={"type": "Opaque"}),
    "no data": Row("NoSecretData", secret={"data": None}),
    # 5 and 6: secret and id
    "wrong secret": Row("WrongTokenSecret", presented="foobar.circumnavigatiom"),
    "no secret": Row("WrongTokenSecret", {tokens.KEY_SECRET: None}),
    "wrong id": Row("WrongTokenID", {tokens.KEY_ID: "barfoo"}),
    # 7: expiration
    "expired in 2009": Row("TokenExpired", {EXPIRATION: "2009-11-10T23:00:00Z"}),
    "expired with an offset": Row("TokenExpired", {EXPIRATION: "2009-11-10T23:00:00-07:00"}),
    "garbage expiry": Row("BadTokenExpiration", {EXPIRATION: "garbage"}),
    # 8: usage
    "no usage": Row("NotForAuthentication", {USAGE: None}),
    "usage False": Row("NotForAuthentication", {USAGE: "false"}),
    "usage True": Row("NotForAuthentication", {USAGE: "True"}),
    # 9: groups
    "invalid group": Row("BadBootstrapGroup", {GROUPS: "foo"}),
    "a group of administrators": Row("BadBootstrapGroup", {GROUPS: "system:masters"}),
    "trailing comma": Row("BadBootstrapGroup", {GROUPS: "system:bootstrappers:foo,"}),
    # The first check that fails is told, whatever else is wrong.
    "secret before expiry": Row(
        "WrongTokenSecret", {EXPIRATION: "garbage", USAGE: None}, presented="foobar.0123456789abcdef"
    ),
    "id before expiry": Row("WrongTokenID", {tokens.KEY_ID: "barfoo", EXPIRATION: "2009-11-10T23:00:00Z"}),
    "expiry before usage": Row("TokenExpired", {EXPIRATION: "2009-11-10T23:00:00Z", USAGE: None, GROUPS: "foo"}),
    "usage before groups": Row("NotForAuthentication", {USAGE: None, GROUPS: "foo"}),
}


async def present(world: worlds.World, token: str, path: str = callers.WHO_AM_I) -> tuple[wire.Reply, list[str]]:
    """The answer to a bearer of this token, and the reasons in the log."""
    method = "POST" if path == callers.WHO_AM_I else "GET"
    # As the bytes of UTF-8, which is what a client would put there.
    header = f"Bearer {token}".encode().decode("latin-1")
    with structlog.testing.capture_logs() as logs:
        async with wire.line(world.server.address[1], world.anonymous_context()) as line:
            reply = await line.ask(method, path, b"{}" if method == "POST" else b"", Authorization=header)
    return reply, callers.reasons(logs)


class TestBootstrapTokens:
    async def test_every_check(self, tmp_path: pathlib.Path) -> None:
        audit_file = tmp_path / "audit.log"
        told: dict[str, tuple[str, str]] = {}
        audit = apiserver.AuditOptions(path=str(audit_file))
        async with worlds.world(tmp_path / "d", audit=audit) as world:
            for case, row in ROWS.items():
                made = await callers.make(world, callers.SECRETS, row.document())
                counted = await callers.refusals(world, row.why)
                reply, reasons = await present(world, row.presented)
                told[reply.headers["audit-id"]] = case, row.why
                if row.why:
                    assert (reply.status, reply.json()) == (401, callers.BARE), case
                    # Only who holds the right secret is told a word: that the token has ended.
                    said = 'error_description="TokenExpired"' in reply.headers.get("www-authenticate", "")
                    assert said == (row.why == "TokenExpired"), case
                    assert reasons == [row.why], case
                    assert await callers.refusals(world, row.why) == counted + 1, case
                else:
                    info = reply.json()["status"]["userInfo"]
                    groups = ["system:bootstrappers", *row.groups, "system:authenticated"]
                    assert info == {"username": "system:bootstrap:foobar", "groups": groups}, case
                    assert reasons == [], case
                deleted = await world.request("DELETE", f"{callers.SECRETS}/{made['metadata']['name']}")
                assert deleted.status == 200
        lines = callers.audited_by_id(audit_file)
        for number, (case, why) in told.items():
            notes = lines[number]["annotations"]
            assert notes.get("handfast.dev/refused-because", "").partition(":")[0] == why, case
            assert notes.get("handfast.dev/authenticated-by", "") == ("" if why else "bootstrap-token"), case
            assert lines[number]["user"] == {} if why else "groups" in lines[number]["user"], case
        assert "circumnavigation" not in audit_file.read_text()

    async def test_being_deleted_and_deleted(self, world: worlds.World) -> None:
        document = callers.token_secret(callers.TOKEN_DATA, metadata={"finalizers": ["example.com/wait"]})
        await callers.make(world, callers.SECRETS, document)
        path = f"{callers.SECRETS}/bootstrap-token-foobar"
        async with wire.line(world.server.address[1], world.anonymous_context()) as line:
            ask = ("POST", callers.WHO_AM_I, b"{}")
            assert (await line.ask(*ask, **callers.bearer(TOKEN))).status == 201
            with structlog.testing.capture_logs() as logs:
                # Kubernetes would remember the token for ten seconds; here the very next request is judged anew.
                assert (await world.request("DELETE", path)).status == 200
                assert (await line.ask(*ask, **callers.bearer(TOKEN))).json() == callers.BARE
                freed = await world.request(
                    "PATCH", path, {"metadata": {"finalizers": None}}, headers=dict(callers.MERGE)
                )
                assert freed.status == 200
                assert (await world.get(path)).status == 404
                assert (await line.ask(*ask, **callers.bearer(TOKEN))).json() == callers.BARE
            assert callers.reasons(logs) == ["TokenBeingDeleted", "UnknownToken"]

    async def test_a_changed_secret_counts_at_once(self, world: worlds.World) -> None:
        await callers.bootstrap_token(world)
        path = f"{callers.SECRETS}/bootstrap-token-foobar"
        for change, code in (({USAGE: "ZmFsc2U="}, 401), ({USAGE: "dHJ1ZQ=="}, 201)):
            assert (await world.request("PATCH", path, {"data": change}, headers=dict(callers.MERGE))).status == 200
            assert (await present(world, TOKEN))[0].status == code

    async def test_it_expires_by_the_clock_and_takes_its_watch_along(self, world: worlds.World) -> None:
        until = world.clock.now() + datetime.timedelta(hours=1)
        await callers.bootstrap_token(world, expiration=until.isoformat())
        await callers.bind(world, "system:node-bootstrapper", "Group", "system:bootstrappers")
        nobody = world.anonymous_context()
        # What is left of the token's life when the watch begins passes on the real clock: a tenth of a second.
        await world.movable().advance(3599.9)
        async with callers.watching(world, nobody, CSRS, callers.bearer(TOKEN)) as watch:
            assert (await present(world, TOKEN))[0].status == 201
            await world.movable().advance(0.1)
            reply, reasons = await present(world, TOKEN)
            assert (reply.status, reasons) == (401, ["TokenExpired"])
            assert await watch.ended() == []

    async def test_what_it_may_do_is_for_rbac_to_say(self, world: worlds.World) -> None:
        await callers.bootstrap_token(world)
        reply, reasons = await present(world, TOKEN, CSRS)
        assert (reply.status, reasons) == (403, ["NoRuleAllows"])
        assert 'User "system:bootstrap:foobar" cannot list resource "certificatesigningrequests"' in reply.message
        await callers.bind(world, "system:node-bootstrapper", "Group", "system:bootstrappers")
        assert (await present(world, TOKEN, CSRS))[0].status == 200
        assert (await present(world, TOKEN, NODES))[0].status == 403

    async def test_off_it_is_a_token_nobody_knows(self, tmp_path: pathlib.Path) -> None:
        async with worlds.world(tmp_path / "d", guard=guard.GuardOptions(bootstrap_tokens=False)) as world:
            await callers.bootstrap_token(world)
            reply, reasons = await present(world, TOKEN)
            assert (reply.status, reply.json(), reasons) == (401, callers.BARE, ["UnknownToken"])
            assert await callers.review(world, TOKEN) == {"user": {}, "error": "invalid bearer token"}

    async def test_a_token_review(self, world: worlds.World) -> None:
        await callers.bootstrap_token(world)
        api = "https://kubernetes.default.svc.cluster.local"
        good = {
            "authenticated": True,
            "user": {"username": "system:bootstrap:foobar", "groups": ["system:bootstrappers", "system:authenticated"]},
            "audiences": [api],
        }
        assert await callers.review(world, TOKEN) == good
        assert await callers.review(world, TOKEN, "elsewhere", api) == good
        refused = {"user": {}, "error": "invalid bearer token"}
        # Neither why, nor whether the id exists; and it is no proof for other services.
        for token in ("foobar.0123456789abcdef", "barfoo.circumnavigation", "garbage"):
            assert await callers.review(world, token) == refused
        assert await callers.review(world, TOKEN, "elsewhere") == refused

    async def test_beside_a_certificate(self, world: worlds.World) -> None:
        """A good certificate wins; a bad one does not spoil a good token, nor does a bad token become nobody."""
        await callers.bootstrap_token(world)
        short = world.context_for("jane", ttl=datetime.timedelta(minutes=10))
        ask = ("POST", callers.WHO_AM_I, b"{}")
        async with wire.line(world.server.address[1], short) as line:
            reply = await line.ask(*ask, **callers.bearer(TOKEN))
            assert reply.json()["status"]["userInfo"]["username"] == "jane"
            await world.movable().advance(601)
            reply = await line.ask(*ask, **callers.bearer(TOKEN))
            assert reply.json()["status"]["userInfo"]["username"] == "system:bootstrap:foobar"
            with structlog.testing.capture_logs() as logs:
                assert (await line.ask("GET", "/healthz", **callers.bearer("x"))).json() == callers.BARE
            assert callers.reasons(logs) == ["Expired"]


@pytest.mark.slow
@pytest.mark.on_etcd
class TestClientCAs:
    """What a removed CA leaves behind; the rotation itself is in `test_client_ca_rotation`."""

    @staticmethod
    async def choose(world: worlds.World, bundle: str) -> None:
        answer = await world.request("PATCH", BUNDLE, {"data": {"client-ca-file": bundle}}, headers=dict(callers.MERGE))
        assert answer.status == 200, answer.body

    async def test_a_removed_ca(self, tmp_path: pathlib.Path) -> None:
        directory, audit_file = tmp_path / "d", tmp_path / "audit.log"
        async with worlds.world(directory, audit=apiserver.AuditOptions(path=str(audit_file))) as world:
            first = world.place.ca_certificate.read_text()
            subject = names.Subject(common_name="the next CA")
            ca = authority.self_signed_ca(subject, keys.generate(), world.clock.now())
            theirs = callers.administrator(world, ca)
            await self.choose(world, first + ca.pem.decode())
            async with (
                wire.line(world.server.address[1], theirs) as line,
                callers.watching(world, theirs) as their_watch,
                callers.watching(world, world.admin_context()) as our_watch,
            ):
                assert (await line.ask("GET", NODES)).status == 200
                await self.choose(world, first)
                with structlog.testing.capture_logs() as logs:
                    reply = await line.ask("GET", NODES)
                    assert (reply.status, reply.json()) == (401, callers.BARE)
                    # A credential that is not good is not nobody, where nobody may read.
                    assert (await line.ask("GET", "/healthz")).status == 401
                assert callers.reasons(logs) == ["UnknownAuthority", "UnknownAuthority"]
                # Every watch ends; whoever may comes back, and is judged anew.
                await their_watch.ended()
                await our_watch.ended()
                async with callers.watching(world, world.admin_context()) as again:
                    await world.create_config_map("after")
                    assert await again.name() == "after"
                number = reply.headers["audit-id"]
            assert await self.fresh(world, theirs) == 401
        because = callers.audited_by_id(audit_file)[number]["annotations"]["handfast.dev/refused-because"]
        assert because.startswith("UnknownAuthority: ")
        async with worlds.world(directory) as world:
            # Also after a restart: an answer, and no dropped handshake.
            assert await self.fresh(world, theirs) == 401
            assert (await world.get(NODES)).status == 200

    @staticmethod
    async def fresh(world: worlds.World, context: ssl.SSLContext) -> int:
        async with wire.line(world.server.address[1], context) as line:
            return (await line.ask("GET", NODES)).status

    async def test_a_change_counts_when_its_write_is_answered(self, world: worlds.World) -> None:
        """No poll, and no cache to wait for: the clock stands still."""
        before = world.clock.monotonic()
        subject = names.Subject(common_name="a CA")
        ca = authority.self_signed_ca(subject, keys.generate(), world.clock.now())
        theirs = callers.administrator(world, ca)
        first = world.place.ca_certificate.read_text()
        for _ in range(5):
            await self.choose(world, first + ca.pem.decode())
            assert await self.fresh(world, theirs) == 200
            await self.choose(world, first)
            assert await self.fresh(world, theirs) == 401
        assert world.clock.monotonic() == before
