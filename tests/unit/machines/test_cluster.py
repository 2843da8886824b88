# SPDX-License-Identifier: Apache-2.0
"""What is served in a cluster, by what is followed there; with the cases of OpenShift's pkg/server/server_test.go by their names."""

from __future__ import annotations

import base64
import json
import urllib.parse
from typing import Any

import msgspec
import pytest

from handfast.machines import cluster, handler, offers
from handfast.rules import networks
from handfast.rules.machine_config import credential, ignition_secrets, names, rendering, requester
from handfast.rules.machines import bootstrapper, installation, inventory
from handfast.rules.tokens import service_accounts
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.machines import asking
from tests.world.clock import MovableClock

SERVER, CA, TOKEN = "https://api-int.example:6443", b"a CA", b"header.claims.signature"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


class World:
    """A cluster whose objects are put there by hand."""

    def __init__(self) -> None:
        self.unheard: str | None = None
        self.cluster = cluster.Cluster(
            FakeClient(),
            MovableClock(),
            networks=networks.Networks.parse("none"),
            kubelet_ca=lambda: CA,
            unheard=lambda: self.unheard,
        )
        self._version = 0

    def put(self, informer: Any, name: str, namespace: str = "", *, uid: str = "", **more: Any) -> None:
        self._version += 1
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(self._version),
            **more.pop("metadata", {}),
        }
        informer.put(msgspec.convert({"metadata": metadata, **more}, informer.source.view))

    def listed(self) -> None:
        one: Any = self.cluster
        for informer in (one._pools, one._configs, one._nodes, one._secrets, *one._maps, one._revoked._informer):
            informer.end()
        for group in one._machines._groups.values():
            group.end()

    def token(self, name: str = bootstrapper.TOKEN_SECRET, token: bytes = TOKEN, **annotations: str) -> None:
        self.put(
            self.cluster._secrets,
            name,
            bootstrapper.NAMESPACE,
            metadata={"annotations": {service_accounts.ACCOUNT_NAME: bootstrapper.ACCOUNT, **annotations}},
            type=service_accounts.LEGACY_TYPE,
            data={"token": encoded(token), "ca.crt": encoded(CA)},
        )

    def where(self, server: str = SERVER) -> None:
        data = {names.SERVER_KEY: server, names.CA_KEY: CA.decode()}
        self.put(self.cluster._maps[2], names.KUBECONFIG_DATA, bootstrapper.NAMESPACE, data=data)

    def render(self, pool: str, *, updated: int = 0) -> str:
        """Have a rendering of the pool there, with the credential that it has now; its name."""
        held = self.cluster._credential(pool)
        assert isinstance(held, credential.Credential)
        document = rendering.render(pool, [asking.config(f"00-{pool}", pool, etc_motd="hello")], held, "v1")
        name: str = document["metadata"]["name"]
        self.put(self.cluster._configs, name, metadata=document["metadata"], spec=document["spec"])
        self.pool(pool, name, updated=updated)
        return name

    def pool(self, pool: str, rendered: str, *, updated: int = 0) -> None:
        selector = {"matchLabels": {f"node-role.kubernetes.io/{pool}": ""}}
        spec = {"nodeSelector": selector, "configuration": {"name": rendered}}
        self.put(self.cluster._pools, pool, spec=spec, status={"updatedMachineCount": updated})

    def offer(self, pool: str = "worker", node: str = "") -> offers.Offer:
        offer = self.cluster.offer(pool, node)
        assert isinstance(offer, offers.Offer), offer
        return offer

    def refused(self, pool: str = "worker", node: str = "") -> tuple[int, str]:
        refusal = self.cluster.offer(pool, node)
        assert isinstance(refusal, requester.Refusal)
        return refusal.status, refusal.reason


@pytest.fixture
async def world():
    made = World()
    made.token()
    made.where()
    made.listed()
    return made


class TestClusterServer:
    async def test_a_pool_is_served_its_rendering_with_kubeconfig_and_annotations(self, world):
        name = world.render("test-pool")
        offer = world.offer("test-pool")
        assert offer.rendering == name
        body = json.loads(handler._builder(offer, "3.4.0")(""))
        files = {
            file["path"]: urllib.parse.unquote(file["contents"]["source"].removeprefix("data:,"))
            for file in body["storage"]["files"]
        }
        assert files["/etc/motd"] == "hello"
        assert TOKEN.decode() in files["/etc/kubernetes/kubeconfig"]
        assert json.loads(files["/etc/machine-config-daemon/node-annotations.json"])[names.CURRENT] == name
        assert json.loads(files["/etc/ignition-machine-config-encapsulated.json"])["metadata"]["name"] == name


class TestKubeconfigFromSecret:
    async def test_case_0_has_the_ca_and_the_url(self, world):
        world.render("worker")
        text = world.offer().kubeconfig.decode()
        assert encoded(CA) in text
        assert SERVER in text

    async def test_case_1_without_the_secret_there_is_an_error(self):
        world = World()
        world.where()
        world.pool("worker", "")
        assert world.refused() == (503, credential.NO_TOKEN)

    async def test_case_2_without_the_url_there_is_an_error(self):
        world = World()
        world.token()
        world.pool("worker", "")
        assert world.refused() == (503, credential.NO_SERVER)


