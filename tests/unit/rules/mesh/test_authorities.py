# SPDX-License-Identifier: Apache-2.0
"""Where a proxy wants to go: names, instances and addresses; what is none of them is refused, in bounds."""

from __future__ import annotations

import pytest

from handfast.rules.mesh import authorities
from handfast.rules.mesh.authorities import Address, Context, Service

LABEL = "a" * 63


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("web.shop.svc.cluster.local", Service("shop", "web", 80)),
        ("web.shop.svc.cluster.local:8080", Service("shop", "web", 8080)),
        ("web.shop.svc.cluster.local.:8080", Service("shop", "web", 8080)),
        ("WEB.Shop.svc.Cluster.Local:1", Service("shop", "web", 1)),
        ("web-0.web.shop.svc.cluster.local:65535", Service("shop", "web", 65535, "web-0")),
        ("svc.svc.svc.cluster.local", Service("svc", "svc", 80)),
        (f"{LABEL}.{LABEL}.{LABEL}.svc.cluster.local:80", Service(LABEL, LABEL, 80, LABEL)),
    ],
)
def test_a_name_of_the_cluster_is_a_service(path, wanted):
    assert authorities.parse(path) == wanted


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("10.0.0.1", Address("10.0.0.1", 80)),
        ("10.0.0.1:8080", Address("10.0.0.1", 8080)),
        ("[2001:db8::1]:8080", Address("2001:db8::1", 8080)),
        ("[2001:DB8:0::1]", Address("2001:db8::1", 80)),
        ("2001:db8::1", Address("2001:db8::1", 80)),
        ("[::ffff:10.0.0.1]:80", Address("10.0.0.1", 80)),
    ],
)
def test_an_address_is_read_in_the_one_form_that_it_is_compared_in(path, wanted):
    assert authorities.parse(path) == wanted


@pytest.mark.parametrize(
    "path",
    [
        "",
        ":",
        ":80",
        "web",
        "web.shop",
        "web.shop.svc",
        "shop.svc.cluster.local",
        ".svc.cluster.local",
        ".shop.svc.cluster.local",
        "web..svc.cluster.local",
        "a.b.web.shop.svc.cluster.local",
        "web.shop.svc.cluster.example",
        "web.shop.svc.cluster.local..",
        "web.shop.pod.cluster.local",
        "we_b.shop.svc.cluster.local",
        "*.shop.svc.cluster.local",
        "-web.shop.svc.cluster.local",
        "web.shop.svc.cluster.local:",
        "web.shop.svc.cluster.local:0",
        "web.shop.svc.cluster.local:65536",
        "web.shop.svc.cluster.local:-1",
        "web.shop.svc.cluster.local:+80",
        "web.shop.svc.cluster.local:http",
        "web.shop.svc.cluster.local:8 0",
        "web.shop.svc.cluster.local:٨٠",
        "web.shop.svc.cluster.local:80:80",
        "web.shop.svc.cluster.local/:80",
        "http://web.shop.svc.cluster.local:80",
        "web.shop.svc.cluster.local\n:80",
        "10.0.0.1:0",
        "10.0.0.256:80",
        "010.0.0.1:80",
        "[10.0.0.1]:80",
        "[2001:db8::1",
        "[2001:db8::1]80",
        "[2001:db8::1]:",
        "[2001:db8::1]:99999",
        "[]:80",
        "[fe80::1%eth0]:80",
        "1:2:3",
        "ẇeb.shop.svc.cluster.local",
        f"a{LABEL}.shop.svc.cluster.local",
        "x" * 1_000_000,
    ],
)
def test_anything_else_is_refused_in_bounds(path):
    with pytest.raises(authorities.InvalidAuthority) as refused:
        authorities.parse(path)
    assert refused.value.message.startswith("Invalid authority: ")
    assert len(refused.value.message) < 300


def test_a_name_over_the_length_of_dns_is_refused():
    label = "a" * 63
    path = f"{label}.{label}.{label}.svc.cluster.local"
    assert len(path) < 253
    with pytest.raises(authorities.InvalidAuthority):
        authorities.parse(f"{label}a.{label}a.{label}{'a' * 60}.svc.cluster.local")


def test_what_was_read_is_written_as_it_was():
    service = Service("shop", "web", 80, "web-0")
    assert (service.key, service.fqdn) == (("shop", "web"), "web-0.web.shop.svc.cluster.local")
    assert Service("shop", "web", 80).fqdn == "web.shop.svc.cluster.local"
    assert [str(Address(host, 80)) for host in ("10.0.0.1", "2001:db8::1")] == ["10.0.0.1:80", "[2001:db8::1]:80"]


@pytest.mark.parametrize(
    ("token", "wanted"),
    [
        ('{"ns":"ns-1","nodeName":"n1","pod":"p1"}', Context(namespace="ns-1", node="n1", pod="p1")),
        ('{"ns":"ns-1"}', Context(namespace="ns-1")),
        ("ns:ns-2", Context(namespace="ns-2")),
        ("123fa-test", Context()),
        ("", Context()),
        ("[]", Context()),
        ("7", Context()),
        ('{"ns":7,"pod":["x"]}', Context()),
        ("[" * 4000, Context()),
        ("x" * 10_000, Context()),
    ],
)
def test_what_a_proxy_says_of_itself_is_read_where_it_can_be(token, wanted):
    assert authorities.context(token) == wanted
