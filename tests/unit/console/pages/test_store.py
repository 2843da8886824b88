# SPDX-License-Identifier: Apache-2.0
"""The page of the store, on a real API server, and for somebody who may read little."""

from __future__ import annotations

import base64
import json

import prometheus_client
import pytest
from prometheus_client import core

from tests.unit.console import served
from tests.world import world as worlds

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


SECRETS = "/api/v1/namespaces/default/secrets"


async def test_the_store_is_shown_as_its_command_shows_it_and_no_secret_of_it(
    world: worlds.World, browser: served.Browser
):
    await world.request("POST", SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": "n0b0dy-reads-this"}})
    await world.server.look.ask()
    reply = await browser.until("/store", lambda reply: "apiserver-" in reply.text)
    figures = world.server.look.figures
    assert figures.sealed
    for word in ("sqlite", figures.identity, *figures.sealed, f"{figures.revision:,.0f}", f"{figures.objects:,.0f}"):
        assert f">{word}</bdi>" in reply.text
    for word in ("size", "last compaction", "last backup", "resource version", "open watches", "handfast store status"):
        assert word in reply.text
    assert "n0b0dy" not in reply.text
    assert str(world.place.root) not in reply.text
    assert "needs somebody" not in reply.text


@pytest.mark.parametrize("name", ["apiserver_storage_size_bytes", "of_no_store"])
async def test_of_another_api_server_is_said_what_is_not_known_and_why(
    world: worlds.World, browser: served.Browser, name: str
):
    # The figures of another API server: those that are told here by that one.
    registry = core.CollectorRegistry()
    prometheus_client.Gauge(name, "", ["storage_cluster_id"], registry=registry).labels("etcd-0").set(4 << 20)
    world.server.metrics.registry = registry
    reply = await browser.until("/store", lambda reply: "apiserver-" in reply.text)
    assert "etcdctl endpoint status" in reply.text
    assert ("4.0 MiB" in reply.text) == ("etcdctl snapshot save" in reply.text) == (name != "of_no_store")


async def test_a_lease_of_a_stranger_is_escaped_and_marked(world: worlds.World, browser: served.Browser):
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "apiserver-odd",
            "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "x"},
            "annotations": {"handfast.dev/version": "<b>9</b>\u202e", "handfast.dev/store-lag": "-7"},
        },
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 60, "renewTime": "2020-01-01T00:00:00.000000Z"},
    }
    answer = await world.request("POST", LEASES, lease)
    assert answer.status == 201
    reply = await browser.until("/store", lambda reply: "apiserver-odd" in reply.text)
    assert "&lt;b&gt;9" in reply.text
    assert "U+202E" in reply.text
    assert "\u202e" not in reply.text


async def test_what_may_not_be_read_is_named_with_the_binding_that_would_allow_it(world: worlds.World):
    await world.ensure_service_account("default")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await world.request("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", body)
    ca = base64.b64encode(world.place.ca_certificate.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": ca}}],
        "users": [{"name": "u", "user": {"token": answer.json()["status"]["token"]}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = world.place.root.parent / "poor.conf"
    path.write_text(json.dumps(config))
    async with served.console(world, kubeconfig=path) as browser:
        reply = await browser.until("/store", lambda reply: "You may not read Leases of API servers" in reply.text)
        assert "--clusterrole=system:monitoring" in reply.text
        assert "kubectl create role handfast-console:leases --namespace=kube-system" in reply.text
        mesh = await browser.until("/mesh", lambda reply: "You may not read the mesh" in reply.text)
        assert "There is no mesh" not in mesh.text
