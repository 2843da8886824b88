# SPDX-License-Identifier: Apache-2.0
"""The objects of an installation, and what is read back from them."""

from __future__ import annotations

import base64

import pytest

from handfast import errors
from handfast.bootstrap import first_objects
from handfast.rules.mesh import installation, issuer, services, settings, webhook
from tests.unit.pki import making

MATERIAL = issuer.generate(making.NOW)


def titles(*installers):
    return [each.title for each in installation.access("linkerd", installers)]


def test_namespaces_come_before_what_is_in_them():
    first, *rest = installation.access("mesh", ["jane"])
    assert first.title == "Namespace mesh"
    assert {each.namespace for each in rest} == {"", "mesh"}
    # Two meshes do not share what has no namespace.
    assert all("mesh" in each.name for each in rest if not each.namespaced)


def test_the_accounts_are_those_of_the_seed():
    assert [title for title in titles() if title.startswith("ServiceAccount")] == [
        "ServiceAccount linkerd/linkerd-identity",
        "ServiceAccount linkerd/linkerd-controller",
        "ServiceAccount linkerd/linkerd-proxy-injector",
    ]
    assert not any("linkerd-ca" in title or "proxy-api" in title for title in titles())


def test_each_role_is_bound_to_its_account_alone():
    for each in installation.access("linkerd", []):
        for subject in each.document.get("subjects", []):
            assert subject["kind"] == "ServiceAccount"
            assert each.name in {subject["name"], f"linkerd-{subject['name']}"}
            assert each.document["roleRef"]["name"] == each.name


def test_whoever_installs_reads_settings_and_anchors():
    binding = installation.access("linkerd", ["jane", "joe"])[-1]
    assert binding.title == "RoleBinding linkerd/linkerd-installers"
    assert [subject["name"] for subject in binding.document["subjects"]] == ["jane", "joe"]
    assert installation.installers(binding.document, "ann") == ("jane", "joe", "ann")
    assert installation.installers(binding.document, "joe") == ("jane", "joe")
    assert installation.installers(None, "") == ()
    odd = {"subjects": [{"kind": "Group", "name": "all"}, {"kind": "User"}]}
    assert installation.installers(odd, "ann") == ("ann",)
    assert "RoleBinding linkerd/linkerd-installers" not in titles()


def test_anchors_and_issuer_are_read_back_as_they_were_stored():
    anchors, signing = installation.trust("linkerd", MATERIAL, generated=True)
    assert anchors.title == "ConfigMap linkerd/linkerd-trust-anchor"
    assert list(anchors.document["data"]) == ["ca-bundle.crt"]
    assert signing.title == "Secret linkerd/linkerd-identity-signing"
    assert list(signing.document["data"]) == ["tls.crt", "key.der"]
    assert installation.read_material(signing.document, anchors.document) == MATERIAL
    assert installation.is_generated(anchors.document)
    assert not installation.is_generated(installation.trust("linkerd", MATERIAL, generated=False)[0].document)


@pytest.mark.parametrize("secret", [{}, {"data": None}, {"data": {"tls.crt": "?", "key.der": None}}])
def test_what_is_not_there_is_read_as_nothing(secret):
    assert installation.read_signing(secret) == (b"", b"")
    assert installation.read_anchors({}) == b""


def test_the_settings_are_all_written_out():
    config = installation.config("linkerd", settings.Settings())
    assert config.title == "ConfigMap linkerd/linkerd-config"
    assert config.document["data"].keys() == settings.KEYS.keys()


def test_what_differs_becomes_what_is_wanted_and_the_rest_stays():
    wanted = installation.trust("linkerd", MATERIAL, generated=True)[0]
    metadata = {"name": "x", "resourceVersion": "7", "annotations": {"own": "1", installation.GENERATED: "true"}}
    there = {**wanted.document, "metadata": metadata, "data": {}}
    changed = installation.updated(there, wanted)
    assert changed["data"] == wanted.document["data"]
    assert changed["metadata"] == metadata
    given = installation.trust("linkerd", MATERIAL, generated=False)[0]
    assert installation.updated(there, given)["metadata"]["annotations"] == {"own": "1"}
    assert installation.updated(changed, wanted) is changed


def test_a_binding_of_another_role_is_refused():
    binding = installation.access("linkerd", ["jane"])[-1]
    installation.require_same_role(binding.document, binding)
    other = {**binding.document, "roleRef": {"name": "cluster-admin"}}
    with pytest.raises(errors.Refused, match="binds another role: cluster-admin") as refused:
        installation.require_same_role(other, binding)
    assert refused.value.reason == "BindingOfAnotherRole"


def test_the_kinds_of_handfast_are_defined_for_other_servers():
    plurals = ("issuancelogs", "revocations", "meshpolicies", "meshworkloads")
    kinds = [f"{plural}.handfast.dev" for plural in plurals]
    assert [each.name for each in installation.kinds()] == kinds
    assert isinstance(installation.kinds()[0], first_objects.FirstObject)


def test_the_key_in_the_secret_is_der():
    _, signing = installation.trust("linkerd", MATERIAL, generated=True)
    assert base64.b64decode(signing.document["data"]["key.der"]).startswith(b"\x30")


def test_what_is_the_injectors_is_never_written_over():
    pair = webhook.pair("linkerd")
    filled = {**pair.document, "data": {"tls.key": "eA=="}}
    assert installation.updated(filled, pair) == filled
    wanted = webhook.configuration("linkerd", settings.Settings(failure_policy=settings.FAIL))
    there = webhook.with_bundle(webhook.configuration("linkerd", settings.Settings()).document, b"ca")
    changed = installation.updated(there, wanted)
    assert webhook.bundle(changed) == b"ca"
    assert changed["webhooks"][0]["failurePolicy"] == "Fail"


def test_a_service_that_is_there_keeps_what_the_cluster_gave_it():
    wanted = services.service("linkerd-identity", "linkerd")
    there = {**wanted.document, "spec": {**wanted.document["spec"], "clusterIP": "10.0.0.1"}}
    assert installation.updated(there, wanted) == there
