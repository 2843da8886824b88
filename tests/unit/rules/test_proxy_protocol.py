# SPDX-License-Identifier: Apache-2.0
"""PROXY headers of both versions: what they say, when they are whole, and what is none."""

from __future__ import annotations

import ipaddress
import struct

import pytest

from handfast import errors
from handfast.rules import proxy_protocol
from handfast.rules.proxy_protocol import Header

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
TAIL = b"\x16\x03\x01 what the client says"


def binary(kind: int = 0x21, family: int = 0x11, body: bytes = b"", length: int | None = None) -> bytes:
    return SIGNATURE + struct.pack("!BBH", kind, family, len(body) if length is None else length) + body


def addresses(source: str, destination: str = "") -> bytes:
    packed = ipaddress.ip_address(source).packed
    return packed + (ipaddress.ip_address(destination).packed if destination else packed) + struct.pack("!HH", 1, 2)


V4 = binary(0x21, 0x11, addresses("192.0.2.7", "198.51.100.1"))
GOOD: list[tuple[bytes, str | None]] = [
    (b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n", "192.0.2.7"),
    (b"PROXY TCP4 192.0.2.7 198.51.100.1 0 65535\r\n", "192.0.2.7"),
    (b"PROXY TCP6 2001:DB8::7 2001:db8::1 56324 443\r\n", "2001:db8::7"),
    (b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 1 2\r\n", "192.0.2.7"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:f ffff:f 65535 65535\r\n", None),
    (V4, "192.0.2.7"),
    (binary(0x21, 0x21, addresses("2001:db8::7")), "2001:db8::7"),
    (binary(0x21, 0x21, addresses("::ffff:192.0.2.7")), "192.0.2.7"),
    # With TLVs behind the addresses.
    (binary(0x21, 0x11, addresses("192.0.2.7") + b"\x04\x00\x03abc" * 50), "192.0.2.7"),
    (binary(0x20, 0x00), None),
    (binary(0x20, 0x11, addresses("192.0.2.7")), None),
    (binary(0x21, 0x00, b"\x04\x00\x00"), None),
    (binary(0x21, 0x31, bytes(216)), None),
]


@pytest.mark.parametrize(("data", "client"), GOOD)
def test_a_whole_header_gives_its_size_and_client(data: bytes, client: str | None) -> None:
    assert proxy_protocol.read(data) == Header(len(data), client)
    assert proxy_protocol.looks_like(data)


@pytest.mark.parametrize("data", [data for data, _ in GOOD])
def test_what_follows_is_not_read(data: bytes) -> None:
    for tail in (TAIL, data, b"\r\n", b"PROXY TCP4 203.0.113.1 203.0.113.1 1 2\r\n"):
        assert proxy_protocol.read(data + tail) == proxy_protocol.read(data)


@pytest.mark.parametrize("data", [data for data, _ in GOOD])
def test_half_a_header_is_none_yet(data: bytes) -> None:
    for length in range(len(data)):
        assert proxy_protocol.read(data[:length]) is None, length


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n",
        b"PROXY TCP4 " + b"1" * 200,
        binary(body=b"", length=proxy_protocol.MAX_BYTES - 15),
        binary(kind=0x20, length=0xFFFF),
    ],
)
def test_too_long(data: bytes) -> None:
    assert refusal(data).reason == proxy_protocol.TOO_LONG


def test_as_long_as_it_may_be() -> None:
    line = b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n"
    assert proxy_protocol.read(line) == Header(107, None)
    largest = binary(body=addresses("192.0.2.7") + bytes(proxy_protocol.MAX_BYTES - 28))
    assert proxy_protocol.read(largest) == Header(proxy_protocol.MAX_BYTES, "192.0.2.7")


@pytest.mark.parametrize("data", [TAIL, b"GET / HTTP/1.1\r\n", b"PROXX", b"proxy TCP4", b"\r\n\r\nQUIT", b"\x00"])
def test_no_header(data: bytes) -> None:
    assert refusal(data).reason == proxy_protocol.NO_HEADER
    assert not proxy_protocol.looks_like(data)


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY \r\n",
        b"PROXY TCP4\r\n",
        b"PROXY TCP5 192.0.2.7 192.0.2.8 1 2\r\n",
        b"PROXY tcp4 192.0.2.7 192.0.2.8 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.8 1\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2 3\r\n",
        b"PROXY TCP4  192.0.2.7 192.0.2.8 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.8 1 65536\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.8 01 2\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.8 -1 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.8 1 \u00b2\r\n".encode("latin-1"),
        b"PROXY TCP4 192.0.2.07 192.0.2.8 1 2\r\n",
        b"PROXY TCP4 192.0.2 192.0.2.8 1 2\r\n",
        b"PROXY TCP4 2001:db8::7 192.0.2.8 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 host 1 2\r\n",
        b"PROXY TCP6 192.0.2.7 192.0.2.8 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n",
        b"PROXY TCP4 192.0.2.7\n192.0.2.8 1 2\r\n",
        binary(kind=0x11, body=addresses("192.0.2.7")),
        binary(kind=0x22, body=addresses("192.0.2.7")),
        binary(kind=0x2F, body=addresses("192.0.2.7")),
        binary(family=0x12, body=addresses("192.0.2.7")),
        binary(family=0x10, body=addresses("192.0.2.7")),
        binary(family=0x41, body=addresses("192.0.2.7")),
        binary(family=0x11, body=addresses("192.0.2.7")[:-1]),
        binary(family=0x21, body=addresses("192.0.2.7")),
    ],
)
def test_a_malformed_header_is_refused(data: bytes) -> None:
    assert refusal(data).reason == proxy_protocol.MALFORMED


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.9.9.9", "0.0.0.0", "224.0.0.1", "::1", "::", "ff02::1", "::ffff:127.0.0.1"]
)
def test_addresses_that_no_client_has(address: str) -> None:
    v6 = ":" in address
    destination = "2001:db8::1" if v6 else "192.0.2.8"
    line = f"PROXY TCP{6 if v6 else 4} {address} {destination} 1 2\r\n".encode()
    for data in (line, binary(family=0x21 if v6 else 0x11, body=addresses(address))):
        assert refusal(data).reason == proxy_protocol.BAD_ADDRESS


def refusal(data: bytes) -> errors.Refused:
    with pytest.raises(errors.Refused) as caught:
        proxy_protocol.read(data)
    return caught.value
