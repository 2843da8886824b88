# SPDX-License-Identifier: Apache-2.0
"""Addresses: what is read, what is refused in which words, and what a socket is really bound to."""

import errno
import socket

import pytest

from handfast import errors
from handfast.runtime import addresses, routes
from handfast.runtime.addresses import Address


@pytest.mark.parametrize(
    "text, address",
    [
        ("127.0.0.1:6443", Address("127.0.0.1", 6443)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:65535", Address("::1", 65535)),
        ("[0:0::1]:1", Address("::1", 1)),
        ("LocalHost:80", Address("localhost", 80)),
        ("api.example.com:80", Address("api.example.com", 80)),
    ],
)
def test_an_address_is_read_as_it_is_written(text, address):
    assert addresses.parse(text) == address
    assert addresses.parse(str(address)) == address


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "has no port"),
        ("localhost", "has no port"),
        ("::1:6443", "IPv6 address without brackets"),
        (":6443", "has no host"),
        ("localhost:", "not a number from 0 to 65535"),
        ("localhost:http", "not a number from 0 to 65535"),
        ("localhost:65536", "not a number from 0 to 65535"),
        ("localhost:-1", "not a number from 0 to 65535"),
        ("localhost:٣", "not a number from 0 to 65535"),
        ("[::1:80", "opening bracket without a closing one"),
        ("[127.0.0.1]:80", "not an IPv6 address"),
        ("127.0.0.256:80", "not an IPv4 address"),
        ("https://host:80", "brackets"),
        ("a b:80", "neither a host name nor an IP address"),
        ("-a:80", "neither a host name nor an IP address"),
        ("a" * 64 + ":80", "neither a host name nor an IP address"),
    ],
)
def test_parse_refuses(text, why):
    with pytest.raises(ValueError, match=why):
        addresses.parse(text)


@pytest.mark.parametrize(
    "text, url",
    [
        ("0.0.0.0:1", "https://127.0.0.1:1"),
        ("[::]:1", "https://[::1]:1"),
        ("[fd00::1]:1", "https://[fd00::1]:1"),
        ("name:1", "https://name:1"),
    ],
)
def test_a_wildcard_is_called_through_loopback(text, url):
    assert addresses.parse(text).url("https") == url


def test_port_0_picks_one_and_a_client_can_wait_in_line_at_once():
    asked = Address("127.0.0.1", 0)
    with addresses.listen(asked, "--listen") as sock:
        found = addresses.bound(sock, asked)
        assert found.port > 0
        with socket.create_connection((found.host, found.port), timeout=5):
            pass


def test_a_taken_port():
    with addresses.listen(Address("127.0.0.1", 0), "--listen") as sock:
        taken = addresses.bound(sock, Address("localhost", 0))
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(errors.Refused) as caught:
                addresses.listen(Address(host, taken.port), "--admin-listen").close()
            if caught.value.reason == "AddressInUse":
                break
        assert caught.value.reason == "AddressInUse"
        assert f":{taken.port}" in caught.value.message
        assert "--admin-listen" in (caught.value.hint or "")


def test_a_port_that_nobody_named_gives_way_to_the_next(monkeypatch):
    taken = {6443, 6444}
    tried = []

    def listen(address, flag):
        tried.append(address.port)
        if address.port in taken:
            raise errors.Refused("taken", reason="AddressInUse")

    monkeypatch.setattr(addresses, "listen", listen)
    addresses.listen_near(Address("127.0.0.1", 6443), "--listen")
    assert tried == [6443, 6444, 6445]
    taken.update(range(1, 65536))
    tried.clear()
    addresses.listen_near(Address("127.0.0.1", 65534), "--listen")
    assert tried == [65534, 65535, 0]


def test_only_a_taken_port_gives_way(monkeypatch):
    def listen(address, flag):
        raise errors.Refused("not here", reason="AddressNotAvailable")

    monkeypatch.setattr(addresses, "listen", listen)
    with pytest.raises(errors.Refused) as caught:
        addresses.listen_near(Address("192.0.2.1", 6443), "--listen")
    assert caught.value.reason == "AddressNotAvailable"


@pytest.mark.parametrize(
    "host, source, found",
    [
        ("0.0.0.0", "198.51.100.1", ["198.51.100.1:7"]),
        ("::", "2001:db8::7", ["[2001:db8::7]:7"]),
        ("0.0.0.0", "", []),
        ("0.0.0.0", "127.0.0.1", []),
        ("127.0.0.1", "198.51.100.1", []),
        ("api.example", "198.51.100.1", []),
    ],
)
def test_who_listens_everywhere_is_reached_by_the_address_of_the_way_out(monkeypatch, host, source, found):
    asked = []

    def answer(target):
        asked.append(target)
        return source

    monkeypatch.setattr(routes, "source", answer)
    assert [str(address) for address in addresses.outward(Address(host, 7))] == found
    assert all((":" in target) == (":" in host) for target in asked)


@pytest.mark.parametrize(
    "host, loopback",
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("192.0.2.1", False), ("a", False)],
)
def test_loopback_is_this_machine_alone(host, loopback):
    assert addresses.is_loopback(host) is loopback


@pytest.mark.parametrize("host, reason", [("192.0.2.1", "AddressNotAvailable"), ("name.invalid", "AddressNotFound")])
def test_an_address_that_is_not_here(host, reason, monkeypatch):
    if reason == "AddressNotFound":

        def unknown(*arguments, **named):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(errors.Refused) as caught:
        addresses.listen(Address(host, 0), "--listen")
    assert caught.value.reason == reason
    assert host in caught.value.message


@pytest.mark.parametrize(
    "code, family, reason",
    [
        (errno.EACCES, errors.Refused, "AddressNotAllowed"),
        (errno.ENOBUFS, errors.Unavailable, "AddressNotAvailable"),
    ],
)
def test_other_failures_to_bind(code, family, reason, monkeypatch):
    def fail(self, where):
        raise OSError(code, "No")

    monkeypatch.setattr(socket, "socket", type("Socket", (socket.socket,), {"bind": fail}))
    with pytest.raises(family) as caught:
        addresses.listen(Address("127.0.0.1", 80), "--listen")
    assert caught.value.reason == reason


def test_only_the_ip_addresses_of_hosts_are_taken_each_once():
    texts = [
        "10.0.0.1:6443",
        "[fd00::1]:6443",
        "api.example.com:6443",
        "10.0.0.1",
        "fd00::1",
        "0.0.0.0",
        "[::]:1",
        "name",
    ]
    assert addresses.ip_hosts(texts) == ["10.0.0.1", "fd00::1"]
