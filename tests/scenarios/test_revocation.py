# SPDX-License-Identifier: Apache-2.0
"""Revocation of one identity against a served world: the next request of an open connection is refused, watches end.

Each way to name somebody is tried beside somebody else who must not notice. Who may write Revocations is for RBAC, and
the command line has tests of its own.
"""

from __future__ import annotations

import asyncio
import datetime
import pathlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import structlog

from handfast.assembly import apiserver
from handfast.pki import keys, names, pins, profiles
from handfast.runtime import tls
from tests.scenarios import callers, wire
from tests.world import world as worlds

pytestmark = [pytest.mark.slow, pytest.mark.measured, pytest.mark.on_etcd]
MASTERS = "system:masters"


@dataclass(frozen=True)
class Certified:
    """Somebody with a client certificate."""

    context: ssl.SSLContext
    serial: str
    key: str


def certified(
    world: worlds.World, name: str = "mallory", key: keys.PrivateKey | None = None, group: str = MASTERS
) -> Certified:
    key = key or keys.generate()
    subject = names.Subject(common_name=name, organizations=(group,))
    issued = callers.cluster_ca(world).issue(
        key.public, subject, names.Sans(), profiles.CLIENT, world.clock.now(), None
    )
    context = tls.client_context(world.place.ca_certificate.read_bytes(), issued.pem, key.to_pem())
    return Certified(context, issued.serial, pins.of_certificate(issued.der).sha256)


WAYS: dict[str, Callable[[Certified], dict[str, str]]] = {
    "user": lambda _: {"user": "mallory"},
    "serial number": lambda who: {"serialNumber": who.serial},
    "serial number as OpenSSL prints it": lambda who: {"serialNumber": ":".join(_octets(who.serial)).upper()},
    "key": lambda who: {"keyFingerprint": f"sha256:{who.key}"},
    "several, one of which is theirs": lambda who: {"node": "n9", "serialNumber": who.serial},
}


def _octets(serial: str) -> list[str]:
    even = serial.zfill(len(serial) + len(serial) % 2)
    return [even[at : at + 2] for at in range(0, len(even), 2)]


@pytest.fixture
def audit_file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "audit.log"


@pytest.fixture
async def world(tmp_path: pathlib.Path, audit_file: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "d", audit=apiserver.AuditOptions(path=str(audit_file))) as made:
        yield made


