# SPDX-License-Identifier: Apache-2.0
"""kubectl describe and events: each of the usual kinds, with the events that belong to it.

describe makes several requests for one answer; that it names no error is part of what is proved.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.interop import manifests, running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]


def _describe(kubectl: running.Kubectl, *what: str) -> dict[str, str]:
    """The top-level lines of the description, by their first word."""
    shown = kubectl("describe", *what)
    assert shown.err == ""
    found = {}
    for line in shown.lines:
        word, colon, rest = line.partition(":")
        if colon and not line.startswith(" "):
            found[word] = rest.strip()
    return found


def _about(kubectl: running.Kubectl, kind: str, name: str) -> None:
    """Store an Event about an object."""
    target = kubectl.json("get", kind, name)
    about = {
        "kind": target["kind"],
        "namespace": kubectl.namespace,
        "name": name,
        "uid": target["metadata"]["uid"],
        "apiVersion": target["apiVersion"],
    }
    text = manifests.event(f"{name}.{kind}", kubectl.namespace, about, f"about the {kind}")
    kubectl("create", "-f", "-", stdin=text)


@pytest.mark.parametrize("kind", ["pod", "deployment", "service"])
def test_with_events(full, kind):
    _about(full, kind, "web")
    shown = full("describe", kind, "web").out
    assert re.search(rf"Name: +web\nNamespace: +{full.namespace}\n", shown)
    assert re.search(rf"Warning +Tested +\S+ \(x3 over \S+\) +tests +about the {kind}\n", shown), shown


def test_a_pod_is_described_with_its_state(full):
    found = _describe(full, "pod/web")
    assert found["Labels"] == "app=web"
    assert found["Status"] == "Pending"
    assert found["QoS Class"] == "BestEffort"
    assert found["Events"] == "<none>"


def test_config_map_and_secret_do_not_show_secrets(full):
    assert re.search(r"colour:\n----\ngreen\n", full("describe", "cm", "settings").out)
    shown = full("describe", "secret", "password").out
    assert re.search(r"Type: +Opaque\n", shown)
    assert "word:  13 bytes" in shown
    assert "horse" not in shown


def test_a_service_is_described_with_its_ports(full):
    found = _describe(full, "svc", "web")
    assert (found["Selector"], found["Type"], found["Port"]) == ("app=web", "ClusterIP", "<unset>  80/TCP")


def test_a_deployment_is_described_with_its_strategy(full):
    found = _describe(full, "deployment", "web")
    assert found["Replicas"] == "2 desired | 0 updated | 0 total | 0 available | 0 unavailable"
    assert found["StrategyType"] == "RollingUpdate"
    assert found["RollingUpdateStrategy"] == "25% max unavailable, 25% max surge"


def test_a_node_is_described_with_its_lease_and_conditions(kubectl, unique):
    kubectl("create", "-f", "-", stdin=manifests.node(unique))
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": unique, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": unique, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    kubectl("create", "--namespace", "kube-node-lease", "-f", "-", stdin=json.dumps(lease))
    shown = kubectl("describe", "node", unique)
    assert shown.err == ""
    for pattern in (
        r"Roles: +worker",
        r"Taints: +dedicated=web:NoSchedule",
        rf"HolderIdentity: +{unique}",
        r"RenewTime: +Thu, 01 Jan 2026 00:00:00",
        r"Ready +True +.* KubeletReady",
        r"InternalIP: +10.0.0.1",
        r"memory: +4Gi",
        r"Non-terminated Pods: +\(0 in total\)",
    ):
        assert re.search(pattern, shown.out), (pattern, shown.out)
    row = kubectl("get", "node", unique, "--no-headers").out.split()
    assert row[:3] + row[4:] == [unique, "Ready", "worker", "v1.37.0"]


def test_namespace_and_service_account(kubectl):
    found = _describe(kubectl, "namespace", kubectl.namespace)
    assert (found["Name"], found["Status"]) == (kubectl.namespace, "Active")
    found = _describe(kubectl, "sa", "default")
    assert (found["Name"], found["Tokens"]) == ("default", "<none>")


def test_access_rules(kubectl):
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    kubectl("create", "rolebinding", "readers", "--role=reader", "--user=ann")
    assert re.search(r"pods +\[\] +\[\] +\[get\]", kubectl("describe", "role", "reader").out)
    assert re.search(r"User +ann", kubectl("describe", "rolebinding", "readers").out)


def test_events_command_and_both_groups_of_events(full):
    full.needs(23, "the events command")
    _about(full, "pod", "web")
    _about(full, "service", "web")
    shown = full("events", "--for", "pod/web", "--types=Warning").out
    assert re.search(r"\(x3 over \S+\) +Warning +Tested +Pod/web +about the pod\n", shown)
    assert "about the service" not in shown
    for resource in ("events", "events.events.k8s.io"):
        rows = full("get", resource, "--no-headers").out
        assert re.search(r"\S+ +Warning +Tested +pod/web +about the pod\n", rows), resource
    assert full.json("get", "events.events.k8s.io", "web.pod")["regarding"]["name"] == "web"
    selected = full("get", "events", "--field-selector", "involvedObject.kind=Service", "-o", "name").lines
    assert selected == ["event/web.service"]
