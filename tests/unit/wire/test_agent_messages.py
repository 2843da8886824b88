# SPDX-License-Identifier: Apache-2.0
"""The messages of the agents' channel: field numbers that other programs write, and parts that make one whole."""

from handfast.rules.mesh import reports
from handfast.wire import agent_messages
from tests.world import mesh_client


def test_a_report_is_read_by_its_field_numbers():
    octets = mesh_client.octets
    certificate = octets(1, b"7b") + octets(3, b"\xaa" * 32)
    edge = octets(1, b"inbound") + octets(2, b"a.b") + b"\x18\x50\x20\x01\x28\x07"
    pod = octets(1, b"shop") + octets(2, b"web-1")
    report = agent_messages.Report.FromString(b"\x08\x05" + octets(2, certificate) + octets(3, edge) + octets(4, pod))
    assert (report.acknowledged, report.certificate.serial, report.certificate.sha256) == (5, "7b", b"\xaa" * 32)
    seen = report.edges[0]
    assert (seen.direction, seen.peer, seen.port, seen.secured, seen.count) == ("inbound", "a.b", 80, True, 7)
    assert (report.pod.namespace, report.pod.name) == ("shop", "web-1")


def test_an_edge_is_the_same_when_it_was_sent():
    edge = reports.Edge("outbound", "a.b", 80, False, 2, "web.shop:80", "tunnel", "refused", "would-be", 60, 120)
    report = agent_messages.Report(edges=[agent_messages.edge_document(edge)])
    read = agent_messages.Report.FromString(report.SerializeToString()).edges[0]
    assert agent_messages.read_edge(read) == edge
    numbers = [number for number, _ in mesh_client.fields(read.SerializeToString())]
    assert numbers == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]


def test_an_update_in_parts_is_one_update():
    update = agent_messages.Update
    parts = [
        update(version=7).SerializeToString(),
        update(anchors="PEM", deny={"names": ["a"], "certificates": [b"x"]}).SerializeToString(),
        update(policy={"ports": [{"port": 0, "enforced": {"permits": [{"suffix": ".b"}]}}]}).SerializeToString(),
    ]
    whole = update.FromString(agent_messages.Parts(parts).SerializeToString())
    assert (whole.version, whole.anchors, list(whole.deny.names)) == (7, "PEM", ["a"])
    assert whole.policy.ports[0].enforced.permits[0].suffix == ".b"
    assert {number for number, _ in mesh_client.fields(whole.SerializeToString())} == {1, 2, 3, 4}
