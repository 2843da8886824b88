# SPDX-License-Identifier: Apache-2.0
"""The official Python client, typed: create, read, list, patch, replace, delete in four groups, and the options of lists.

Its models were generated from upstream's OpenAPI: no type of theirs may differ here. Watching is `test_python_watch`, the
dynamic client `test_python_dynamic`.
"""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest
from kubernetes import client, config

from handfast.api.schema import schema
from tests.interop import peer_objects, running

pytestmark = pytest.mark.slow


def _config_map(name: str, **labels: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels or None), data={"a": "1"})


def _deployment(name: str) -> client.V1Deployment:
    labels = {"app": name}
    container = client.V1Container(name="main", image="nginx:1")
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(replicas=2, selector=client.V1LabelSelector(match_labels=labels), template=template)
    return client.V1Deployment(metadata=client.V1ObjectMeta(name=name), spec=spec)


def _refused(code: int, reason: str):
    return pytest.raises(client.ApiException, check=lambda error: error.status == code and f'"{reason}"' in error.body)


def test_core_from_create_to_delete(core, namespace):
    made = core.create_namespaced_config_map(namespace, _config_map("one"))
    assert made.metadata.creation_timestamp.tzinfo is not None
    assert core.read_namespaced_config_map("one", namespace) == made
    patched = core.patch_namespaced_config_map("one", namespace, {"data": {"b": "2"}})
    assert patched.data == {"a": "1", "b": "2"}
    with _refused(409, "Conflict"):
        core.replace_namespaced_config_map("one", namespace, made)
    patched.data = {"c": "3"}
    assert core.replace_namespaced_config_map("one", namespace, patched).data == {"c": "3"}
    answer = core.delete_namespaced_config_map("one", namespace)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "one", "kind": "configmaps", "uid": made.metadata.uid}
    with _refused(404, "NotFound"):
        core.read_namespaced_config_map("one", namespace)


def test_refusals_carry_a_status(core, namespace):
    core.create_namespaced_config_map(namespace, _config_map("one"))
    with _refused(409, "AlreadyExists"):
        core.create_namespaced_config_map(namespace, _config_map("one"))
    with _refused(422, "Invalid"):
        core.create_namespaced_config_map(namespace, _config_map("Bad_Name"))
    with _refused(404, "NotFound"):
        core.create_namespaced_config_map("nowhere", _config_map("one"))


def test_apps_with_status_and_scale(apps, namespace):
    made = apps.create_namespaced_deployment(namespace, _deployment("web"))
    assert (made.spec.strategy.type, made.metadata.generation) == ("RollingUpdate", 1)
    made.status = client.V1DeploymentStatus(replicas=2, observed_generation=1)
    made.spec.replicas = 9
    written = apps.replace_namespaced_deployment_status("web", namespace, made)
    assert (written.status.replicas, written.spec.replicas) == (2, 2)
    scale = apps.read_namespaced_deployment_scale("web", namespace)
    assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (2, 2, "app=web")
    scale.spec.replicas = 5
    assert apps.replace_namespaced_deployment_scale("web", namespace, scale).spec.replicas == 5
    assert apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 6}}).spec.replicas == 6
    assert apps.read_namespaced_deployment("web", namespace).metadata.generation == 3
    # A list of operations goes out as a JSON patch, an object as a strategic merge patch.
    apps.patch_namespaced_deployment("web", namespace, [{"op": "replace", "path": "/spec/replicas", "value": 1}])
    added = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}}
    found = apps.patch_namespaced_deployment("web", namespace, added)
    assert sorted(each.name for each in found.spec.template.spec.containers) == ["main", "side"]
    apps.delete_collection_namespaced_deployment(namespace, label_selector="app!=other")
    assert apps.list_namespaced_deployment(namespace).items == []


def test_access_rules(rules, namespace, unique):
    rule = client.V1PolicyRule(api_groups=[""], resources=["pods"], verbs=["get"])
    rules.create_namespaced_role(namespace, client.V1Role(metadata=client.V1ObjectMeta(name="reader"), rules=[rule]))
    binding = client.V1RoleBinding(
        metadata=client.V1ObjectMeta(name="readers"),
        role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="reader"),
        subjects=[client.RbacV1Subject(kind="User", name="ann", api_group="rbac.authorization.k8s.io")],
    )
    made = rules.create_namespaced_role_binding(namespace, binding)
    made.role_ref.name = "other"
    with _refused(422, "Invalid"):
        rules.replace_namespaced_role_binding("readers", namespace, made)
    rules.create_cluster_role({"metadata": {"name": unique}, "rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]})
    assert rules.read_cluster_role(unique).rules[0].non_resource_urls == ["/x"]
    rules.delete_cluster_role(unique)
    assert [role.metadata.name for role in rules.list_namespaced_role(namespace).items] == ["reader"]


def test_leases_keep_microseconds_and_are_created_by_put(coordination, namespace):
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)
    lease = client.V1Lease(
        metadata=client.V1ObjectMeta(name="leader"),
        spec=client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15, acquire_time=now, renew_time=now),
    )
    made = coordination.replace_namespaced_lease("leader", namespace, lease)
    assert made.spec.renew_time == now
    made.spec.holder_identity = "you"
    assert coordination.replace_namespaced_lease("leader", namespace, made).spec.holder_identity == "you"
    with _refused(409, "Conflict"):
        coordination.replace_namespaced_lease("leader", namespace, made)
    coordination.delete_namespaced_lease("leader", namespace)


