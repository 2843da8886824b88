# SPDX-License-Identifier: Apache-2.0
"""What a Pod of the mesh has beside its own: variables, volumes, containers."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import re
from typing import Any

import pytest

from handfast.rules.mesh import names, port_annotations, proxy_clients, proxy_policy, sidecar
from tests.unit.rules.mesh import pods

NAME = "$(K8S_SA).$(K8S_NS).sa.linkerd-identity.$(L5D_NS).$(TRUST_DOMAIN)"
IDENTITY = "linkerd-identity.linkerd.sa.linkerd-identity.linkerd.cluster.local"
CONTROLLER = "linkerd-controller.linkerd.sa.linkerd-identity.linkerd.cluster.local"


def variables(plan: sidecar.Plan, target: sidecar.Target) -> dict[str, str]:
    return {
        row["name"].removeprefix(sidecar.PREFIX): row["value"]
        if "value" in row
        else row["valueFrom"]["fieldRef"]["fieldPath"]
        for row in sidecar.proxy(plan, target)["env"]
    }


def control_plane(account: str, **container: Any) -> sidecar.Target:
    """A Pod of the control plane."""
    document = pods.pod(serviceAccountName=account, containers=[{"name": "c", "image": "i", **container}])
    document["metadata"]["namespace"] = "linkerd"
    return pods.target(document)


def test_the_variables_of_the_seed_stand_beside_those_of_today():
    found = variables(pods.plan(), pods.target())
    assert found["K8S_SA"] == "spec.serviceAccountName"
    assert found["K8S_NS"] == "metadata.namespace"
    assert (found["L5D_NS"], found["TRUST_DOMAIN"]) == ("linkerd", "cluster.local")
    for twins, value in {
        ("LOCAL_IDENTITY", "LOCAL_IDENTITY_NAME", "IDENTITY_LOCAL_NAME"): NAME,
        ("IDENTITY_STORE_DIR", "IDENTITY_DIR"): "/var/run/linkerd/identity",
        ("IDENTITY_TOKEN_FILE",): "/var/run/secrets/tokens/linkerd-identity-token",
        ("IDENTITY_TRUST_ANCHORS",): pods.ANCHORS,
        ("IDENTITY_ADDR", "IDENTITY_SVC_ADDR"): "linkerd-identity.linkerd.svc.cluster.local:8080",
        ("IDENTITY_IDENTITY", "IDENTITY_SVC_NAME"): IDENTITY,
        ("DESTINATION_ADDR", "DESTINATION_SVC_ADDR"): "linkerd-destination.linkerd.svc.cluster.local:8086",
        ("DESTINATION_IDENTITY", "DESTINATION_SVC_NAME"): CONTROLLER,
        ("POLICY_SVC_ADDR",): "linkerd-policy.linkerd.svc.cluster.local:8090",
        ("POLICY_SVC_NAME",): CONTROLLER,
        ("POLICY_WORKLOAD",): '{"ns": "$(K8S_NS)", "pod": "$(K8S_POD)"}',
    }.items():
        assert [found[twin] for twin in twins] == [value] * len(twins)
    assert base64.b64decode(found["IDENTITY_TRUST_ANCHORS_BLOB"]).decode() == pods.ANCHORS
    assert "POD_NAMESPACE" not in found
    assert not any(name.startswith("TLS_") for name in found)


def test_the_page_of_variables_names_each_of_them():
    page = (pathlib.Path(__file__).parents[4] / "docs" / "reference" / "proxy-variables.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|")]
    written = {name for row in rows for cell in row.split("|")[1:3] for name in re.findall(r"`(\w+)`", cell)}
    annotations = {port_annotations.OPAQUE: "3306", port_annotations.IDENTITY_HEADERS: "enabled"}
    document = pods.pod()
    document["metadata"]["annotations"] = annotations
    env = sidecar.proxy(pods.plan(), pods.target(document))["env"]
    assert written == {row["name"] for row in env}


@pytest.mark.parametrize(
    ("own", "namespace", "expected"),
    [("", "enabled", True), ("disabled", "enabled", False), ("enabled", "", True), ("", "", False)],
)
def test_who_calls_is_told_where_the_pod_or_its_namespace_says_so(own, namespace, expected):
    key, document = port_annotations.IDENTITY_HEADERS, pods.pod()
    document["metadata"]["annotations"] = {key: own} if own else {}
    target = pods.target(document)
    around = {key: namespace} if namespace else {}
    inherited = port_annotations.inherited(target.workload.annotations, around)
    found = variables(pods.plan(), dataclasses.replace(target, inherited=inherited))
    assert found.get("IDENTITY_HEADERS") == ("enabled" if expected else None)


def test_what_the_name_is_composed_of_comes_before_it():
    order = list(variables(pods.plan(), pods.target()))
    assert all(
        order.index(part) < order.index("LOCAL_IDENTITY") for part in ("K8S_SA", "K8S_NS", "L5D_NS", "TRUST_DOMAIN")
    )


@pytest.mark.parametrize("address", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080"])
def test_a_service_at_a_loopback_address_has_no_identity(address):
    plan = pods.plan(identity_address=address, destination_address=address, policy_address=address)
    found = variables(plan, pods.target())
    assert found["IDENTITY_ADDR"] == found["DESTINATION_ADDR"] == address
    # A stock proxy knows localhost by its dot only.
    stock = address.replace("localhost:", "localhost.:")
    assert found["IDENTITY_SVC_ADDR"] == found["DESTINATION_SVC_ADDR"] == found["POLICY_SVC_ADDR"] == stock
    assert not {"IDENTITY_IDENTITY", "DESTINATION_IDENTITY"} & found.keys()
    assert not any(name.endswith("_SVC_NAME") for name in found)


def test_a_service_elsewhere_has_an_identity():
    found = variables(pods.plan(identity_address="192.0.2.1:8080"), pods.target())
    assert (found["IDENTITY_ADDR"], found["IDENTITY_IDENTITY"]) == ("192.0.2.1:8080", IDENTITY)


def test_the_channel_to_agents_has_a_name_wherever_it_is():
    found = variables(pods.plan(), pods.target())
    assert found["AGENTS_ADDR"] == "linkerd-destination.linkerd.svc.cluster.local:8089"
    for plan, target, expected in (
        (pods.plan(agents_address="192.0.2.1:8089"), pods.target(), "192.0.2.1:8089"),
        (pods.plan(agents_address="127.0.0.1:8089"), pods.target(), "127.0.0.1:8089"),
        (pods.plan(agents_address="192.0.2.1:8089"), control_plane("linkerd-controller"), "localhost:8089"),
    ):
        found = variables(plan, target)
        assert (found["AGENTS_ADDR"], found["AGENTS_IDENTITY"]) == (expected, CONTROLLER)
    assert "AGENTS_ADDR" not in variables(pods.plan(), pods.target(identity=False))


def test_our_own_proxy_reads_what_an_injected_pod_has():
    fields = {"K8S_NS": "shop", "K8S_POD": "web-1"}
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 8080}]}
    rows = sidecar.proxy(pods.plan(), pods.target(pods.pod(containers=[container])))["env"]
    values = {row["name"]: row.get("value", fields.get(row["name"], "x")) for row in rows}
    for name, value in fields.items():
        values = {key: text.replace(f"$({name})", value) for key, text in values.items()}
    assert proxy_policy.read(values) == proxy_policy.ProxyPolicy(
        default="deny", workload='{"ns": "shop", "pod": "web-1"}', pod=("shop", "web-1"), ports=(8080,)
    )
    clients = proxy_clients.read(values)
    assert clients.agents == proxy_clients.Client("linkerd-destination.linkerd.svc.cluster.local:8089", CONTROLLER)
    assert clients.policy is not None
    assert clients.policy.name == CONTROLLER


def test_the_identity_service_asks_itself_and_does_not_wait_for_it():
    own = control_plane("linkerd-identity")
    found = variables(pods.plan(identity_address="192.0.2.1:8080"), own)
    assert (found["IDENTITY_ADDR"], found["IDENTITY_SVC_ADDR"]) == ("localhost:8080", "localhost.:8080")
    assert "IDENTITY_IDENTITY" not in found
    assert found["DESTINATION_IDENTITY"] == CONTROLLER
    assert "startupProbe" not in sidecar.proxy(pods.plan(), own)
    # The account of that name in another namespace is somebody else's.
    assert "startupProbe" in sidecar.proxy(pods.plan(), pods.target(pods.pod(serviceAccountName="linkerd-identity")))


def test_the_controllers_pod_asks_itself_for_destination_and_policy():
    found = variables(pods.plan(policy_address="192.0.2.1:8090"), control_plane("linkerd-controller"))
    assert (found["DESTINATION_ADDR"], found["DESTINATION_SVC_ADDR"]) == ("localhost:8086", "localhost.:8086")
    assert found["POLICY_SVC_ADDR"] == "localhost.:8090"
    assert not {"DESTINATION_IDENTITY", "DESTINATION_SVC_NAME", "POLICY_SVC_NAME"} & found.keys()
    assert found["IDENTITY_SVC_NAME"] == IDENTITY
    assert "startupProbe" in sidecar.proxy(pods.plan(), control_plane("linkerd-controller"))


def arguments(target: sidecar.Target) -> dict[str, str]:
    words = sidecar.init(pods.plan(), target)["args"]
    return dict(zip(words[::2], words[1::2], strict=True))


def test_connections_are_redirected_to_the_proxy():
    assert arguments(pods.target(pods.pod(containers=[{"name": "c", "ports": [{"containerPort": 80}]}]))) == {
        "--incoming-proxy-port": "4143",
        "--outgoing-proxy-port": "4140",
        "--proxy-uid": "2102",
        "--inbound-ports-to-ignore": "4190,4191",
    }


def test_the_control_planes_own_ports_and_the_api_server_are_not_redirected():
    words = arguments(control_plane("linkerd-identity", ports=[{"containerPort": 8080}, {"containerPort": 9990}]))
    assert words["--inbound-ports-to-ignore"] == "4190,4191,8080,9990"
    assert words["--outbound-ports-to-ignore"] == "443,6443"


def test_nobody_is_let_in_before_the_policy_is_known():
    assert variables(pods.plan(), pods.target())["INBOUND_DEFAULT_POLICY"] == "deny"
    chosen = pods.plan(default_policy="all-authenticated")
    assert variables(chosen, pods.target())["INBOUND_DEFAULT_POLICY"] == "all-authenticated"
    # An account of the same name elsewhere is somebody else's.
    impostor = pods.target(pods.pod(serviceAccountName="linkerd-identity"))
    assert variables(pods.plan(), impostor)["INBOUND_DEFAULT_POLICY"] == "deny"
    for account in ("linkerd-identity", "linkerd-controller", "linkerd-proxy-injector"):
        found = variables(pods.plan(), control_plane(account))
        assert found["INBOUND_DEFAULT_POLICY"] == "all-unauthenticated"


def test_every_address_is_looked_up_and_only_the_pods_own_are_forwarded():
    found = variables(pods.plan(), pods.target())
    assert found["DESTINATION_PROFILE_NETWORKS"] == "0.0.0.0/0,::/0"
    assert found["INBOUND_IPS"] == "status.podIPs"


def test_without_an_identity_there_is_nothing_of_one():
    target = pods.target(identity=False)
    found = variables(pods.plan(), target)
    assert not [name for name in found if "IDENTITY" in name or name.endswith("_SVC_NAME")]
    assert not {"K8S_SA", "L5D_NS", "TRUST_DOMAIN"} & found.keys()
    assert found["DESTINATION_ADDR"] == "linkerd-destination.linkerd.svc.cluster.local:8086"
    assert [row["name"] for row in sidecar.volumes(pods.plan(), target)] == [sidecar.LOCK]
    assert sidecar.proxy(pods.plan(), target)["volumeMounts"] == []


def test_keys_are_in_memory_and_the_token_is_for_the_identity_service_alone():
    _, store, token = sidecar.volumes(pods.plan(), pods.target())
    assert store == {"name": "linkerd-identity-store", "emptyDir": {"medium": "Memory"}}
    [source] = token["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "identity.l5d.io"
    assert sidecar.proxy(pods.plan(), pods.target())["volumeMounts"] == [
        {"name": "linkerd-identity-store", "mountPath": "/var/run/linkerd/identity"},
        {"name": "linkerd-identity-token", "mountPath": "/var/run/secrets/tokens", "readOnly": True},
    ]


def test_by_setting_the_token_is_the_seeds():
    plan = pods.plan(own_token=False, accept_api_audience=True)
    assert variables(plan, pods.target())["IDENTITY_TOKEN_FILE"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert [row["name"] for row in sidecar.volumes(plan, pods.target())] == [sidecar.LOCK, sidecar.STORE]
    assert len(sidecar.proxy(plan, pods.target())["volumeMounts"]) == 1
    mount = {"name": "kube-api-access", "mountPath": sidecar.ACCOUNT_TOKEN, "readOnly": True}
    others = [{"name": "data", "mountPath": "/data"}, mount]
    mounted = pods.target(pods.pod(containers=[{"name": "a", "volumeMounts": others}]))
    assert sidecar.proxy(plan, mounted)["volumeMounts"][1:] == [mount]


def test_both_containers_are_confined():
    for row in (sidecar.init(pods.plan(), pods.target()), sidecar.proxy(pods.plan(), pods.target())):
        context = row["securityContext"]
        assert context["runAsNonRoot"]
        assert context["runAsUser"] > 0
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"]["drop"] == ["ALL"]
    assert sidecar.init(pods.plan(init_image="init:2"), pods.target())["image"] == "init:2"
    proxy = sidecar.proxy(pods.plan(proxy_image="stock:2"), pods.target())
    assert (proxy["image"], proxy["restartPolicy"]) == ("stock:2", "Always")
    assert proxy["livenessProbe"]["httpGet"] == {"path": "/live", "port": 4191}


def test_ports_of_the_application_and_of_its_probes_are_told():
    container = {
        "name": "a",
        "ports": [{"containerPort": 8080}, {"containerPort": 443}],
        "readinessProbe": {"httpGet": {"port": 9000}},
        "livenessProbe": {"httpGet": {"port": "named"}},
    }
    assert variables(pods.plan(), pods.target(pods.pod(containers=[container])))["INBOUND_PORTS"] == "443,8080,9000"


def test_an_account_that_has_no_name_gets_no_proxy():
    sidecar.require_name(pods.plan(), pods.target())
    with pytest.raises(names.NotALabel):
        sidecar.require_name(pods.plan(), pods.target(pods.pod(serviceAccountName="a.b")))
    far = ".".join(["d" * 60] * 3)
    with pytest.raises(names.TooLong):
        sidecar.require_name(pods.plan(trust_domain=far), pods.target(pods.pod(serviceAccountName="a" * 60)))
    with pytest.raises(names.NoUid):
        sidecar.require_name(pods.plan(scheme=names.Scheme.UID), pods.target())


def test_a_name_with_a_uid_has_it_written_out():
    plan = pods.plan(scheme=names.Scheme.UID)
    uids = {"linkerd-identity": "u1", "linkerd-controller": "u2"}
    plan = sidecar.Plan(settings=plan.settings, anchors=plan.anchors, created_by="x", uids=uids)
    found = variables(plan, pods.target(uid="u3"))
    assert found["LOCAL_IDENTITY"] == f"u3.{NAME}"
    assert found["IDENTITY_IDENTITY"] == f"u1.{IDENTITY}"
    assert found["DESTINATION_IDENTITY"] == f"u2.{CONTROLLER}"
