# SPDX-License-Identifier: Apache-2.0
"""The manifest for a cluster with another API server. That it is enough is shown by `interop.test_another_apiserver`."""

from __future__ import annotations

import collections
import copy
import pathlib
import re
from typing import Any

import pytest

from handfast.api import kinds
from handfast.api.defaulting import defaults
from handfast.api.validation import validation
from handfast.controllers import names as controller_names
from handfast.rules import controller_rights
from handfast.rules.machines import bootstrapper, client_ca_sources, settings

PAGE = pathlib.Path(__file__).parents[3] / "docs/cluster.md"
EVERY = tuple(controller_rights.RIGHTS)
MACHINES = set(controller_names.MACHINES)
NAMESPACES = {
    *(namespace for namespace, _ in client_ca_sources.ALL),
    "openshift-machine-config-operator",
    "openshift-cluster-machine-approver",
}
SIGNING = "certificatesigningrequest-signing-controller"


def roles(*names: str) -> dict[str, list[dict[str, Any]]]:
    """The rules by namespace; the cluster's have none."""
    found = controller_rights.documents(names)
    return {each["metadata"].get("namespace", ""): each["rules"] for each in found if each["kind"].endswith("Role")}


def test_each_is_the_name_of_a_controller():
    assert set(EVERY) < set(controller_names.NAMES)
    assert controller_rights.unlisted(("namespace-controller", EVERY[0])) == ("namespace-controller",)


@pytest.mark.parametrize("name", EVERY)
def test_no_rule_says_everything(name: str):
    rules = [rule for found in roles(name).values() for rule in found]
    assert rules
    assert not any("*" in word for rule in rules for words in rule.values() for word in words)


def test_secrets_are_read_where_tokens_are():
    where = {
        (namespace, *rule.get("resourceNames", ()))
        for namespace, rules in roles(*EVERY).items()
        for rule in rules
        if "secrets" in rule["resources"] and {*rule["verbs"]} & {"get", "list", "watch"}
    }
    there = "openshift-machine-config-operator"
    shared, following = "node-bootstrapper-token", "node-bootstrapper-token-next"
    rendered = (shared, following, "kubelet-bootstrap-kubeconfig")
    assert where == {("kube-system",), (there,), (there, shared), (there, shared, following), (there, *rendered)}


def test_events_are_written_where_there_is_something_to_tell_of():
    where = {namespace for namespace, rules in roles(*EVERY).items() for rule in rules if "events" in rule["resources"]}
    assert where == {"default", "kube-public", "kube-system", *NAMESPACES}


def test_each_controller_adds_its_own():
    assert [rule["resources"] for rule in roles("token-cleaner-controller")["kube-system"]] == [
        ["leases"],
        ["leases"],
        ["secrets"],
    ]
    assert set(roles("token-cleaner-controller")) == {"kube-system"}
    both = roles("token-cleaner-controller", "bootstrap-signer-controller")
    # What two need of the same objects is one rule.
    assert [rule["verbs"] for rule in both["kube-system"] if rule["resources"] == ["secrets"]] == [
        ["delete", "get", "list", "watch"]
    ]


@pytest.mark.parametrize(
    ("names", "kinds_first"),
    [((SIGNING,), ["CustomResourceDefinition", "ServiceAccount"]), (EVERY[:2], ["ServiceAccount", "ClusterRole"])],
)
def test_the_ledger_comes_with_those_who_write_it(names: tuple[str, ...], kinds_first: list[str]):
    assert [each["kind"] for each in controller_rights.documents(names)][:2] == kinds_first


def test_nothing_for_what_a_cluster_has_of_its_own():
    assert controller_rights.documents(("namespace-controller",)) == []
    # The kind and the account; then namespaces that not every cluster has, and roles with their bindings in each.
    added = len({*NAMESPACES})
    assert len(controller_rights.documents(EVERY)) == 2 + added + 2 * (5 + added)


def test_namespaces_that_not_every_cluster_has_come_first():
    kinds_in_order = [each["kind"] for each in controller_rights.documents(("node-bootstrapper-token-controller",))]
    assert kinds_in_order[:3] == ["ServiceAccount", "Namespace", "ClusterRole"]
    assert "Namespace" not in [each["kind"] for each in controller_rights.documents((SIGNING,))]


def test_the_machine_approver_comes_with_its_namespaces():
    documents = controller_rights.documents(("machine-approver-controller",))
    names = [each["metadata"]["name"] for each in documents if each["kind"] == "Namespace"]
    config = (bootstrapper.CONFIG_NAMESPACE, bootstrapper.MANAGED_NAMESPACE)
    assert names == [settings.NAMESPACE, *config, bootstrapper.NAMESPACE]
    # It writes Machines by patch alone, and its settings not at all once they are there.
    verbs: dict[str, set[str]] = collections.defaultdict(set)
    for rules in roles("machine-approver-controller").values():
        for rule in rules:
            for resource in rule["resources"]:
                verbs[resource] |= {*rule["verbs"]}
    assert verbs["machines"] == {"list", "patch", "watch"}
    assert verbs["configmaps"] == {"create", "list", "watch"}


def test_client_cas_come_with_the_namespaces_of_their_sources():
    kinds_in_order = [each["kind"] for each in controller_rights.documents(("client-ca-controller",))]
    assert kinds_in_order[:6] == ["ServiceAccount", *["Namespace"] * 4, "ClusterRole"]


# The definition comes first, and has its own tests: here it would be one of a kind that this server has.
@pytest.mark.parametrize("document", controller_rights.documents(EVERY)[1:], ids=lambda each: each["kind"])
def test_the_documents_are_good(document: dict[str, Any]):
    row = next(
        kind for kind in kinds.builtin() if kind.kind == document["kind"] and kind.api_version == document["apiVersion"]
    )
    whole = copy.deepcopy(document)
    defaults.apply(row, whole)
    assert validation.create(row, whole) == []


def test_client_cas_are_read_by_name_and_written_nowhere():
    """Another API server reads a file: its ConfigMap is its own."""
    found = roles("client-ca-controller")
    maps = [rule for rules in found.values() for rule in rules if "configmaps" in rule["resources"]]
    assert all(rule["resourceNames"] for rule in maps)
    # One that has come to its end is deleted, and nothing else.
    ending = [rule for rule in maps if rule["verbs"] == ["delete"]]
    assert [rule["resourceNames"] for rule in ending] == [["kubelet-bootstrap-kubeconfig"]] * 2
    assert all(rule["verbs"] == ["get", "list", "watch"] for rule in maps if rule not in ending)
    assert {name for rule in maps for name in rule["resourceNames"]} == client_ca_sources.NAMES


def test_the_page_names_them_all():
    """But for the one that judges nodes, which the page says a cluster has already, and those of machine fleets."""
    found = re.search(r"export CONTROLLERS=(\S+)", PAGE.read_text())
    assert found is not None
    assert set(controller_names.chosen(found[1].split(","))) == {*EVERY} - {"node-lifecycle-controller", *MACHINES}
