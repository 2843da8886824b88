# SPDX-License-Identifier: Apache-2.0
"""Any bytes at all: a header is read to its end and no further, or refused, or not whole yet."""

from __future__ import annotations

import ipaddress
import struct

from hypothesis import given
from hypothesis import strategies as st

from handfast import errors
from handfast.rules import proxy_protocol

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).filter(
    lambda found: not (found.is_loopback or found.is_unspecified or found.is_multicast)
)
PORTS = st.integers(0, 0xFFFF)
BEGINNINGS = st.sampled_from(
    [
        b"",
        b"PROXY ",
        b"PROXY TCP4 ",
        b"PROXY TCP6 ",
        SIGNATURE,
        SIGNATURE + b"\x21\x11\x00\x0c",
        SIGNATURE + b"\x21\x21",
    ]
)


def outcome(data: bytes) -> object:
    try:
        return proxy_protocol.read(data)
    except errors.Refused as refused:
        return refused.reason


@given(BEGINNINGS, st.binary(max_size=300), st.binary(max_size=50))
def test_more_bytes_change_no_verdict(beginning: bytes, data: bytes, more: bytes) -> None:
    found = outcome(beginning + data)
    if found is not None:
        assert outcome(beginning + data + more) == found
    if isinstance(found, proxy_protocol.Header):
        assert 0 < found.size <= len(beginning + data)
        assert outcome((beginning + data)[: found.size]) == found


@given(ADDRESSES, PORTS, PORTS, st.binary(max_size=40), st.binary(max_size=200))
def test_what_is_written_is_read(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, one: int, other: int, tail: bytes, tlvs: bytes
) -> None:
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None and (mapped.is_loopback or mapped.is_unspecified or mapped.is_multicast):
        return
    client = str(mapped or address)
    line = f"PROXY TCP{address.version} {address} {address} {one} {other}\r\n".encode()
    body = address.packed * 2 + struct.pack("!HH", one, other) + tlvs
    packed = SIGNATURE + struct.pack("!BBH", 0x21, 0x11 if address.version == 4 else 0x21, len(body)) + body
    for data in (line, packed):
        assert proxy_protocol.read(data + tail) == proxy_protocol.Header(len(data), client)
