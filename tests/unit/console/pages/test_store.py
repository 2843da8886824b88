# SPDX-License-Identifier: Apache-2.0
"""The page of the store, on a real API server, and for somebody who may read little."""

from __future__ import annotations

import base64
import json

from tests.unit.console import served
from tests.world import world as worlds

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


async def test_readiness_servers_and_figures_are_shown_with_what_only_the_command_knows(browser: served.Browser):
    reply = await browser.until("/store", lambda reply: "apiserver-" in reply.text)
    for word in ("resource version", "open watches", "handfast store status", "handfast store verify", "store"):
        assert word in reply.text
    assert "needs somebody" not in reply.text


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
