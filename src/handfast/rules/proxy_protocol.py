# SPDX-License-Identifier: Apache-2.0
"""Reads a PROXY protocol header, version 1 or 2: whose connection a balancer says it passes on.

It says what is written there. Whether the sender may say so is decided by who accepts the connection; TLVs are skipped.

1. A header is at the very beginning, and whole: half of one is none yet. What cannot become one is refused at once.
2. Version 1 is a line of at most 107 octets, version 2 at most `MAX_BYTES` with all that is in it.
3. Addresses are of the family that is named, written as usual, and of somebody: not loopback, unspecified or multicast. What
   comes from this machine itself has rights, and no balancer's client is there.
4. LOCAL, UNKNOWN and families that are no IP say nothing of the client: the connection is the sender's own, as for health
   checks.
5. Nothing behind the header is looked at, so that whatever the client sends first is still there.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_proxy_protocol.py |
|---|---|---|---|---|
| a client of a balancer | a connection | have its own octets read as part of the header | 1, 5 | test_what_follows_is_not_read |
| whoever is named | a connection | half a header, for ever | 1: none yet, and a deadline elsewhere | test_half_a_header_is_none_yet |
| whoever is named | a connection | a header without end | 2 | test_too_long |
| whoever is named | a connection | to be this machine | 3 | test_addresses_that_no_client_has |
| whoever is named | a connection | an address that two readers read differently | 3 | test_a_malformed_header_is_refused |
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from handfast import errors

MAX_BYTES: Final = 4096
_MAX_LINE: Final = 107
_WORD: Final = b"PROXY "
_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_FIXED: Final = len(_SIGNATURE) + 4
_PORT: Final = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)
_FAMILIES: Final[Mapping[str, type[ipaddress.IPv4Address | ipaddress.IPv6Address]]] = {
    "TCP4": ipaddress.IPv4Address,
    "TCP6": ipaddress.IPv6Address,
}
# By the upper half of the family's octet: AF_UNSPEC and AF_UNIX say nothing of an IP address.
_NO_ADDRESS: Final = frozenset({0x0, 0x3})
_INET, _INET6 = 0x1, 0x2

# Why a header is refused.
NO_HEADER: Final = "NoHeader"
MALFORMED: Final = "Malformed"
TOO_LONG: Final = "TooLong"
BAD_ADDRESS: Final = "BadAddress"


class Header(msgspec.Struct, frozen=True):
    """`size` octets, and the client's address; None: the connection is the sender's own."""

    size: int
    client: str | None


def looks_like(data: bytes) -> bool:
    """Whether a connection that begins so begins with a header, as far as can be seen."""
    return data.startswith((_WORD, _SIGNATURE))


def read(data: bytes) -> Header | None:
    """The header with which `data` begins; None while it is not whole. Refused if it can be none."""
    if data.startswith(_WORD):
        return _line(data)
    if data.startswith(_SIGNATURE):
        return _binary(data)
    # 1. half of one is none yet
    if _WORD.startswith(data) or _SIGNATURE.startswith(data):
        return None
    raise _refused(NO_HEADER, "the connection does not begin with a PROXY header")


def _line(data: bytes) -> Header | None:
    # 2. one line, of a bounded length
    line, end, _ = data[:_MAX_LINE].partition(b"\r\n")
    if not end:
        if len(data) >= _MAX_LINE:
            raise _refused(TOO_LONG, f"a header of version 1 has at most {_MAX_LINE} octets")
        return None
    size = len(line) + 2
    words = line.decode("latin-1").split(" ")
    # 4. nothing is said of the client
    if words[1] == "UNKNOWN":
        return Header(size, None)
    family = _FAMILIES.get(words[1])
    if family is None or len(words) != 6:
        raise _refused(
            MALFORMED, "a header of version 1 is PROXY TCP4|TCP6 and two addresses and ports, or PROXY UNKNOWN"
        )
    if not all(_PORT.fullmatch(port) and int(port) <= 0xFFFF for port in words[4:]):
        raise _refused(MALFORMED, "a port is not a number up to 65535")
    addresses = [_address(family, text) for text in words[2:4]]
    return Header(size, _client(addresses[0]))


def _address(
    family: type[ipaddress.IPv4Address | ipaddress.IPv6Address], text: str
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        if "%" not in text:
            return family(text)
    except ValueError:
        pass
    # Not what it was: a client may have had a hand in it.
    raise _refused(MALFORMED, "an address is not one of the family that is named")


def _binary(data: bytes) -> Header | None:
    if len(data) < _FIXED:
        return None
    kind, family = data[12], data[13] >> 4
    size = _FIXED + int.from_bytes(data[14:16], "big")
    if kind not in {0x20, 0x21}:
        raise _refused(MALFORMED, "a binary header is of version 2, and LOCAL or PROXY")
    # 2. a bounded length
    if size > MAX_BYTES:
        raise _refused(TOO_LONG, f"a header of version 2 has at most {MAX_BYTES} octets here")
    # 4. nothing is said of the client
    if kind == 0x20 or family in _NO_ADDRESS:
        return Header(size, None) if len(data) >= size else None
    width = {_INET: 4, _INET6: 16}.get(family)
    if width is None or data[13] & 0xF != 1:
        raise _refused(MALFORMED, "a header of version 2 names another family than TCP over IPv4 or IPv6")
    # Two addresses and two ports.
    if size < _FIXED + 2 * width + 4:
        raise _refused(MALFORMED, "a header of version 2 is too short for its addresses")
    if len(data) < size:
        return None
    packed = data[_FIXED : _FIXED + width]
    return Header(size, _client(ipaddress.ip_address(packed)))


def _client(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    plain = address if mapped is None else mapped
    # 3. of somebody else than this machine
    if plain.is_loopback or plain.is_unspecified or plain.is_multicast:
        raise _refused(BAD_ADDRESS, f"no client of a balancer has the address {plain}")
    return str(plain)


def _refused(reason: str, message: str) -> errors.Refused:
    return errors.Refused(message, reason=reason)
