# SPDX-License-Identifier: Apache-2.0
"""Client CAs out of ConfigMaps, over real TLS: the bootstrap CA is good for one identity, and ends with its ConfigMap."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import pathlib
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest

from handfast.api import objects, status
from handfast.assembly import controllers
from handfast.controllers.machines import client_ca
from handfast.datadir.rotation import trust_objects
from handfast.pki import authority, certificates, keys, names, pem, profiles
from handfast.rules import client_ca_bundle, user_names
from handfast.rules.machines import bootstrapper, client_ca_sources, credential_end
from handfast.runtime import tls
from tests.scenarios import controlled as c

BUNDLE = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
CONFIG, MANAGED = bootstrapper.CONFIG_NAMESPACE, bootstrapper.MANAGED_NAMESPACE
USER_CA = ("openshift-kube-apiserver", "user-client-ca")
ROLES = "/apis/rbac.authorization.k8s.io/v1"
MERGE = {"Content-Type": "application/merge-patch+json"}
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
MASTERS = ("kubernetes-admin", "system:masters")
CONNECTIONS = 60
BOOTSTRAP = (bootstrapper.USER, *bootstrapper.GROUPS)


class Fleet(c.WorldStory):
    """A world with the namespaces of machine fleets, and signers of bootstrap credentials."""

    def signer(self, name: str = bootstrapper.SIGNER) -> authority.Authority:
        return authority.self_signed_ca(names.Subject(common_name=name), keys.generate(), self.clock.now())

    def holding(self, ca: authority.Authority, common_name: str, *organizations: str) -> ssl.SSLContext:
        """TLS of somebody whom a CA vouches for."""
        key = keys.generate()
        subject = names.Subject(common_name=common_name, organizations=organizations)
        issued = ca.issue(key.public, subject, names.Sans(), profiles.CLIENT, self.clock.now(), None)
        return tls.client_context(self.world.place.ca_certificate.read_bytes(), issued.pem, key.to_pem())

    async def source(self, text: str, place: tuple[str, str] = bootstrapper.CONFIG_MAPS[0], **more: Any) -> Any:
        data = {"ca-bundle.crt": text, **more.pop("data", {})}
        document = {"metadata": {"name": place[1], **more}, "data": data}
        return await self.client.create(c.CONFIG_MAPS, document, namespace=place[0])

    async def revoke(self, place: tuple[str, str] = bootstrapper.CONFIG_MAPS[0]) -> None:
        await self.client.delete(c.CONFIG_MAPS, place[1], namespace=place[0])

    async def who(self, context: ssl.SSLContext) -> Any:
        """What the server takes somebody for; the status where they are refused."""
        answer = await self.world.request("POST", SELF, {}, context=context)
        return answer.json()["status"]["userInfo"] if answer.status == 201 else answer.status

    async def becomes(self, context: ssl.SSLContext, status: int) -> None:
        async def answered() -> bool:
            try:
                who = await self.who(context)
            except aiohttp.ClientError:
                # No CA of this has ever been trusted: not even the handshake goes through.
                return False
            return (who if isinstance(who, int) else 201) == status

        await self.eventually(answered, f"{status}")

    async def data(self) -> dict[str, str]:
        found = await self.client.get(c.CONFIG_MAPS, client_ca_bundle.NAME, namespace=client_ca_bundle.NAMESPACE)
        return dict(found["data"])

    async def trusts(self, *cas: authority.Authority, key: str = client_ca_bundle.KEY) -> None:
        wanted = sorted(ca.certificate.der for ca in cas)

        async def holds() -> bool:
            text = (await self.data()).get(key, "")
            return (sorted(pem.certificates_from_pem(text.encode())) if text else []) == wanted

        await self.eventually(holds, f"{len(wanted)} CAs under {key}")

    def own(self) -> authority.Authority:
        place = self.world.place
        (der,) = pem.certificates_from_pem(place.ca_certificate.read_bytes())
        return authority.Authority(der, keys.private_from_pem(place.ca_key.read_bytes()))

    async def events(self, reason: str) -> list[tuple[str, str]]:
        """Whom Events of this reason are about, and what they say."""

        async def told() -> list[tuple[str, str]]:
            found = [event for event in await self.client.list(c.EVENTS) if event["reason"] == reason]
            return [
                (f"{event['involvedObject']['namespace']}/{event['involvedObject']['name']}", event["message"])
                for event in found
            ]

        return list(await self.eventually(told, f"an Event {reason}"))


@contextlib.asynccontextmanager
async def fleet(directory: pathlib.Path) -> AsyncIterator[Fleet]:
    async with c.story_of(Fleet, directory) as story:
        for namespace in sorted({namespace for namespace, _ in client_ca_sources.ALL}):
            await story.client.create(c.NAMESPACES, {"metadata": {"name": namespace}})
        yield story


@contextlib.asynccontextmanager
async def at_work(story: Fleet, copies: int | None = None) -> AsyncIterator[None]:
    """The real controller, with the rights that the default policy gives it."""
    build = controllers.known(story.world.place.ca_certificate.read_bytes())[client_ca.NAME]
    async with c.copied(story.clock, lambda: c.as_controllers(story.world), lambda: [build], copies) as running:

        async def ready() -> bool:
            return all(controller.ready for controller in running)

        await story.eventually(ready, "ready")
        yield


async def test_a_bootstrap_ca_is_good_for_one_identity_and_ends_with_its_config_map(tmp_path: pathlib.Path) -> None:
    async with fleet(tmp_path) as story:
        signer = story.signer()
        kubelet = story.holding(signer, *BOOTSTRAP)
        admin = story.holding(signer, *MASTERS)
        async with at_work(story):
            await story.source(signer.pem.decode())
            await story.trusts(signer, key=client_ca_bundle.SCOPED_KEY)
        # The bundle that other servers read does not tell of it.
        await story.trusts(story.own())
        assert len(bootstrapper.USER) == 73, "longer than X.520 allows"
        who = await story.who(kubelet)
        assert (who["username"], set(who["groups"])) == (
            bootstrapper.USER,
            {*bootstrapper.GROUPS, user_names.AUTHENTICATED},
        )
        for claim in (admin, story.holding(signer, "system:node:n1", "system:nodes")):
            assert await story.who(claim) == 401
        # No controller runs any more. The same connection, the next request.
        await story.revoke()
        assert await story.who(kubelet) == 401
        assert await story.who(story.holding(signer, *BOOTSTRAP)) == 401
        async with at_work(story):
            await story.trusts(key=client_ca_bundle.SCOPED_KEY)
        assert client_ca_bundle.SCOPED_KEY not in await story.data()


async def test_an_open_watch_ends_with_the_config_map(tmp_path: pathlib.Path) -> None:
    async with fleet(tmp_path) as story:
        signer = story.signer()
        kubelet = story.holding(signer, *BOOTSTRAP)
        async with at_work(story):
            await story.source(signer.pem.decode())
            await story.becomes(kubelet, 201)
        await allow(story, bootstrapper.USER)
        watched = "/api/v1/namespaces?watch=1"
        async with (
            story.world.session(kubelet).get(watched) as mine,
            story.world.session().get(watched) as others,
        ):
            assert (mine.status, others.status) == (200, 200)
            await story.revoke()
            async with asyncio.timeout(5):
                while await mine.content.readany():
                    pass
            # Whoever has another credential goes on watching.
            await story.client.create(c.NAMESPACES, {"metadata": {"name": "later"}})
            async with asyncio.timeout(5):
                while b'"later"' not in await others.content.readany():
                    assert not others.content.at_eof()
        assert (await story.world.get(watched, context=kubelet)).status == 401


async def test_at_its_end_it_is_refused_and_its_config_map_goes(tmp_path: pathlib.Path) -> None:
    """`--revoke-after`: the API server keeps to it by itself, and the controller clears up."""
    async with fleet(tmp_path) as story:
        signer = story.signer()
        kubelet = story.holding(signer, *BOOTSTRAP)
        end = story.clock.now() + datetime.timedelta(hours=4)
        async with at_work(story):
            await story.source(signer.pem.decode(), data={credential_end.KEY: objects.timestamp(end)})
            await story.becomes(kubelet, 201)
        await allow(story, bootstrapper.USER)
        # No controller runs. A watch is over then, and the open connections are refused.
        await story.clock.advance((end - story.clock.now()).total_seconds() - 1)
        assert (await story.who(kubelet))["username"] == bootstrapper.USER
        async with story.world.session(kubelet).get("/api/v1/namespaces?watch=1") as watch:
            assert watch.status == 200
            async with asyncio.timeout(5):
                while await watch.content.readany():
                    pass
        await story.clock.advance(1)
        assert await story.who(kubelet) == 401
        assert await story.find(c.CONFIG_MAPS, bootstrapper.CONFIG_MAP, CONFIG) is not None
        async with at_work(story):
            await story.gone(c.CONFIG_MAPS, bootstrapper.CONFIG_MAP, namespace=CONFIG)
            ((about, message),) = await story.events(credential_end.ENDED)
            assert about == f"{CONFIG}/{bootstrapper.CONFIG_MAP}"
            assert f"until {objects.timestamp(end)} (revoke-at)" in message
        # An end that is no instant is refused where it is written.
        with pytest.raises(status.StatusError, match="must be an instant"):
            await story.source(signer.pem.decode(), data={credential_end.KEY: "in four hours"})


async def test_every_open_connection_is_refused_from_the_next_request_on(tmp_path: pathlib.Path) -> None:
    async with fleet(tmp_path) as story:
        signer = story.signer()
        kubelet = story.holding(signer, *BOOTSTRAP)
        async with at_work(story):
            await story.source(signer.pem.decode())
            await story.becomes(kubelet, 201)

        async def ask() -> list[Any]:
            # At once, so that each has a connection of its own.
            return await asyncio.gather(*(story.who(kubelet) for _ in range(CONNECTIONS)))

        assert all(who["username"] == bootstrapper.USER for who in await ask())
        assert story.world.server.listener.connections >= CONNECTIONS
        await story.revoke()
        assert await ask() == [401] * CONNECTIONS


async def allow(story: Fleet, user: str) -> None:
    binding = {
        "metadata": {"name": "watcher"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    aggregated = {
        "metadata": {"name": "view"},
        "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}],
    }
    path = f"{ROLES}/clusterroles/view"
    assert (await story.world.request("PATCH", path, aggregated, headers=dict(MERGE))).status == 200
    assert (await story.world.request("POST", f"{ROLES}/clusterrolebindings", binding)).status == 201


async def test_a_restart_without_controllers_keeps_what_was_revoked_revoked(tmp_path: pathlib.Path) -> None:
    async with fleet(tmp_path) as story:
        signer = story.signer()
        kubelet = story.holding(signer, *BOOTSTRAP)
        async with at_work(story):
            await story.source(signer.pem.decode())
            await story.becomes(kubelet, 201)
        await story.revoke()
    async with c.story_of(Fleet, tmp_path) as again:
        # Its handshake goes through, so that it is told.
        assert await again.who(kubelet) == 401


async def test_a_source_that_cannot_be_read_blocks_neither_another_nor_a_removal(tmp_path: pathlib.Path) -> None:
    async with fleet(tmp_path) as story:
        signer, users = story.signer(), story.signer("the users' CA")
        async with at_work(story):
            await story.source(signer.pem.decode())
            await story.source(users.pem.decode(), USER_CA)
            await story.trusts(story.own(), users)
            jane = story.holding(users, "jane")
            assert (await story.who(jane))["username"] == "jane"
            # As an object of an older version: the API would not take it.
            await damage(story, (CONFIG, "admin-kubeconfig-client-ca"), "-----BEGIN CERTIFICATE-----\nhalf of it\n")
            (told,) = await story.events(client_ca_sources.UNREADABLE)
            assert told[0] == f"{CONFIG}/admin-kubeconfig-client-ca"
            assert "half of it" not in told[1]
            await story.revoke(USER_CA)
            await story.trusts(story.own())
            await story.revoke()
            await story.trusts(key=client_ca_bundle.SCOPED_KEY)
            assert await story.who(jane) == 401
            (condition,) = json.loads((await story.data())[client_ca_bundle.SOURCES_KEY])["conditions"]
            assert (condition["type"], condition["status"]) == ("SourcesReadable", "False")
            assert condition["message"].startswith(f"{CONFIG}/admin-kubeconfig-client-ca: PEM block 1")


async def damage(story: Fleet, place: tuple[str, str], text: str) -> None:
    """Have something in the store that the API refuses."""
    kind = next(row for row in story.world.server.table if row.resource == ("", "configmaps"))
    metadata = {"name": place[1], "namespace": place[0], "uid": "00000000-0000-4000-8000-000000000001"}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca-bundle.crt": text}}
    await story.world.server.storage.create(kind, document)


async def test_what_was_put_in_by_hand_stays_and_the_administrator_is_never_locked_out(tmp_path: pathlib.Path) -> None:
    async with fleet(tmp_path) as story:
        by_hand, users = story.signer("by hand"), story.signer("the users' CA")
        text = story.own().pem.decode() + by_hand.pem.decode()
        patched = {"data": {client_ca_bundle.KEY: text}}
        assert (await story.world.request("PATCH", BUNDLE, patched, headers=dict(MERGE))).status == 200
        async with at_work(story):
            # Sources hold the directory's own CA and the one by hand, too, and then nothing.
            await story.source(text + users.pem.decode(), USER_CA)
            await story.trusts(story.own(), by_hand, users)
            await story.revoke(USER_CA)
            await story.trusts(story.own(), by_hand)
            # A last CA that came from a source, and loses it.
            await story.source(users.pem.decode(), USER_CA)
            await story.trusts(story.own(), by_hand, users)
            next_admin = story.holding(users, *MASTERS)
            only = {"data": {client_ca_bundle.KEY: users.pem.decode()}}
            done = await story.world.request("PATCH", BUNDLE, only, headers=dict(MERGE), context=next_admin)
            assert done.status == 200
            path = f"/api/v1/namespaces/{USER_CA[0]}/configmaps/{USER_CA[1]}"
            assert (await story.world.request("DELETE", path, context=next_admin)).status == 200
            # The controllers' own credential is of the directory's CA, so that nobody is there to do more harm.
            assert (await story.who(next_admin))["username"] == MASTERS[0]


@pytest.mark.parametrize("copies", [2])
async def test_two_copies_without_a_lock_agree(tmp_path: pathlib.Path, copies: int) -> None:
    async with fleet(tmp_path) as story, at_work(story, copies):
        signers = [story.signer() for _ in range(3)]
        await story.source("".join(signer.pem.decode() for signer in signers))
        await story.source(signers[0].pem.decode(), USER_CA)
        await story.trusts(*signers, key=client_ca_bundle.SCOPED_KEY)
        await story.trusts(story.own(), signers[0])
        await story.revoke(USER_CA)
        await story.revoke()
        await story.trusts(story.own())
        await story.trusts(key=client_ca_bundle.SCOPED_KEY)
        before = (await story.data(), await versions(story))
        await story.quiet()
        assert (await story.data(), await versions(story)) == before, "nobody writes for ever"


async def versions(story: Fleet) -> str:
    found = await story.client.get(c.CONFIG_MAPS, client_ca_bundle.NAME, namespace=client_ca_bundle.NAMESPACE)
    return str(found["metadata"]["resourceVersion"])


async def test_who_may_write_and_delete_a_source(tmp_path: pathlib.Path) -> None:
    async with fleet(tmp_path) as story:
        eve, signer = story.world.context_for("eve"), story.signer()
        await edit(story, "eve", CONFIG)
        path = f"/api/v1/namespaces/{CONFIG}/configmaps"
        document = {"metadata": {"name": bootstrapper.CONFIG_MAP}, "data": {"ca-bundle.crt": signer.pem.decode()}}
        refused = await story.world.request("POST", path, document, context=eve)
        assert (refused.status, refused.reason) == (403, "Forbidden")
        assert 'also needs the verb "trust" on it' in refused.message
        assert (await story.world.request("POST", path, document)).status == 201
        one = f"{path}/{bootstrapper.CONFIG_MAP}"
        for change, status in (
            ({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/keep"]}}, 200),
            ({"data": {"ca-bundle.crt": ""}}, 403),
            ({"immutable": True}, 403),
        ):
            answer = await story.world.request("PATCH", one, change, headers=dict(MERGE), context=eve)
            assert answer.status == status, answer.body
        kubelet = story.holding(signer, *BOOTSTRAP)
        async with at_work(story):
            await story.becomes(kubelet, 201)
        # A finalizer keeps the object, and no trust.
        assert (await story.world.request("DELETE", one, context=eve)).status == 200
        assert (await story.world.get(one)).json()["metadata"]["deletionTimestamp"]
        assert await story.who(kubelet) == 401


async def edit(story: Fleet, user: str, namespace: str) -> None:
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    answer = await story.world.request("POST", f"{ROLES}/namespaces/{namespace}/rolebindings", binding)
    assert answer.status == 201


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no certificate at all", "no CERTIFICATE block"),
        ("-----BEGIN PRIVATE KEY-----\nTOPSECRET\n-----END PRIVATE KEY-----\n", "there is a private key in it"),
    ],
)
async def test_what_is_no_bundle_is_refused_and_not_shown(tmp_path: pathlib.Path, text: str, says: str) -> None:
    async with fleet(tmp_path) as story:
        path = f"/api/v1/namespaces/{CONFIG}/configmaps"
        document = {"metadata": {"name": bootstrapper.CONFIG_MAP}, "data": {"ca-bundle.crt": text}}
        refused = await story.world.request("POST", path, document)
        assert (refused.status, refused.reason) == (422, "Invalid")
        assert says in refused.message
        assert "TOPSECRET" not in refused.message


async def test_an_operator_reads_what_is_wrong_with_the_sources(tmp_path: pathlib.Path) -> None:
    async with fleet(tmp_path) as story:
        signer, other = story.signer(), story.signer()
        async with at_work(story):
            await story.source(signer.pem.decode(), ("default", bootstrapper.CONFIG_MAP))
            (told,) = await story.events("ClientCASourceInWrongNamespace")
            assert told[0] == f"default/{bootstrapper.CONFIG_MAP}"
            assert f"believed by the one in {CONFIG} (or {MANAGED}); make it there" in told[1]
            await story.source(signer.pem.decode() + other.pem.decode())
            await story.source(signer.pem.decode(), bootstrapper.CONFIG_MAPS[1])
            places = {about for about, _ in await two(story, "BootstrapCAInTwoPlaces")}
            assert places == {f"{CONFIG}/{bootstrapper.CONFIG_MAP}", f"{MANAGED}/{bootstrapper.CONFIG_MAP}"}
            await story.source(other.pem.decode(), USER_CA)
            (told,) = await story.events("BootstrapCANotScoped")
            assert certificates.fingerprint(other.certificate.der) in told[1]
            await story.trusts(story.own(), other)
            # What an unscoped source holds has no limit, until it does not hold it any more.
            admin = story.holding(other, *MASTERS)
            assert (await story.who(admin))["username"] == MASTERS[0]
            await story.revoke(USER_CA)
            await story.becomes(admin, 401)
            assert (await story.who(story.holding(other, *BOOTSTRAP)))["username"] == bootstrapper.USER


async def two(story: Fleet, reason: str) -> Sequence[tuple[str, str]]:
    async def both() -> Sequence[tuple[str, str]]:
        found = await story.events(reason)
        return found if len(found) == 2 else []

    found: Sequence[tuple[str, str]] = await story.eventually(both, f"two of {reason}")
    return found


async def test_a_second_signer_beside_the_first(tmp_path: pathlib.Path) -> None:
    """Of the same name, as each run of the installer calls it: both count, and each ends by itself."""
    async with fleet(tmp_path) as story, at_work(story):
        first, second = story.signer(), story.signer()
        old, new = story.holding(first, *BOOTSTRAP), story.holding(second, *BOOTSTRAP)
        await story.source(first.pem.decode())
        await story.becomes(old, 201)
        patch = {"data": {"ca-bundle.crt": first.pem.decode() + second.pem.decode()}}
        path = f"/api/v1/namespaces/{CONFIG}/configmaps/{bootstrapper.CONFIG_MAP}"
        assert (await story.world.request("PATCH", path, patch, headers=dict(MERGE))).status == 200
        await story.becomes(new, 201)
        await story.becomes(story.holding(first, *BOOTSTRAP), 201)
        only = {"data": {"ca-bundle.crt": second.pem.decode()}}
        assert (await story.world.request("PATCH", path, only, headers=dict(MERGE))).status == 200
        assert await story.who(old) == 401
        assert (await story.who(new))["username"] == bootstrapper.USER


async def test_a_rotation_goes_on_beside_it(tmp_path: pathlib.Path) -> None:
    async with fleet(tmp_path) as story, at_work(story):
        following, signer = story.signer("the next CA"), story.signer()
        await story.source(signer.pem.decode())
        # The next CA came through a source first; then it becomes the directory's own, and the source goes.
        await story.source(following.pem.decode(), USER_CA)
        await story.trusts(story.own(), following)
        assert await trust_objects.trust_client_ca(story.client, following.certificate.der)
        await story.revoke(USER_CA)
        await story.quiet()
        await story.trusts(story.own(), following)
        # A source that still gives what is retired is named.
        await story.source(following.pem.decode(), USER_CA)
        fingerprint = following.certificate.fingerprint
        assert await trust_objects.distrust_client_ca(story.client, [fingerprint])
        await story.trusts(story.own(), following)
        (lacking,) = await trust_objects.outdated(story.client, unwanted=[fingerprint])
        assert lacking == (
            "kube-system/extension-apiserver-authentication (given by openshift-kube-apiserver/user-client-ca)"
        )
        await story.revoke(USER_CA)
        await story.trusts(story.own())
        assert await trust_objects.outdated(story.client, unwanted=[fingerprint]) == []
        # What was not its own, it left alone.
        await story.trusts(signer, key=client_ca_bundle.SCOPED_KEY)
