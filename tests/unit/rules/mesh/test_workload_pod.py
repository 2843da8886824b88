# SPDX-License-Identifier: Apache-2.0
"""The Pod of a workload that a machine runs itself: its manifest, and what is read off an injected one."""

from __future__ import annotations

import copy
import ipaddress
from typing import Any

import pytest

from handfast.rules.mesh import workload_pod

TOKENS = "/var/run/secrets/tokens"
NAME = "linkerd-identity-token"
POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "namespace": "shop", "uid": "u"},
    "spec": {
        "nodeName": "n1",
        "initContainers": [
            {"name": "linkerd-init"},
            {
                "name": "linkerd-proxy",
                "startupProbe": {"periodSeconds": 1, "failureThreshold": 120},
                "volumeMounts": [
                    {"name": "linkerd-identity-store", "mountPath": "/var/run/linkerd/identity"},
                    {"name": "linkerd-identity-token", "mountPath": TOKENS},
                ],
            },
        ],
        "containers": [
            {
                "name": "web",
                "ports": [
                    {"containerPort": 8080},
                    {"containerPort": 9090, "protocol": "TCP"},
                    {"containerPort": 53, "protocol": "UDP"},
                ],
            }
        ],
        "volumes": [
            {"name": "linkerd-identity-store", "emptyDir": {"medium": "Memory"}},
            {
                "name": "linkerd-identity-token",
                "projected": {
                    "sources": [
                        {"configMap": {"name": "x"}},
                        {
                            "serviceAccountToken": {
                                "path": NAME,
                                "audience": "identity.l5d.io",
                                "expirationSeconds": 86400,
                            }
                        },
                    ]
                },
            },
        ],
    },
}
VARIABLES = {"LINKERD2_PROXY_IDENTITY_TOKEN_FILE": f"{TOKENS}/{NAME}"}


def changed(**spec: Any) -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    pod["spec"] |= spec
    return pod


def test_a_pod_for_a_command_asks_for_a_proxy_and_no_scheduler_takes_it():
    wanted = workload_pod.Wanted(
        namespace="shop",
        account="web",
        name="w",
        run="r1",
        labels={"app": "web"},
        annotations={"a": "b", "linkerd.io/inject": "disabled"},
        ports=(workload_pod.Port(8080, 18080),),
    )
    pod = workload_pod.manifest(wanted)
    meta, spec = pod["metadata"], pod["spec"]
    assert meta == {
        "name": "w",
        "namespace": "shop",
        "labels": {"app": "web"},
        "annotations": {"a": "b", "linkerd.io/inject": "enabled", "mesh.handfast.dev/run": "r1"},
    }
    assert (workload_pod.is_of_run(pod, "r1"), workload_pod.is_of_run(pod, "r2")) == (True, False)
    assert (spec["serviceAccountName"], spec["schedulerName"], spec["restartPolicy"]) == (
        "web",
        "handfast-mesh-run",
        "Never",
    )
    assert spec["containers"][0]["ports"] == [{"containerPort": 8080, "protocol": "TCP"}]


def test_a_pod_is_called_as_its_account():
    assert workload_pod.name_of("web", "x1") == "web-x1"
    assert workload_pod.name_of("a" * 49 + "-" + "b" * 30, "x1") == "a" * 49 + "-x1"


def test_a_pod_of_this_node_with_a_proxy_is_run():
    workload_pod.require_runnable(POD, "n1")
    workload_pod.require_runnable(changed(nodeName=""), "")


@pytest.mark.parametrize(("bound", "node"), [("n1", "n2"), ("n1", ""), ("", "n1")])
def test_a_pod_of_another_node_is_not_run(bound, node):
    with pytest.raises(workload_pod.NotRunnable) as refused:
        workload_pod.require_runnable(changed(nodeName=bound), node)
    assert refused.value.reason == "PodOfAnotherNode"


