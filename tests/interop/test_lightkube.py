# SPDX-License-Identifier: Apache-2.0
"""lightkube, from PyPI as it is: typed resources, watches that resume, patches, apply, custom resources, reviews, logins.

Its models are made from upstream's OpenAPI and know nothing of this server. Its asynchronous half shares all but the transport,
and is not tried.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import lightkube
import pytest
from lightkube import generic_resource, types
from lightkube.models import authentication_v1 as authentication_models
from lightkube.models import autoscaling_v1, certificates_v1, meta_v1
from lightkube.resources import apiextensions_v1, apps_v1, authentication_v1, core_v1
from lightkube.resources import certificates_v1 as certificates

from tests.interop import peer_objects, running

pytestmark = pytest.mark.slow


def _client(place: object, namespace: str) -> lightkube.Client:
    settings = lightkube.KubeConfig.from_file(str(place))
    return lightkube.Client(config=settings, namespace=namespace, field_manager="mine", trust_env=False)


@pytest.fixture
def peer(control_plane: running.ControlPlane, namespace: str) -> Iterator[lightkube.Client]:
    with _client(control_plane.kubeconfig, namespace) as opened:
        yield opened


def _settings(name: str, **data: str) -> core_v1.ConfigMap:
    return core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name=name, labels={"own": "yes"}), data=data)


def _refused(code: int, reason: str):
    return pytest.raises(
        lightkube.ApiError, check=lambda error: (error.status.code, error.status.reason) == (code, reason)
    )


def test_every_verb_and_every_patch(peer):
    made = peer.create(_settings("one", a="1"))
    assert peer.get(core_v1.ConfigMap, "one") == made
    for kind, body in (
        (types.PatchType.MERGE, {"data": {"b": "2"}}),
        (types.PatchType.STRATEGIC, {"data": {"a": None}}),
        (types.PatchType.JSON, [{"op": "add", "path": "/data/c", "value": "3"}]),
    ):
        changed = peer.patch(core_v1.ConfigMap, "one", body, patch_type=kind)
    assert changed.data == {"b": "2", "c": "3"}
    with _refused(409, "Conflict"):
        peer.replace(made)
    changed.data = {"d": "4"}
    assert peer.replace(changed).data == {"d": "4"}
    assert peer.set(core_v1.ConfigMap, "one", labels={"more": "x"}).metadata.labels == {"own": "yes", "more": "x"}
    assert [each.metadata.name for each in peer.list(core_v1.ConfigMap, labels={"own": "yes"})] == ["one"]
    peer.delete(core_v1.ConfigMap, "one")
    with _refused(404, "NotFound"):
        peer.get(core_v1.ConfigMap, "one")


def test_a_list_in_pages_has_everything_once(peer):
    for number in range(5):
        peer.create(_settings(f"many-{number}"))
    found = [each.metadata.name for each in peer.list(core_v1.ConfigMap, labels={"own": "yes"}, chunk_size=2)]
    assert found == [f"many-{number}" for number in range(5)]


def test_a_watch_resumes_where_it_was(peer):
    start = peer.create(_settings("one")).metadata.resourceVersion
    peer.create(_settings("two"))
    stream = peer.watch(core_v1.ConfigMap, labels={"own": "yes"}, resource_version=start, server_timeout=30)
    kind, found = next(stream)
    assert (kind, found.metadata.name) == ("ADDED", "two")
    stream.close()
    peer.delete(core_v1.ConfigMap, "two")
    version = found.metadata.resourceVersion
    again = peer.watch(core_v1.ConfigMap, labels={"own": "yes"}, resource_version=version, server_timeout=30)
    kind, found = next(again)
    assert (kind, found.metadata.name) == ("DELETED", "two")
    again.close()


def test_apply_names_the_owner_of_a_field(peer):
    peer.apply(_settings("shared", a="1", b="1"))
    with _refused(409, "Conflict"):
        peer.apply(_settings("shared", a="2"), field_manager="yours")
    assert peer.apply(_settings("shared", a="2"), field_manager="yours", force=True).data == {"a": "2", "b": "1"}
    assert peer.apply(_settings("shared")).data == {"a": "2"}


def test_custom_resources_with_status_and_scale(peer):
    definition = apiextensions_v1.CustomResourceDefinition.from_dict(peer_objects.definition("berry", "berries"))
    peer.create(definition)
    peer.wait(
        apiextensions_v1.CustomResourceDefinition, f"berries.{peer_objects.GROUP}", for_conditions=["Established"]
    )
    berry: Any = generic_resource.create_namespaced_resource(peer_objects.GROUP, "v1", "Berry", "berries")
    made = running.eventually(lambda: _created(peer, berry), "the kind is served")
    assert made.spec == {"size": 1}
    peer.patch(berry.Status, "one", {"status": {"size": 3}}, patch_type=types.PatchType.MERGE)
    scale = peer.get(berry.Scale, "one")
    assert (scale.spec.replicas, scale.status.replicas) == (1, 3)
    with _refused(422, "Invalid"):
        peer.patch(berry, "one", {"spec": {"size": "large"}}, patch_type=types.PatchType.MERGE)
    peer.delete(berry, "one")
    peer.delete(apiextensions_v1.CustomResourceDefinition, f"berries.{peer_objects.GROUP}")


def _created(peer: Any, kind: Any) -> Any:
    try:
        return peer.create(kind.from_dict(peer_objects.custom("Berry", "one")))
    except lightkube.ApiError as error:
        # It is served as soon as it is established.
        if error.status.code != 404:
            raise
        return None


def test_a_request_is_approved_and_signed(peer, unique):
    made = peer.create(certificates.CertificateSigningRequest.from_dict(peer_objects.signing_request(unique)))
    made.status.conditions = [
        certificates_v1.CertificateSigningRequestCondition.from_dict(peer_objects.approval("Lightkube"))
    ]
    peer.replace(certificates.CertificateSigningRequestApproval.from_dict(made.to_dict()), name=unique)
    signed = running.eventually(
        lambda: peer.get(certificates.CertificateSigningRequest, unique).status.certificate, "the request is signed"
    )
    assert base64.b64decode(signed).startswith(b"-----BEGIN CERTIFICATE-----")


def test_a_token_of_an_account_logs_in_and_is_reviewed(peer, control_plane, namespace, tmp_path):
    empty = core_v1.ServiceAccountToken(
        metadata=meta_v1.ObjectMeta(), spec=authentication_models.TokenRequestSpec(audiences=[])
    )
    token = peer.create(empty, "default").status.token
    spec = authentication_models.TokenReviewSpec(token=token)
    review = peer.create(authentication_v1.TokenReview(spec=spec))
    user = f"system:serviceaccount:{namespace}:default"
    assert (review.status.authenticated, review.status.user.username) == (True, user)
    place = peer_objects.token_kubeconfig(control_plane, tmp_path / "token.conf", namespace, token)
    with _client(place, namespace) as other:
        who: Any = other.create(authentication_v1.SelfSubjectReview())
        assert who.status.userInfo.username == user
        with _refused(403, "Forbidden"):
            list(other.list(core_v1.Secret))


def test_scale_and_eviction(peer):
    peer.create(apps_v1.Deployment.from_dict(peer_objects.deployment("web")))
    spec = autoscaling_v1.ScaleSpec(replicas=5)
    scale = apps_v1.DeploymentScale(metadata=meta_v1.ObjectMeta(name="web"), spec=spec)
    assert peer.replace(scale, "web").spec.replicas == 5
    peer.create(core_v1.Pod.from_dict(peer_objects.pod("alone")))
    peer.create(core_v1.PodEviction(metadata=meta_v1.ObjectMeta(name="alone")), "alone")
    with _refused(404, "NotFound"):
        peer.get(core_v1.Pod, "alone")
