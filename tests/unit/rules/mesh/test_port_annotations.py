# SPDX-License-Identifier: Apache-2.0
"""Annotations about ports: what they may say, whose count, and which ports are opaque without one."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.mesh import port_annotations
from tests.unit.rules.mesh import pods


def with_ports(*ports: Any) -> dict[str, Any]:
    rows = [port if isinstance(port, dict) else {"containerPort": port} for port in ports]
    return pods.pod(containers=[{"name": "web", "image": "web:1", "ports": rows}])


@pytest.mark.parametrize(
    ("text", "ports"),
    [("25", "25"), (" 25 , 8000-8010", "25,8000-8010"), ("1,,,,2", "1,2"), ("80-80", "80"), ("", "")],
)
def test_ports_and_ranges_are_written_as_the_redirect_takes_them(text, ports):
    key = port_annotations.SKIP_INBOUND
    assert port_annotations.skipped({key: text}, key) == ports


@pytest.mark.parametrize("text", ["80-79", "69420", "-1", "0", "web", "1-70000", "80 81", "८"])
def test_what_is_no_port_is_refused_with_key_value_and_what_is_allowed(text):
    key = port_annotations.SKIP_OUTBOUND
    with pytest.raises(port_annotations.BadPorts) as caught:
        port_annotations.skipped({key: f"80,{text}"}, key)
    assert key in caught.value.message
    assert repr(text) in caught.value.message
    assert caught.value.hint == "allowed: ports and ranges of 1 to 65535, as in 25,8000-8010"


def test_a_zone_is_no_part_of_a_subnet():
    # Whatever stands behind %, line ends too, would get to the container that redirects, which is root.
    with pytest.raises(port_annotations.BadPorts):
        port_annotations.subnets({port_annotations.SKIP_SUBNETS: "fe80::%x -j RETURN\n-A OUTPUT -j ACCEPT\n#/64"})


def test_a_subnet_is_a_block_without_bits_of_a_host():
    key = port_annotations.SKIP_SUBNETS
    assert port_annotations.subnets({key: "192.0.2.0/24, 2001:db8::/32"}) == "192.0.2.0/24,2001:db8::/32"
    assert port_annotations.subnets({}) == ""
    with pytest.raises(port_annotations.BadPorts, match=r"192\.0\.2\.1/24"):
        port_annotations.subnets({key: "192.0.2.1/24"})


@pytest.mark.parametrize(
    ("key", "read"),
    [
        (port_annotations.OPAQUE, lambda value: port_annotations.opaque(value, pods.workload(pods.pod()))),
        (port_annotations.SKIP_INBOUND, lambda value: port_annotations.skipped(value, port_annotations.SKIP_INBOUND)),
        (port_annotations.SKIP_SUBNETS, port_annotations.subnets),
    ],
)
def test_a_value_that_is_too_long_is_refused(key, read):
    with pytest.raises(port_annotations.BadPorts) as caught:
        read({key: "1," * 2049})
    assert caught.value.hint == "allowed: at most 4096 characters"


def test_opaque_ports_may_be_names_of_container_ports():
    workload = pods.workload(with_ports({"name": "mysql", "containerPort": 3306}, 8080))
    key = port_annotations.OPAQUE
    assert port_annotations.opaque({key: "9000,mysql,redis,4000-4010,3306"}, workload) == "9000,3306,4000-4010"
    with pytest.raises(port_annotations.BadPorts, match="MySQL"):
        port_annotations.opaque({key: "MySQL"}, workload)


@pytest.mark.parametrize(
    "read",
    [
        lambda annotations: port_annotations.skipped(annotations, port_annotations.SKIP_INBOUND),
        port_annotations.subnets,
        lambda annotations: port_annotations.opaque(annotations, pods.workload(with_ports(80))),
    ],
)
def test_a_list_with_too_many_parts_is_refused(read):
    annotations = dict.fromkeys(port_annotations.READ, "," * port_annotations.MOST_PARTS)
    with pytest.raises(port_annotations.BadPorts) as caught:
        read(annotations)
    assert caught.value.hint == "allowed: a list of 1024 parts at most"
    assert len(caught.value.message) < 200
    assert read(dict.fromkeys(port_annotations.READ, "," * (port_annotations.MOST_PARTS - 1))) == ""


def test_a_name_is_looked_up_once_however_many_ports_have_it(monkeypatch):
    looks = []
    ports = port_annotations.container_ports

    def look(workload):
        looks.append(workload)
        return ports(workload)

    monkeypatch.setattr(port_annotations, "container_ports", look)
    workload = pods.workload(with_ports({"name": "x", "containerPort": 1}, {"name": "x", "containerPort": 2}))
    assert port_annotations.opaque({port_annotations.OPAQUE: "x," * 1000 + "y"}, workload) == "1,2"
    assert len(looks) == 1


def test_of_a_namespace_only_what_is_read_here_is_taken_over():
    namespace = {
        port_annotations.OPAQUE: "25",
        port_annotations.SKIP_INBOUND: "80",
        "config.linkerd.io/proxy-log-level": "debug",
        "linkerd.io/inject": "enabled",
    }
    own = {port_annotations.SKIP_INBOUND: "81"}
    assert port_annotations.inherited(own, namespace) == {port_annotations.OPAQUE: "25"}
    assert port_annotations.unread(namespace) == ["config.linkerd.io/proxy-log-level"]


def test_the_usual_ports_are_opaque_in_the_order_of_the_object():
    ports = port_annotations.container_ports(pods.workload(with_ports(11211, 3306, 8080, 3306, {"name": "none"})))
    assert port_annotations.usually_opaque((port, port) for _, port in ports) == "11211,3306"


@pytest.mark.parametrize(
    ("ports", "opaque"),
    [
        ([{"port": 9090, "targetPort": 3306}, {"port": 3306}], "9090,3306"),
        ([{"port": 3306, "targetPort": "mysql"}], "3306"),
        ([{"port": 3306, "targetPort": 8080}, {"port": 80}], ""),
        ([], ""),
    ],
)
def test_a_port_of_a_service_is_opaque_by_where_it_leads(ports, opaque):
    service = {"spec": {"ports": ports}}
    assert port_annotations.usually_opaque(port_annotations.service_ports(service)) == opaque


@pytest.mark.parametrize("value", ["", "on", "Enabled", "x" * 5000])
def test_headers_are_wanted_or_not_and_nothing_else(value):
    key = port_annotations.IDENTITY_HEADERS
    assert not port_annotations.identity_headers({})
    assert port_annotations.identity_headers({key: "enabled"})
    assert not port_annotations.identity_headers({key: "disabled"})
    with pytest.raises(port_annotations.BadIdentityHeaders, match=key) as refused:
        port_annotations.identity_headers({key: value})
    assert len(str(refused.value)) < 300