def test_a_pod_without_a_proxy_is_not_run():
    with pytest.raises(workload_pod.NotInjected, match="shop/web-0 has no container linkerd-proxy"):
        workload_pod.require_runnable(changed(initContainers=[]), "n1")


def test_a_pod_that_has_ended_or_ends_is_not_run():
    for pod in (
        {**POD, "status": {"phase": "Succeeded"}},
        {**POD, "status": {"phase": "Failed"}},
        {**POD, "metadata": {**POD["metadata"], "deletionTimestamp": "2026-11-17T12:00:00Z"}},
    ):
        with pytest.raises(workload_pod.NotRunnable) as refused:
            workload_pod.require_runnable(pod, "n1")
        assert refused.value.reason == "PodEnded"


def test_a_pod_of_several_containers_is_not_run():
    with pytest.raises(workload_pod.NotRunnable, match="has 2 containers"):
        workload_pod.require_runnable(changed(containers=[{"name": "a"}, {"name": "b"}]), "n1")


def test_ports_are_those_of_the_pod_led_to_where_the_command_line_says():
    assert workload_pod.ports(POD, ()) == (workload_pod.Port(8080, 8080), workload_pod.Port(9090, 9090))
    assert workload_pod.ports(POD, (workload_pod.Port(9090, 19090),))[1] == workload_pod.Port(9090, 19090)
    with pytest.raises(workload_pod.NotRunnable, match="has no port 81"):
        workload_pod.ports(POD, (workload_pod.Port(81, 81),))


def test_a_port_is_written_as_the_command_line_has_it():
    assert str(workload_pod.Port(8080, 18080)) == "8080:18080"


def test_the_token_is_the_one_that_the_pod_projects():
    assert workload_pod.projected(POD, VARIABLES) == workload_pod.ProjectedToken("identity.l5d.io", 86400)
    assert workload_pod.projected(POD, {}) is None


def test_a_directory_stands_for_the_token_in_it():
    pod = changed(
        volumes=[
            {
                "name": "linkerd-identity-token",
                "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
            }
        ]
    )
    variables = {"LINKERD2_PROXY_IDENTITY_TOKEN_FILE": TOKENS}
    assert workload_pod.projected(pod, variables) == workload_pod.ProjectedToken("", 3600)


@pytest.mark.parametrize("place", [f"{TOKENS}/other", f"{TOKENS}-x/{NAME}", "/elsewhere"])
def test_a_token_that_the_pod_does_not_project_is_refused(place):
    with pytest.raises(workload_pod.NotRunnable) as refused:
        workload_pod.projected(POD, {"LINKERD2_PROXY_IDENTITY_TOKEN_FILE": place})
    assert refused.value.reason == "PodTokenMissing"
    with pytest.raises(workload_pod.NotRunnable):
        workload_pod.projected(changed(volumes=[]), VARIABLES)


@pytest.mark.parametrize("path", ["../../../../etc/cron.d/x", "/etc/passwd"])
def test_no_path_of_a_pod_is_a_path_of_this_machine(path):
    sources = [{"serviceAccountToken": {"path": path}}]
    pod = changed(volumes=[{"name": "linkerd-identity-token", "projected": {"sources": sources}}])
    projected = workload_pod.projected(pod, {"LINKERD2_PROXY_IDENTITY_TOKEN_FILE": f"{TOKENS}/{path}"})
    assert projected == workload_pod.ProjectedToken("", 3600)


def test_only_settings_of_the_proxy_reach_the_proxy():
    loading = ("LD_PRELOAD", "PYTHONPATH", "PATH", "SSLKEYLOGFILE", "HANDFAST_X")
    resolved = {**dict.fromkeys(loading, "/tmp/x"), "LINKERD_PROXY_TRUST_ANCHORS_BLOB": "a", **VARIABLES}
    values = workload_pod.proxy_variables(resolved, store="s", token_file="t")
    assert values == {"LINKERD_PROXY_TRUST_ANCHORS_BLOB": "a", "LINKERD2_PROXY_IDENTITY_TOKEN_FILE": "t"}