async def test_a_pool_that_is_not_there_is_an_error(world):
    assert world.refused("nobodys") == (500, cluster.UNKNOWN_POOL)


async def test_a_pool_without_a_rendering_is_a_matter_of_time(world):
    world.pool("worker", "")
    assert world.refused() == (503, "NotRendered")


async def test_a_pool_that_goes_is_unknown(world):
    world.render("worker")
    world.cluster._pools.remove(world.cluster._pools.get("", "worker"))
    assert world.refused() == (500, cluster.UNKNOWN_POOL)


async def test_a_new_credential_is_never_served_under_the_old_name(world):
    world.render("worker")
    world.token(token=b"another.claims.signature")
    assert world.refused() == (503, "BeingRendered")
    world.render("worker")
    assert b"another.claims.signature" in world.offer().kubeconfig


async def test_a_rendering_that_goes_is_not_served(world):
    name = world.render("worker")
    world.cluster._configs.remove(world.cluster._configs.get("", name))
    assert world.refused() == (503, "NotRendered")


async def test_a_rendering_that_has_just_gone_is_not_served(world, monkeypatch):
    world.render("worker")
    monkeypatch.setattr(world.cluster._configs, "get", lambda *_: None)
    assert world.refused() == (503, "NotRendered")


async def test_masters_get_the_certificate_while_it_counts(world):
    from handfast.bootstrap import kubeconfig

    user = kubeconfig.User(name="kubelet", client_certificate_data=b"c", client_key_data=b"k")
    place = kubeconfig.Cluster(name="c", server=SERVER)
    text = kubeconfig.render(kubeconfig.Kubeconfig(context="kubelet", cluster=place, user=user)).encode()
    data = {installation.KUBECONFIG_KEY: encoded(text)}
    world.put(world.cluster._secrets, installation.KUBECONFIG_SECRET, bootstrapper.NAMESPACE, data=data)
    world.put(world.cluster._maps[0], bootstrapper.CONFIG_MAP, bootstrapper.CONFIG_NAMESPACE, data={})
    world.render("master")
    assert world.offer("master").kubeconfig == text
    trust = world.cluster._maps[0]
    trust.remove(trust.get(bootstrapper.CONFIG_NAMESPACE, bootstrapper.CONFIG_MAP))
    world.render("master")
    assert TOKEN in world.offer("master").kubeconfig


async def test_a_node_gets_what_it_is_to_have(world):
    first = world.render("worker")
    world.token(token=b"another.claims.signature")
    second = world.render("worker", updated=1)
    labels = {"node-role.kubernetes.io/worker": ""}
    world.put(world.cluster._nodes, "n1", metadata={"labels": labels, "annotations": {names.DESIRED: second}})
    world.put(world.cluster._nodes, "n2", metadata={"labels": labels, "annotations": {names.DESIRED: first}})
    assert world.offer(node="n1").rendering == second
    assert world.refused(node="n2") == (503, "BeingRendered")


async def test_the_pool_of_a_node_is_that_of_its_labels(world):
    world.pool("worker", "")
    world.put(world.cluster._nodes, "n1", metadata={"labels": {"node-role.kubernetes.io/worker": ""}})
    world.put(world.cluster._nodes, "n2")
    pool_of = world.cluster.known().pool_of
    assert [pool_of(name) for name in ("n1", "n2", "n3")] == ["worker", "", None]


async def test_secrets_are_known_by_their_digests_as_long_as_they_are_there(world):
    document = ignition_secrets.for_pool("worker", "hush")
    secrets = world.cluster._secrets
    world.put(
        secrets, "ignition-pool-worker", bootstrapper.NAMESPACE, metadata=document["metadata"], data=document["data"]
    )
    assert ignition_secrets.digest("hush") in world.cluster.known().secrets
    assert "hush" not in repr(secrets.get(bootstrapper.NAMESPACE, "ignition-pool-worker"))
    leaving = {**document["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.put(secrets, "ignition-pool-worker", bootstrapper.NAMESPACE, metadata=leaving, data=document["data"])
    assert world.cluster.known().secrets == {}


async def test_nobody_is_answered_before_all_is_listed():
    world = World()
    missing = world.cluster.not_ready()
    assert missing == "not synced: machineconfigpools, machineconfigs, nodes, secrets, configmaps, machines"
    world.listed()
    assert world.cluster.not_ready() is None


async def test_nobody_is_answered_while_a_right_is_missing_or_the_server_is_not_heard(world):
    world.cluster._nodes.refused("nodes is forbidden")
    assert world.cluster.not_ready() == "a right is missing: nodes is forbidden"
    world.cluster._nodes.refused("")
    world.unheard = "the API server does not answer: gone"
    assert world.cluster.not_ready() == "the API server does not answer: gone"


async def test_what_cannot_be_judged_is_not_known(world):
    assert world.cluster.note() is None
    world.cluster._revoked._informer.refused("no right")
    world.cluster._machines._groups[inventory.OPENSHIFT].refused("machines is forbidden")
    known = world.cluster.known()
    assert (known.revocations, known.machines) == (None, None)
    assert world.cluster.note() == ("machines is forbidden; Revocations are not known: nobody passes by certificate")


async def test_revocations_and_machines_are_followed(world):
    world.put(world.cluster._revoked._informer, "r", spec={"node": "n1"})
    assert world.cluster.known().revocations.of_node("n1", MovableClock().now()) is not None
