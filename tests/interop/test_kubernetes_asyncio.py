# SPDX-License-Identifier: Apache-2.0
"""kubernetes_asyncio, from PyPI as it is: every verb, watches that resume, patches, apply, custom resources, reviews, logins.

It logs in with the administrator's certificate, and with the token of a service account. How its informers behave is not
tried: those of the official client are, in `test_python_watch`.
"""

from __future__ import annotations

import asyncio
import base64
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client, config, watch

from tests.interop import peer_objects, running

# It leaves connections to the garbage collector, which here comes at the end of each test.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


@pytest.fixture
async def peer(control_plane: running.ControlPlane) -> AsyncIterator[Any]:
    async with await config.new_client_from_config(str(control_plane.kubeconfig), persist_config=False) as opened:
        yield opened


def _settings(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"own": ""}}, "data": data}


def _refused(code: int, reason: str):
    return pytest.raises(client.ApiException, check=lambda error: error.status == code and f'"{reason}"' in error.body)


async def test_every_verb_and_every_patch(peer, namespace):
    core: Any = client.CoreV1Api(peer)
    made = await core.create_namespaced_config_map(namespace, _settings("one", a="1"))
    assert (await core.read_namespaced_config_map("one", namespace)).metadata.uid == made.metadata.uid
    for kind, body in (
        (MERGE, {"data": {"b": "2"}}),
        ("application/strategic-merge-patch+json", {"data": {"a": None}}),
        ("application/json-patch+json", [{"op": "add", "path": "/data/c", "value": "3"}]),
    ):
        changed = await core.patch_namespaced_config_map("one", namespace, body, _content_type=kind)
    assert changed.data == {"b": "2", "c": "3"}
    with _refused(409, "Conflict"):
        await core.replace_namespaced_config_map("one", namespace, made)
    changed.data = {"d": "4"}
    assert (await core.replace_namespaced_config_map("one", namespace, changed)).data == {"d": "4"}
    listed = await core.list_namespaced_config_map(namespace, label_selector="own")
    assert [each.metadata.name for each in listed.items] == ["one"]
    assert (await core.delete_namespaced_config_map("one", namespace)).status == "Success"
    with _refused(404, "NotFound"):
        await core.read_namespaced_config_map("one", namespace)


async def test_a_watch_resumes_where_it_was(peer, namespace):
    core: Any = client.CoreV1Api(peer)
    start = (await core.create_namespaced_config_map(namespace, _settings("one"))).metadata.resource_version
    await core.create_namespaced_config_map(namespace, _settings("two"))
    kind, found = await _next(core, namespace, start)
    assert (kind, found.metadata.name) == ("ADDED", "two")
    await core.delete_namespaced_config_map("two", namespace)
    kind, found = await _next(core, namespace, found.metadata.resource_version)
    assert (kind, found.metadata.name) == ("DELETED", "two")


async def _next(core: Any, namespace: str, version: str) -> tuple[str, Any]:
    """The first event of a watch from this version on."""
    async with watch.Watch() as follower:
        stream = follower.stream(
            core.list_namespaced_config_map,
            namespace,
            label_selector="own",
            resource_version=version,
            timeout_seconds=30,
        )
        event = await anext(stream)
        return event["type"], event["object"]


async def test_apply_names_the_owner_of_a_field(peer, namespace):
    core: Any = client.CoreV1Api(peer)

    async def apply(manager: str, force: bool = False, **data: str) -> Any:
        return await core.patch_namespaced_config_map(
            "shared", namespace, _settings("shared", **data), field_manager=manager, force=force, _content_type=APPLY
        )

    await apply("mine", a="1", b="1")
    with _refused(409, "Conflict"):
        await apply("yours", a="2")
    assert (await apply("yours", force=True, a="2")).data == {"a": "2", "b": "1"}
    assert (await apply("mine")).data == {"a": "2"}


async def test_custom_resources_with_status_and_scale(peer, namespace):
    definitions: Any = client.ApiextensionsV1Api(peer)
    objects: Any = client.CustomObjectsApi(peer)
    await definitions.create_custom_resource_definition(peer_objects.definition("apple", "apples"))
    place = {"group": peer_objects.GROUP, "version": "v1", "namespace": namespace, "plural": "apples"}

    async def create() -> Any:
        try:
            return await objects.create_namespaced_custom_object(body=peer_objects.custom("Apple", "one"), **place)
        except client.ApiException as error:
            # It is served as soon as it is established.
            if error.status != 404:
                raise
            return None

    made = await _until(create)
    assert made["spec"] == {"size": 1}
    status = {"status": {"size": 3, "mood": "good"}}
    await objects.patch_namespaced_custom_object_status(name="one", body=status, _content_type=MERGE, **place)
    scale = await objects.get_namespaced_custom_object_scale(name="one", **place)
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 1}, {"replicas": 3})
    with _refused(422, "Invalid"):
        body = {"spec": {"size": "large"}}
        await objects.patch_namespaced_custom_object(name="one", body=body, _content_type=MERGE, **place)
    await objects.delete_namespaced_custom_object(name="one", **place)
    await definitions.delete_custom_resource_definition(f"apples.{peer_objects.GROUP}")


async def _until(attempt: Any) -> Any:
    for _ in range(600):
        if (answer := await attempt()) is not None:
            return answer
        await asyncio.sleep(0.05)
    return pytest.fail("not within 30 s")


async def test_a_request_is_approved_and_signed(peer, unique):
    certificates: Any = client.CertificatesV1Api(peer)
    made = await certificates.create_certificate_signing_request(peer_objects.signing_request(unique))
    made.status.conditions = [peer_objects.approval("Asyncio")]
    await certificates.replace_certificate_signing_request_approval(unique, made)

    async def certificate() -> Any:
        return (await certificates.read_certificate_signing_request(unique)).status.certificate

    assert base64.b64decode(await _until(certificate)).startswith(b"-----BEGIN CERTIFICATE-----")


async def test_a_token_of_an_account_logs_in_and_is_reviewed(peer, control_plane, namespace, tmp_path):
    core: Any = client.CoreV1Api(peer)
    reviews: Any = client.AuthenticationV1Api(peer)
    token = (await core.create_namespaced_service_account_token("default", namespace, {"spec": {}})).status.token
    review = await reviews.create_token_review(client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token)))
    user = f"system:serviceaccount:{namespace}:default"
    assert (review.status.authenticated, review.status.user.username) == (True, user)
    place = peer_objects.token_kubeconfig(control_plane, tmp_path / "token.conf", namespace, token)
    async with await config.new_client_from_config(place, persist_config=False) as other:
        reviews = client.AuthenticationV1Api(other)
        who = await reviews.create_self_subject_review({})
        assert who.status.user_info.username == user
        with _refused(403, "Forbidden"):
            await client.CoreV1Api(other).list_namespaced_secret(namespace)


async def test_scale_and_eviction(peer, namespace):
    apps: Any = client.AppsV1Api(peer)
    core: Any = client.CoreV1Api(peer)
    await apps.create_namespaced_deployment(namespace, peer_objects.deployment("web"))
    scaled = await apps.patch_namespaced_deployment_scale(
        "web", namespace, {"spec": {"replicas": 5}}, _content_type=MERGE
    )
    assert scaled.spec.replicas == 5
    await core.create_namespaced_pod(namespace, peer_objects.pod("alone"))
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="alone"))
    await core.create_namespaced_pod_eviction("alone", namespace, eviction)
    with _refused(404, "NotFound"):
        await core.read_namespaced_pod("alone", namespace)
