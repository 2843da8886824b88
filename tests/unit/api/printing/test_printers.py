# SPDX-License-Identifier: Apache-2.0
"""Tables of built-in kinds and of custom resources: the columns kubectl shows and what stands in them."""

from __future__ import annotations

import datetime

import pytest

from handfast.api import kinds
from handfast.api.printing import columns as print_columns
from handfast.api.printing import printers
from tests.properties import sample_documents

NOW = datetime.datetime(2026, 1, 2, 4, 4, 5, tzinfo=datetime.UTC)
AGE = "60m"


def _row(group, plural):
    kind = sample_documents.kind(group, plural)
    return dict(
        zip(
            [column["name"] for column in printers.columns(kind)],
            printers.cells(kind, sample_documents.document(kind), NOW),
            strict=True,
        )
    )


def _widget(*columns):
    return sample_documents.widget(columns=columns)


def test_every_built_in_kind_has_columns_and_as_many_cells():
    for kind in (row for row in kinds.builtin() if "get" in row.verbs):
        assert kind.resource in print_columns.COLUMNS
        definitions = printers.columns(kind)
        assert {"name", "type", "format", "description", "priority"} == set(definitions[0])
        assert len(printers.cells(kind, {}, NOW)) == len(definitions)
        assert len(printers.cells(kind, sample_documents.document(kind), NOW)) == len(definitions)


@pytest.mark.parametrize(
    ("group", "plural", "normal", "wide"),
    [
        ("", "pods", "Name Ready Status Restarts Age", "IP Node Nominated-Node Readiness-Gates"),
        ("apps", "deployments", "Name Ready Up-to-date Available Age", "Containers Images Selector"),
        (
            "",
            "nodes",
            "Name Status Roles Age Version",
            "Internal-IP External-IP OS-Image Kernel-Version Container-Runtime",
        ),
        ("", "services", "Name Type Cluster-IP External-IP Port(s) Age", "Selector"),
        ("", "events", "Last-Seen Type Reason Object Message", "Subobject Source First-Seen Count Name"),
        (
            "certificates.k8s.io",
            "certificatesigningrequests",
            "Name Age SignerName Requestor RequestedDuration Condition",
            "",
        ),
        ("rbac.authorization.k8s.io", "roles", "Name Created-At", ""),
        ("rbac.authorization.k8s.io", "rolebindings", "Name Role Age", "Users Groups ServiceAccounts"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "Name Created-At", ""),
        ("", "serviceaccounts", "Name Age", ""),
    ],
)
def test_a_kind_has_the_columns_of_kubectl_in_their_order(group, plural, normal, wide):
    definitions = printers.columns(sample_documents.kind(group, plural))
    for priority, names in ((0, normal), (1, wide)):
        found = [row["name"].replace(" ", "-") for row in definitions if row["priority"] == priority]
        assert " ".join(found) == names


