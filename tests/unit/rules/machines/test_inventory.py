# SPDX-License-Identifier: Apache-2.0
"""Machines as facts: read from any of the groups, and found by what identifies them."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from handfast.rules.machines import inventory

CREATED = "2026-01-31T12:00:00Z"


def document(name: str = "m1", *, group: str = inventory.OPENSHIFT, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{group}/v1beta1",
        "kind": "Machine",
        "metadata": {"name": name, "namespace": "fleet", "uid": "u", "creationTimestamp": CREATED},
        "spec": {"providerID": f"metal://{name}"},
        "status": status,
    }


def machine(name: str = "m1", *, group: str = inventory.OPENSHIFT, **status: Any) -> inventory.Machine:
    return inventory.read(document(name, group=group, **status))


def addresses(*rows: tuple[str, str]) -> list[dict[str, str]]:
    return [{"type": kind, "address": address} for kind, address in rows]


def test_every_fact_is_read():
    there = document(
        addresses=addresses(("InternalDNS", "M1.example."), ("InternalIP", "10.0.0.1")),
        nodeRef={"kind": "Node", "name": "m1"},
        phase="Running",
        authoritativeAPI="MachineAPI",
    )
    there["metadata"] |= {
        "deletionTimestamp": CREATED,
        "resourceVersion": "7",
        "annotations": {inventory.APPROVED_KEY: "ab", "odd": 1},
    }
    there["spec"] |= {"metadata": {"labels": {"a": "b", "odd": 1}}, "taints": [{"key": "k", "effect": "NoSchedule"}, 1]}
    facts = inventory.read(there)
    assert (facts.node_labels, facts.node_annotations) == ({"a": "b"}, {})
    assert facts.node_taints == ({"key": "k", "effect": "NoSchedule"},)
    assert facts.created == datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    assert facts.texts("InternalDNS", "InternalIP") == ("M1.example.", "10.0.0.1")
    assert facts.values("InternalDNS") == {"m1.example"}
    assert (facts.node, facts.phase, facts.provider_id, facts.version) == ("m1", "Running", "metal://m1", "7")
    assert (facts.deleting, facts.approved_key, facts.annotations) == (True, "ab", {inventory.APPROVED_KEY: "ab"})
    assert facts.title == "Machine fleet/m1"


@pytest.mark.parametrize("odd", [{}, {"metadata": {"creationTimestamp": "soon"}}, {"status": {"addresses": ["x"]}}])
def test_what_has_another_shape_counts_as_absent(odd):
    facts = inventory.read(odd)
    assert not facts.addresses
    assert facts.created.year == 1


def test_addresses_are_compared_by_value_and_names_without_case_or_last_dot():
    index = inventory.Index()
    index.put(machine(addresses=addresses(("InternalDNS", "PANDA."), ("InternalIP", "fd00:0:0::1"))))
    assert [each.name for each in index.by_dns("panda")] == ["m1"]
    assert [each.name for each in index.by_ip("fd00::1")] == ["m1"]


def test_an_address_is_found_by_whichever_type_it_has():
    index = inventory.Index()
    index.put(machine("m1", addresses=addresses(("InternalIP", "10.0.0.1"), ("ExternalIP", "192.0.2.1"))))
    index.put(machine("m2", addresses=addresses(("ExternalIP", "192.0.2.1"), ("Hostname", "10.0.0.1"))))
    assert [each.name for each in index.by_address("192.0.2.1")] == ["m1", "m2"]
    assert [each.name for each in index.by_address("10.0.0.1")] == ["m1"]
    assert index.by_address("") == ()


def test_only_an_internal_name_is_one_that_a_node_may_have():
    index = inventory.Index()
    index.put(machine(addresses=addresses(("ExternalDNS", "panda"), ("Hostname", "panda"))))
    assert index.by_dns("panda") == ()


def test_a_machine_that_changes_is_found_by_what_it_is_now():
    index = inventory.Index()
    index.put(machine(addresses=addresses(("InternalDNS", "panda"))))
    index.put(machine(addresses=addresses(("InternalDNS", "tiger")), nodeRef={"name": "tiger"}))
    assert index.by_dns("panda") == ()
    assert [each.name for each in index.by_node("tiger")] == ["m1"]
    assert [each.name for each in index.by_provider_id("metal://m1")] == ["m1"]
    index.remove(("machine.openshift.io", "fleet", "m1"))
    assert (len(index), list(index), index.by_dns("tiger"), index.named("m1")) == (0, [], (), ())
    index.remove(("machine.openshift.io", "fleet", "m1"))


def test_a_machine_without_a_node_or_an_id_is_not_found_by_none():
    index = inventory.Index()
    index.put(inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="m1"))
    assert (index.by_node(""), index.by_provider_id(""), index.by_dns("")) == ((), (), ())


def test_two_machines_of_one_name_are_both_found():
    index = inventory.Index()
    for name in ("m1", "m2"):
        index.put(machine(name, addresses=addresses(("InternalDNS", "panda"))))
    assert [each.name for each in index.by_dns("panda")] == ["m1", "m2"]
    assert index.get(("machine.openshift.io", "fleet", "m2")) is not None


def both(openshift: str, cluster_api: str, authoritative: str) -> inventory.Index:
    """A machine in both groups, in these namespaces."""
    index = inventory.Index()
    name = addresses(("InternalDNS", "panda"))
    index.put(dataclasses.replace(machine(addresses=name, authoritativeAPI=authoritative), namespace=openshift))
    index.put(dataclasses.replace(machine(group=inventory.CLUSTER_API, addresses=name), namespace=cluster_api))
    return index


@pytest.mark.parametrize(
    ("authoritative", "counting"),
    [
        ("MachineAPI", [inventory.OPENSHIFT]),
        ("ClusterAPI", [inventory.CLUSTER_API]),
        ("Migrating", [inventory.OPENSHIFT]),
        ("", [inventory.CLUSTER_API, inventory.OPENSHIFT]),
    ],
)
def test_of_a_machine_in_both_groups_the_authoritative_one_counts(authoritative, counting):
    index = both("openshift-machine-api", "openshift-cluster-api", authoritative)
    assert [each.group for each in index.by_dns("panda")] == counting
    assert [each.group for each in index.named("m1")] == counting


@pytest.mark.parametrize("authoritative", ["MachineAPI", "ClusterAPI", "Migrating", ""])
@pytest.mark.parametrize(
    ("openshift", "cluster_api"),
    [
        ("team-a", "fleet"),
        ("fleet", "fleet"),
        ("team-a", "openshift-cluster-api"),
        ("openshift-machine-api", "team-a"),
        ("openshift-cluster-api", "openshift-machine-api"),
    ],
)
def test_elsewhere_a_machine_in_both_groups_is_two(openshift, cluster_api, authoritative):
    index = both(openshift, cluster_api, authoritative)
    assert len(index.by_dns("panda")) == len(index.named("m1")) == 2


def test_a_machine_that_is_in_one_group_alone_counts_whatever_it_says():
    index = inventory.Index()
    index.put(machine(addresses=addresses(("InternalDNS", "panda")), authoritativeAPI="ClusterAPI"))
    assert [each.name for each in index.by_dns("panda")] == ["m1"]


def test_the_group_is_named_where_it_is_not_the_first_one():
    assert machine(group=inventory.CLUSTER_API).title == "Machine fleet/m1 of cluster.x-k8s.io"


def test_what_comes_close_is_found_apart_from_what_counts():
    there = inventory.Index()
    for name in ("m1", "m2"):
        rows = addresses(
            ("InternalDNS", f"{name}.example"),
            ("InternalDNS", "shared.example"),
            ("InternalDNS", "shared.test"),
            ("Hostname", "Host"),
        )
        there.put(machine(name, addresses=rows))
    assert [each.name for each in there.by_other_name("HOST.")] == ["m1", "m2"]
    assert [each.name for each in there.by_first_label("m1")] == ["m1"]
    assert there.by_dns("host") == there.by_dns("m1") == ()
    there.remove((inventory.OPENSHIFT, "fleet", "m1"))
    assert [each.name for each in there.by_other_name("host")] == ["m2"]
    assert [each.name for each in there.by_first_label("shared.elsewhere")] == ["m2"]


@pytest.mark.parametrize("type_", [inventory.INTERNAL_DNS, inventory.HOSTNAME])
def test_of_many_near_misses_a_handful_is_looked_at(type_, monkeypatch):
    index, looked = inventory.Index(), list[str]()
    for number in range(2000):
        text = f"worker.z{number}.example" if type_ == inventory.INTERNAL_DNS else "worker.other.example"
        rows = (inventory.Address(type_, text),)
        index.put(inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name=f"m{number}", addresses=rows))
    counts = inventory.Index._counts

    def counted(self: inventory.Index, machine: inventory.Machine) -> bool:
        looked.append(machine.name)
        return counts(self, machine)

    monkeypatch.setattr(inventory.Index, "_counts", counted)
    near = (*index.by_first_label("worker.other.example"), *index.by_other_name("worker.other.example"))
    assert 0 < len(near) < 10
    assert len(looked) < 10
    assert index.by_other_name("") == ()
