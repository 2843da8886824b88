# SPDX-License-Identifier: Apache-2.0
"""Installing the mesh over an API: in order, all or nothing, and twice is once."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import mesh_installation
from handfast.rules.mesh import control_plane, install_plan, installation, issuer
from tests.unit.client.mesh_api import MeshApi
from tests.unit.controllers import fake_api
from tests.unit.pki.making import NOW

DEFAULT = install_plan.Typed(texts={})


async def test_what_is_trusted_is_written_last_and_the_settings_at_the_end():
    client = MeshApi()
    outcome = await mesh_installation.install(client, DEFAULT, NOW)
    assert outcome.changed == outcome.steps
    assert client.calls[0] == ("create", "namespaces", "linkerd")
    assert client.calls[-3:] == [
        ("create", "configmaps", control_plane.TRUST_ANCHOR),
        ("create", "secrets", control_plane.SIGNING),
        ("create", "configmaps", control_plane.CONFIG),
    ]
    assert not any(plural == "customresourcedefinitions" for _, plural, _ in client.calls)


async def test_a_second_call_writes_nothing_and_asks_for_no_rights():
    client = MeshApi()
    await mesh_installation.install(client, DEFAULT, NOW)
    client.calls.clear()
    client.reviewed.clear()
    outcome = await mesh_installation.install(client, DEFAULT, NOW)
    assert (outcome.changed, client.calls, client.reviewed) == ((), [], [])


async def test_another_server_gets_the_kinds_first():
    client = MeshApi(own_kinds=False)
    await mesh_installation.install(client, DEFAULT, NOW)
    plurals = ("issuancelogs", "revocations", "meshpolicies", "meshworkloads")
    kinds = [f"{plural}.handfast.dev" for plural in plurals]
    assert [name for _, _, name in client.calls[:4]] == kinds


async def test_whoever_installs_next_is_added():
    client = MeshApi()
    await mesh_installation.install(client, DEFAULT, NOW)
    client.user = "joe"
    (step,) = (await mesh_installation.install(client, DEFAULT, NOW)).changed
    assert (step.action, step.wanted.title) == ("updated", "RoleBinding linkerd/linkerd-installers")
    binding = client.objects["rolebindings", "linkerd", installation.INSTALLERS]
    assert [subject["name"] for subject in binding["subjects"]] == ["jane", "joe"]


async def test_a_server_that_does_not_say_who_asks_gets_no_binding_for_them():
    client = MeshApi(user="")
    await mesh_installation.install(client, DEFAULT, NOW)
    assert ("rolebindings", "linkerd", installation.INSTALLERS) not in client.objects


async def test_a_run_that_is_cut_short_anywhere_is_completed_by_the_next():
    whole = MeshApi()
    await mesh_installation.install(whole, DEFAULT, NOW)
    for last in range(len(whole.calls)):
        client = MeshApi()
        left = iter(range(last))

        def cut(verb, *_, left=left):
            if verb == "create" and next(left, None) is None:
                raise errors.Unavailable("gone")

        client.before = cut
        with pytest.raises(errors.Unavailable):
            await mesh_installation.install(client, DEFAULT, NOW)
        assert len(client.calls) == last
        client.before = lambda *_: None
        await mesh_installation.install(client, DEFAULT, NOW)
        assert client.objects.keys() == whole.objects.keys()
        assert (await mesh_installation.install(client, DEFAULT, NOW)).changed == ()


async def test_a_right_is_asked_for_once():
    client = MeshApi()
    await mesh_installation.install(client, DEFAULT, NOW)
    asked = [tuple(sorted(attributes.items())) for attributes in client.reviewed]
    assert len(asked) == len(set(asked)) == 8


@pytest.mark.parametrize("plural", ["namespaces", "secrets", "clusterrolebindings"])
async def test_nothing_is_written_unless_all_of_it_may_be(plural):
    client = MeshApi()
    client.forbidden.add(("create", plural))
    with pytest.raises(errors.Refused, match=r"you may not create .*; nothing was written") as refused:
        await mesh_installation.install(client, DEFAULT, NOW)
    assert refused.value.reason == "Forbidden"
    assert client.calls == []


async def test_a_change_asks_for_the_object_by_name():
    client = MeshApi()
    await mesh_installation.install(client, DEFAULT, NOW)
    client.reviewed.clear()
    typed = install_plan.Typed(texts={"identity.spiffe": "true"})
    await mesh_installation.install(client, typed, NOW)
    assert client.reviewed == [
        {"verb": "update", "group": "", "resource": "configmaps", "name": "linkerd-config", "namespace": "linkerd"}
    ]


async def test_what_is_refused_has_written_nothing():
    client = MeshApi()
    bad = issuer.generate(NOW)
    typed = install_plan.Typed(
        texts={}, material=issuer.Material(bad.certificate, issuer.generate(NOW).key, bad.anchors)
    )
    with pytest.raises(issuer.Unfit):
        await mesh_installation.install(client, typed, NOW)
    assert client.calls == []


async def test_a_binding_of_another_role_stops_it_before_the_first_write():
    client = MeshApi()
    client.put("rolebindings", installation.INSTALLERS, "linkerd", roleRef={"name": "cluster-admin"})
    with pytest.raises(errors.Refused) as refused:
        await mesh_installation.install(client, DEFAULT, NOW)
    assert refused.value.reason == "BindingOfAnotherRole"
    assert client.calls == []


@pytest.mark.parametrize(
    "error",
    [
        status.already_exists("secrets", "", control_plane.SIGNING),
        status.conflict("secrets", "", control_plane.SIGNING),
    ],
)
async def test_the_second_of_two_at_the_same_time_is_refused(error):
    client = MeshApi()
    client.before = fake_api.failing(error, verb="create", plural="secrets")
    with pytest.raises(errors.Refused, match="Secret linkerd/linkerd-proxy-injector-tls was changed") as refused:
        await mesh_installation.install(client, DEFAULT, NOW)
    assert refused.value.reason == "MeshChangedMeanwhile"


async def test_any_other_refusal_of_the_server_is_told_as_it_is():
    client = MeshApi()
    client.before = fake_api.failing(status.forbidden("roles", "", "x", "no"), verb="create", plural="roles")
    with pytest.raises(status.StatusError) as refused:
        await mesh_installation.install(client, DEFAULT, NOW)
    assert refused.value.reason == "Forbidden"


def test_the_manifests_are_the_same_objects_and_the_control_plane():
    documents, mesh_issuer = mesh_installation.manifests(DEFAULT, "test", NOW)
    assert [each["kind"] for each in documents[:5]] == [*4 * ["CustomResourceDefinition"], "Namespace"]
    names = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert ("ConfigMap", control_plane.CONFIG) in names
    assert names[-1] == ("MutatingWebhookConfiguration", "linkerd-proxy-injector")
    assert [name for kind, name in names if kind == "Deployment"] == [
        "linkerd-identity",
        "linkerd-destination",
        "linkerd-proxy-injector",
    ]
    assert mesh_issuer.certificate.is_ca


def test_the_manifests_of_a_control_plane_elsewhere_have_no_deployments():
    typed = install_plan.Typed(texts={}, endpoints={"identity": "192.0.2.1:8080"})
    kinds = [each["kind"] for each in mesh_installation.manifests(typed, "test", NOW)[0]]
    assert "Deployment" not in kinds
    assert "MutatingWebhookConfiguration" not in kinds
    assert kinds.count("Service") == kinds.count("EndpointSlice") == 1


ELSEWHERE = install_plan.Typed(
    texts={}, endpoints={"identity": "192.0.2.1:8080", "injector": "192.0.2.1:9443", "agents": "[2001:db8::1]:8089"}
)


async def test_what_runs_elsewhere_has_services_that_lead_there_and_the_webhook_comes_last():
    client = MeshApi()
    await mesh_installation.install(client, ELSEWHERE, NOW)
    assert client.calls[-1] == ("create", "mutatingwebhookconfigurations", "linkerd-proxy-injector")
    slice_ = client.objects["endpointslices", "linkerd", "linkerd-proxy-injector-injector"]
    assert slice_["endpoints"][0]["addresses"] == ["192.0.2.1"]
    assert slice_["ports"] == [{"name": "https", "port": 9443, "protocol": "TCP"}]
    assert client.objects["endpointslices", "linkerd", "linkerd-destination-agents"]["addressType"] == "IPv6"
    client.calls.clear()
    assert (await mesh_installation.install(client, ELSEWHERE, NOW)).changed == ()
    assert client.calls == []


async def test_another_address_is_taken_up_and_the_webhook_follows_its_setting():
    client = MeshApi()
    await mesh_installation.install(client, ELSEWHERE, NOW)
    moved = install_plan.Typed(texts={"injector.failurePolicy": "Fail"}, endpoints={"identity": "192.0.2.2:8080"})
    outcome = await mesh_installation.install(client, moved, NOW)
    assert [step.wanted.title for step in outcome.changed] == [
        "EndpointSlice linkerd/linkerd-identity-identity",
        "ConfigMap linkerd/linkerd-config",
        "MutatingWebhookConfiguration linkerd-proxy-injector",
    ]


async def test_the_webhook_of_another_mesh_is_left_alone():
    client = MeshApi()
    await mesh_installation.install(client, ELSEWHERE, NOW)
    before = client.objects["mutatingwebhookconfigurations", "", "linkerd-proxy-injector"]
    await mesh_installation.install(client, install_plan.Typed(namespace="two", texts={}), NOW)
    assert client.objects["mutatingwebhookconfigurations", "", "linkerd-proxy-injector"] == before
    client.calls.clear()
    with pytest.raises(errors.Refused) as refused:
        await mesh_installation.install(
            client, install_plan.Typed(namespace="two", texts={}, endpoints=ELSEWHERE.endpoints), NOW
        )
    assert refused.value.reason == "WebhookOfAnotherMesh"
    assert client.calls == []


async def test_loopback_is_refused_by_another_api_server_before_the_first_write():
    client = MeshApi(version="v1.36.3")
    typed = install_plan.Typed(texts={}, endpoints={"injector": "127.0.0.1:8443"})
    with pytest.raises(errors.Refused, match=r"injector: 127\.0\.0\.1:8443 is a loopback address") as refused:
        await mesh_installation.install(client, typed, NOW)
    assert (refused.value.reason, client.calls) == ("BadMeshEndpoint", [])
    await mesh_installation.install(MeshApi(), typed, NOW)
