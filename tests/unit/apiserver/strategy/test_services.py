# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.apiserver.strategy import services

PORT = {"name": "http", "port": 80, "nodePort": 30080}
BALANCED = {
    "type": "LoadBalancer",
    "clusterIP": "10.96.0.7",
    "clusterIPs": ["10.96.0.7"],
    "ipFamilyPolicy": "SingleStack",
    "externalTrafficPolicy": "Local",
    "healthCheckNodePort": 30081,
    "allocateLoadBalancerNodePorts": True,
    "loadBalancerClass": "example.com/x",
    "ports": [PORT],
}


def settled(old: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The spec of an update that sends what was there, with changes; None takes a field away."""
    spec = {key: value for key, value in {**copy.deepcopy(old), **changes}.items() if value is not None}
    services.settle({"spec": spec}, {"spec": copy.deepcopy(old)})
    return spec


def test_what_is_left_out_is_kept():
    bare = settled(BALANCED, clusterIP=None, clusterIPs=None, ports=[{"name": "http", "port": 81}])
    assert bare == {**BALANCED, "ports": [{"name": "http", "port": 81, "nodePort": 30080}]}
    assert settled(BALANCED, clusterIPs=[]) == BALANCED


def test_a_node_port_goes_to_one_port():
    moved = [{"name": "http", "port": 81}, {"name": "other", "port": 82, "nodePort": 30080}]
    assert settled(BALANCED, ports=copy.deepcopy(moved))["ports"] == moved


def test_the_list_follows_the_one_address():
    assert settled(BALANCED, clusterIP="10.96.0.8")["clusterIPs"] == ["10.96.0.8"]
    assert settled(BALANCED, clusterIP="10.96.0.8", clusterIPs=["10.96.0.9"])["clusterIPs"] == ["10.96.0.9"]
    assert settled({"ports": []}, clusterIP="10.96.0.8")["clusterIPs"] == ["10.96.0.8"]


def test_what_the_new_type_has_no_use_for_goes():
    assert settled(BALANCED, type="ExternalName", externalName="a.b") == {
        "type": "ExternalName",
        "externalName": "a.b",
        "ports": [{"name": "http", "port": 80}],
    }
    kept = {key: BALANCED[key] for key in ("clusterIP", "clusterIPs", "ipFamilyPolicy")}
    assert settled(BALANCED, type="ClusterIP") == {"type": "ClusterIP", **kept, "ports": [{"name": "http", "port": 80}]}
    ported = settled(BALANCED, type="NodePort")
    assert ported == {"type": "NodePort", **kept, "externalTrafficPolicy": "Local", "ports": [PORT]}
    outside = settled(BALANCED, type="ClusterIP", externalIPs=["1.2.3.4"])
    assert outside["externalTrafficPolicy"] == "Local"


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("ExternalName", {"clusterIP": "10.96.0.8"}),
        ("ClusterIP", {"ports": [{"port": 80, "nodePort": 30099}]}),
        ("ClusterIP", {"externalTrafficPolicy": "Cluster"}),
    ],
)
def test_what_the_same_update_changes_stays_to_be_refused(kind: str, change: dict[str, Any]):
    assert settled(BALANCED, type=kind, **change).items() >= change.items()


def test_an_external_name_keeps_no_address():
    external = {"type": "ExternalName", "externalName": "a.b"}
    assert settled(external, externalName="c.d") == {"type": "ExternalName", "externalName": "c.d"}
    assert "clusterIP" not in settled(external, type="ClusterIP")


def test_the_addresses_of_a_balancer_go_with_the_type():
    old = {"spec": BALANCED, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
    document = {"spec": {**copy.deepcopy(BALANCED), "type": "NodePort"}, "status": old["status"]}
    services.settle(document, old)
    assert document["status"] == {"loadBalancer": {}}
    assert old["status"] == {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}


def test_a_spec_that_is_none_is_left_to_validation():
    document: dict[str, Any] = {"spec": None}
    services.settle(document, {"spec": BALANCED})
    assert document == {"spec": None}
