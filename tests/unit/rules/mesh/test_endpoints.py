# SPDX-License-Identifier: Apache-2.0
"""The endpoints of a Service's port: who is among them, with which identity, and who is withheld."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from handfast.rules.mesh import authorities, endpoints, meshed, names, views
from tests.unit.rules.mesh import mesh_pods

NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"


class Known:
    """Pods that are known."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self._pods = [mesh_pods.view(document) for document in documents]
        self.mesh = names.Mesh("cluster.local")
        self.services: list[views.Service] = []

    def pod(self, namespace: str, name: str) -> views.Pod | None:
        return next((pod for pod in self._pods if pod.metadata.key == (namespace, name)), None)

    def pods_at(self, ip: str) -> Sequence[views.Pod]:
        return [pod for pod in self._pods if ip in map(authorities.canonical, pod.ips) and not pod.ended]

    def services_at(self, ip: str) -> Sequence[views.Service]:
        return [each for each in self.services if ip in each.ips]

    def facts(self, _pod: views.Pod) -> meshed.Facts:
        return meshed.Facts(mesh=self.mesh)


def service(**spec: Any) -> views.Service:
    ports = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    return msgspec.convert(
        {"metadata": {"namespace": "shop", "name": "web"}, "spec": {"ports": ports, **spec}}, views.Service
    )


def entry(ip: str, pod: str = "", **more: Any) -> dict[str, Any]:
    """An endpoint; of a Pod of this name where one is given."""
    reference = {"kind": "Pod", "namespace": "shop", "name": pod, "uid": f"uid-{pod}"} if pod else None
    return {"addresses": [ip], "targetRef": reference, **more}


def slice_(*rows: dict[str, Any], family: str = "IPv4", ports: Any = None, namespace: str = "shop") -> views.Slice:
    document = {
        "metadata": {"namespace": namespace, "name": "web-1"},
        "addressType": family,
        "endpoints": rows,
        "ports": [{"name": "http", "port": 8080}] if ports is None else ports,
    }
    return msgspec.convert(document, views.Slice)


def wanted(port: int = 80, instance: str = "") -> authorities.Service:
    return authorities.Service("shop", "web", port, instance)


def addresses(*slices: views.Slice, port: int = 80, instance: str = "", of: views.Service | None = None) -> list[str]:
    rows = endpoints.candidates(of or service(), wanted(port, instance), slices)
    return [str(row.address) for row in rows]


def judged(known: Known, *rows: dict[str, Any], **more: Any) -> list[Any]:
    found = endpoints.candidates(service(), wanted(), [slice_(*rows, **more)])
    return [endpoints.judge(row, known) for row in found]


def identities(known: Known, *rows: dict[str, Any], **more: Any) -> list[str]:
    return [
        row.standing.identity if isinstance(row, endpoints.Endpoint) else row.why
        for row in judged(known, *rows, **more)
    ]


def conditions(**values: bool) -> dict[str, Any]:
    return {"conditions": values}


def test_the_port_of_a_slice_is_that_with_the_name_of_the_services_port():
    ports = [{"name": "other", "port": 1}, {"name": "http", "port": 8081}]
    assert addresses(slice_(entry("10.0.0.1"), ports=ports)) == ["10.0.0.1:8081"]
    assert addresses(slice_(entry("10.0.0.1"), ports=[{"name": "other", "port": 1}])) == []
    assert addresses(slice_(entry("10.0.0.1"), ports=[{"name": "http"}])) == []


def test_ports_without_a_name_belong_together():
    unnamed = service(ports=[{"port": 80}])
    assert addresses(slice_(entry("10.0.0.1"), ports=[{"port": 9}]), of=unnamed) == ["10.0.0.1:9"]


def test_ports_of_other_protocols_do_not_count():
    slices = slice_(entry("10.0.0.1"), ports=[{"name": "http", "port": 8080, "protocol": "UDP"}])
    assert addresses(slices) == []


def test_a_port_that_the_service_does_not_have_is_the_endpoints_own():
    assert addresses(slice_(entry("10.0.0.1")), port=53) == ["10.0.0.1:53"]
    assert addresses(slice_(entry("10.0.0.1"), ports=[]), port=9999) == []


