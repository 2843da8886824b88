# SPDX-License-Identifier: Apache-2.0
"""kubectl on the kinds of machine fleets: columns, explain, describe, the status subresource, and what is refused."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import yaml

from handfast.api import machine_config_kinds, machine_kinds
from tests.interop import running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]

OPENSHIFT = pathlib.Path(__file__).parents[3] / "shared" / "schema" / "machine-crds.json"

MACHINE = """
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata:
  name: worker-1
  labels: {machine.openshift.io/cluster-api-machine-role: worker}
spec:
  providerID: metal://worker-1
  taints: [{key: dedicated, effect: NoSchedule}]
"""
ADDRESSES = [{"type": "InternalDNS", "address": "worker-1"}, {"type": "InternalIP", "address": "10.0.0.11"}]


@pytest.fixture
def fleet(kubectl: running.Kubectl) -> running.Kubectl:
    """kubectl in a namespace with one Machine, on a server that has our definitions."""
    documents = yaml.safe_dump_all(machine_kinds.definitions())
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=documents)
    kubectl("wait", "--for=condition=Established", "crd/machines.machine.openshift.io")
    kubectl("apply", "-f", "-", stdin=MACHINE)
    status = json.dumps({"status": {"phase": "Provisioned", "addresses": ADDRESSES, "nodeRef": {"name": "node-1"}}})
    kubectl("patch", "machine", "worker-1", "--subresource=status", "--type=merge", "-p", status)
    return kubectl


def test_machines_are_listed_with_what_an_operator_looks_for(fleet):
    assert re.search(
        r"NAME +PHASE +ROLE +NODE +AGE\nworker-1 +Provisioned +worker +node-1 +\d+s", fleet("get", "machines").out
    )
    wide = fleet("get", "machines", "-o", "wide").out
    assert re.search(r"ADDRESS +PROVIDERID +TYPE +REGION +ZONE +STATE", wide)
    assert re.search(r" worker-1 +metal://worker-1", wide)


def test_every_kind_explains_itself(fleet):
    said = fleet("explain", "machine.status.addresses").out
    assert "Who may join as this machine" in said
    assert re.search(r"address\s+<string> -required-", said)
    assert "MachineAPI is this one" in fleet("explain", "machine.spec.authoritativeAPI").out
    assert "rendered for the pool" in fleet("explain", "mcp.spec.machineConfigSelector").out
    assert "Ignition configuration" in fleet("explain", "mc.spec.config").out


def test_a_machine_can_be_described_and_its_status_is_a_resource_of_its_own(fleet):
    shown = fleet("describe", "machine", "worker-1").out
    for words in (r"Provider ID: +metal://worker-1", r"Phase: +Provisioned", r"Address: +10\.0\.0\.11"):
        assert re.search(words, shown), (words, shown)
    # A write of the Machine itself leaves its status as it is.
    fleet("patch", "machine", "worker-1", "--type=merge", "-p", '{"status":{"phase":"Failed"}}')
    assert fleet.json("get", "machine", "worker-1")["status"]["phase"] == "Provisioned"


def test_wrong_machines_are_refused_at_the_field(fleet):
    status = '{"status":{"addresses":[{"address":"10.0.0.1"}]}}'
    wrong = fleet("patch", "machine", "worker-1", "--subresource=status", "--type=merge", "-p", status, code=1)
    assert "status.addresses[0].type: Required value" in wrong.err
    document = yaml.safe_load(MACHINE) | {"metadata": {"name": "worker-2"}}
    document["spec"] |= {"authoritativeAPI": "Nobody", "colour": "green"}
    wrong = fleet("create", "-f", "-", stdin=json.dumps(document), code=1)
    assert 'unknown field "spec.colour"' in wrong.err
    del document["spec"]["colour"]
    wrong = fleet("create", "-f", "-", stdin=json.dumps(document), code=1)
    assert 'supported values: "ClusterAPI", "MachineAPI"' in wrong.err or "Unsupported value" in wrong.err


def test_a_pool_needs_a_spec_and_the_pools_of_the_roles_are_taken(fleet):
    for role in machine_kinds.ROLES:
        fleet("apply", "--server-side", "-f", "-", stdin=json.dumps(machine_config_kinds.pool(role)))
    assert re.search(r"NAME +CONFIG +UPDATED +UPDATING +DEGRADED +MACHINECOUNT", fleet("get", "mcp").out)
    empty = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "x"},
    }
    wrong = fleet("create", "-f", "-", stdin=json.dumps(empty), code=1)
    assert "spec: Required value" in wrong.err


@pytest.mark.skipif(not OPENSHIFT.exists(), reason="the facts about OpenShift's definitions are not at hand")
def test_openshifts_own_definitions_may_take_the_place_of_ours_and_the_machines_stay(fleet):
    theirs = [
        each
        for each in json.loads(OPENSHIFT.read_text())["items"]
        if "machine.openshift.io" in each["metadata"]["name"]
    ]
    documents = yaml.safe_dump_all(theirs)
    fleet("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=documents)
    running.eventually(lambda: "TYPE" in fleet("get", "machines").out, "the columns of the other definition")
    assert fleet.json("get", "machine", "worker-1")["status"]["addresses"] == ADDRESSES
