# SPDX-License-Identifier: Apache-2.0
"""The DER of leaf certificates, put together around parts that the library wrote once: faster than its builder by far.

It does not sign, and decides nothing about the content: `authority` gives both. Not one byte differs from what
`CertificateBuilder` would write for the same content, which tests/properties/test_template_properties.py holds it to.

    TBSCertificate  version                  copied from the sample
                    serialNumber             written here
                    signature algorithm      copied
                    issuer                   copied
                    validity                 written here: UTCTime before 2050, GeneralizedTime from then on (RFC 5280)
                    subject                  written here; by the library if it has more than common name and groups
                    subjectPublicKeyInfo     the judged key's own bytes
                    extensions               copied, with the alternative names written before the last one

1. The sample is a certificate with the wanted extensions but without alternative names, which the library built and
   signed with the same issuer and key; the issuer's key identifier is its last extension.
2. A name that the library's builder would not write is not written here either.
"""

from __future__ import annotations

import datetime
import functools

from cryptography import x509

from handfast import errors
from handfast.pki import der, names

_EXTENSIONS = b"\xa3"

# Context-specific tags of GeneralName.
_EMAIL, _DNS, _URI, _IP = b"\x81", b"\x82", b"\x86", b"\x87"

_SUBJECT_ALTERNATIVE_NAME = bytes.fromhex("0603551d11")
_CRITICAL = bytes.fromhex("0101ff")

_UTC_TIME_ENDS = 2050


class Template:
    """The parts that all certificates of one issuer, key and list of usages share."""

    __slots__ = ("_algorithm", "_before_names", "_head", "_last")

    def __init__(self, sample: bytes) -> None:
        certificate = next(der.parts(sample))
        tbs, self._algorithm, _ = der.parts(der.content(certificate))
        version, _, algorithm, issuer, _, _, _, extensions = der.parts(der.content(tbs))
        self._head = (version, algorithm + issuer)
        *first, self._last = der.parts(der.content(der.content(extensions)))
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
        return der.encode(
            der.SEQUENCE,
            b"".join(
                (
                    version,
                    der.encode(der.INTEGER, serial.to_bytes(serial.bit_length() // 8 + 1, "big")),
                    issued_by,
                    der.encode(der.SEQUENCE, _time(window[0]) + _time(window[1])),
                    _subject(subject),
                    spki,
                    der.encode(_EXTENSIONS, der.encode(der.SEQUENCE, extensions)),
                )
            ),
        )

    def certificate(self, tbs: bytes, signature: bytes) -> bytes:
        """The certificate: what was signed, how, and the signature."""
        return der.encode(der.SEQUENCE, tbs + self._algorithm + der.encode(der.BIT_STRING, b"\0" + signature))


def _subject(subject: names.Subject) -> bytes:
    if subject.others:
        return names.to_name(subject).public_bytes()
    found = _organizations(subject.organizations)
    if subject.common_name:
        found += der.encode(der.SET, _attribute(der.COMMON_NAME, subject.common_name))
    return der.encode(der.SEQUENCE, found)


# All nodes have the same.
@functools.lru_cache(maxsize=64)
def _organizations(texts: tuple[str, ...]) -> bytes:
    # DER sorts the members of a set.
    found = sorted(_attribute(der.ORGANIZATION, text) for text in dict.fromkeys(texts))
    return der.encode(der.SET, b"".join(found)) if found else b""


def _attribute(oid: bytes, text: str) -> bytes:
    return der.encode(der.SEQUENCE, oid + der.encode(der.UTF8_STRING, text.encode()))


def _alternative_names(subject: names.Subject, sans: names.Sans) -> bytes:
    if not sans:
        return b""
    checked = names.make_sans(dns=sans.dns, ip=sans.ip, uri=sans.uri, email=sans.email)
    content = b"".join(
        (
            *(der.encode(_DNS, name.encode("ascii")) for name in checked.dns),
            *(der.encode(_EMAIL, _email(name).encode("ascii")) for name in checked.email),
            *(der.encode(_IP, address.packed) for address in checked.ip),
            *(der.encode(_URI, name.encode("ascii")) for name in checked.uri),
        )
    )
    # RFC 5280: critical when the subject is empty, since then it is the only name.
    critical = _CRITICAL if subject == names.Subject() else b""
    return der.encode(
        der.SEQUENCE,
        _SUBJECT_ALTERNATIVE_NAME + critical + der.encode(der.OCTET_STRING, der.encode(der.SEQUENCE, content)),
    )


def _email(text: str) -> str:
    # 2.
    try:
        return x509.RFC822Name(text).value
    except ValueError:
        raise errors.Refused(f"{text!r} is not a bare e-mail address", reason="BadName") from None


def _time(at: datetime.datetime) -> bytes:
    # Not strftime, which takes as long as all the rest of the subject and validity.
    rest = b"%02d%02d%02d%02d%02dZ" % (at.month, at.day, at.hour, at.minute, at.second)
    if at.year < _UTC_TIME_ENDS:
        return der.encode(der.UTC_TIME, b"%02d" % (at.year % 100) + rest)
    return der.encode(der.GENERALIZED_TIME, b"%04d" % at.year + rest)