def test_only_those_that_are_ready_count():
    rows = [
        entry("10.0.0.1", **conditions(ready=True)),
        entry("10.0.0.2", **conditions(ready=False)),
        entry("10.0.0.3", **conditions(ready=False, serving=True, terminating=True)),
        entry("10.0.0.4"),
        entry("10.0.0.5", conditions={}),
    ]
    assert addresses(slice_(*rows)) == ["10.0.0.1:8080", "10.0.0.4:8080", "10.0.0.5:8080"]


def test_where_none_is_ready_those_count_that_still_serve_while_they_end():
    rows = [
        entry("10.0.0.2", **conditions(ready=False)),
        entry("10.0.0.3", **conditions(ready=False, serving=True, terminating=True)),
    ]
    assert addresses(slice_(*rows)) == ["10.0.0.3:8080"]


def test_an_endpoint_of_several_slices_is_there_once():
    slices = [slice_(entry("10.0.0.1"), entry("10.0.0.2")), slice_(entry("10.0.0.2"), entry("10.0.0.3"))]
    assert sorted(addresses(*slices)) == ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"]


def test_a_pod_of_both_families_is_there_with_the_address_of_the_services_first():
    slices = [
        slice_(entry("10.0.0.1", "a"), entry("10.0.0.9")),
        slice_(entry("2001:db8::1", "a"), entry("2001:db8::2", "b"), family="IPv6"),
    ]
    assert sorted(addresses(*slices)) == ["10.0.0.1:8080", "10.0.0.9:8080", "[2001:db8::2]:8080"]
    six = service(ipFamilies=["IPv6", "IPv4"])
    assert sorted(addresses(*slices, of=six)) == ["10.0.0.9:8080", "[2001:db8::1]:8080", "[2001:db8::2]:8080"]


def test_what_is_no_address_does_not_count():
    assert addresses(slice_(entry("web.example"), family="FQDN"), slice_(entry("10.0.0.999"))) == []


def test_an_instance_is_the_endpoint_of_that_host_name():
    rows = [entry("10.0.0.1", hostname="web-0"), entry("10.0.0.2", hostname="web-1"), entry("10.0.0.3")]
    assert addresses(slice_(*rows), instance="web-1") == ["10.0.0.2:8080"]


def test_identity_is_there_for_exactly_the_meshed():
    known = Known(mesh_pods.meshed("shop", "a"), mesh_pods.plain("shop", "b", "10.0.0.2"))
    rows = [entry("10.0.0.1", "a"), entry("10.0.0.2", "b"), entry("192.0.2.1")]
    assert sorted(identities(known, *rows)) == ["", "", NAME]


def test_a_pod_that_is_not_known_is_withheld():
    assert identities(Known(), entry("10.0.0.1", "a")) == [meshed.Reason.POD_UNKNOWN]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_withheld(phase):
    document = mesh_pods.meshed("shop", "a")
    document["status"]["phase"] = phase
    assert identities(Known(document), entry("10.0.0.1", "a")) == [meshed.Reason.POD_UNKNOWN]


def test_a_pod_made_anew_under_the_same_name_is_withheld():
    known = Known(mesh_pods.plain("shop", "a", uid="other"))
    assert identities(known, entry("10.0.0.1", "a")) == [meshed.Reason.POD_UNKNOWN]


def test_a_pod_that_does_not_have_the_address_is_withheld():
    known = Known(mesh_pods.plain("shop", "a"), mesh_pods.meshed("shop", "b", "10.0.0.2"))
    assert identities(known, entry("10.0.0.2", "a")) == [meshed.Reason.ADDRESS_UNCLEAR]


def test_a_pod_of_another_namespace_does_not_count():
    known = Known(mesh_pods.meshed("shop", "a"), mesh_pods.plain("evil", "x"))
    row = entry("10.0.0.1") | {"targetRef": {"kind": "Pod", "namespace": "shop", "name": "a"}}
    (endpoint,) = judged(Known(mesh_pods.meshed("shop", "a")), row, namespace="evil")
    assert endpoint.standing.identity == NAME
    assert identities(known, row, namespace="evil") == [meshed.Reason.ADDRESS_UNCLEAR]


