# SPDX-License-Identifier: Apache-2.0
"""Lists of networks: what they hold, and what is said of those that cannot be read."""

from __future__ import annotations

import dataclasses
import ipaddress

import pytest

from handfast import errors
from handfast.rules import decision, networks


def allowed(text: str, address: str) -> bool:
    return isinstance(networks.Networks.parse(text).holds(address), decision.Approve)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.0", True),
        ("10.255.255.255", True),
        ("11.0.0.0", False),
        ("172.15.255.255", False),
        ("172.16.0.1", True),
        ("172.31.255.255", True),
        ("172.32.0.0", False),
        ("192.168.7.7", True),
        ("192.169.0.0", False),
        ("127.0.0.1", True),
        ("::1", True),
        ("::2", False),
        ("fc00::1", True),
        ("fdff::1", True),
        ("fe00::1", False),
        ("8.8.8.8", False),
        ("2001:db8::1", False),
        # Decided: neither the wire's own addresses nor a carrier's.
        ("169.254.1.1", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
    ],
)
def test_private_is_rfc_1918_unique_local_and_loopback_only(address: str, expected: bool) -> None:
    assert allowed("private", address) is expected


@pytest.mark.parametrize(
    ("text", "address", "expected"),
    [
        ("private", "::ffff:10.1.2.3", True),
        ("private", "::ffff:8.8.8.8", False),
        ("::/0", "::ffff:8.8.8.8", False),
        ("::/0", "2001:db8::1", True),
        ("0.0.0.0/0", "::ffff:8.8.8.8", True),
        ("0.0.0.0/0", "2001:db8::1", False),
    ],
)
def test_mapped_addresses(text: str, address: str, expected: bool) -> None:
    assert allowed(text, address) is expected


def test_any_and_none() -> None:
    for address in ("8.8.8.8", "::1", "", "unix"):
        assert allowed("any", address)
        assert not allowed("none", address)


def test_a_list() -> None:
    text = " 203.0.113.0/24 , private,2001:db8::/32"
    assert [allowed(text, address) for address in ("203.0.113.9", "10.0.0.1", "2001:db8:1::", "203.0.114.0")] == [
        True,
        True,
        True,
        False,
    ]
    found = networks.Networks.parse("192.0.2.7/32,fe80::/10")
    assert found.members == (ipaddress.ip_network("192.0.2.7/32"), ipaddress.ip_network("fe80::/10"))
    assert isinstance(found.holds("fe80::1%eth0"), decision.Approve)


def test_verdicts_say_why() -> None:
    found = networks.Networks.parse("10.0.0.0/8")
    assert found.holds("10.0.0.1") == decision.Approve("AddressAllowed", "the address is in 10.0.0.0/8", "networks")
    assert found.holds("192.0.2.1") == decision.Deny(
        "AddressNotAllowed", "the address 192.0.2.1 is not in 10.0.0.0/8", "networks"
    )
    assert found.holds("nonsense") == decision.Deny("AddressUnknown", "'nonsense' is no IP address", "networks")
    assert len(found.holds("x" * 10_000).sentence) < 100


@pytest.mark.parametrize("address", ["", "10.0.0.1/8", "10.0.0.01", "10.1", "167772161", "[::1]", "10.0.0.1 "])
def test_what_is_no_address_is_in_no_network(address: str) -> None:
    assert not allowed("0.0.0.0/0,::/0", address)


def test_memory_is_bounded() -> None:
    found = networks.Networks.parse("private")
    first = found.holds("10.0.0.1")
    assert found.holds("10.0.0.1") is first
    for number in range(10_000):
        found.holds(str(ipaddress.ip_address(number)))
    assert len(found._verdicts) <= 4096
    assert found.holds("10.0.0.1") == first


def test_what_is_remembered_is_no_part_of_a_list() -> None:
    asked, fresh = networks.Networks.parse("10.0.0.0/8"), networks.Networks.parse("10.0.0.0/8")
    asked.holds("10.0.0.1")
    assert asked == fresh
    assert repr(asked) == repr(fresh)
    assert [field.name for field in dataclasses.fields(asked) if field.init] == ["text", "members", "unbounded"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no network is named; allowed: private, any, none, or networks such as 10.0.0.0/8,fd00::/8"),
        ("  ", "no network is named; allowed: private, any, none, or networks such as 10.0.0.0/8,fd00::/8"),
        ("10.0.0.0/8,,::1/128", "'10.0.0.0/8,,::1/128' names an empty network; allowed: "),
        ("private,any", "'any' stands alone, not in a list as in 'private,any'; allowed: "),
        ("internal", "'internal' is no network; allowed: private, any, none, "),
        ("Private", "'Private' is no network; allowed: "),
        ("10.0.0.256/24", "'10.0.0.256/24' is no network; allowed: "),
        ("010.0.0.0/8", "'010.0.0.0/8' is no network; allowed: "),
        ("10.0.0.0", "'10.0.0.0' has no prefix length; allowed: 10.0.0.0/32 for this one address"),
        ("fd00::", "'fd00::' has no prefix length; allowed: fd00::/128 for this one address"),
        ("10.0.0.0/33", "the prefix length of '10.0.0.0/33' is '33'; allowed: 0 to 32 for IPv4"),
        ("fd00::/129", "the prefix length of 'fd00::/129' is '129'; allowed: 0 to 128 for IPv6"),
        ("10.0.0.0/", "the prefix length of '10.0.0.0/' is ''; allowed: 0 to 32 for IPv4"),
        ("10.0.0.0/-1", "the prefix length of '10.0.0.0/-1' is '-1'; allowed: "),
        ("10.0.0.0/255.0.0.0", "the prefix length of '10.0.0.0/255.0.0.0' is '255.0.0.0'; allowed: "),
        ("10.0.0.0/٨", "the prefix length of '10.0.0.0/٨' is '٨'; allowed: "),
        ("10.0.0.1/8", "'10.0.0.1/8' has host bits set; allowed: 10.0.0.0/8, or 10.0.0.1/32 for one address"),
        ("fd00::1/8", "'fd00::1/8' has host bits set; allowed: fd00::/8, or fd00::1/128 for one address"),
        ("fe80::%eth0/10", "'fe80::%eth0/10' names an interface; allowed: networks without one"),
        ("::ffff:10.0.0.0/104", "'::ffff:10.0.0.0/104' is IPv4 written as IPv6; allowed: 10.0.0.0/8"),
    ],
)
def test_bad_lists(text: str, message: str) -> None:
    with pytest.raises(errors.Refused) as refused:
        networks.Networks.parse(text)
    assert refused.value.message.startswith(message)
    assert refused.value.reason == "InvalidNetwork"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::1"),
        ("::2", "::/64"),
        ("unix", "unix"),
    ],
)
def test_a_neighbourhood_is_one_ipv4_address_or_an_ipv6_64(address: str, expected: str) -> None:
    assert networks.neighbourhood(address) == expected


@pytest.mark.parametrize(
    ("text", "all_of_them"),
    [
        ("0.0.0.0/0", True),
        ("10.0.0.0/8,::/0", True),
        ("0.0.0.0/1,128.0.0.0/1", True),
        ("::/1,8000::/2,c000::/2", True),
        ("0.0.0.0/1,128.0.0.0/2", False),
        ("private", False),
        ("none", False),
    ],
)
def test_whether_they_hold_every_address_of_a_family(text: str, all_of_them: bool) -> None:
    assert networks.Networks.parse(text).cover_a_family() is all_of_them
