# SPDX-License-Identifier: Apache-2.0
"""Answers as octets: those that were computed by hand, and those that the numbers say."""

from __future__ import annotations

import pytest

from handfast.mesh.destination import messages
from handfast.rules.mesh import authorities, endpoints, meshed
from handfast.wire import mesh_messages
from tests.world import discovery_client


@pytest.mark.parametrize(
    ("host", "octets"),
    [
        ("10.0.0.1", "0a050d0100000a10903f"),
        ("2001:db8::1", "0a1412120900000000b80d012011010000000000000010903f"),
    ],
)
def test_an_address_has_the_octets_of_the_facts(host, octets):
    address = authorities.Address(host, 8080)
    assert messages.tcp(address).SerializeToString().hex() == octets
    assert discovery_client.address(bytes.fromhex(octets)) == str(address)


def test_an_address_of_ipv6_is_the_one_of_the_facts():
    message = mesh_messages.IPAddress(ipv6={"first": 0x20010DB800000000, "last": 1})
    assert message.SerializeToString().hex() == "12120900000000b80d0120110100000000000000"


@pytest.mark.parametrize(
    ("standing", "identity", "hint", "port"),
    [
        (meshed.PLAIN, "", "", 0),
        (meshed.Standing(identity="n", protocol=meshed.Protocol.H2, inbound_port=4143), "n", "h2", 4143),
        (meshed.Standing(identity="n", protocol=meshed.Protocol.OPAQUE, inbound_port=1111), "n", "opaque", 1111),
        (meshed.Standing(identity="n", protocol=meshed.Protocol.H2), "n", "h2", 0),
    ],
)
def test_an_endpoint_is_read_as_it_was_written(standing, identity, hint, port):
    row = endpoints.Endpoint(authorities.Address("10.0.0.1", 80), standing, (("pod", "a"),))
    seen = discovery_client.weighted(messages.weighted(row).SerializeToString())
    assert (seen.identity, seen.server_name, seen.hint, seen.inbound_port) == (identity, identity, hint, port)
    assert (seen.weight, seen.labels) == (10_000, (("pod", "a"),))


def test_a_message_is_encoded_when_it_is_first_asked_for_and_once():
    count = 0

    def encode() -> bytes:
        nonlocal count
        count += 1
        return b"x"

    said = messages.Messages([encode])
    assert (len(said), count) == (1, 0)
    assert (said[0], said[0], count) == (b"x", b"x", 1)