def test_an_address_without_a_pod_s_name_is_that_of_the_pod_that_has_it():
    known = Known(mesh_pods.meshed("shop", "a"))
    node = entry("10.0.0.1") | {"targetRef": {"kind": "Node", "name": "n1"}}
    assert identities(known, entry("10.0.0.1")) == identities(known, node) == [NAME]


def test_an_address_in_another_spelling_is_the_same_address():
    known = Known(mesh_pods.meshed("shop", "a"))
    assert identities(known, entry("::ffff:10.0.0.1"), family="IPv6") == [NAME]


def test_the_address_of_a_node_is_not_that_of_the_pods_in_its_network():
    document = mesh_pods.plain("shop", "a")
    document["spec"]["hostNetwork"] = True
    assert identities(Known(document, document), entry("10.0.0.1")) == [""]


def test_an_address_of_several_pods_is_withheld():
    known = Known(mesh_pods.plain("shop", "a"), mesh_pods.plain("shop", "b"))
    (row,) = judged(known, entry("10.0.0.1"))
    assert (row.why, "shop/a and shop/b" in row.text) == (meshed.Reason.ADDRESS_UNCLEAR, True)


def test_what_an_endpoint_is_called_in_figures():
    owner = {"kind": "ReplicaSet", "name": "web-5d9", "controller": True}
    hashed = {"pod-template-hash": "5d9"}
    document = mesh_pods.meshed("shop", "a", labels=hashed, ownerReferences=[owner])
    (row,) = judged(Known(document), entry("10.0.0.1", "a", zone="z1"))
    assert dict(row.labels) == {
        "control_plane_ns": "linkerd",
        "deployment": "web",
        "pod": "a",
        "pod_template_hash": "5d9",
        "serviceaccount": "web",
        "zone": "z1",
    }


@pytest.mark.parametrize(
    ("owners", "key", "value"),
    [
        ([{"kind": "StatefulSet", "name": "db", "controller": True}], "statefulset", "db"),
        ([{"kind": "ReplicaSet", "name": "web-5d9", "controller": True}], "replicaset", "web-5d9"),
        ([{"kind": "Node", "name": "n1"}], "node", None),
        (None, "deployment", None),
    ],
)
def test_whoever_made_a_pod_is_named(owners, key, value):
    pod = mesh_pods.view(mesh_pods.plain("shop", "a", ownerReferences=owners))
    assert dict(endpoints.labels(pod)).get(key) == value


def test_from_one_answer_to_the_next_what_is_other_is_added_and_what_is_gone_is_removed():
    def rows(*names_: str, identity: str = "") -> dict[authorities.Address, endpoints.Endpoint]:
        made = [authorities.Address(name, 80) for name in names_]
        return {each: endpoints.Endpoint(each, meshed.Standing(identity=identity)) for each in made}

    before, after = rows("a", "b", "c"), rows("b") | rows("c", "d", identity="x")
    added, removed = endpoints.changes(before, after)
    assert ([row.address.host for row in added], [row.host for row in removed]) == (["c", "d"], ["a"])
    assert endpoints.changes(after, after) == ([], [])


def test_a_service_does_not_take_the_address_of_a_pod():
    known = Known(mesh_pods.meshed("bank", "vault", "10.0.0.9"), on_a_node("10.0.0.8"))
    known.services = [service(clusterIP=ip) for ip in ("10.0.0.9", "10.0.0.8", "10.96.0.1")]
    assert endpoints.service_at("10.0.0.9", known) is None
    assert endpoints.service_at("10.0.0.8", known) is None
    assert endpoints.service_at("10.96.0.1", known) is known.services[2]
    assert endpoints.service_at("10.96.0.2", known) is None


def test_an_address_of_two_services_is_withheld():
    known = Known()
    known.services = [service(clusterIP="10.96.0.1"), service(clusterIP="10.96.0.1")]
    with pytest.raises(meshed.Withheld, match="that of 2 Services, among them shop/web and shop/web") as withheld:
        endpoints.service_at("10.96.0.1", known)
    assert withheld.value.why is meshed.Reason.ADDRESS_UNCLEAR


def on_a_node(ip: str) -> dict[str, Any]:
    document = mesh_pods.plain("shop", "agent", ip)
    document["spec"]["hostNetwork"] = True
    return document
