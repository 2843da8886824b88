# SPDX-License-Identifier: Apache-2.0
"""Cells of the core kinds beyond the samples of `test_printers`."""

from __future__ import annotations

import datetime

import pytest

from handfast.api.printing import core

NOW = datetime.datetime(2026, 1, 2, 4, 4, 5, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("conditions", "word"),
    [
        ([], "Unknown"),
        ([{"type": "DiskPressure", "status": "True"}], "Unknown"),
        ([{"type": "Ready", "status": "Unknown"}], "NotReady"),
    ],
)
def test_status_of_a_node(conditions, word):
    assert core.node({"status": {"conditions": conditions}}, NOW)[0] == word


def test_roles_of_a_node_come_from_both_labels():
    labels = {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge", "node-role.kubernetes.io/": ""}
    assert core.node({"metadata": {"labels": labels}}, NOW)[1] == "edge,worker"


@pytest.mark.parametrize(
    ("spec", "status", "text"),
    [
        ({"type": "ClusterIP"}, {}, "<none>"),
        ({"type": "NodePort", "externalIPs": ["192.0.2.1", "192.0.2.2"]}, {}, "192.0.2.1,192.0.2.2"),
        ({"type": "ExternalName", "externalName": "db.example.com"}, {}, "db.example.com"),
        ({"type": "LoadBalancer"}, {}, "<pending>"),
        (
            {"type": "LoadBalancer", "externalIPs": ["192.0.2.9"]},
            {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example.com"}, {}]}},
            "192.0.2.1,lb.example.com,192.0.2.9",
        ),
        ({"type": "Strange"}, {}, "<unknown>"),
    ],
)
def test_external_address_of_a_service(spec, status, text):
    assert core.service({"spec": spec, "status": status}, NOW)[2] == text


def test_ports_and_addresses_of_a_service():
    ports = [{"port": 80, "protocol": "TCP"}, {"port": 443, "nodePort": 30443, "protocol": "TCP"}]
    spec = {"type": "NodePort", "clusterIPs": ["10.0.0.1", "fd00::1"], "clusterIP": "10.0.0.9", "ports": ports}
    cells = core.service({"spec": spec}, NOW)
    assert (cells[1], cells[3], cells[5]) == ("10.0.0.1", "80/TCP,443:30443/TCP", "<none>")
    assert core.service({}, NOW)[1:4] == ["<none>", "<unknown>", "<none>"]
    assert core.service({"spec": {"clusterIP": "None"}}, NOW)[1] == "None"


def test_only_the_first_endpoints_are_shown():
    rows = [{"ip": f"10.0.0.{index}"} for index in range(5)]
    assert core.endpoints({"subsets": [{"addresses": rows}]}, NOW)[0] == "10.0.0.0,10.0.0.1,10.0.0.2 + 2 more..."
    assert core.endpoints({}, NOW)[0] == "<none>"
    assert core.endpointslice({}, NOW)[1:3] == ["<unset>", "<unset>"]


def test_an_event_without_series_count_and_name():
    cells = core.event(
        {"involvedObject": {"kind": "Node"}, "eventTime": "2026-01-02T04:04:00.000000Z", "source": {"component": "c"}},
        NOW,
    )
    assert cells == ["5s", "", "", "node", "", "c", "", "5s", 1, ""]


def test_a_volume_and_a_claim_being_deleted():
    metadata = {"deletionTimestamp": "2026-01-02T04:00:00Z"}
    assert core.persistentvolume({"metadata": metadata}, NOW)[3] == "Terminating"
    assert core.persistentvolumeclaim({"metadata": metadata}, NOW)[:4] == ["Terminating", "", "", ""]
