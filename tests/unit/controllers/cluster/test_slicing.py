# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from handfast.controllers.cluster import slicing


def service(**spec: Any) -> slicing.Service:
    metadata = {"name": "web", "namespace": "ns", "uid": "service-uid", "labels": spec.pop("labels", None)}
    document = {
        "metadata": metadata,
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec},
    }
    return msgspec.convert(document, slicing.Service)


def pod(number: int, *, ready: bool = True, deleting: bool = False, **more: Any) -> slicing.Pod:
    address = more.pop("address", f"10.0.{number // 250}.{number % 250}")
    metadata = {"name": f"p{number:03}", "namespace": "ns", "uid": f"uid-{number}", "labels": {"app": "web", "x": "y"}}
    if deleting:
        metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    status = {
        "phase": more.pop("phase", "Running"),
        "podIP": address,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        **more.pop("status", {}),
    }
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n", **more}, "status": status}, slicing.Pod)


def written(plan: slicing.Plan, version: str = "1") -> list[slicing.Slice]:
    """The slices of a plan as the server would give them back."""
    found = []
    for row in plan.write:
        document = msgspec.to_builtins(row)
        document["metadata"]["resourceVersion"] = version
        found.append(msgspec.convert(document, slicing.Slice))
    return found


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def addresses(slices: Sequence[slicing.Slice]) -> list[list[str]]:
    return [sorted(entry.addresses[0] for entry in row.endpoints or ()) for row in slices]


