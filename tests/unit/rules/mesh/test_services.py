# SPDX-License-Identifier: Apache-2.0
"""Services of the control plane: a port for each door, and slices that lead where something can answer."""

import pytest

from handfast import errors
from handfast.rules.mesh import control_plane, services


def test_every_door_is_a_port_of_one_service_and_nothing_is_called_proxy_api():
    names = {door.service for door in services.DOORS.values()}
    assert names == {"linkerd-identity", "linkerd-destination", "linkerd-policy", "linkerd-proxy-injector"}
    ports = services.service(control_plane.DESTINATION, "linkerd").document["spec"]["ports"]
    assert [(port["name"], port["port"]) for port in ports] == [("grpc", 8086), ("agents", 8089)]


def test_a_service_with_a_selector_leads_to_pods():
    assert services.service("linkerd-policy", "m", {"a": "b"}).document["spec"]["selector"] == {"a": "b"}
    assert "selector" not in services.service("linkerd-policy", "m").document["spec"]


def test_two_doors_of_one_service_have_a_slice_each():
    rows = list(services.outside("linkerd", {"destination": "192.0.2.1:1", "agents": "[2001:db8::1]:2"}))
    assert [row.title for row in rows] == [
        "Service linkerd/linkerd-destination",
        "EndpointSlice linkerd/linkerd-destination-destination",
        "EndpointSlice linkerd/linkerd-destination-agents",
    ]
    assert {row.document["metadata"]["labels"]["kubernetes.io/service-name"] for row in rows[1:]} == {
        "linkerd-destination"
    }
    assert [row.document["addressType"] for row in rows[1:]] == ["IPv4", "IPv6"]
    assert rows[2].document["endpoints"][0]["addresses"] == ["2001:db8::1"]


@pytest.mark.parametrize(
    ("door", "address", "reason"),
    [
        ("proxy-api", "192.0.2.1:1", "NoSuchMeshDoor"),
        ("identity", "192.0.2.1", "BadMeshAddress"),
        ("identity", "host.example:8080", "BadMeshEndpoint"),
        ("identity", "0.0.0.0:8080", "BadMeshEndpoint"),
        ("identity", "169.254.1.1:8080", "BadMeshEndpoint"),
        ("identity", "[ff02::1]:8080", "BadMeshEndpoint"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_by_its_door(door, address, reason):
    with pytest.raises(errors.Refused) as refused:
        services.require({door: address}, loopback=True)
    assert refused.value.reason == reason


def test_loopback_is_for_handfasts_own_server_alone():
    services.require({"injector": "127.0.0.1:8443"}, loopback=True)
    with pytest.raises(services.Unreachable, match="leads each machine to itself"):
        services.require({"injector": "[::1]:8443"}, loopback=False)


def test_a_service_that_moves_out_of_the_cluster_loses_its_selector_and_keeps_its_address():
    wanted = services.service("linkerd-identity", "linkerd")
    there = {
        "metadata": {"name": "linkerd-identity", "labels": {"own": "1"}},
        "spec": {"clusterIP": "10.0.0.1", "selector": {"a": "b"}, "ports": []},
    }
    changed = services.updated(there, wanted)
    assert changed["spec"] == {"clusterIP": "10.0.0.1", **wanted.document["spec"]}
    assert changed["metadata"]["labels"] == {"own": "1"}
    inside = services.service("linkerd-identity", "linkerd", {"c": "d"})
    assert services.updated({**there, "metadata": {"name": "x"}}, inside)["spec"]["selector"] == {"c": "d"}


def test_a_slice_gets_its_address_and_its_labels_back():
    (_, wanted) = services.outside("linkerd", {"policy": "192.0.2.1:8090"})
    there = {**wanted.document, "endpoints": [], "metadata": {"name": "x", "labels": {"own": "1"}}}
    changed = services.updated(there, wanted)
    assert changed["endpoints"] == wanted.document["endpoints"]
    assert changed["metadata"]["labels"] == {"own": "1", **wanted.document["metadata"]["labels"]}


def test_endpoints_of_a_door_are_counted_and_the_one_outside_is_named():
    rows = [row.document for row in services.outside("m", {"identity": "192.0.2.1:1", "agents": "[2001:db8::1]:2"})]
    assert services.endpoints_of("identity", rows) == (1, "192.0.2.1:1")
    assert services.endpoints_of("agents", rows) == (1, "[2001:db8::1]:2")
    assert services.endpoints_of("destination", rows) == (0, "")
    pods = {
        "metadata": {"labels": {"kubernetes.io/service-name": "linkerd-policy"}},
        "ports": [{"name": "grpc", "port": 8090}],
        "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"], "conditions": {"ready": False}}],
    }
    assert services.endpoints_of("policy", [pods]) == (1, "")