class TestCertificates:
    @pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
    async def test_the_next_request_on_an_open_connection(
        self, world: worlds.World, audit_file: pathlib.Path, way: Callable[[Certified], dict[str, str]]
    ) -> None:
        mallory, alice = certified(world), certified(world, "alice")
        port = world.server.address[1]
        async with (
            wire.line(port, mallory.context) as theirs,
            wire.line(port, alice.context) as others,
            callers.watching(world, mallory.context) as their_watch,
            callers.watching(world, alice.context) as other_watch,
        ):
            assert (await theirs.ask("GET", callers.CONFIG_MAPS)).status == 200
            with structlog.testing.capture_logs() as logs:
                await callers.revoke(world, "m", **way(mallory), reason="a laptop was stolen")
                reply = await theirs.ask("GET", callers.CONFIG_MAPS)
                assert (reply.status, reply.json()) == (401, callers.BARE)
                # Nor are they nobody, who may read this.
                assert (await theirs.ask("GET", "/healthz")).status == 401
            assert callers.reasons(logs) == ["Revoked", "Revoked"]
            assert all("a laptop was stolen" in entry["detail"] for entry in logs if "detail" in entry)
            assert await callers.refusals(world, "Revoked") == 2
            assert await their_watch.ended() == []
            # Somebody else notices nothing.
            assert (await others.ask("GET", callers.CONFIG_MAPS)).status == 200
            await world.create_config_map("after")
            assert await other_watch.name() == "after"
            # Nor does a new connection help.
            async with wire.line(port, mallory.context) as again:
                assert (await again.ask("GET", "/healthz")).status == 401
            # Undone: the same connection is good again.
            assert (await world.request("DELETE", f"{callers.REVOCATIONS}/m")).status == 200
            assert (await theirs.ask("GET", callers.CONFIG_MAPS)).status == 200
        await world.close()
        line = callers.audited_by_id(audit_file)[reply.headers["audit-id"]]
        assert line["annotations"]["handfast.dev/refused-because"].startswith("Revoked: ")
        assert "a laptop was stolen" in line["annotations"]["handfast.dev/refused-because"]
        assert (line["responseStatus"]["code"], line["user"]) == (401, {})

    async def test_a_key_in_another_certificate(self, world: worlds.World) -> None:
        key = keys.generate()
        first = certified(world, key=key)
        await callers.revoke(world, "by-serial", serialNumber=first.serial)
        second = certified(world, "innocent", key)
        assert (await world.get("/version", context=second.context)).status == 200
        await callers.revoke(world, "by-key", keyFingerprint=f"sha256:{first.key}")
        assert (await world.get("/version", context=second.context)).status == 401

    async def test_administrators_are_not_exempt(self, world: worlds.World) -> None:
        await callers.revoke(world, "admin", user="kubernetes-admin")
        assert (await world.get("/version")).status == 401
        other = certified(world, "break-glass")
        undo = await world.request("DELETE", f"{callers.REVOCATIONS}/admin", context=other.context)
        assert undo.status == 200
        assert (await world.get("/version")).status == 200

    async def test_it_ends_by_the_clock(self, world: worlds.World) -> None:
        mallory = certified(world)
        until = (world.clock.now() + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        await callers.revoke(world, "m", user="mallory", expires=until)
        async with wire.line(world.server.address[1], mallory.context) as line:
            assert (await line.ask("GET", "/version")).status == 401
            await world.movable().advance(3600)
            assert (await line.ask("GET", "/version")).status == 200

    async def test_it_holds_after_a_restart(self, tmp_path: pathlib.Path) -> None:
        async with worlds.world(tmp_path / "w") as world:
            mallory = certified(world)
            await callers.revoke(world, "m", user="mallory")
        async with worlds.world(tmp_path / "w") as world:
            assert (await world.get("/version", context=mallory.context)).status == 401

    async def test_a_change_counts_at_once(self, world: worlds.World) -> None:
        mallory, alice = certified(world), certified(world, "alice")
        await callers.revoke(world, "r", user="mallory")
        change = {"spec": {"user": "alice"}}
        path = f"{callers.REVOCATIONS}/r"
        async with callers.watching(world, alice.context) as watch:
            assert (await world.request("PATCH", path, change, headers=dict(callers.MERGE))).status == 200
            assert await watch.ended() == []
        assert (await world.get("/version", context=alice.context)).status == 401
        assert (await world.get("/version", context=mallory.context)).status == 200


class TestNodes:
    @staticmethod
    def kubelet(world: worlds.World, name: str) -> Certified:
        return certified(world, f"system:node:{name}", group="system:nodes")

    @staticmethod
    async def pod_token(world: worlds.World, node: str) -> str:
        """The token of a Pod on a node."""
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node, "serviceAccountName": "robot"}
        document = {"metadata": {"name": f"on-{node}"}, "spec": spec}
        await callers.make(world, "/api/v1/namespaces/default/pods", document)
        reference = {"apiVersion": "v1", "kind": "Pod", "name": f"on-{node}"}
        return await callers.account_token(world, exists=True, boundObjectRef=reference)

    async def test_a_node_and_all_that_is_on_it(self, world: worlds.World) -> None:
        for name in ("n1", "n2"):
            await callers.make(world, "/api/v1/nodes", {"metadata": {"name": name}})
        await callers.make(world, callers.ACCOUNTS, {"metadata": {"name": "robot"}})
        await callers.bind(world, "cluster-admin", "ServiceAccount", "robot", namespace="default")
        lost, other = await self.pod_token(world, "n1"), await self.pod_token(world, "n2")
        first, second = self.kubelet(world, "n1"), self.kubelet(world, "n2")
        nobody = world.anonymous_context()
        own = "/api/v1/nodes/n1"
        async with (
            wire.line(world.server.address[1], first.context) as kubelet,
            wire.line(world.server.address[1], nobody) as bearer,
            callers.watching(world, nobody, headers=callers.bearer(lost)) as lost_watch,
            callers.watching(world, nobody, headers=callers.bearer(other)) as other_watch,
        ):
            assert (await kubelet.ask("GET", own)).status == 200
            assert (await bearer.ask("GET", own, **callers.bearer(lost))).status == 200
            with structlog.testing.capture_logs() as logs:
                await callers.revoke(world, "n1", node="n1")
                assert (await kubelet.ask("GET", own)).status == 401
                assert (await bearer.ask("GET", own, **callers.bearer(lost))).status == 401
                # A new certificate for the same node is no way back.
                anew = self.kubelet(world, "n1")
                assert (await world.get(own, context=anew.context)).status == 401
            assert callers.reasons(logs) == ["Revoked"] * 3
            assert (await bearer.ask("GET", own, **callers.bearer(other))).status == 200
            assert (await world.get("/api/v1/nodes/n2", context=second.context)).status == 200
            assert await lost_watch.ended() == []
            await world.create_config_map("after")
            assert await other_watch.name() == "after"
        assert await callers.review(world, lost) == {"user": {}, "error": "invalid bearer token"}
        assert (await callers.review(world, other))["authenticated"] is True
        # The account itself is not revoked.
        assert (await callers.review(world, await callers.account_token(world, exists=True)))["authenticated"] is True

    async def test_a_token_bound_to_the_node(self, world: worlds.World) -> None:
        await callers.make(world, "/api/v1/nodes", {"metadata": {"name": "n1"}})
        reference = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        token = await callers.account_token(world, boundObjectRef=reference)
        assert (await callers.review(world, token))["authenticated"] is True
        await callers.revoke(world, "n1", node="n1")
        assert "authenticated" not in await callers.review(world, token)