def test_one_ready_pod():
    plan = slicing.plan(service(labels={"team": "a"}), [pod(1)], [])
    (row,) = plan.write
    assert plan.delete == []
    assert row.address_type == "IPv4"
    assert row.metadata.name.startswith("web-")
    assert row.metadata.labels == {
        "team": "a",
        slicing.SERVICE_NAME: "web",
        slicing.MANAGED_BY: slicing.MANAGER,
    }
    assert plain(row.ports) == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert plain(row.endpoints) == [
        {
            "addresses": ["10.0.0.1"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p001", "uid": "uid-1"},
            "nodeName": "n",
        }
    ]


def test_a_second_look_finds_nothing_to_do():
    pods = [pod(number) for number in range(150)]
    first = slicing.plan(service(), pods, [])
    assert sorted(map(len, addresses(first.write))) == [50, 100]
    assert slicing.plan(service(), reversed(pods), written(first)) == slicing.Plan([], [])


@pytest.mark.parametrize(
    ("made", "spec", "expected"),
    [
        ({}, {}, (True, True, False)),
        ({"ready": False}, {}, (False, False, False)),
        ({"deleting": True}, {}, (False, True, True)),
        ({"ready": False}, {"publishNotReadyAddresses": True}, (True, False, False)),
        ({"phase": "Failed"}, {}, None),
        ({"phase": "Succeeded"}, {}, None),
        ({"address": ""}, {}, None),
    ],
)
def test_the_conditions_of_an_endpoint_are_those_of_its_pod(
    made: dict[str, Any], spec: dict[str, Any], expected: tuple[bool, ...] | None
):
    (row,) = slicing.plan(service(**spec), [pod(1, **made)], []).write
    found = [
        (entry.conditions.ready, entry.conditions.serving, entry.conditions.terminating)
        for entry in row.endpoints or ()
    ]
    assert found == ([expected] if expected else [])


def test_a_named_port_may_differ_from_pod_to_pod():
    def containers(port: int, protocol: str | None = None) -> list[dict[str, Any]]:
        named = {"name": "web", "containerPort": port, **({"protocol": protocol} if protocol else {})}
        return [{"ports": None}, {"ports": [{"name": "web", "containerPort": 1, "protocol": "UDP"}, named]}]

    ports = [{"port": 80, "targetPort": "web"}]
    pods = [
        pod(1, containers=containers(8080)),
        pod(2, containers=containers(9090, "TCP")),
        pod(3, containers=containers(8080, "SCTP")),
    ]
    plan = slicing.plan(service(ports=ports), pods, [])
    assert {tuple(port.port for port in row.ports or ()): addresses([row])[0] for row in plan.write} == {
        (8080,): ["10.0.0.1"],
        (9090,): ["10.0.0.2"],
        (): ["10.0.0.3"],
    }


def test_a_port_without_a_target_is_itself():
    (row,) = slicing.plan(service(ports=[{"port": 80}]), [pod(1)], []).write
    assert [(port.name, port.port) for port in row.ports or ()] == [("", 80)]


def test_headless_with_hostname():
    pods = [pod(1, hostname="one", subdomain="web"), pod(2, hostname="two", subdomain="other")]
    (row,) = slicing.plan(service(clusterIP="None", ports=None), pods, []).write
    assert row.metadata.labels is not None
    assert row.metadata.labels["service.kubernetes.io/headless"] == ""
    assert [entry.hostname for entry in row.endpoints or ()] == ["one", None]
    assert row.ports == ()


def test_each_family_of_addresses_has_its_slices():
    both: dict[str, Any] = {"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}
    six = slicing.plan(service(clusterIP="fd00::10"), [pod(1, **both)], [])
    assert [(row.address_type, addresses([row])) for row in six.write] == [("IPv6", [["fd00::1"]])]
    dual = slicing.plan(service(ipFamilies=["IPv4", "IPv6"]), [pod(1, **both), pod(2)], [])
    assert {row.address_type: addresses([row])[0] for row in dual.write} == {
        "IPv4": ["10.0.0.1", "10.0.0.2"],
        "IPv6": ["fd00::1"],
    }


def test_a_new_pod_changes_one_slice_and_fills_the_fullest():
    first = slicing.plan(service(), [pod(number) for number in range(190)], [])
    existing = written(first)
    plan = slicing.plan(service(), [pod(number) for number in range(195)], existing)
    assert [len(row.endpoints or ()) for row in plan.write] == [95]
    assert plan.write[0].metadata.resource_version == "1"
    assert plan.delete == []


def test_a_pod_that_changed_stays_where_it_is():
    existing = written(slicing.plan(service(), [pod(number) for number in range(150)], []))
    pods = [pod(number, ready=number != 7) for number in range(150)]
    plan = slicing.plan(service(), pods, existing)
    assert len(plan.write) == 1
    assert len(plan.write[0].endpoints or ()) == 100


def test_empty_slices_go_but_one_stays_for_an_empty_service():
    existing = written(slicing.plan(service(), [pod(number) for number in range(150)], []))
    plan = slicing.plan(service(), [pod(number) for number in range(100)], existing)
    assert (len(plan.write), len(plan.delete)) == (0, 1)
    plan = slicing.plan(service(), [], existing)
    assert addresses(plan.write) == [[]]
    assert len(plan.delete) == 2
    placeholder = written(plan)
    assert slicing.plan(service(), [], placeholder) == slicing.Plan([], [])


def test_two_copies_make_the_same_names():
    pods = [pod(number) for number in range(250)]
    one, other = slicing.plan(service(), pods, []), slicing.plan(service(), list(reversed(pods)), [])
    assert {row.metadata.name: row for row in one.write} == {row.metadata.name: row for row in other.write}
    assert len(one.write) == 3


def test_changed_labels_are_written():
    existing = written(slicing.plan(service(), [pod(1)], []))
    (row,) = slicing.plan(service(labels={"new": "label"}), [pod(1)], existing).write
    assert row.metadata.labels is not None
    assert row.metadata.labels["new"] == "label"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [({}, True), ({"selector": {"app": "other"}}, False), ({"selector": {}}, False), ({"selector": None}, False)],
)
def test_what_selects_what(spec: dict[str, Any], expected: bool):
    assert slicing.selects(service(**spec), pod(1)) is expected
    assert not slicing.selects(service(type="ExternalName"), pod(1))
