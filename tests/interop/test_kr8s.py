# SPDX-License-Identifier: Apache-2.0
"""kr8s, from PyPI as it is: kinds found by discovery, every verb, watches that resume, custom resources, reviews, logins.

It knows two kinds of patch, merge and JSON, and has no apply: what it lacks is tried with the other clients.
"""

from __future__ import annotations

import base64
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import kr8s
import pytest
from kr8s.asyncio import objects

from tests.interop import peer_objects, running

pytestmark = [
    pytest.mark.slow,
    # It leaves connections to the garbage collector, which here comes at the end of each test.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    # It knows servers up to its own release only, and says so.
    pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning"),
]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
async def peer(control_plane: running.ControlPlane, namespace: str) -> AsyncIterator[Any]:
    # It keeps one client for each set of arguments, beyond the life of the loop: here each test has its own.
    opened: Any = await kr8s.asyncio.api(kubeconfig=str(control_plane.kubeconfig), namespace=namespace)
    yield opened
    await opened._session.aclose()
    type(opened)._instances.clear()


def _settings(peer: Any, name: str, **data: str) -> Any:
    body = {"metadata": {"name": name, "namespace": peer.namespace, "labels": {"own": "yes"}}, "data": data}
    return objects.ConfigMap(body, api=peer)


def _refused(code: int):
    return pytest.raises(kr8s.ServerError, check=lambda error: error.response.status_code == code)


async def test_every_verb_and_both_patches(peer):
    made = _settings(peer, "one", a="1")
    await made.create()
    found = await objects.ConfigMap.get("one", namespace=peer.namespace, api=peer)
    assert found.raw == made.raw
    await found.patch({"data": {"b": "2"}})
    await found.patch([{"op": "add", "path": "/data/c", "value": "3"}], type="json")
    assert found.data == {"a": "1", "b": "2", "c": "3"}
    await found.label({"more": "x"})
    await found.annotate({"note": "y"})
    await made.refresh()
    assert (made.labels, made.annotations) == ({"own": "yes", "more": "x"}, {"note": "y"})
    with _refused(409):
        await _settings(peer, "one").create()
    listed = [each.name async for each in peer.get("cm", label_selector={"own": "yes"})]
    assert listed == ["one"]
    await found.delete()
    assert not await made.exists()


async def test_a_watch_resumes_where_it_was(peer):
    first, second = _settings(peer, "one"), _settings(peer, "two")
    await first.create()
    await second.create()
    start = first.metadata.resourceVersion
    kind, found = await _next(peer, start)
    assert (kind, found.name) == ("ADDED", "two")
    await second.delete()
    kind, found = await _next(peer, found.metadata.resourceVersion)
    assert (kind, found.name) == ("DELETED", "two")


async def _next(peer: Any, since: str) -> tuple[str, Any]:
    stream = peer.async_watch("configmaps", label_selector="own", since=since)
    try:
        kind, found = await anext(stream)
    finally:
        await stream.aclose()
    return kind, found


async def test_custom_resources_with_status_and_scale(peer):
    definition = objects.CustomResourceDefinition(peer_objects.definition("cherry", "cherries"), api=peer)
    await definition.create()
    await definition.wait("condition=Established", timeout=30)
    cherry: Any = objects.new_class("Cherry", version=f"{peer_objects.GROUP}/v1", plural="cherries")
    body = peer_objects.custom("Cherry", "one")
    body["metadata"]["namespace"] = peer.namespace
    made = cherry(body, api=peer)
    await made.create()
    assert made.spec == {"size": 1}
    await made.patch({"status": {"size": 3}}, subresource="status")
    assert made.status == {"size": 3}
    with _refused(422):
        await made.patch({"spec": {"size": "large"}})
    await made.delete()
    await definition.delete()


async def test_a_request_is_approved_and_signed(peer, unique):
    request: Any = objects.new_class("CertificateSigningRequest", version="certificates.k8s.io/v1", namespaced=False)
    made = request(peer_objects.signing_request(unique), api=peer)
    await made.create()
    await made.patch({"status": {"conditions": [peer_objects.approval("Kr8s")]}}, subresource="approval")
    await made.wait("condition=Approved", timeout=30)
    async for kind, found in peer.async_watch("certificatesigningrequests", field_selector=f"metadata.name={unique}"):
        if kind != "DELETED" and "certificate" in found.status:
            assert base64.b64decode(found.status.certificate).startswith(b"-----BEGIN CERTIFICATE-----")
            return


async def test_a_token_of_an_account_logs_in_and_is_reviewed(peer, control_plane, tmp_path, core, unique):
    token = core.create_namespaced_service_account_token("default", peer.namespace, {"spec": {}}).status.token
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": peer.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"}
    binding = {"metadata": {"name": unique}, "roleRef": role, "subjects": [subject]}
    await objects.ClusterRoleBinding(binding, api=peer).create()
    place = peer_objects.token_kubeconfig(control_plane, tmp_path / "token.conf", peer.namespace, token)
    other: Any = await kr8s.asyncio.api(kubeconfig=place)
    # It asks for a review of its own token, which that role allows.
    assert await other.whoami() == f"system:serviceaccount:{peer.namespace}:default"
    with _refused(403):
        [each async for each in other.get("secrets")]
    await other._session.aclose()


async def test_scale_and_a_wait(peer):
    body = peer_objects.deployment("web")
    body["metadata"]["namespace"] = peer.namespace
    deployment = objects.Deployment(body, api=peer)
    await deployment.create()
    await deployment.scale(5)
    assert deployment.replicas == 5
    await deployment.patch({"status": {"replicas": 5, "conditions": [_available()]}}, subresource="status")
    await deployment.wait("condition=Available", timeout=30)


def _available() -> dict[str, str]:
    return {"type": "Available", "status": "True", "reason": "Test", "message": "by a test"}