class TestOthers:
    async def test_a_service_account(self, world: worlds.World) -> None:
        token = await callers.account_token(world)
        nobody = world.anonymous_context()
        await callers.revoke(world, "robot", user="system:serviceaccount:default:robot")
        assert (await world.get("/version", context=nobody, headers=callers.bearer(token))).status == 401
        assert "authenticated" not in await callers.review(world, token)

    async def test_a_bootstrap_token(self, world: worlds.World) -> None:
        token = await callers.bootstrap_token(world)
        nobody = world.anonymous_context()
        assert (await world.get("/version", context=nobody, headers=callers.bearer(token))).status == 200
        await callers.revoke(world, "token", user="system:bootstrap:foobar")
        assert (await world.get("/version", context=nobody, headers=callers.bearer(token))).status == 401
        assert "authenticated" not in await callers.review(world, token)

    async def test_who_is_revoked_cannot_be_impersonated(self, world: worlds.World) -> None:
        path, groups = callers.CONFIG_MAPS, {"Impersonate-Group": MASTERS}
        for name in ("mallory", "system:node:n1"):
            assert (await world.get(path, headers={"Impersonate-User": name, **groups})).status == 200
        await callers.revoke(world, "m", user="mallory")
        await callers.revoke(world, "n", node="n1")
        for name in ("mallory", "system:node:n1"):
            with structlog.testing.capture_logs() as logs:
                refused = await world.get(path, headers={"Impersonate-User": name, **groups})
            assert (refused.status, refused.json()) == (401, callers.BARE)
            assert callers.reasons(logs) == ["Revoked"]
        assert (await world.get(path, headers={"Impersonate-User": "alice", **groups})).status == 200

    async def test_a_revoked_user_cannot_impersonate(self, world: worlds.World) -> None:
        mallory = certified(world)
        await callers.revoke(world, "m", user="mallory")
        headers = {"Impersonate-User": "alice"}
        assert (await world.get("/version", context=mallory.context, headers=headers)).status == 401

    async def test_an_impersonated_watch_ends_with_the_impersonator(self, world: worlds.World) -> None:
        """Whoever acts as another is still who they are."""
        mallory = certified(world)
        headers = {"Impersonate_User": "alice", "Impersonate_Group": MASTERS}
        async with callers.watching(world, mallory.context, headers=headers) as watch:
            await callers.revoke(world, "m", user="mallory")
            assert await watch.ended() == []

    async def test_a_watch_that_is_just_beginning(self, world: worlds.World) -> None:
        """It waits for a version that is still to come; the revocation comes first."""
        mallory = certified(world)
        later = world.server.replica.version + 2
        async with wire.line(world.server.address[1], mallory.context) as line:
            await line.send(wire.request("GET", f"{callers.CONFIG_MAPS}?watch=1&resourceVersion={later}"))
            async with asyncio.timeout(wire.PATIENCE):
                while len(world.server.hub) == 0:
                    await asyncio.sleep(0)
            await callers.revoke(world, "m", user="mallory")
            await world.create_config_map("after")
            reply = await line.reply()
            assert (reply.status, reply.body) == (200, b"")