@pytest.mark.parametrize(
    ("group", "plural", "cells"),
    [
        ("", "namespaces", ["web", "", AGE]),
        ("", "secrets", ["web", "", 1, AGE]),
        ("", "configmaps", ["web", 2, AGE]),
        ("", "serviceaccounts", ["web", AGE]),
        (
            "",
            "nodes",
            [
                "web",
                "Ready,SchedulingDisabled",
                "<none>",
                AGE,
                "v1.36.4",
                "10.0.0.1",
                "<none>",
                "Debian",
                "6.1",
                "<unknown>",
            ],
        ),
        ("", "pods", ["web", "2/2", "Running", "3 (60m ago)", AGE, "10.0.0.7", "n1", "n2", "1/1"]),
        ("", "endpoints", ["web", "10.0.0.7:80,[2001:db8::1]:80", AGE]),
        (
            "",
            "events",
            [AGE, "Warning", "BackOff", "pod/web", "spec", "kubelet, n1", "no luck", AGE, 4, "web"],
        ),
        (
            "events.k8s.io",
            "events",
            ["59m", "Normal", "Started", "pod/web", "", "example.com/runner, runner-1", "it runs", "59m", 7, "web"],
        ),
        (
            "",
            "persistentvolumes",
            ["web", "5Gi", "RWO,ROX", "", "", "default/c", "fast", "<unset>", "", AGE, "<unset>"],
        ),
        ("", "persistentvolumeclaims", ["web", "Bound", "v", "5Gi", "RWO", "fast", "<unset>", AGE, "<unset>"]),
        ("", "replicationcontrollers", ["web", 0, 2, 1, AGE, "web", "web:1", "<none>"]),
        ("apps", "replicasets", ["web", 2, 2, 1, AGE, "web", "web:1", "app=web,app in (api,web)"]),
        ("apps", "deployments", ["web", "1/2", 2, 1, AGE, "web", "web:1", "app=web,app in (api,web)"]),
        ("apps", "daemonsets", ["web", 0, 0, 3, 0, 0, "<none>", AGE, "web", "web:1", "app=web,app in (api,web)"]),
        ("apps", "statefulsets", ["web", "0/2", AGE, "w", "w:1"]),
        ("batch", "jobs", ["web", "Complete", "1/1", AGE, AGE, "web", "web:1", "<none>"]),
        (
            "batch",
            "cronjobs",
            ["web", "*/5 * * * *", "Etc/UTC", "<unset>", 1, AGE, AGE, "web", "web:1", "<none>"],
        ),
        ("discovery.k8s.io", "endpointslices", ["web", "IPv4", "80,*", "10.0.0.7,127.0.0.1", AGE]),
        ("coordination.k8s.io", "leases", ["web", "a", AGE]),
        (
            "certificates.k8s.io",
            "certificatesigningrequests",
            [
                "web",
                AGE,
                "kubernetes.io/kube-apiserver-client-kubelet",
                "system:bootstrap:abcdef",
                "24h",
                "Approved,Issued",
            ],
        ),
        ("rbac.authorization.k8s.io", "roles", ["web", sample_documents.CREATED]),
        (
            "rbac.authorization.k8s.io",
            "clusterrolebindings",
            ["web", "ClusterRole/reader", AGE, "ada", "ops", "default/builder"],
        ),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", ["web", 1, AGE]),
        ("apiextensions.k8s.io", "customresourcedefinitions", ["widgets.example.com", sample_documents.CREATED]),
        ("storage.k8s.io", "csinodes", ["web", 1, AGE]),
        ("storage.k8s.io", "volumeattachments", ["web", "csi.example.com", "v", "n1", True, AGE]),
        ("storage.k8s.io", "csidrivers", ["web", True, False, False, "a", False, "<unset>", AGE]),
        ("storage.k8s.io", "storageclasses", ["web", "csi.example.com", "Delete", "Immediate", False, AGE]),
        ("node.k8s.io", "runtimeclasses", ["web", "runc", AGE]),
        ("", "componentstatuses", ["web", "Healthy", "ok", ""]),
        ("apiregistration.k8s.io", "apiservices", ["web", "Local", "True", AGE]),
        ("flowcontrol.apiserver.k8s.io", "flowschemas", ["web", "user", 900, "ByUser", AGE, "False"]),
        (
            "flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations",
            ["web", "Limited", 0, "<none>", "<none>", "<none>", AGE],
        ),
        ("", "podtemplates", ["web", "web", "web:1", "app=web"]),
        ("", "resourcequotas", ["web", "pods: 3/10, requests.cpu: 0/2", "limits.memory: 0/1Gi", AGE]),
        ("", "limitranges", ["web", sample_documents.CREATED]),
        ("apps", "controllerrevisions", ["web", "<none>", 3, AGE]),
        ("autoscaling", "horizontalpodautoscalers", ["web", "Deployment/web", "<none>", "<unset>", 5, 2, AGE]),
        ("networking.k8s.io", "ingresses", ["web", "web", "a.example.com", "203.0.113.1", "80, 443", AGE]),
        (
            "networking.k8s.io",
            "ingressclasses",
            ["web", "example.com/controller", "Parameters.example.com/p", AGE],
        ),
        ("networking.k8s.io", "networkpolicies", ["web", "app=web", AGE]),
        ("policy", "poddisruptionbudgets", ["web", "50%", "N/A", 1, AGE]),
        ("scheduling.k8s.io", "priorityclasses", ["web", 1000, True, AGE, ""]),
        ("storage.k8s.io", "csistoragecapacities", ["web", "fast", "5Gi"]),
        ("storage.k8s.io", "volumeattributesclasses", ["web", "csi.example.com", AGE]),
        ("networking.k8s.io", "servicecidrs", ["web", "192.0.2.0/24,2001:db8::/64", AGE]),
        ("networking.k8s.io", "ipaddresses", ["192.0.2.1", "services/default/web"]),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies", ["web", 2, "v1/ConfigMap", AGE]),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", ["web", "web", "default/limits", AGE]),
    ],
)
def test_the_cells_of_a_sample_are_those_of_kubectl(group, plural, cells):
    assert list(_row(group, plural).values()) == cells


