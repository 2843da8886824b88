# SPDX-License-Identifier: Apache-2.0
"""The destination service, and the kind MeshPolicy, on an API server that they did not start: Handfast's own, and a stock kube-apiserver.

Endpoints are written by hand, as there are no controllers. Where there is no kube-apiserver its half is not proven: see `clusters`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop import meshes
from tests.scenarios import destination_world
from tests.scenarios.mesh_world import identity_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SLICES = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
POLICIES = "/apis/handfast.dev/v1alpha1/namespaces/shop/meshpolicies"
NAME = identity_of("shop", "web")


@pytest.fixture(scope="module", params=list(meshes.SERVERS))
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[meshes.Plane]:
    with meshes.SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as cluster:
        cluster.handfast("mesh", "install")
        yield meshes.Plane(cluster)


@pytest.fixture(scope="module")
def service(plane: meshes.Plane) -> Iterator[destination_world.Destination]:
    with destination_world.Destination(plane) as service:
        yield service.ready()


@pytest.fixture(scope="module")
def shop(plane: meshes.Plane) -> destination_world.Shop:
    return destination_world.Shop(plane)


def endpoints(plane: meshes.Plane, service: str, **pods: str) -> None:
    """A slice of these Pods and their addresses, as the controller of a cluster writes it."""
    rows = []
    for name, ip in pods.items():
        _, pod = plane.call("GET", f"/api/v1/namespaces/shop/pods/{name}")
        reference = {"kind": "Pod", "namespace": "shop", "name": name, "uid": pod["metadata"]["uid"]}
        rows.append({"addresses": [ip], "conditions": {"ready": True}, "targetRef": reference})
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": rows,
    }
    plane.call("DELETE", f"{SLICES}/{service}")
    plane.post(SLICES, body, wanted=(201,))


def test_a_stream_has_exactly_the_endpoints_and_the_meshed_ones_with_their_name(
    plane: meshes.Plane, service: destination_world.Destination, shop: destination_world.Shop
) -> None:
    shop.service("web")
    pods = {"one": "10.9.0.1", "two": "10.9.0.2", "plain": "10.9.0.3"}
    for name, ip in pods.items():
        shop.pod(name, "web", ip, meshed=name != "plain")
    endpoints(plane, "web", one=pods["one"])
    with destination_world.Listener(service.target, "web.shop.svc.cluster.local:80") as stream:
        stream.shows({"10.9.0.1:8080": NAME})
        endpoints(plane, "web", **pods)
        stream.shows({"10.9.0.1:8080": NAME, "10.9.0.2:8080": NAME, "10.9.0.3:8080": ""})
        # One whose label was taken away looks as if it were none of the mesh: it is withheld, and not said to be plain.
        code, _ = plane.patch(
            "/api/v1/namespaces/shop/pods/two", {"metadata": {"labels": {"linkerd.io/control-plane-ns": None}}}
        )
        assert code == 200
        stream.shows({"10.9.0.1:8080": NAME, "10.9.0.3:8080": ""})
    endpoint = service.profile("10.9.0.1:8080").endpoint
    assert endpoint is not None
    assert endpoint.identity == NAME


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"mode": "loud"}, "mode"),
        ({"clients": [{"identity": "a.test", "unauthenticated": True}]}, "clients"),
        ({"clients": [{}]}, "clients"),
        ({"targets": {"ports": [0]}}, "ports"),
        ({"clients": "everybody"}, "clients"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_by_the_server(
    plane: meshes.Plane, shop: destination_world.Shop, spec: dict[str, Any], field: str
) -> None:
    body = {
        "apiVersion": "handfast.dev/v1alpha1",
        "kind": "MeshPolicy",
        "metadata": {"name": "wrong", "namespace": "shop"},
        "spec": spec,
    }
    code, answer = plane.call("POST", POLICIES, body)
    assert (code, field in answer["message"]) == (422, True), answer
