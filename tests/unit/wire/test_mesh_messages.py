# SPDX-License-Identifier: Apache-2.0
"""Messages by their field numbers, against octets that were computed elsewhere."""

import ipaddress

import pytest

from handfast.wire import mesh_messages
from tests.world import mesh_client


def tcp(address: str, port: int):
    return mesh_messages.TcpAddress(ip={"ipv4": int(ipaddress.ip_address(address))}, port=port)


VECTORS = {
    "CertifyRequest": (
        mesh_messages.CertifyRequest(identity="a", token=b"b", certificate_signing_request=b"c"),
        "0a01611201621a0163",
    ),
    "CertifyResponse": (
        mesh_messages.CertifyResponse(
            leaf_certificate=b"L", intermediate_certificates=[b"I"], valid_until={"seconds": 1}
        ),
        "0a014c1201491a020801",
    ),
    "IPAddress, version 4": (tcp("10.0.0.1", 0).ip, "0d0100000a"),
    "IPAddress, version 6": (
        mesh_messages.IPAddress(ipv6={"first": 0x20010DB800000000, "last": 1}),
        "12120900000000b80d0120110100000000000000",
    ),
    "TcpAddress": (tcp("10.0.0.1", 8080), "0a050d0100000a10903f"),
    "TlsIdentity": (
        mesh_messages.TlsIdentity(uri_like_identity={"uri": "spiffe://d/w"}, server_name={"name": "s.local"}),
        "1a0e0a0c7370696666653a2f2f642f7722090a07732e6c6f63616c",
    ),
}


@pytest.mark.parametrize("case", VECTORS)
def test_a_message_is_written_as_the_numbers_say(case):
    message, octets = VECTORS[case]
    assert message.SerializeToString().hex() == octets
    assert type(message).FromString(bytes.fromhex(octets)) == message


def test_a_set_of_addresses_has_weights_labels_identities_and_hints():
    update = mesh_messages.Update()
    endpoint = update.add.addrs.add(addr=tcp("10.0.0.1", 80), weight=10000)
    endpoint.metric_labels["pod"] = "web"
    endpoint.tls_identity.dns_like_identity.name = "web.shop"
    endpoint.protocol_hint.h2.SetInParent()
    update.add.metric_labels["service"] = "web"
    read = mesh_messages.Update.FromString(update.SerializeToString())
    assert read.WhichOneof("update") == "add"
    assert dict(read.add.addrs[0].metric_labels) == {"pod": "web"}
    assert read.add.addrs[0].tls_identity.WhichOneof("strategy") == "dns_like_identity"
    assert read.add.addrs[0].protocol_hint.WhichOneof("protocol") == "h2"


def test_the_client_of_the_tests_writes_the_same_octets():
    assert mesh_client.certify_request("a", b"b", b"c").hex() == VECTORS["CertifyRequest"][1]
    answer = mesh_client.certified(bytes.fromhex(VECTORS["CertifyResponse"][1]))
    assert (answer.leaf, answer.intermediates, answer.valid_until) == (b"L", [b"I"], 1)