def test_the_parent_of_an_address_is_shown_with_its_group():
    row = kinds.row("ipaddresses", "networking.k8s.io")
    parent = {"group": "Example.com", "resource": "Gateways", "name": "g"}
    document = {"metadata": {"name": "192.0.2.1"}, "spec": {"parentRef": parent}}
    assert printers.cells(row, document, NOW) == ["192.0.2.1", "gateways.example.com/g"]
    assert printers.cells(row, {"metadata": {"name": "192.0.2.1"}}, NOW) == ["192.0.2.1", "<none>"]


def test_the_columns_of_a_service_line_up_with_its_cells():
    row = _row("", "services")
    assert row["Cluster-IP"] == "10.96.0.1"
    assert row["Port(s)"] == "80/,443/"
    assert row["Selector"] == "app=web"


def test_a_custom_resource_without_columns_shows_its_age():
    kind = _widget()
    assert [column["name"] for column in printers.columns(kind)] == ["Name", "Age"]
    document = {"metadata": {"name": "w", "creationTimestamp": sample_documents.CREATED}}
    assert printers.cells(kind, document, NOW) == ["w", AGE]


def test_the_columns_of_a_custom_resource():
    kind = _widget({"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1, "format": "int32"})
    assert printers.columns(kind)[1] == {
        "name": "Size",
        "type": "integer",
        "format": "int32",
        "description": "",
        "priority": 1,
    }


@pytest.mark.parametrize(
    ("type_", "path", "cell"),
    [
        ("string", ".spec.text", "t"),
        ("string", ".spec.size", "3"),
        ("string", ".spec.list", '["a","b"]'),
        ("string", ".spec.flag", "true"),
        ("string", ".spec.missing", None),
        ("string", ".spec.null", None),
        ("string", "not a path", None),
        ("integer", ".spec.size", 3),
        ("integer", ".spec.ratio", 1),
        ("integer", ".spec.text", None),
        ("integer", ".spec.flag", None),
        ("integer", ".spec.endless", None),
        ("number", ".spec.ratio", 1.5),
        ("boolean", ".spec.flag", True),
        ("boolean", ".spec.text", None),
        ("date", ".spec.date", AGE),
        ("date", ".spec.text", "<invalid>"),
        ("date", ".spec.size", None),
        ("string", '.spec.rows[?(@.type=="Ready")].status', "True"),
    ],
)
def test_cells_of_a_custom_resource(type_, path, cell):
    kind = _widget({"name": "X", "type": type_, "jsonPath": path})
    spec = {
        "text": "t",
        "size": 3,
        "list": ["a", "b"],
        "flag": True,
        "ratio": 1.5,
        "endless": float("inf"),
        "null": None,
        "date": sample_documents.CREATED,
        "rows": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}],
    }
    assert printers.cells(kind, {"metadata": {"name": "w"}, "spec": spec}, NOW) == ["w", cell]
