# SPDX-License-Identifier: Apache-2.0
"""The control plane as Deployments: confined, injected, and told where to listen."""

import json

import pytest

from handfast import errors
from handfast.rules.mesh import deployments, names, settings, sidecar


def plan(**changes):
    chosen = settings.Settings(**{"controller_image": "example.com/handfast:1", "replicas": 2, **changes})
    return sidecar.Plan(settings=chosen, anchors="PEM", created_by="test")


def rows(**changes):
    return {(row.document["kind"], row.name): row.document for row in deployments.objects_of(plan(**changes))}


def pod(name, **changes):
    return rows(**changes)["Deployment", name]["spec"]["template"]["spec"]


def variables(name, **changes):
    (proxy,) = [row for row in pod(name, **changes)["initContainers"] if row["name"] == "linkerd-proxy"]
    return {row["name"]: row.get("value", "") for row in proxy["env"]}


NAMES = ("linkerd-identity", "linkerd-destination", "linkerd-proxy-injector")


def test_there_are_three_deployments_and_four_services_that_select_their_pods():
    made = rows()
    assert [name for kind, name in made if kind == "Deployment"] == list(NAMES)
    services = {name: document["spec"]["selector"] for (kind, name), document in made.items() if kind == "Service"}
    assert services.keys() == {*NAMES, "linkerd-policy"}
    assert services["linkerd-policy"] == services["linkerd-destination"]
    for name in NAMES:
        spec = made["Deployment", name]["spec"]
        assert spec["selector"]["matchLabels"] == services[name]
        assert services[name].items() <= spec["template"]["metadata"]["labels"].items()
        assert spec["replicas"] == 2
    assert "proxy-api" not in json.dumps(list(made.values()))
    assert "linkerd-ca" not in json.dumps(list(made.values()))


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_runs_without_root_and_cannot_write(name):
    spec = pod(name)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] != sidecar.USER
    for row in (*spec["containers"], *spec["initContainers"]):
        assert row["securityContext"]["readOnlyRootFilesystem"] is True
        assert row["securityContext"]["allowPrivilegeEscalation"] is False
        assert "ALL" in row["securityContext"]["capabilities"]["drop"]
    (own,) = spec["containers"]
    assert own["image"] == "example.com/handfast:1"
    assert {"livenessProbe", "readinessProbe"} <= own.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_logs_in_with_a_token_that_is_renewed(name):
    spec = pod(name)
    assert spec["automountServiceAccountToken"] is False
    (login,) = [row for row in spec["volumes"] if row["name"] == "login"]
    paths = [source for source in login["projected"]["sources"] if "serviceAccountToken" in source]
    assert paths == [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}]
    assert pod(name, own_token=False, accept_api_audience=True)["automountServiceAccountToken"] is True


def test_every_pod_has_a_proxy_and_that_of_the_identity_service_asks_itself():
    own = variables("linkerd-identity")
    assert own["LINKERD2_PROXY_IDENTITY_ADDR"].startswith("localhost")
    assert not {"LINKERD2_PROXY_IDENTITY_IDENTITY", "LINKERD2_PROXY_IDENTITY_SVC_NAME"} & own.keys()
    other = variables("linkerd-proxy-injector")
    assert other["LINKERD2_PROXY_IDENTITY_ADDR"] == "linkerd-identity.linkerd.svc.cluster.local:8080"
    assert (
        other["LINKERD2_PROXY_IDENTITY_IDENTITY"]
        == "linkerd-identity.linkerd.sa.linkerd-identity.linkerd.cluster.local"
    )


def test_without_identities_the_proxies_have_none():
    assert "LINKERD2_PROXY_LOCAL_IDENTITY" not in variables("linkerd-identity", enabled=False, default_enabled=False)


def test_services_listen_at_the_address_of_their_pod():
    (own,) = pod("linkerd-destination")["containers"]
    assert own["args"][-2:] == ["--pod-ip", "$(POD_IP)"]
    assert [port["containerPort"] for port in own["ports"]] == [8086, 8090, 8089, 9996]
    (own,) = pod("linkerd-proxy-injector")["containers"]
    assert "--pod-ip" not in own["args"]
    assert "0.0.0.0:8443" in own["args"]


def test_names_with_a_uid_cannot_be_known_before_the_accounts_are_there():
    with pytest.raises(errors.Refused) as refused:
        rows(scheme=names.Scheme.UID)
    assert refused.value.reason == "UidUnknown"
