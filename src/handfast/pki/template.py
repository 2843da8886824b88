# SPDX-License-Identifier: Apache-2.0
"""The DER of leaf certificates, put together around parts that the library wrote once: faster than its builder by far.

It does not sign, and decides nothing about the content: `authority` gives both. Not one byte differs from what
`CertificateBuilder` would write for the same content: tests/properties/test_template_properties.py compares the two.

    TBSCertificate  version                  copied from the sample
                    serialNumber             written here
                    signature algorithm      copied
                    issuer                   copied
                    validity                 written here: UTCTime before 2050, GeneralizedTime from then on (RFC 5280)
                    subject                  written here: common name and organizations, all that a leaf has
                    subjectPublicKeyInfo     the judged key's own bytes
                    extensions               copied, with the alternative names written before the last one

1. The sample is a certificate with the wanted extensions but without alternative names, which the library built and
   signed with the same issuer and key; the issuer's key identifier is its last extension.
2. A name that the library's builder would not write is not written here either.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator

from cryptography import x509

from handfast import errors
from handfast.pki import names

_SEQUENCE = b"\x30"
_SET = b"\x31"
_INTEGER = b"\x02"
_BIT_STRING = b"\x03"
_OCTET_STRING = b"\x04"
_UTF8_STRING = b"\x0c"
_UTC_TIME = b"\x17"
_GENERALIZED_TIME = b"\x18"
_EXTENSIONS = b"\xa3"

# Context-specific tags of GeneralName.
_EMAIL, _DNS, _URI, _IP = b"\x81", b"\x82", b"\x86", b"\x87"

_COMMON_NAME = bytes.fromhex("0603550403")
_ORGANIZATION = bytes.fromhex("060355040a")
_SUBJECT_ALTERNATIVE_NAME = bytes.fromhex("0603551d11")
_CRITICAL = bytes.fromhex("0101ff")

_UTC_TIME_ENDS = 2050


class Template:
    """The parts that all certificates of one issuer, key and list of usages share."""

    __slots__ = ("_algorithm", "_before_names", "_head", "_last")

    def __init__(self, sample: bytes) -> None:
        certificate = next(_parts(sample))
        tbs, self._algorithm, _ = _parts(_content(certificate))
        version, _, algorithm, issuer, _, _, _, extensions = _parts(_content(tbs))
        self._head = (version, algorithm + issuer)
        # 1. the issuer's key identifier comes last
        *first, self._last = _parts(_content(_content(extensions)))
        self._before_names = b"".join(first)

    def tbs(
        self,
        serial: int,
        window: tuple[datetime.datetime, datetime.datetime],
        subject: names.Subject,
        spki: bytes,
        sans: names.Sans,
    ) -> bytes:
        """The TBSCertificate: what is signed."""
        version, issued_by = self._head
        extensions = self._before_names + _alternative_names(subject, sans) + self._last
        return _der(
            _SEQUENCE,
            b"".join(
                (
                    version,
                    _der(_INTEGER, serial.to_bytes(serial.bit_length() // 8 + 1, "big")),
                    issued_by,
                    _der(_SEQUENCE, _time(window[0]) + _time(window[1])),
                    _subject(subject),
                    spki,
                    _der(_EXTENSIONS, _der(_SEQUENCE, extensions)),
                )
            ),
        )

    def certificate(self, tbs: bytes, signature: bytes) -> bytes:
        """The certificate: what was signed, how, and the signature."""
        return _der(_SEQUENCE, tbs + self._algorithm + _der(_BIT_STRING, b"\0" + signature))


def _subject(subject: names.Subject) -> bytes:
    attributes = _organizations(subject.organizations)
    if subject.common_name:
        attributes += _der(_SET, _attribute(_COMMON_NAME, subject.common_name))
    return _der(_SEQUENCE, attributes)


# All nodes have the same.
@functools.lru_cache(maxsize=64)
def _organizations(texts: tuple[str, ...]) -> bytes:
    # DER sorts the members of a set.
    attributes = sorted(_attribute(_ORGANIZATION, text) for text in dict.fromkeys(texts))
    return _der(_SET, b"".join(attributes)) if attributes else b""


def _attribute(oid: bytes, text: str) -> bytes:
    return _der(_SEQUENCE, oid + _der(_UTF8_STRING, text.encode()))


def _alternative_names(subject: names.Subject, sans: names.Sans) -> bytes:
    if not sans:
        return b""
    checked = names.make_sans(dns=sans.dns, ip=sans.ip, uri=sans.uri, email=sans.email)
    content = b"".join(
        (
            *(_der(_DNS, name.encode("ascii")) for name in checked.dns),
            *(_der(_EMAIL, _email(name).encode("ascii")) for name in checked.email),
            *(_der(_IP, address.packed) for address in checked.ip),
            *(_der(_URI, name.encode("ascii")) for name in checked.uri),
        )
    )
    # RFC 5280: critical when the subject is empty, since then it is the only name.
    critical = _CRITICAL if subject == names.Subject() else b""
    return _der(_SEQUENCE, _SUBJECT_ALTERNATIVE_NAME + critical + _der(_OCTET_STRING, _der(_SEQUENCE, content)))


def _email(text: str) -> str:
    # 2. none that the library's builder would not write
    try:
        return x509.RFC822Name(text).value
    except ValueError:
        raise errors.Refused(f"{text!r} is not a bare e-mail address", reason="BadName") from None


def _time(at: datetime.datetime) -> bytes:
    # Not strftime, which takes as long as all the rest of the subject and validity.
    rest = b"%02d%02d%02d%02d%02dZ" % (at.month, at.day, at.hour, at.minute, at.second)
    if at.year < _UTC_TIME_ENDS:
        return _der(_UTC_TIME, b"%02d" % (at.year % 100) + rest)
    return _der(_GENERALIZED_TIME, b"%04d" % at.year + rest)


def _der(tag: bytes, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return tag + bytes((length,)) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return tag + bytes((0x80 | len(octets),)) + octets + content


def _content(der: bytes) -> bytes:
    return der[_header(der) :]


def _parts(content: bytes) -> Iterator[bytes]:
    """The values one after the other. They come from the library's own writer, so that nothing is doubted here."""
    while content:
        octets = _header(content) - 2
        length = int.from_bytes(content[2 : 2 + octets], "big") if octets else content[1]
        end = 2 + octets + length
        yield content[:end]
        content = content[end:]


def _header(der: bytes) -> int:
    return 2 + (der[1] & 0x7F if der[1] & 0x80 else 0)
