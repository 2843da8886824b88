# SPDX-License-Identifier: Apache-2.0
"""The client-ca controller: what it reads, what it says, and when it looks again."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any

import msgspec
import prometheus_client
import pytest

from handfast import errors
from handfast.api import objects, status
from handfast.client import cache, partial
from handfast.controllers import loop
from handfast.controllers.machines import client_ca
from handfast.pki import certificates, pem
from handfast.rules import client_ca_bundle
from handfast.rules.machines import bootstrapper, client_ca_sources
from handfast.runtime import tls
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.pki.making import DAY, NOW, Made, ca
from tests.world.clock import MovableClock

OWN, USERS, SIGNER = ca("own"), ca("users"), ca(bootstrapper.SIGNER, not_after=NOW + DAY / 2)
OTHER = ca(bootstrapper.SIGNER)
SECOND = datetime.timedelta(seconds=1)
AT = ("configmaps", "kube-system", "extension-apiserver-authentication")
USER_CA = ("openshift-kube-apiserver", "user-client-ca")
CONFIG, MANAGED = client_ca_sources.BOOTSTRAP
KEY_PEM = "-----BEGIN PRIVATE KEY-----\nTOPSECRET\n-----END PRIVATE KEY-----\n"


def text(*made: Made) -> str:
    return "".join(one.pem.decode() for one in made)


class World:
    """An API server, and the controller before it."""

    def __init__(self, file_out: str = "", own_cas: bytes = OWN.pem) -> None:
        self.client = FakeClient()
        self.clock = MovableClock(NOW)
        self.client.put(*AT[::2], AT[1], data={client_ca_bundle.KEY: text(OWN)})
        self.client.put("configmaps", client_ca_bundle.HISTORY, AT[1], data={})
        self.informers = cache.Informers(self.client, self.clock)
        context = loop.Context(client=self.client, informers=self.informers, clock=self.clock)
        self.controller = client_ca.build(context, own_cas=own_cas, file_out=file_out)
        self.named = self.informers.get(client_ca._source(bootstrapper.CONFIG_MAP))

    def source(self, content: str, place: tuple[str, str] = CONFIG, **more: str) -> None:
        data = {"ca-bundle.crt": content, **{key.replace("_", "-"): value for key, value in more.items()}}
        document = self.client.put("configmaps", place[1], place[0], data=data, metadata={"uid": "/".join(place)})
        if place[1] == bootstrapper.CONFIG_MAP:
            self.named.put(msgspec.convert(document, partial.Partial))

    def drop(self, place: tuple[str, str] = CONFIG) -> None:
        document = self.client.objects.pop(("configmaps", *place))
        if place[1] == bootstrapper.CONFIG_MAP:
            self.named.remove(msgspec.convert(document, partial.Partial))

    async def reconcile(self, key: str = client_ca.KEY) -> Any:
        return await self.controller._reconcile(key)

    def trusts(self, key: str = client_ca_bundle.KEY) -> list[bytes]:
        data = self.client.objects[AT]["data"]
        return pem.certificates_from_pem(data[key].encode()) if key in data else []

    def events(self) -> list[tuple[str, str, str, int]]:
        found = [each for (plural, *_), each in self.client.objects.items() if plural == "events"]
        return sorted(
            (
                f"{each['involvedObject']['namespace']}/{each['involvedObject']['name']}",
                each["reason"],
                each["message"],
                each["count"],
            )
            for each in found
        )

    def said(self, reason: str) -> list[tuple[str, str]]:
        return [(about, message) for about, why, message, _ in self.events() if why == reason]


async def test_it_merges_and_tells_what_came_and_went() -> None:
    world = World()
    world.source(text(SIGNER))
    world.source(text(USERS), USER_CA)
    assert await world.reconcile() == NOW + DAY / 2, "when the first of them expires"
    assert world.trusts() == [OWN.der, USERS.der]
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == [SIGNER.der]
    about = "kube-system/extension-apiserver-authentication"
    assert [place for place, _ in world.said("ClientCAAdded")] == [about, about]
    world.drop()
    await world.reconcile()
    ((place, message),) = world.said("ClientCARemoved")
    assert (place, certificates.fingerprint(SIGNER.der) in message) == (about, True)


async def test_what_expires_goes_when_it_does() -> None:
    world = World()
    world.source(text(SIGNER))
    due = await world.reconcile()
    await world.clock.advance((due - NOW).total_seconds())
    assert await world.reconcile() is None
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == []


async def test_a_malformed_source_is_told_of_and_blocks_nothing() -> None:
    world = World()
    world.source(text(USERS), USER_CA)
    await world.reconcile()
    world.source("half of it", ("openshift-config", "admin-kubeconfig-client-ca"))
    world.drop(USER_CA)
    world.source(text(SIGNER))
    for _ in range(3):
        await world.reconcile()
    assert world.trusts() == [OWN.der]
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == [SIGNER.der]
    ((about, message),) = world.said("ClientCASourceUnreadable")
    assert about == "openshift-config/admin-kubeconfig-client-ca"
    assert "half" not in message
    assert [count for *_, count in world.events() if _[1] == "ClientCASourceUnreadable"] == [1], "said once"
    gauge = prometheus_client.REGISTRY.get_sample_value
    assert gauge("handfast_client_ca_source_problems", {"source": about}) == 1
    (condition,) = client_ca_bundle.record(world.client.objects[AT]).conditions
    assert (condition.status, condition.reason) == ("False", "ClientCASourceUnreadable")
    world.drop(("openshift-config", "admin-kubeconfig-client-ca"))
    await world.reconcile()
    assert gauge("handfast_client_ca_source_problems", {"source": about}) == 0
    assert client_ca_bundle.record(world.client.objects[AT]).conditions[0].status == "True"


async def test_broken_again_is_said_again() -> None:
    world = World()
    for content in ("broken", "", "broken"):
        world.source(content)
        await world.reconcile()
    assert [count for *_, count in world.events()] == [2]


async def test_a_private_key_is_told_of_and_not_shown() -> None:
    world = World()
    world.source(text(SIGNER) + KEY_PEM)
    await world.reconcile()
    ((_, message),) = world.said("PrivateKeyInClientCASource")
    assert "TOPSECRET" not in repr(world.events()) + repr(world.client.objects[AT])
    assert "make a new CA" in message
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == []


async def test_what_tls_cannot_use_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(tls, "useless", lambda ders: [der for der in ders if der == SIGNER.der])
    world.source(text(SIGNER, OTHER))
    await world.reconcile()
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == [OTHER.der]
    assert "cannot be used for TLS" in world.said("ClientCASourceUnreadable")[0][1]


async def test_a_bootstrap_ca_of_another_name_is_told_of() -> None:
    world = World()
    world.source(text(USERS, SIGNER))
    await world.reconcile()
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == [SIGNER.der]
    ((about, message),) = world.said("BootstrapCAMisnamed")
    assert about == "/".join(CONFIG)
    assert certificates.fingerprint(USERS.der) in message


async def test_a_wrong_namespace_is_told_of_once_and_nothing_else_is_done() -> None:
    world = World()
    place = ("default", bootstrapper.CONFIG_MAP)
    world.source(text(SIGNER), place)
    assert await world.controller.queue.get() == client_ca.KEY, "as at every start"
    assert await world.controller.queue.get() == "/".join(place)
    asked: list[str] = []
    world.client.before = lambda verb, plural, name: asked.append(f"{verb} {plural} {name}")
    for _ in range(3):
        await world.reconcile("/".join(place))
    ((about, message),) = world.said("ClientCASourceInWrongNamespace")
    assert about == "/".join(place)
    assert "the one in openshift-config (or openshift-config-managed)" in message
    assert len(asked) == 1, "it costs one Event"
    world.drop(place)
    await world.reconcile("/".join(place))
    assert world.controller._reconcile.__self__._elsewhere == {}  # type: ignore[attr-defined]


async def test_in_both_places_and_without_a_limit() -> None:
    world = World()
    world.source(text(SIGNER))
    world.source(text(SIGNER), MANAGED)
    world.source(text(SIGNER), USER_CA)
    await world.reconcile()
    assert {about for about, _ in world.said("BootstrapCAInTwoPlaces")} == {"/".join(CONFIG), "/".join(MANAGED)}
    assert {about for about, _ in world.said("BootstrapCANotScoped")} == {"/".join(CONFIG), "/".join(MANAGED)}


async def test_the_last_ca_that_is_kept_is_told_of() -> None:
    world = World(own_cas=b"")
    world.source(text(USERS), USER_CA)
    await world.reconcile()
    world.client.objects[AT]["data"][client_ca_bundle.KEY] = text(USERS)
    world.drop(USER_CA)
    await world.reconcile()
    ((about, message),) = world.said("LastClientCAKept")
    assert about == "kube-system/extension-apiserver-authentication"
    assert certificates.fingerprint(USERS.der) in message


async def test_a_bundle_that_cannot_be_read_is_told_of() -> None:
    world = World()
    world.client.objects[AT]["data"][client_ca_bundle.KEY] = "broken"
    await world.reconcile()
    assert len(world.said("ClientCABundleUnreadable")) == 1


async def test_without_the_bundle_sources_are_still_told_of() -> None:
    world = World()
    del world.client.objects[AT]
    world.source("broken")
    await world.reconcile()
    assert len(world.said("ClientCASourceUnreadable")) == 1


async def test_an_event_that_was_not_written_is_tried_again() -> None:
    world = World()
    world.source("broken")

    def refuse(verb: str, plural: str, _name: str) -> None:
        if plural == "events" and verb == "create":
            raise status.StatusError("Forbidden", "no")

    world.client.before = refuse
    await world.reconcile()
    assert world.events() == []
    world.client.before = lambda *_: None
    await world.reconcile()
    assert len(world.said("ClientCASourceUnreadable")) == 1


async def test_the_file_of_another_api_server(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "client-ca.crt"
    world = World(str(path))
    world.source(text(SIGNER))
    with pytest.raises(errors.HandfastError) as caught:
        await world.reconcile()
    assert caught.value.reason == "FileNotFound"
    path.write_text(text(OWN))
    assert await world.reconcile() == NOW + 60 * SECOND
    assert pem.certificates_from_pem(path.read_bytes()) == [OWN.der, SIGNER.der]
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == [], "its ConfigMap is its own"
    # Nobody else is left there: the last one is kept.
    path.write_text("\n".join(path.read_text().splitlines()[:1]) + "\n" + text(SIGNER))
    world.drop()
    await world.reconcile()
    assert pem.certificates_from_pem(path.read_bytes()) == [SIGNER.der]


def test_what_is_followed() -> None:
    """Each source by its name; the bundle only where it is written."""
    followed = {key[2] for key in World().informers._shared}
    scopes = {(scope.namespace, scope.field_selector) for scope in followed}
    assert scopes == {
        ("", "metadata.name=kubelet-bootstrap-kubeconfig"),
        ("kube-system", "metadata.name=extension-apiserver-authentication"),
        *((namespace, f"metadata.name={name}") for namespace, name in client_ca_sources.UNSCOPED),
    }
    assert len(World("x").informers._shared) == len(followed) - 1
    assert all(key[3] for key in World().informers._shared), "metadata alone"


async def test_a_bootstrap_config_map_is_deleted_at_its_end() -> None:
    world = World()
    world.source(text(OTHER), revoke_at=objects.timestamp(NOW + 2 * SECOND))
    assert await world.reconcile() == NOW + 2 * SECOND, "it looks again then"
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == [OTHER.der]
    await world.clock.advance(2)
    await world.reconcile()
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == []
    assert ("configmaps", *CONFIG) not in world.client.objects
    ((about, message),) = world.said("BootstrapCredentialEnded")
    assert about == "/".join(CONFIG)
    assert message.startswith(f"the bootstrap credential was to count until {objects.timestamp(NOW + 2 * SECOND)}")
    # Done once.
    assert await world.reconcile() is None
    assert len(world.said("BootstrapCredentialEnded")) == 1


async def test_whoever_puts_the_end_off_meanwhile_wins() -> None:
    world = World()
    world.source(text(OTHER), revoke_at=objects.timestamp(NOW))

    def put_off(verb: str, _: str, name: str) -> None:
        if verb == "delete" and name == CONFIG[1]:
            world.client.before = lambda *_: None
            world.source(text(OTHER), revoke_at=objects.timestamp(NOW + DAY))

    world.client.before = put_off
    with pytest.raises(status.StatusError, match="has been modified"):
        await world.reconcile()
    await world.reconcile()
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == [OTHER.der]
    assert world.said("BootstrapCredentialEnded") == []


async def test_one_with_a_finalizer_is_deleted_once_and_gives_nothing() -> None:
    world = World()
    world.source(text(OTHER), revoke_at=objects.timestamp(NOW))
    world.client.objects["configmaps", *CONFIG]["metadata"]["deletionTimestamp"] = objects.timestamp(NOW)
    await world.reconcile()
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == []
    assert world.said("BootstrapCredentialEnded") == []
    assert not [call for call in world.client.calls if call[0] == "delete"]


async def test_an_end_that_cannot_be_read_gives_nothing_and_is_told_of() -> None:
    world = World()
    world.source(text(OTHER), revoke_at="in four hours")
    await world.reconcile()
    assert world.trusts(client_ca_bundle.SCOPED_KEY) == []
    assert ("configmaps", *CONFIG) in world.client.objects, "whoever wrote it can mend it"
    ((_, message),) = world.said("ClientCASourceUnreadable")
    assert message.startswith("as a source of client CAs: revoke-at: it is no instant")
    assert "four hours" not in message
