# SPDX-License-Identifier: Apache-2.0
"""Messages of the SPIFFE Workload API by their field numbers, against octets that were written by hand."""

from __future__ import annotations

import pytest

from handfast.wire import spiffe_messages

SVID = {"spiffe_id": "i", "x509_svid": b"\x01", "x509_svid_key": b"\x02", "bundle": b"\xff"}

VECTORS = {
    "SvidRequest": (spiffe_messages.SvidRequest(), ""),
    "SvidResponse": (
        spiffe_messages.SvidResponse(svids=[SVID], crl=[b"\x03"], federated_bundles={"f": b"\xfe"}),
        "0a0c" + "0a0169" + "120101" + "1a0102" + "2201ff" + "120103" + "1a06" + "0a0166" + "1201fe",
    ),
    "hint": (spiffe_messages.SvidResponse(svids=[{"hint": "h"}]), "0a032a0168"),
    "BundlesRequest": (spiffe_messages.BundlesRequest(), ""),
    "BundlesResponse": (
        spiffe_messages.BundlesResponse(crl=[b"\x03"], bundles={"d": b"\xff"}),
        "0a0103" + "1206" + "0a0164" + "1201ff",
    ),
}


@pytest.mark.parametrize(("message", "octets"), VECTORS.values(), ids=VECTORS)
def test_a_message_has_the_octets_of_the_standard(message, octets):
    assert message.SerializeToString(deterministic=True).hex() == octets
    assert type(message).FromString(bytes.fromhex(octets)) == message