def test_label_and_field_selectors_choose_what_is_listed(core, namespace):
    for name, colour in (("one", "red"), ("two", "red"), ("three", "blue")):
        core.create_namespaced_config_map(namespace, _config_map(name, colour=colour))

    def names(**wanted: str) -> list[str]:
        return [item.metadata.name for item in core.list_namespaced_config_map(namespace, **wanted).items]

    assert names(label_selector="colour=red") == ["one", "two"]
    assert names(label_selector="colour in (blue, green)") == ["three"]
    assert names(field_selector="metadata.name=two") == ["two"]
    assert names(label_selector="colour", field_selector="metadata.name!=two") == ["one", "three"]
    everywhere = core.list_config_map_for_all_namespaces(
        label_selector="colour=blue", field_selector=f"metadata.namespace={namespace}"
    )
    assert [item.metadata.name for item in everywhere.items] == ["three"]
    with _refused(400, "BadRequest"):
        names(field_selector="data.a=1")


def test_pages_are_one_consistent_list(core, namespace):
    for number in range(10):
        core.create_namespaced_secret(namespace, {"metadata": {"name": f"s{number}"}})
    first = core.list_namespaced_secret(namespace, limit=4)
    assert (len(first.items), first.metadata.remaining_item_count) == (4, 6)
    # What happens between two pages does not show.
    core.delete_namespaced_secret("s5", namespace)
    core.create_namespaced_secret(namespace, {"metadata": {"name": "s55"}})
    found = [item.metadata.name for item in first.items]
    page = first
    while page.metadata._continue:
        page = core.list_namespaced_secret(namespace, limit=4, _continue=page.metadata._continue)
        found += [item.metadata.name for item in page.items]
        assert page.metadata.resource_version == first.metadata.resource_version
    assert found == [f"s{number}" for number in range(10)]
    with _refused(400, "BadRequest"):
        core.list_namespaced_secret(namespace, limit=4, _continue="nonsense")


def test_lists_at_a_resource_version(core, namespace):
    core.create_namespaced_secret(namespace, {"metadata": {"name": "early"}})
    then = core.list_namespaced_secret(namespace).metadata.resource_version
    core.create_namespaced_secret(namespace, {"metadata": {"name": "late"}})

    def names(**wanted: str) -> list[str]:
        return [item.metadata.name for item in core.list_namespaced_secret(namespace, **wanted).items]

    assert names(resource_version=then, resource_version_match="Exact") == ["early"]
    assert names(resource_version=then, resource_version_match="NotOlderThan") == ["early", "late"]
    assert names(resource_version="0") == ["early", "late"]
    with _refused(422, "Invalid"):
        names(resource_version_match="Exact")
    with _refused(504, "Timeout"):
        names(resource_version=str(int(then) + 10**6), resource_version_match="NotOlderThan")


def test_dry_run_answers_and_stores_nothing(core, namespace):
    made = core.create_namespaced_config_map(namespace, _config_map("one"), dry_run="All")
    assert made.metadata.uid
    with _refused(404, "NotFound"):
        core.read_namespaced_config_map("one", namespace)
    core.create_namespaced_config_map(namespace, _config_map("one"))
    assert core.patch_namespaced_config_map("one", namespace, {"data": {"a": "2"}}, dry_run="All").data == {"a": "2"}
    core.delete_namespaced_config_map("one", namespace, dry_run="All")
    assert core.read_namespaced_config_map("one", namespace).data == {"a": "1"}
    with _refused(422, "Invalid"):
        core.create_namespaced_config_map(namespace, _config_map("two"), dry_run="Some")


def test_preconditions_and_propagation_of_deletes(core, namespace):
    made = core.create_namespaced_config_map(namespace, _config_map("parent"))
    owner = client.V1OwnerReference(api_version="v1", kind="ConfigMap", name="parent", uid=made.metadata.uid)
    metadata = client.V1ObjectMeta(name="child", owner_references=[owner])
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata))
    with _refused(409, "Conflict"):
        wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
        core.delete_namespaced_config_map("parent", namespace, body=wrong)
    core.delete_namespaced_config_map("parent", namespace, propagation_policy="Foreground")
    running.eventually(
        lambda: (
            [item.metadata.name for item in core.list_namespaced_config_map(namespace).items] == ["kube-root-ca.crt"]
        ),
        "parent and child are collected",
    )


def test_generated_names_and_binary_data(core, namespace):
    made = core.create_namespaced_secret(
        namespace,
        client.V1Secret(metadata=client.V1ObjectMeta(generate_name="token-"), string_data={"word": "grüße"}),
    )
    assert made.metadata.name.startswith("token-")
    assert (made.data, made.string_data, made.type) == ({"word": "Z3LDvMOfZQ=="}, None, "Opaque")


