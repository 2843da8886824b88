# SPDX-License-Identifier: Apache-2.0
"""Where the services of the mesh are: what is an address, and which one is the Pod itself."""

from __future__ import annotations

import pytest

from handfast.rules.mesh import addresses, control_plane


@pytest.mark.parametrize(
    "text", ["identity.linkerd.svc.cluster.local:8080", "localhost.:1", "192.0.2.1:65535", "[2001:db8::1]:8080"]
)
def test_a_host_and_a_port_are_an_address(text):
    addresses.require(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", ":80", "host:", "host:0", "host:65536", "host:080", "a b:80", "2001:db8::1:80"),
        *("[2001:db8::1]", "[2001:db8::1:80", "[fe80::1%eth0]:80", "[192.0.2.1]:80", "Host:80", "$(K8S_SA):80"),
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(addresses.BadAddress, match="is not HOST:PORT"):
        addresses.require(text)


@pytest.mark.parametrize("text", ["localhost:1", "localhost.:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"])
def test_a_loopback_address_is_known(text):
    assert addresses.is_loopback(text)


@pytest.mark.parametrize(
    "text", ["localhost.example:1", "a.localhost:1", "192.0.2.1:1", "[2001:db8::1]:1", "notlocalhost:1"]
)
def test_others_are_none(text):
    assert not addresses.is_loopback(text)


def test_services_of_the_control_plane_have_names_and_ports():
    assert addresses.service("linkerd-identity", "linkerd") == "linkerd-identity.linkerd.svc.cluster.local:8080"
    assert addresses.is_loopback(addresses.local(control_plane.IDENTITY))


@pytest.mark.parametrize(
    ("text", "stock"),
    [
        ("localhost:1", "localhost.:1"),
        ("LOCALHOST:1", "localhost.:1"),
        ("localhost.:1", "localhost.:1"),
        ("a:1", "a:1"),
    ],
)
def test_a_stock_proxy_is_told_localhost_with_its_dot(text, stock):
    assert addresses.absolute(text) == stock
