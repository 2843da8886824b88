# SPDX-License-Identifier: Apache-2.0
"""Where an application wants to go, in one spelling."""

import pytest

from handfast.rules.mesh import destinations

WEB = destinations.Target("web.shop.svc.cluster.local", 80)


@pytest.mark.parametrize(
    "authority",
    [
        "web.shop.svc.cluster.local",
        "web.shop.svc.cluster.local:80",
        "WEB.Shop.svc.cluster.local.",
        "web.shop.svc.cluster.local.:080",
        "web.shop.svc",
        "web.shop.svc.:80",
    ],
)
def test_all_spellings_of_a_name_are_one_destination(authority):
    assert destinations.read(authority) == WEB


@pytest.mark.parametrize(
    ("authority", "expected"),
    [
        ("10.0.0.1", "10.0.0.1:80"),
        ("10.0.0.1:8080", "10.0.0.1:8080"),
        ("[2001:DB8:0::1]:8080", "[2001:db8::1]:8080"),
        ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
    ],
)
def test_an_address_has_one_form(authority, expected):
    target = destinations.read(authority)
    assert (str(target), target.is_address) == (expected, True)


@pytest.mark.parametrize(
    ("authority", "expected"),
    [
        ("a.b.c.d.svc.cluster.local:81", "a.b.c.d.svc.cluster.local:81"),
        ("_x.web.shop.svc", "_x.web.shop.svc.cluster.local:80"),
        ("example.com", "example.com:80"),
    ],
)
def test_other_names_are_as_they_are(authority, expected):
    assert str(destinations.read(authority)) == expected


@pytest.mark.parametrize(
    "authority",
    [
        "",
        ":80",
        "127.1",
        "2130706433",
        "0x7f000001",
        "a.0x",
        "1.2.3.4.5",
        "[::1",
        "[fe80::1%eth0]:80",
        "a..svc.cluster.local",
        "-a.svc",
        "a.svc:0",
        "a.svc:65536",
        "a.svc:８０",
        "a.svc:+80",
        "a.svc:",
        "a b.svc",
        "a/b.svc",
        f"{'a' * 64}.svc",
        f"{'a.' * 130}svc",
        "ä.svc",
    ],
)
def test_what_names_nothing_is_refused(authority):
    with pytest.raises(destinations.BadDestination, match="neither a name with a port nor an address"):
        destinations.read(authority)


def test_this_machine_and_the_ports_of_the_proxy_are_known():
    own = destinations.Own(hosts=frozenset({"10.0.0.1"}), ports=frozenset({4140, 4191}))
    for host in ("127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::"):
        assert own.is_home(host, 80)
        assert own.is_own_port(host, 4191)
        assert not own.is_own_port(host, 80)
    assert own.is_home("10.0.0.1", 4191)
    assert not own.is_home("10.0.0.1", 8080)
    assert not own.is_home("10.0.0.2", 4191)
    assert own.is_own_port("10.0.0.1", 4140)
    assert not own.is_own_port("10.0.0.2", 4140)