def test_the_application_waits_as_long_as_the_start_up_probe_says():
    assert workload_pod.patience(POD) == 120.0
    for probe, seconds in (({}, None), ({"httpGet": {}}, 30.0)):
        assert (
            workload_pod.patience(changed(initContainers=[{"name": "linkerd-proxy", "startupProbe": probe}])) == seconds
        )


def test_the_paths_of_the_proxy_are_real_and_its_other_settings_stay():
    resolved = {
        **VARIABLES,
        "LINKERD2_PROXY_IDENTITY_STORE_DIR": "/var/run/linkerd/identity",
        "LINKERD2_PROXY_IDENTITY_DIR": "/var/run/linkerd/identity",
        "K8S_NS": "shop",
    }
    values = workload_pod.proxy_variables(resolved, store="/dev/shm/s", token_file="/dev/shm/t")
    assert values == {
        "LINKERD2_PROXY_IDENTITY_TOKEN_FILE": "/dev/shm/t",
        "LINKERD2_PROXY_IDENTITY_STORE_DIR": "/dev/shm/s",
        "LINKERD2_PROXY_IDENTITY_DIR": "/dev/shm/s",
        "K8S_NS": "shop",
    }
    plain = {"LINKERD2_PROXY_A": "b"}
    assert workload_pod.proxy_variables(plain, store="s", token_file="t") == plain


def test_an_application_hears_of_its_proxy_and_of_no_credential():
    inherited = {
        "PATH": "/bin",
        "KUBECONFIG": "/root/admin.conf",
        "HANDFAST_TOKEN": "secret",
        "LINKERD2_PROXY_X": "y",
        "http_proxy": "http://elsewhere",
    }
    values = workload_pod.application_variables(
        inherited,
        {"GREETING": "hello"},
        POD,
        ip="127.70.1.2",
        proxy="http://127.0.0.1:4140",
        admin="http://127.0.0.1:4191",
    )
    assert values == {
        "PATH": "/bin",
        "GREETING": "hello",
        "http_proxy": "http://127.0.0.1:4140",
        "no_proxy": "localhost,127.0.0.1",
        "POD_NAME": "web-0",
        "POD_NAMESPACE": "shop",
        "POD_IP": "127.70.1.2",
        "MESH_ADMIN": "http://127.0.0.1:4191",
    }


@pytest.mark.parametrize("name", ["HTTP_PROXY", "NO_PROXY", "No_Proxy"])
def test_no_other_spelling_leads_past_the_proxy(name):
    # Go reads HTTP_PROXY and NO_PROXY first, and .svc is often among what is to go past a company's proxy.
    for inherited, own in (({name: ".svc"}, {}), ({}, {name: ".svc"})):
        values = workload_pod.application_variables(inherited, own, POD, ip="", proxy="http://127.0.0.1:4140", admin="")
        assert name not in values
        assert (values["http_proxy"], values["no_proxy"]) == ("http://127.0.0.1:4140", "localhost,127.0.0.1")


def test_programs_that_ask_for_the_identity_themselves_hear_of_the_socket():
    values = workload_pod.application_variables({}, {}, POD, ip="", proxy="", admin="", spiffe="/run/s.sock")
    assert values["SPIFFE_ENDPOINT_SOCKET"] == "unix:///run/s.sock"


def test_each_pod_has_an_address_of_its_own_on_loopback():
    seen = {workload_pod.loopback(f"uid-{number}", 0) for number in range(200)}
    assert len(seen) == 200
    for text in seen:
        assert ipaddress.ip_address(text) in ipaddress.ip_network("127.0.0.0/8")
        assert ipaddress.ip_address(text) not in ipaddress.ip_network("127.0.0.0/10")
    assert workload_pod.loopback("u", 0) == workload_pod.loopback("u", 0) != workload_pod.loopback("u", 1)
