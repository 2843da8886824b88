# SPDX-License-Identifier: Apache-2.0
"""Tags and lengths of DER (X.690), for what is written often here, and for taking apart what the library has read.

It checks nothing: whoever takes bytes from elsewhere apart has the library read them first.
"""

from __future__ import annotations

from collections.abc import Iterator

INTEGER = b"\x02"
BIT_STRING = b"\x03"
OCTET_STRING = b"\x04"
OBJECT_IDENTIFIER = b"\x06"
UTF8_STRING = b"\x0c"
PRINTABLE_STRING = b"\x13"
UTC_TIME = b"\x17"
GENERALIZED_TIME = b"\x18"
SEQUENCE = b"\x30"
SET = b"\x31"

COMMON_NAME = bytes.fromhex("0603550403")
ORGANIZATION = bytes.fromhex("060355040a")


def encode(tag: bytes, content: bytes) -> bytes:
    """One value."""
    length = len(content)
    if length < 0x80:
        return tag + bytes((length,)) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return tag + bytes((0x80 | len(octets),)) + octets + content


def content(der: bytes) -> bytes:
    """What is inside a value."""
    return der[_header(der) :]


def parts(values: bytes) -> Iterator[bytes]:
    """Values one after the other, each whole."""
    while values:
        octets = _header(values) - 2
        length = int.from_bytes(values[2 : 2 + octets], "big") if octets else values[1]
        end = 2 + octets + length
        yield values[:end]
        values = values[end:]


def _header(der: bytes) -> int:
    return 2 + (der[1] & 0x7F if der[1] & 0x80 else 0)
