# SPDX-License-Identifier: Apache-2.0
"""Certificates and requests with what libraries stumble over, written octet by octet; nothing here is under test.

Every form of GeneralName in every extension that holds one, well formed and not; and texts cut off at any place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from handfast.pki import pem
from tests.unit.pki import making


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + content


def sequence(*parts: bytes) -> bytes:
    return der(0x30, *parts)


_OID = der(0x06, bytes.fromhex("2a0304"))
_NAME = making.name("elsewhere").public_bytes()
# The nine forms of RFC 5280, 4.2.1.6, by their tags.
GENERAL_NAMES = {
    "otherName": der(0xA0, _OID, der(0xA0, der(0x0C, b"other"))),
    "rfc822Name": der(0x81, b"jane@example.com"),
    "dNSName": der(0x82, b"a.example.com"),
    "x400Address": der(0xA3, sequence(der(0x61, der(0x13, b"DE")))),
    "directoryName": der(0xA4, _NAME),
    "ediPartyName": der(0xA5, der(0xA1, der(0x0C, b"party"))),
    "uniformResourceIdentifier": der(0x86, b"spiffe://example/a"),
    "iPAddress": der(0x87, bytes((192, 0, 2, 1))),
    "registeredID": der(0x88, bytes.fromhex("2a0304")),
}
BROKEN_NAMES = {
    "no such form": der(0xAA, b"x"),
    "a DNS name that is no ASCII": der(0x82, b"\xff\xfe"),
    "an address of five octets": der(0x87, b"12345"),
    "an empty directoryName": der(0xA4),
    "a length beyond the end": bytes((0x82, 0x7F, 0x61)),
    "an indefinite length": bytes((0xA4, 0x80, 0x00, 0x00)),
    "nothing": b"",
}
NAMES = {**GENERAL_NAMES, **BROKEN_NAMES}


def _distribution_points(name: bytes) -> bytes:
    return sequence(sequence(der(0xA0, der(0xA0, name))))


def _access(name: bytes) -> bytes:
    return sequence(sequence(der(0x06, bytes.fromhex("2b06010505073001")), name))


# Every extension that holds general names: its OID, and its value around one of them.
PLACES = {
    "subjectAltName": ("2.5.29.17", sequence),
    "issuerAltName": ("2.5.29.18", sequence),
    "nameConstraints": ("2.5.29.30", lambda name: sequence(der(0xA0, sequence(name)))),
    "authorityKeyIdentifier": ("2.5.29.35", lambda name: sequence(der(0xA1, name), der(0x82, b"\x01"))),
    "cRLDistributionPoints": ("2.5.29.31", _distribution_points),
    "freshestCRL": ("2.5.29.46", _distribution_points),
    "issuingDistributionPoint": ("2.5.29.28", lambda name: sequence(der(0xA0, der(0xA0, name)))),
    "authorityInfoAccess": ("1.3.6.1.5.5.7.1.1", _access),
    "subjectInfoAccess": ("1.3.6.1.5.5.7.1.11", _access),
}
CASES = [(place, name) for place in PLACES for name in NAMES]
# What the library has no word for.
UNSUPPORTED = ("x400Address", "ediPartyName")


def extension(place: str, name: str) -> making.Extension:
    oid, value = PLACES[place]
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value(NAMES[name])), False


def ca(place: str, name: str, **rest: Any) -> making.Made:
    return making.ca("odd", None, extension(place, name), **rest)


def leaf(issuer: making.Made, place: str, name: str, **rest: Any) -> making.Made:
    return making.leaf(issuer, making.CLIENT, more=[extension(place, name)], **rest)


def request(place: str, name: str, subject: x509.Name | None = None) -> bytes:
    """A request in PEM that is signed by its own key."""
    value, critical = extension(place, name)
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject or making.name("jane"))
    signed = builder.add_extension(value, critical).sign(making.new_key(), hashes.SHA256())
    return pem.encode(pem.CERTIFICATE_REQUEST, signed.public_bytes(serialization.Encoding.DER))


def cut(whole: bytes, step: int = 1) -> Iterator[bytes]:
    """Every beginning of it, or every one in `step`."""
    return (whole[:length] for length in range(0, len(whole), step))