def test_version_and_groups(api, apps):
    assert client.VersionApi(api).get_code().major == "1"
    groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
    assert {"apps", "batch", "coordination.k8s.io", "rbac.authorization.k8s.io"} <= groups
    resources = apps.get_api_resources().resources
    assert {"deployments", "deployments/status", "deployments/scale"} <= {each.name for each in resources}


# What upstream's OpenAPI calls a scalar, or leaves open because its JSON is no object.
SCALARS = {
    "str": {"string", "resource.Quantity"},
    "int": {"int32", "int64"},
    "bool": {"bool"},
    "float": {"double"},
    "bytes": {"bytes"},
    "datetime": {"meta.v1.Time", "meta.v1.MicroTime"},
    "List[str]": {f"{group}.v1.ExtraValue" for group in ("authentication", "authorization", "certificates")}
    | {"authentication.v1.AttestationValue"},
}


def test_a_request_is_approved_and_signed(api, unique):
    certificates: Any = client.CertificatesV1Api(api)
    made = certificates.create_certificate_signing_request(peer_objects.signing_request(unique))
    made.status.conditions = [peer_objects.approval("Official")]
    certificates.replace_certificate_signing_request_approval(unique, made)
    signed = running.eventually(
        lambda: certificates.read_certificate_signing_request(unique).status.certificate, "the request is signed"
    )
    assert base64.b64decode(signed).startswith(b"-----BEGIN CERTIFICATE-----")


def test_a_token_of_an_account_logs_in_and_is_reviewed(api, core, control_plane, namespace, tmp_path):
    token = core.create_namespaced_service_account_token("default", namespace, {"spec": {}}).status.token
    review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))
    reviews: Any = client.AuthenticationV1Api(api)
    status = reviews.create_token_review(review).status
    user = f"system:serviceaccount:{namespace}:default"
    assert (status.authenticated, status.user.username) == (True, user)
    place = peer_objects.token_kubeconfig(control_plane, tmp_path / "token.conf", namespace, token)
    with config.new_client_from_config(place, persist_config=False) as other:
        reviews = client.AuthenticationV1Api(other)
        who = reviews.create_self_subject_review({})
        assert who.status.user_info.username == user
        with _refused(403, "Forbidden"):
            client.CoreV1Api(other).list_namespaced_secret(namespace)


def test_a_pod_is_evicted(core, namespace):
    core.create_namespaced_pod(namespace, peer_objects.pod("alone"))
    core.create_namespaced_pod_eviction("alone", namespace, {"metadata": {"name": "alone"}})
    with _refused(404, "NotFound"):
        core.read_namespaced_pod("alone", namespace)


def _their_model(message: str) -> type | None:
    """The client's model of a message such as `core.v1.Pod`; None: it has none, since nothing is in it but other forms."""
    group, version, name = message.rsplit(".", 2) if message.count(".") == 2 else ("", "", message)
    names = (f"{group.capitalize()}{version.capitalize()}{name}", f"{version.capitalize()}{name}")
    return next((getattr(client, each) for each in names if hasattr(client, each)), None)


def _different(message: str, model: type) -> list[str]:
    """In what a type is not upstream's: a field more or less, one instead of many, another type."""
    ours = schema.message(message).fields
    theirs = {name: model.openapi_types[key] for key, name in model.attribute_map.items()}  # type: ignore[attr-defined]
    # Where apiVersion and kind are the envelope's, they are in no message.
    envelope = {"apiVersion", "kind"} if schema.has_type_meta(message) else set()
    wrong = sorted(set(ours) ^ (set(theirs) - envelope))
    for name in ours.keys() & theirs.keys():
        field, kind = ours[name], theirs[name]
        form = "List[" if field.repeated else "Dict[str, " if field.is_map else ""
        inner = kind.removeprefix(form).removesuffix("]") if form else kind
        short = field.type.rpartition(".")[2]
        good = field.type in SCALARS.get(inner, ()) or inner == "object" or inner.endswith(short)
        if not kind.startswith(form) or not good:
            wrong.append(f"{name}: {field.type} is {kind}")
    return wrong


def test_no_type_of_kubernetes_is_changed():
    models = {name: model for name in schema.message_names() if (model := _their_model(name)) is not None}
    assert len(models) > 400
    assert "certificates.v1.CertificateSigningRequestSpec" in models
    assert {name: wrong for name, model in models.items() if (wrong := _different(name, model))} == {}


def test_a_type_that_is_changed_would_be_seen():
    spec = client.V1CertificateSigningRequestSpec
    assert "signerName" in _different("certificates.v1.CertificateSigningRequestStatus", spec)
    twisted = type("Twisted", (), {"attribute_map": {"d": "data"}, "openapi_types": {"d": "List[str]"}})
    assert "data: string is List[str]" in _different("core.v1.ConfigMap", twisted)
