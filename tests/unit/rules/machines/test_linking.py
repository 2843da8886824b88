# SPDX-License-Identifier: Apache-2.0
"""Which Machine a Node is. The rows with names in one word are those of OpenShift's own test of its node-link controller."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from handfast.rules.machines import inventory, linking

NODE = "n1"


def machine(
    name: str = "m1", provider_id: str = "", ips: tuple[str, ...] = (), dns: str = NODE, **more: Any
) -> inventory.Machine:
    rows = [inventory.Address("InternalIP", address) for address in ips]
    rows += [inventory.Address("InternalDNS", dns)] if dns else []
    more = {"group": inventory.OPENSHIFT, "namespace": "fleet", "version": "7", **more}
    return inventory.Machine(name=name, provider_id=provider_id, addresses=tuple(rows), **more)


def node(name: str = NODE, provider_id: str = "", ips: tuple[str, ...] = (), **more: Any) -> linking.Node:
    return linking.Node(name=name, uid=f"uid-{name}", version="3", provider_id=provider_id, ips=ips, **more)


def index_of(*machines: inventory.Machine) -> inventory.Index:
    index = inventory.Index()
    for each in machines:
        index.put(each)
    return index


def judged(one: linking.Node, *machines: inventory.Machine, there: tuple[str, ...] = ()) -> str:
    """The name of the Machine, or the reason for none."""
    verdict = linking.judge(one, index_of(*machines), there.__contains__)
    return verdict.machine.name if isinstance(verdict, linking.Link) else verdict.reason


# --- the rows of nodelink_controller_test.go --------------------------------------------------------------------------

BY_PROVIDER_ID = {
    # (the Node's id, the Machine's id): linked?
    "noProviderID": ("", "", False),
    "matchingProviderID": ("test", "test", True),
    "noMatchingProviderID": ("differentProviderID", "providerID", False),
}
BY_IP: dict[str, tuple[tuple[str, ...], tuple[str, ...], bool]] = {
    "noInternalIP": ((), (), False),
    "anyInternalIP": (("10.0.0.1",), (), False),
    "matchingInternalIP": (("10.0.0.1",), ("10.0.0.1",), True),
    "nonMatchingInternalIP": (("10.0.0.2",), ("10.0.0.1",), False),
}


@pytest.mark.parametrize("row", BY_PROVIDER_ID)
def test_find_machine_from_node_by_provider_id(row):
    ours, theirs, linked = BY_PROVIDER_ID[row]
    # With an address of its own, so that the name alone does not link it.
    found = judged(node(provider_id=ours), machine(provider_id=theirs, ips=("10.9.9.9",)))
    assert (found == "m1") is linked


@pytest.mark.parametrize("row", BY_IP)
def test_find_machine_from_node_by_ip(row):
    ours, theirs, linked = BY_IP[row]
    assert (judged(node(ips=ours), machine(ips=theirs, provider_id="test")) == "m1") is linked


@pytest.mark.parametrize("row", BY_PROVIDER_ID)
def test_find_node_from_machine_by_provider_id(row):
    ours, theirs, linked = BY_PROVIDER_ID[row]
    one = machine(provider_id=theirs, ips=("10.9.9.9",))
    assert NODE in linking.affected(one, index_of(one))
    assert (judged(node(provider_id=ours), one) == "m1") is linked


@pytest.mark.parametrize("row", BY_IP)
def test_find_node_from_machine_by_ip(row):
    ours, theirs, linked = BY_IP[row]
    one = machine(ips=theirs, provider_id="test")
    assert NODE in linking.affected(one, index_of(one))
    assert (judged(node(ips=ours), one) == "m1") is linked


TAINT = {"key": "dedicated", "value": "some-value", "effect": "NoSchedule"}
OTHER = {"key": "key1", "value": "some-value", "effect": "Schedule"}


@pytest.mark.parametrize(
    ("there", "wanted", "left"),
    [
        pytest.param([], [], None, id="no previous taint on node. Machine adds none"),
        pytest.param([], [TAINT], [TAINT], id="no previous taint on node. Machine adds one"),
        pytest.param([OTHER], [TAINT], [OTHER, TAINT], id="already taint on node. Machine adds another"),
        pytest.param([OTHER], [{**OTHER, "value": "v2"}], None, id="already taint on node. Machine adding same taint"),
    ],
)
def test_add_taints_to_node(there, wanted, left):
    one = node(taints=tuple(there), annotations={linking.ANNOTATION: "fleet/m1"})
    patch = linking.node_patch(one, machine(node_taints=tuple(wanted)))
    assert (None if patch is None else patch["spec"]["taints"]) == left


@pytest.mark.parametrize(
    ("ours", "theirs", "linked"),
    [
        pytest.param(node("noMatch"), machine(dns=""), False, id="noMatch"),
        pytest.param(node(provider_id="match"), machine(provider_id="match"), True, id="matchProviderID"),
        pytest.param(node(ips=("10.0.0.1",)), machine(ips=("10.0.0.1",)), True, id="matchInternalIP"),
        pytest.param(
            node(provider_id="match", ips=("10.0.0.1",)),
            machine(provider_id="match", ips=("10.0.0.1",)),
            True,
            id="matchInternalIPAndProviderID",
        ),
        pytest.param(
            node(provider_id="different providerID", ips=("10.0.0.2",)),
            machine(provider_id="one providerID", ips=("10.0.0.1",)),
            False,
            id="NonMatchInternalIPNorProviderID",
        ),
    ],
)
def test_reconcile_and_node_request_from_machine(ours, theirs, linked):
    assert (judged(ours, theirs) == "m1") is linked
    if linked:
        assert NODE in linking.affected(theirs, index_of(theirs))
        patch = linking.node_patch(ours, theirs)
        assert patch == {"metadata": {"annotations": {linking.ANNOTATION: "fleet/m1"}, "resourceVersion": "3"}}


def test_index_node_by_provider_id_and_internal_ips():
    document = {
        "metadata": {"name": NODE, "uid": "u", "resourceVersion": "3", "labels": {"a": "b"}},
        "spec": {"providerID": "test", "taints": [TAINT]},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "Hostname", "address": "n1"},
            ]
        },
    }
    facts = linking.read_node(document)
    assert (facts.provider_id, facts.ips) == ("test", ("10.0.0.1", "fd00::1"))
    assert (facts.labels, facts.taints, facts.version) == ({"a": "b"}, (TAINT,), "3")
    assert linking.read_node({}).ips == ()


# --- the order, and what is ambiguous ---------------------------------------------------------------------------------


def test_the_provider_id_comes_before_the_address():
    one, other = machine(provider_id="a"), machine("m2", provider_id="b", ips=("10.0.0.1",))
    assert judged(node(provider_id="a", ips=("10.0.0.1",)), one, other) == "m1"


def test_an_address_is_compared_by_value():
    assert judged(node(ips=("fd00::1",)), machine(ips=("fd00:0:0::1",))) == "m1"


@pytest.mark.parametrize(
    "told", [{"provider_id": "a"}, {"ips": ("10.0.0.1",)}, {"ips": ("10.0.0.1", "10.0.0.2")}, {}], ids=str
)
def test_more_than_one_machine_is_none_and_all_are_named(told):
    rows = {
        "provider_id": [machine(provider_id="a"), machine("m2", provider_id="a", dns="n2")],
        "ips": [machine(ips=("10.0.0.1",)), machine("m2", ips=("10.0.0.2", "10.0.0.1"))],
    }.get(next(iter(told), ""), [machine(), machine("m2")])
    verdict = linking.judge(node(**told), index_of(*rows), lambda _: False)
    assert isinstance(verdict, linking.NoLink)
    assert verdict.reason == linking.AMBIGUOUS
    assert "Machine fleet/m1, Machine fleet/m2" in verdict.sentence


def test_a_machine_that_stood_in_the_way_and_went_has_the_node_looked_at():
    gone = machine("m2", ips=("10.0.0.1",), dns="n2")
    assert linking.affected(gone, index_of(machine(ips=("10.0.0.1",)))) == {"n1", "n2"}
    gone = machine("m2", provider_id="a", dns="10.0.0.9", node="n3")
    assert linking.affected(gone, index_of(machine(provider_id="a"))) == {"n1", "n3"}


# --- who might lie ----------------------------------------------------------------------------------------------------


def test_a_node_that_tells_anothers_address_is_not_linked():
    verdict = linking.judge(node("evil", ips=("10.0.0.1",)), index_of(machine(ips=("10.0.0.1",))), lambda _: False)
    assert isinstance(verdict, linking.NoLink)
    assert verdict.reason == linking.NOT_ITS_MACHINE
    assert verdict.sentence == (
        "it tells the InternalIP 10.0.0.1 of Machine fleet/m1, whose InternalDNS names are other than its own: n1"
    )


def test_a_node_that_tells_anothers_provider_id_is_not_linked():
    """Nor to the Machine of its own name: a node that lies is linked with none."""
    ours = machine("m2", dns="evil", ips=("10.0.0.2",))
    found = judged(node("evil", provider_id="a", ips=("10.0.0.2",)), machine(provider_id="a"), ours)
    assert found == linking.NOT_ITS_MACHINE


def test_a_machine_without_an_internal_name_is_linked_with_nobody():
    verdict = linking.judge(node(ips=("10.0.0.1",)), index_of(machine(dns="", ips=("10.0.0.1",))), lambda _: False)
    assert isinstance(verdict, linking.NoLink)
    assert verdict.sentence.endswith("other than its own: none")


def test_a_machine_keeps_the_node_that_it_has():
    both = dataclasses.replace(
        machine(ips=("10.0.0.1",), node="n1"),
        addresses=(*machine(ips=("10.0.0.1",)).addresses, inventory.Address("InternalDNS", "n2")),
    )
    assert judged(node("n2", ips=("10.0.0.1",)), both, there=("n1",)) == linking.ANOTHER_NODE
    assert judged(node("n1", ips=("10.0.0.1",)), both, there=("n1",)) == "m1"
    # Where that Node is gone, the one that is there is linked: the Machine is not free meanwhile.
    assert judged(node("n2", ips=("10.0.0.1",)), both) == "m1"


def test_a_name_alone_links_only_a_machine_that_has_nothing_else():
    assert judged(node(ips=("10.0.0.1",)), machine()) == "m1"
    verdict = linking.judge(node(ips=("10.0.0.2",)), index_of(machine(ips=("10.0.0.1",))), lambda _: False)
    assert isinstance(verdict, linking.NoLink)
    assert verdict.reason == linking.DIFFERENT
    assert verdict.sentence == (
        "it tells provider id none, InternalIP 10.0.0.2, and the Machine of its name is another: "
        "Machine fleet/m1 has provider id none, InternalIP 10.0.0.1"
    )
    # A node that has told nothing yet is no reason to warn.
    assert judged(node(), machine(ips=("10.0.0.1",))) == linking.NO_MACHINE


def test_the_annotation_of_a_node_decides_nothing():
    claims = node("evil", annotations={linking.ANNOTATION: "fleet/m1"})
    assert judged(claims, machine()) == linking.NO_MACHINE


def test_a_machine_whose_node_is_gone_stays_linked():
    """There is nothing here that takes a link back: whatever is judged, a patch names a Node."""
    one = machine(node=NODE, node_uid="old")
    assert linking.affected(one, index_of(one)) == {NODE}
    patch = linking.machine_patch(node(), one)
    assert patch is not None
    assert patch["status"]["nodeRef"] == {"kind": "Node", "name": NODE, "uid": "uid-n1"}


# --- what is nobody's here, and what is written -----------------------------------------------------------------------


def test_machines_of_cluster_api_and_machines_that_migrate_are_left_alone():
    assert judged(node(), machine(group=inventory.CLUSTER_API)) == linking.CLUSTER_API
    assert judged(node(), machine(authoritative="Migrating")) == linking.MIGRATING


def test_a_link_is_written_once_at_the_version_that_was_judged():
    assert linking.machine_patch(node(), machine()) == {
        "metadata": {"resourceVersion": "7"},
        "status": {"nodeRef": {"kind": "Node", "name": NODE, "uid": "uid-n1"}},
    }
    linked = machine(node=NODE, node_uid="uid-n1")
    assert linking.machine_patch(node(), linked) is None


@pytest.mark.parametrize(
    ("phase", "written"), [("Provisioned", True), ("", True), ("Failed", False), ("Running", False)]
)
def test_a_declared_machine_runs_once_it_is_linked(phase, written):
    """No provider is there to say so. What another says of its own Machines stays."""
    linked = machine(node=NODE, node_uid="uid-n1", phase=phase)
    assert linking.machine_patch(node(), linked) is None
    declared = dataclasses.replace(linked, annotations={linking.DECLARED: "true"})
    patch = linking.machine_patch(node(), declared)
    assert (patch is not None) is written
    if patch is not None:
        assert patch["status"] == {"phase": "Running"}


def test_the_node_gets_the_labels_and_annotations_of_its_machine():
    one = node(labels={"a": "other", "mine": "x"}, annotations={linking.ANNOTATION: "fleet/m1", "c": "d"})
    patch = linking.node_patch(one, machine(node_labels={"a": "b"}, node_annotations={"c": "d"}))
    assert patch == {"metadata": {"labels": {"a": "b"}, "resourceVersion": "3"}}
